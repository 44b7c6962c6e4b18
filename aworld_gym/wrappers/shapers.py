"""Ready shaping functions for :class:`~aworld_gym.wrappers.RewardShaping`.

Each sees (observation, action, reward, info); ``info["ended"]`` is true at an episode's last step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aworld_gym.actions import canonical_json, read_calls
from aworld_gym.errors import ConfigError
from aworld_gym.imports import load
from aworld_gym.types import Message, Task

Observation = tuple[Message, ...]


def step_penalty(obs: Observation, action: Message, reward: float, info: dict[str, Any], *, amount: float) -> float:
    """``-amount`` every step: shorter is better."""
    return -amount


def tool_error_penalty(
    obs: Observation, action: Message, reward: float, info: dict[str, Any], *, amount: float
) -> float:
    """``-amount`` for each call of the step that failed, for whatever reason."""
    return -amount * sum(info["tool_errors"].values())


class RepeatedCallPenalty:
    """``-amount`` for each call that repeats an earlier one of the episode, arguments included."""

    def __init__(self, amount: float):
        self.amount = amount

    def reset(self, env: Any, obs: Observation, info: dict[str, Any]) -> None:
        """Forget the last episode."""
        self._seen: set[tuple[str, str]] = set()

    def __call__(self, obs: Observation, action: Message, reward: float, info: dict[str, Any]) -> float:
        """The penalty of this step."""
        repeats = 0
        for call in read_calls(action, 0):
            key = (call.name, canonical_json(call.arguments))
            repeats += key in self._seen
            self._seen.add(key)
        return -self.amount * repeats


class ValidCallBonus:
    """``amount`` for each step whose calls all worked, at most ``times`` per episode (None: no bound)."""

    def __init__(self, amount: float, times: int | None = 1):
        self.amount, self.times = amount, times

    def reset(self, env: Any, obs: Observation, info: dict[str, Any]) -> None:
        """Forget the last episode."""
        self._paid = 0

    def __call__(self, obs: Observation, action: Message, reward: float, info: dict[str, Any]) -> float:
        """The bonus of this step."""
        if not action.get("tool_calls") or info["tool_errors"] or (self.times is not None and self._paid >= self.times):
            return 0.0
        self._paid += 1
        return self.amount


class PlanProgress:
    """``amount`` x the share of the oracle plan's facts that this step's tool results showed for the first time.

    What counts as shown is decided by :class:`Progress`. Over an episode it pays at most ``amount``. Tasks without
    a plan pay nothing.
    """

    def __init__(self, amount: float):
        self.amount = amount
        self._progress = Progress()

    def reset(self, env: Any, obs: Observation, info: dict[str, Any]) -> None:
        """Take the new task's facts."""
        self._progress.reset(env, obs, info)
        self._share = 0.0

    def __call__(self, obs: Observation, action: Message, reward: float, info: dict[str, Any]) -> float:
        """What this step's new facts are worth."""
        before, self._share = self._share, self._progress(obs, action, info)
        return self.amount * (self._share - before)


class PotentialShaping:
    """Potential-based shaping, ``F = gamma * phi(s') - phi(s)``, which keeps the optimal policy.

    Ng, Harada and Russell, "Policy invariance under reward transformations" (ICML 1999), theorem 1. The potential
    of a state in which the episode ends is 0, also where a limit ended it: otherwise the sum depends on where the
    episode stopped and the guarantee is lost (Grzes, "Reward shaping in episodic reinforcement learning", AAMAS
    2017). So the discounted sum over an episode is ``-phi(s_0)``, whatever the policy did. Hence it changes nothing
    under episode-level credit (a sum per episode); it is for step-level credit.

    Args:
        potential: short name (``"progress"``) or import path of a class with ``reset(env, obs, info)`` and
            ``__call__(obs, action, info) -> float``, the potential of the state now reached; after ``reset`` it is
            called once with action None for the first state.
        gamma: the discount, in (0, 1].
        scale: factor of the potential.
    """

    def __init__(self, potential: str = "progress", gamma: float = 1.0, scale: float = 1.0, **kwargs: Any):
        if not 0.0 < gamma <= 1.0:
            raise ConfigError(f"gamma must be in (0, 1], got {gamma}")
        self.gamma, self.scale = gamma, scale
        self._potential = load(potential, POTENTIALS)(**kwargs)

    def reset(self, env: Any, obs: Observation, info: dict[str, Any]) -> None:
        """Take the first state's potential."""
        self._potential.reset(env, obs, info)
        self._last = self.scale * float(self._potential(obs, None, info))

    def __call__(self, obs: Observation, action: Message, reward: float, info: dict[str, Any]) -> float:
        """The shaping term of this step."""
        before = self._last
        self._last = 0.0 if info["ended"] else self.scale * float(self._potential(obs, action, info))
        return self.gamma * self._last - before


