"""``check_toolchain_env``: does an env keep the contract that rollouts, adapters and people rely on?

It asks what Gymnasium's own checker asks, and what this package promises besides: a seed decides everything, a model's
mistakes are answered and not raised, and nothing is left open. The env is played by random calls of its own tools; its
tools are called for real.
"""

from __future__ import annotations

import asyncio
import copy
import json
import pickle
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env

from aworld_gym import aio
from aworld_gym.errors import ActionError, ConfigError, InfraError, UnknownTaskError, describe
from aworld_gym.making import check_tool_env, make_tool_env
from aworld_gym.testing.digest import digest_elsewhere, plain, record
from aworld_gym.testing.forms import Forms
from aworld_gym.testing.rules import EnvError, Rules
from aworld_gym.toolchain import loop, stats
from aworld_gym.types import Message

ENV_RULES = {
    "gymnasium_checker": "Gymnasium's check_env passes, warnings as errors.",
    "observation": "An observation is a tuple of chat messages: system and user at reset, tool messages after a step.",
    "tools": 'info["tools"] at reset are OpenAI tool schemas with unique names of [A-Za-z0-9_-]{1,64}.',
    "info": "info is JSON and holds task_id, outcome, valid, score, error, tool_errors, reward_components, state_key.",
    "answer_is_hidden": "No info and no message before the end holds the task's answer under a name of its own.",
    "nothing_is_shared": "What is returned may be changed by the caller without any effect on the env.",
    "text_is_unicode": "Whatever an env returns can be written as UTF-8.",
    "calls_are_answered": "Each call of a message is answered by one tool message, in order, under its id.",
    "mistakes_are_answered": "step() does not raise for what a model did: it is told, and counted in tool_errors.",
    "no_action_raises": "What is no assistant message raises ActionError, and the episode goes on.",
    "rewards": "A reward is a float, the sum of its components; a score is None or in [0, 1].",
    "end": "terminated and truncated exclude each other and agree with info['outcome'].",
    "text_ends": "A message without tool calls ends the episode.",
    "step_needs_reset": "step() before reset, after the end, or after close raises ResetNeeded.",
    "seed_decides": "The same seed and actions give the same observations, rewards and infos, bit for bit.",
    "seed_decides_elsewhere": "So do they in other processes, whatever their hash seed.",
    "seeds_differ": "Different seeds do not all give the same task.",
    "task_id": 'options={"task_id": ...} picks that task; an unknown id or option raises and names what is known.',
    "components": "options={'components': ...} overrides the system prompt and descriptions of tools.",
    "spec_round_trip": "The env can be rebuilt from its spec as JSON, wrappers and arguments included.",
    "copies": "An env that was not reset can be pickled and deep-copied; the copy plays by itself.",
    "async_is_sync": "areset, astep and aclose do what reset, step and close do, from inside a running loop.",
    "plan_scores": "A task's own plan, where it has one, is scored 1.",
    "close": "close() may be called twice, and before reset.",
    "nothing_left_open": "After close() no session, process or workspace is left.",
}
"""What :func:`check_toolchain_env` checks, by name."""

SETTLE_S = 15.0
"""How long sessions, processes and workspaces may take to be gone after close."""

SEEDS_TRIED = 16
"""How many seeds may give the same task before that is taken for a fault."""

Actions = Callable[[Sequence[Mapping[str, Any]], int], Sequence[Message]]


