"""``check_toolchain_env``: does an env keep the contract that rollouts, adapters and people rely on?

It asks what Gymnasium's own checker asks, and what this package promises besides: a seed decides everything, a model's
mistakes are answered and not raised, and nothing is left open. The env is played by random calls of its own tools; its
tools are called for real.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from aworld_gym.errors import ConfigError
from aworld_gym.making import check_tool_env, make_tool_env
from aworld_gym.testing.again import Again
from aworld_gym.testing.played import Actions
from aworld_gym.testing.rules import EnvError, Rules
from aworld_gym.toolchain import stats
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
    check = Again(make, rebuilt, tuple(seeds), actions or random_calls, rules)
    check.gymnasiums()
    check.look()
    check.model()
    check.caller()
    check.determinism(elsewhere=processes and actions is None)  # another process plays random calls
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
