"""One trained token sequence: what was prompted, what was sampled, what was appended, what it earned.

Strict by construction: a sequence whose mask claims a token that was not sampled cannot be built, so it cannot
reach a trainer. A rewritten history (compaction, a sub-agent) starts a new trajectory.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, SupportsFloat, SupportsIndex


@dataclass(frozen=True)
class TokenTrajectory:
    """A prompt and everything after it. Immutable; validated on construction.

    ``response_ids`` alternates: a turn's sampled ids (mask 1), then the ids appended to it (mask 0), and so on; it
    begins with sampled ids and may end with either.

    Raises:
        ValueError: naming the field and index, where any of the following does not hold.
    """

    prompt_ids: tuple[int, ...]
    """Not empty."""
    response_ids: tuple[int, ...]
    """May be empty (nothing was sampled)."""
    mask: tuple[int, ...]
    """Aligned with ``response_ids``: 1 where the id was sampled, 0 where it was appended."""
    logprobs: tuple[float, ...] | None
    """Aligned with ``response_ids``: the sampler's log-probability (nats, at most 0) of a sampled id, 0.0 for an
    appended one. None where the sampler gave none."""
    turn_ends: tuple[int, ...]
    """Index into ``response_ids`` of the last sampled id of each turn; strictly increasing."""
    turn_rewards: tuple[float, ...]
    """Aligned with ``turn_ends``: the reward of the env step that the turn's message was; finite."""

    def __post_init__(self) -> None:
        n = len(self.response_ids)
        _require(len(self.prompt_ids) > 0, "prompt_ids must not be empty")
        for name in ("prompt_ids", "response_ids"):
            _each(name, getattr(self, name), lambda i: type(i) is int and i >= 0, "an int of at least 0")
        _length("mask", self.mask, n, "response id")
        _each("mask", self.mask, lambda bit: type(bit) is int and bit in (0, 1), "0 or 1")
        _require(n == 0 or self.mask[0] == 1, "mask[0] must be 1: what comes before any sampled id is the prompt")
        ends = tuple(k for k in range(n) if self.mask[k] and (k + 1 == n or not self.mask[k + 1]))
        if self.turn_ends != ends:
            raise ValueError(f"turn_ends must be where runs of ones in mask end: expected {ends}, got {self.turn_ends}")
        _length("turn_rewards", self.turn_rewards, len(ends), "turn")
        _each("turn_rewards", self.turn_rewards, lambda r: type(r) is float and math.isfinite(r), "a finite float")
        if self.logprobs is not None:
            _length("logprobs", self.logprobs, n, "response id")
            _each("logprobs", self.logprobs, lambda p: type(p) is float and -math.inf < p <= _ROUNDING, _LOGPROB)
            for k, (bit, value) in enumerate(zip(self.mask, self.logprobs, strict=True)):
                if not bit and value != 0.0:
                    raise ValueError(f"logprobs[{k}] must be 0.0, as the id was not sampled, got {value!r}")

    @property
    def ids(self) -> tuple[int, ...]:
        """Prompt and response, as the model reads them."""
        return self.prompt_ids + self.response_ids

    @property
    def sampled_count(self) -> int:
        """How many ids were sampled."""
        return sum(self.mask)

    @property
    def total_reward(self) -> float:
        """The plain sum of turn rewards."""
        return math.fsum(self.turn_rewards)

    @property
    def turns(self) -> tuple[tuple[int, int], ...]:
        """Each turn's sampled ids as a half-open range ``(start, stop)`` of ``response_ids``."""
        starts = [k for k, bit in enumerate(self.mask) if bit and (k == 0 or not self.mask[k - 1])]
        return tuple((start, end + 1) for start, end in zip(starts, self.turn_ends, strict=True))

    def token_rewards(self) -> list[float]:
        """One reward per response id: each turn's reward at its last sampled id, 0.0 elsewhere."""
        rewards = [0.0] * len(self.response_ids)
        for end, reward in zip(self.turn_ends, self.turn_rewards, strict=True):
            rewards[end] = reward
        return rewards