def check_toolchain_env(
    env: str | EnvSpec | gym.Env | Callable[[], gym.Env],
    *,
    seeds: Sequence[int] = (0, 1, 2),
    actions: Actions | None = None,
    processes: bool = True,
    skip: Collection[str] = (),
) -> tuple[str, ...]:
    """Check an env.

    Args:
        env: an id, a spec, an env made by ``gym.make`` (its spec is rebuilt; the env itself is not touched), or a
            function that makes one, whose envs are not rebuilt from a spec.
        seeds: seeds to play; two at least.
        actions: of (tool schemas, seed) the messages to play, instead of random calls of the tools. For envs whose
            tools are not the same twice (a clock, a network), those that are.
        processes: also play in two further processes, with other hash seeds.
        skip: names of rules that are not checked.

    Returns:
        The names of the rules that were checked.

    Raises:
        EnvError: a rule does not hold; it names which.
        ConfigError: what is given is no tool env.
        InfraError: the env's tools cannot be started here.
    """
    if len(seeds) < 2:
        raise ConfigError(f"expected two seeds at least, got {list(seeds)}")
    try:
        spec = env.spec if isinstance(env, gym.Env) else gym.spec(env) if isinstance(env, str) else env
    except gym.error.Error as error:
        raise ConfigError(f"no env {env!r}: {error}") from error
    if spec is None:
        raise ConfigError("an env that was not made by gym.make has no spec; give a function that makes it")
    if not callable(spec) and not isinstance(spec, EnvSpec):
        raise ConfigError(f"expected an id, a spec, an env or a function that makes one, got {type(env).__name__}")
    make: Callable[[], gym.Env]
    if isinstance(spec, EnvSpec):
        rebuilt, make = spec, lambda: make_tool_env(rebuilt)
    else:
        maker: Any = spec
        rebuilt, make = None, lambda: check_tool_env(maker(), getattr(maker, "__name__", "env"))
    rules = Rules(ENV_RULES, skip, EnvError)
    before = stats()
    check = _Check(make, rebuilt, tuple(seeds), actions or random_calls, rules)
    check.gymnasiums()
    check.look()
    check.model()
    check.caller()
    check.determinism(processes)
    check.options()
    check.rebuilding()
    check.asynchronous()
    check.plan()
    check.closing(before)
    return tuple(rules.checked)


def random_calls(tools: Sequence[Mapping[str, Any]], seed: int) -> list[Message]:
    """Two messages of random calls of these tools, and one that ends the episode."""
    from aworld_gym.spaces import AssistantMessage

    space = AssistantMessage(tools, seed=seed)
    return [space.sample(), space.sample(), {"role": "assistant", "content": "FINAL ANSWER: naïve 你好"}]


