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

    The facts of a task are what its oracle plan's calls show (``PlanStep.shows``). Only tool messages are looked
    at, so writing a fact down does not pay. Over an episode it pays at most ``amount``. Tasks without a plan pay
    nothing.
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
    """The share, in [0, 1], of the oracle plan's facts that tool results have shown so far."""

    def reset(self, env: Any, obs: Observation, info: dict[str, Any]) -> None:
        """Take the new task's facts."""
        task: Task | None = env.get_wrapper_attr("task")
        facts = {fact for step in (task.plan if task else ()) for fact in step.shows}
        self._missing, self._total = facts, len(facts)

    def __call__(self, obs: Observation, action: Message | None, info: dict[str, Any]) -> float:
        """The share after this step."""
        if not self._total:
            return 0.0
        text = "\n".join(_text(m) for m in obs if m["role"] == "tool")
        self._missing = {fact for fact in self._missing if fact not in text}
        return 1.0 - len(self._missing) / self._total


def _text(message: Message) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text", "") for part in content)


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