class TrajectoryBuilder:
    """Builds a :class:`TokenTrajectory` in the order of events: ``prompt``, ``sampled``, ``reward``, ``appended``, ...

    Example:
        >>> builder = TrajectoryBuilder()
        >>> builder.prompt([1, 2])
        >>> builder.sampled([7, 8], [-0.1, -0.2])
        >>> builder.reward(0.5)
        >>> builder.appended([3])
        >>> builder.build().mask
        (1, 1, 0)
    """

    def __init__(self) -> None:
        self._prompt: tuple[int, ...] = ()
        self._ids: list[int] = []
        self._mask: list[int] = []
        self._logprobs: list[float] | None = None
        self._ends: list[int] = []
        self._rewards: list[float] = []

    def prompt(self, ids: Iterable[SupportsIndex]) -> None:
        """The initial ids; once, before anything else."""
        _require(not self._prompt, "prompt was given twice; a new prompt starts a new trajectory")
        self._prompt = _ints(ids)
        _require(len(self._prompt) > 0, "prompt_ids must not be empty")

    def sampled(self, ids: Iterable[SupportsIndex], logprobs: Iterable[SupportsFloat] | None = None) -> None:
        """One turn's sampled ids, the stop id included, with one log-probability each or none at all."""
        _require(len(self._prompt) > 0, "prompt must come before sampled")
        _require(not self._mask or not self._mask[-1], "two turns in a row: appended must come between them")
        turn = _ints(ids)
        _require(len(turn) > 0, "a turn has at least one sampled id, got none")
        values = None if logprobs is None else [float(value) for value in logprobs]
        if not self._ends:
            self._logprobs = None if values is None else []
        _require((values is None) == (self._logprobs is None), "log-probabilities: for every turn or for none")
        if values is not None and self._logprobs is not None:
            _require(len(values) == len(turn), f"expected {len(turn)} log-probabilities, got {len(values)}")
            self._logprobs += values
        self._ids += turn
        self._mask += [1] * len(turn)
        self._ends.append(len(self._ids) - 1)
        self._rewards.append(0.0)

    def appended(self, ids: Iterable[SupportsIndex]) -> None:
        """The ids appended after a turn: what the env answered, as ``ChatCodec.extend`` gave it."""
        _require(bool(self._ends), "sampled must come before appended; ids before it belong to the prompt")
        extra = _ints(ids)
        self._ids += extra
        self._mask += [0] * len(extra)
        if self._logprobs is not None:
            self._logprobs += [0.0] * len(extra)

    def reward(self, value: SupportsFloat) -> None:
        """Add a step's reward to the turn sampled last."""
        _require(bool(self._ends), "a reward belongs to a turn, and none was sampled yet")
        self._rewards[-1] += float(value)

    @property
    def ids(self) -> list[int]:
        """Prompt and response so far: what the sampler is to continue."""
        return [*self._prompt, *self._ids]

    @property
    def response_length(self) -> int:
        """How many ids follow the prompt so far."""
        return len(self._ids)

    @property
    def sampled_count(self) -> int:
        """How many ids were sampled so far."""
        return sum(self._mask)

    def build(self) -> TokenTrajectory:
        """The validated record of what was given so far; the builder may go on. Raises ValueError."""
        return TokenTrajectory(
            prompt_ids=self._prompt,
            response_ids=tuple(self._ids),
            mask=tuple(self._mask),
            logprobs=None if self._logprobs is None else tuple(self._logprobs),
            turn_ends=tuple(self._ends),
            turn_rewards=tuple(self._rewards),
        )


_ROUNDING = 1e-4
"""How far above 0 a sampler's rounding may put a log-probability."""


_LOGPROB = "a finite float of at most 0"


def _ints(ids: Iterable[SupportsIndex]) -> tuple[int, ...]:
    return tuple(operator.index(i) for i in ids)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


def _length(name: str, values: Sequence[Any], expected: int, unit: str) -> None:
    if not isinstance(values, tuple) or len(values) != expected:
        got = f"{len(values)}" if isinstance(values, tuple) else type(values).__name__
        raise ValueError(f"{name} must be a tuple with one entry per {unit} ({expected}), got {got}")


def _each(name: str, values: Sequence[Any], valid: Callable[[Any], bool], expected: str) -> None:
    for k, value in enumerate(values):
        if not valid(value):
            raise ValueError(f"{name}[{k}] must be {expected}, got {value!r}")