class _Check:
    def __init__(
        self,
        make: Callable[[], gym.Env],
        spec: EnvSpec | None,
        seeds: tuple[int, ...],
        actions: Actions,
        rules: Rules,
    ):
        self.make, self.spec, self.seeds, self.actions, self.rules = make, spec, seeds, actions, rules
        self.forms = Forms(rules)

    @contextmanager
    def env(self) -> Iterator[gym.Env]:
        env = self.make()
        try:
            yield env
        finally:
            env.close()

    # ---- forms -------------------------------------------------------------------------------------------------------

    def gymnasiums(self) -> None:
        if not self.rules.wanted("gymnasium_checker"):
            return
        with self.env() as env, warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.filterwarnings("ignore", message=".*environment not having a spec")  # a function's have none
            try:
                check_env(env.unwrapped)
            except (InfraError, ConfigError):
                raise
            except Exception as error:
                self.rules.broken("gymnasium_checker", describe(error))

    def look(self) -> None:
        """What reset and step return, message by message and key by key."""
        rules = self.rules
        with self.env() as env:
            obs, info = env.reset(seed=self.seeds[0])
            self.forms.observation(obs, ("system", "user"))
            rules.require(
                "observation", obs and obs[-1]["role"] == "user", f"the last message of {_roles(obs)} is the task"
            )
            self.forms.tools(info.get("tools"))
            self.forms.info(info, extra={"tools"})
            self.forms.hidden(env, info)
            tools = copy.deepcopy(info["tools"])
            shown = copy.deepcopy(env.get_wrapper_attr("messages"))
            _spoil(info)
            for message in obs:
                _spoil(message)
            rules.equal("nothing_is_shared", env.get_wrapper_attr("messages"), shown, "the transcript after a change")
            for action in self.actions(tools, self.seeds[0]):
                given = copy.deepcopy(action)
                obs, reward, terminated, truncated, info = env.step(action)
                rules.equal("nothing_is_shared", action, given, "the action after a step")
                self.forms.step(action, obs, reward, terminated, truncated, info)
                if terminated or truncated:
                    break

    # ---- what a model may do -----------------------------------------------------------------------------------------

    def model(self) -> None:
        """Mistakes of a model are answered; a text ends the episode."""
        rules = self.rules
        with self.env() as env:
            for what, action in mistakes():
                _, info = env.reset(seed=self.seeds[0])
                try:
                    obs, reward, terminated, truncated, info = env.step(action)
                except InfraError:
                    raise
                except Exception as error:
                    rules.broken("mistakes_are_answered", f"{what}: step() raised {describe(error)}")
                self.forms.step(action, obs, reward, terminated, truncated, info)
                rules.require("mistakes_are_answered", info["valid"], f"{what}: the episode became invalid")
                wrong = sum(info["tool_errors"].values())
                rules.equal("mistakes_are_answered", wrong, len(action["tool_calls"]), f"{what}: tool errors")
                told = all(str(message["content"]).strip() for message in obs)
                rules.require("mistakes_are_answered", told, f"{what}: the model is told nothing")
            env.reset(seed=self.seeds[0])
            action = {"role": "assistant", "content": "I do not know. 你好"}
            obs, reward, terminated, truncated, info = env.step(action)
            self.forms.step(action, obs, reward, terminated, truncated, info)
            rules.require(
                "text_ends", terminated and info["outcome"] in ("answered", "no_answer"), f"{info['outcome']!r}"
            )

    def caller(self) -> None:
        """Mistakes of the caller raise, and harm nothing."""
        rules = self.rules
        with self.env() as env:
            say = {"role": "assistant", "content": "I do not know."}
            self.raises("step_needs_reset", lambda: env.step(say), ResetNeeded, "step() before reset")
            obs, _ = env.reset(seed=self.seeds[0])
            for action in (None, "text", 3, {"role": "user", "content": "hello"}, {"content": "no role"}, [say]):
                self.raises("no_action_raises", partial(env.step, action), ActionError, f"step({action!r})")
            shown = env.get_wrapper_attr("messages")
            rules.equal("no_action_raises", len(shown), len(obs), "messages after actions that were none")
            env.step(say)
            self.raises("step_needs_reset", lambda: env.step(say), ResetNeeded, "step() after the end")
            env.close()
            self.raises("step_needs_reset", lambda: env.step(say), ResetNeeded, "step() after close")

    def raises(self, rule: str, call: Callable[[], Any], kind: type[BaseException], what: str) -> None:
        if not self.rules.wanted(rule):
            return
        try:
            call()
        except kind:
            return
        except Exception as error:
            self.rules.broken(rule, f"{what}: expected {kind.__name__}, got {describe(error)}")
        self.rules.broken(rule, f"{what}: expected {kind.__name__}, nothing was raised")

    # ---- seeds -------------------------------------------------------------------------------------------------------

    def determinism(self, processes: bool) -> None:
        rules = self.rules
        played = {}
        for seed in self.seeds:
            with self.env() as env, self.env() as other:
                played[seed] = record(env, seed, self.actions)
                for what, again in (("another env", other), ("the same env", env)):
                    found = record(again, seed, self.actions)
                    for k, (one, two) in enumerate(zip(found, played[seed], strict=False)):
                        rules.equal("seed_decides", one, two, f"seed {seed}, step {k}, in {what}")
                    rules.equal("seed_decides", len(found), len(played[seed]), f"seed {seed}: steps in {what}")
        if rules.wanted("seeds_differ"):
            tasks = self.some_tasks()
            rules.require("seeds_differ", len(tasks) > 1 or self.one_task(), f"{SEEDS_TRIED} seeds: only {tasks}")
        spec = self.spec
        if not processes or spec is None or not isinstance(spec.entry_point, str) or self.actions is not random_calls:
            return  # no other process can make it, or knows what to play
        if rules.wanted("seed_decides_elsewhere"):
            for hash_seed in (1, 2):
                elsewhere = digest_elsewhere(spec, self.seeds, hash_seed)
                for seed, steps in zip(self.seeds, elsewhere, strict=True):
                    for k, (one, two) in enumerate(zip(steps, played[seed], strict=False)):
                        rules.equal("seed_decides_elsewhere", one, two, f"seed {seed}, step {k}")
                    rules.equal("seed_decides_elsewhere", len(steps), len(played[seed]), f"seed {seed}: steps")

    def some_tasks(self) -> set[str]:
        """Ids of tasks of some seeds: of no more than it takes to see two."""
        found: set[str] = set()
        with self.env() as env:
            for seed in range(SEEDS_TRIED):
                found.add(env.reset(seed=seed)[1]["task_id"])
                if len(found) > 1:
                    break
        return found

    def one_task(self) -> bool:
        """Whether the env has no more than one task."""
        with self.env() as env:
            return len(getattr(env.get_wrapper_attr("tasks"), "tasks", (1, 2))) == 1

    def options(self) -> None:
        rules = self.rules
        with self.env() as env:
            obs, info = env.reset(seed=self.seeds[0])
            again, named = env.reset(seed=self.seeds[-1], options={"task_id": info["task_id"]})
            rules.equal("task_id", plain(again), plain(obs), "messages of the task asked for by its id")
            rules.equal("task_id", named["task_id"], info["task_id"], "its id")
            unknown = {"task_id": "no such task, I should think"}
            self.raises("task_id", lambda: env.reset(options=unknown), UnknownTaskError, "an unknown task id")
            self.raises("task_id", lambda: env.reset(options={"tsak_id": 1}), ConfigError, "an unknown option")
            name = info["tools"][0]["function"]["name"]
            texts = {"system_prompt": "Ünïcode first.", f"tool:{name}.description": "Described anew."}
            obs, info = env.reset(seed=self.seeds[0], options={"components": texts})
            rules.equal("components", obs[0], {"role": "system", "content": "Ünïcode first."}, "the first message")
            rules.equal("components", info["tools"][0]["function"]["description"], "Described anew.", "the description")
            obs, info = env.reset(seed=self.seeds[0])
            rules.require("components", info["tools"][0]["function"]["description"] != "Described anew.", "it stays")

    # ---- copies, worlds, ends ----------------------------------------------------------------------------------------

    def rebuilding(self) -> None:
        rules, seed = self.rules, self.seeds[0]
        with self.env() as env:
            first = record(env, seed, self.actions)
            if self.spec is not None:
                try:
                    again = EnvSpec.from_json(env.spec.to_json())  # type: ignore[union-attr]
                except Exception as error:
                    rules.broken("spec_round_trip", describe(error))
                rebuilt = make_tool_env(again)
                try:
                    rules.equal(
                        "spec_round_trip", record(rebuilt, seed, self.actions), first, "an episode of the rebuilt env"
                    )
                finally:
                    rebuilt.close()
        if rules.wanted("copies"):
            fresh = self.make()
            try:
                try:
                    copies = [copy.deepcopy(fresh.unwrapped), pickle.loads(pickle.dumps(fresh.unwrapped))]
                except Exception as error:
                    rules.broken("copies", describe(error))
                obs, _ = fresh.unwrapped.reset(seed=seed)
                for duplicate in copies:
                    rules.equal("copies", plain(duplicate.reset(seed=seed)[0]), plain(obs), "what a copy shows")
                    duplicate.close()
            finally:
                fresh.close()

    def asynchronous(self) -> None:
        if not self.rules.wanted("async_is_sync"):
            return
        seed = self.seeds[0]
        with self.env() as env:
            expected = record(env, seed, self.actions)

        async def played() -> list[str]:
            env = self.make()
            try:
                obs, info = await aio.areset(env, seed=seed)
                steps = [plain([obs, info])]
                for action in self.actions(info["tools"], seed):
                    result = await aio.astep(env, action)
                    steps.append(plain(result))
                    if result[2] or result[3]:
                        break
                return steps
            finally:
                await aio.aclose(env)

        async def facade() -> Any:
            with self.env() as env:
                return env.reset(seed=seed)

        self.rules.equal("async_is_sync", loop.run(played()), expected, "an awaited episode")
        self.rules.equal("async_is_sync", plain(asyncio.run(facade())), expected[0], "reset() inside a running loop")

    def plan(self) -> None:
        """A task that says how it is solved, and whose tools are all offered, is solved that way."""
        rules = self.rules
        if not rules.wanted("plan_scores"):
            return
        for seed in self.seeds:
            with self.env() as env:
                _, info = env.reset(seed=seed)
                names = {tool["function"]["name"] for tool in info["tools"]}
                task, done = env.get_wrapper_attr("task"), False
                if not task.plan or not {step.tool for step in task.plan} <= names or isinstance(info["tools"], str):
                    continue
                for step in task.plan:
                    function = {"name": step.tool, "arguments": json.dumps(dict(step.arguments), ensure_ascii=False)}
                    call = {"id": "call", "type": "function", "function": function}
                    *_, terminated, truncated, info = env.step(
                        {"role": "assistant", "content": None, "tool_calls": [call]}
                    )
                    if done := terminated or truncated:
                        break
                rules.require(
                    "plan_scores", done and info["score"] == 1.0, f"seed {seed}: {info['outcome']}, {info['score']}"
                )

    def closing(self, before: Any) -> None:
        """Close twice, close unused, and then look at what is left of all that this check opened."""
        env = self.make()
        try:
            env.close()
            env = self.make()
            env.reset(seed=self.seeds[0])
            place: Path | None = env.get_wrapper_attr("workspace")
            env.close()
            env.close()
        except Exception as error:
            self.rules.broken("close", describe(error))
        self.rules.require("close", True)
        if not self.rules.wanted("nothing_left_open"):
            return
        deadline = time.monotonic() + SETTLE_S
        while (left := _left(before, place)) and time.monotonic() < deadline:
            time.sleep(0.05)
        self.rules.require("nothing_left_open", not left, left)