class Progress:
    """The share, in [0, 1], of the oracle plan's facts that tool results have shown so far.

    A fact belongs to the plan's call that shows it (``PlanStep.shows``). It counts when a call of that tool worked
    and its result has the fact as a whole word, and either the call is the plan's own (same arguments, in any
    order of calls) or everything that the plan shows before it has been shown and the fact is not in the call's
    arguments. So neither text that the model writes, nor what a tool echoes in an error, nor a program that prints
    every number before anything was read, pays.
    """

    def reset(self, env: Any, obs: Observation, info: dict[str, Any]) -> None:
        """Take the new task's facts."""
        self._env = env
        task: Task | None = env.get_wrapper_attr("task")
        plan = task.plan if task else ()
        self._steps = [(s.tool, canonical_json(s.arguments), set(s.shows)) for s in plan if s.shows]
        self._total = sum(len(facts) for _, _, facts in self._steps)

    def __call__(self, obs: Observation, action: Message | None, info: dict[str, Any]) -> float:
        """The share after this step."""
        if not self._total:
            return 0.0
        if action is not None:
            record = self._env.get_wrapper_attr("last_step")
            for call, result in zip(read_calls(record.action, record.index), record.results, strict=False):
                if result.error is None:
                    self._see(result.name, canonical_json(call.arguments), result.text)
        return 1.0 - sum(len(missing) for _, _, missing in self._steps) / self._total

    def _see(self, tool: str, arguments: str, text: str) -> None:
        complete = True  # everything that the plan shows before is shown
        for plan_tool, plan_arguments, missing in self._steps:
            if tool == plan_tool and (complete or arguments == plan_arguments):
                own = "" if arguments == plan_arguments else arguments
                missing -= {fact for fact in missing if _holds(text, fact) and not _holds(own, fact)}
            complete = complete and not missing


def _holds(text: str, fact: str) -> bool:
    """True where ``fact`` stands in ``text`` and is not a part of a longer word or number."""
    at = text.find(fact)
    while at >= 0:
        before, after = text[max(0, at - 2) : at], text[at + len(fact) : at + len(fact) + 2]
        inside = fact[0].isalnum() and (before[-1:].isalnum() or (before[-1:] == "." and before[:-1].isdigit()))
        inside |= fact[-1].isalnum() and (after[:1].isalnum() or (after[:1] == "." and after[1:].isdigit()))
        if not inside:
            return True
        at = text.find(fact, at + 1)
    return False


SHAPERS: dict[str, Callable[..., Any]] = {
    "step_penalty": step_penalty,
    "tool_error_penalty": tool_error_penalty,
    "repeated_call_penalty": RepeatedCallPenalty,
    "valid_call_bonus": ValidCallBonus,
    "plan_progress": PlanProgress,
    "potential": PotentialShaping,
}
"""Short names for ``RewardShaping(env, name, ...)``."""

POTENTIALS: dict[str, Callable[..., Any]] = {"progress": Progress}
"""Short names for ``RewardShaping(env, "potential", potential=...)``."""
