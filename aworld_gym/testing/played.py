"""The part of ``check_toolchain_env`` that looks at episodes one by one: forms, mistakes, options, plans, ends."""

from __future__ import annotations

import copy
import json
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env

from aworld_gym.errors import ActionError, ConfigError, InfraError, UnknownTaskError, describe
from aworld_gym.testing.digest import plain
from aworld_gym.testing.forms import Forms
from aworld_gym.testing.rules import Rules
from aworld_gym.toolchain import stats
from aworld_gym.types import Message

SETTLE_S = 15.0
"""How long sessions, processes and workspaces may take to be gone after close."""

Actions = Callable[[Sequence[Mapping[str, Any]], int], Sequence[Message]]
"""Of (tool schemas, seed), the messages to play."""


class Played:
    """An env, and the rules that its episodes show one by one."""

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
        """An env, closed in the end."""
        env = self.make()
        try:
            yield env
        finally:
            env.close()

    # ---- forms -------------------------------------------------------------------------------------------------------

    def gymnasiums(self) -> None:
        """Gymnasium's own checker."""
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
        """The call raises this kind of exception."""
        if not self.rules.wanted(rule):
            return
        try:
            call()
        except kind:
            return
        except Exception as error:
            self.rules.broken(rule, f"{what}: expected {kind.__name__}, got {describe(error)}")
        self.rules.broken(rule, f"{what}: expected {kind.__name__}, nothing was raised")

    def options(self) -> None:
        """Tasks by their ids, and texts that are overridden."""
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

    # ---- plans, ends -------------------------------------------------------------------------------------------------

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
