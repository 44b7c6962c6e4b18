"""How episodes are played, whatever the trainer: the section ``rollout`` of a config. No framework, no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from aworld_gym.errors import ConfigError, did_you_mean
from aworld_gym.generation import STRAGGLER_S


@dataclass(frozen=True)
class RolloutOptions:
    """How an adapter plays episodes."""

    max_turn_tokens: int | None = None
    """Ids sampled in one turn; by default only the episode's budget bounds a turn."""
    retries: int = 1
    """Further tries, each in a fresh env, of an episode that infrastructure spoiled."""
    concurrency: int = 256
    """Episodes at once."""
    straggler_s: float = STRAGGLER_S
    """Seconds without an arrival after which a generation batch goes without episodes still with their tools."""
    deadline_s: float | None = None
    """Seconds for one attempt at an episode, sampling included; it then ends as ``timeout``."""

    @classmethod
    def of(cls, value: RolloutOptions | Mapping[str, Any] | None) -> Self:
        """``value`` as options of this kind: as it is, from a mapping of field names, or the defaults."""
        if isinstance(value, cls):
            return value
        if isinstance(value, RolloutOptions):
            value = vars(value)
        known = [f.name for f in fields(cls)]
        if value is not None and not isinstance(value, Mapping):
            raise ConfigError(f"rollout options must be a mapping with keys from {known}, got {value!r}")
        for name in value or ():
            if name not in known:
                raise ConfigError(f"unknown rollout option {name!r}; known are {known}.{did_you_mean(name, known)}")
        return cls(**(value or {}))


@dataclass(frozen=True)
class TurnwiseOptions(RolloutOptions):
    """With a deadline, for frameworks that have none of their own and wait for ever.

    ``straggler_s`` is not used where one episode, or one turn, is asked for at a time: no batches wait there.
    """

    deadline_s: float = 1800.0