def mistakes() -> Iterator[tuple[str, Message]]:
    """Messages of a model that calls tools wrongly, and what is wrong with each."""
    deep = "[" * 3000 + "]" * 3000
    for what, *calls in (
        ("arguments that are not JSON", ("submit_answer", '{"answer": ')),
        ("arguments that are no object", ("submit_answer", "[1]")),
        ("arguments nested too deep", ("submit_answer", deep)),
        ("a tool that there is not", ("no_such_tool", "{}")),
        ("a tool with a name in another script", ("你好" * 60, "{}")),
        ("arguments that the tool does not take", ("submit_answer", '{"no_such_argument_of_it": "x"}')),
        ("two calls, both wrong", ("no_such_tool", "{}"), ("no_such_tool", "null")),
    ):
        functions = [{"name": name, "arguments": arguments} for name, arguments in calls]
        made = [{"id": f"c{k}", "type": "function", "function": f} for k, f in enumerate(functions)]
        yield what, {"role": "assistant", "content": None, "tool_calls": made}


def _left(before: Any, workspace: Path | None) -> str:
    """What is open of what was opened since; empty where nothing is."""
    now, out = stats(), []
    for what, opened, closed in (
        ("tool sessions", "opened", "closed"),
        ("server processes", "processes_started", "processes_ended"),
    ):
        began, ended = getattr(now, opened) - getattr(before, opened), getattr(now, closed) - getattr(before, closed)
        idle = now.connections_idle if what == "server processes" else 0
        if began - ended > idle:
            out.append(f"{began - ended - idle} {what}")
    if workspace is not None and workspace.exists():
        out.append(f"the workspace {workspace}")
    return ", ".join(out)


def _roles(obs: Sequence[Message]) -> list[str]:
    return [str(message.get("role")) for message in obs]


def _spoil(value: Any) -> None:
    """Change all that can be changed in it."""
    for inner in list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else ():
        _spoil(inner)
    if isinstance(value, dict | list):
        value.clear()
