"""How episodes are played, whatever the trainer: the section ``rollout`` of a config. No framework, no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

from aworld_gym.errors import ConfigError, did_you_mean
from aworld_gym.generation import STRAGGLER_S


@dataclass(frozen=True)
class RolloutOptions:
    """How an adapter plays episodes.

    Raises:
        ConfigError: a value that cannot be. It would else be found by the first episode, or by all of them.
    """

    MAY_BE_NONE: ClassVar[tuple[str, ...]] = ("max_turn_tokens", "deadline_s")

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

    def __post_init__(self) -> None:
        whole, seconds = (int,), (int, float)
        for name, kinds, fits, words in (
            ("max_turn_tokens", whole, lambda n: n >= 1, "a whole number of at least 1"),
            ("retries", whole, lambda n: n >= 0, "a whole number of at least 0"),
            ("concurrency", whole, lambda n: n >= 1, "a whole number of at least 1"),
            ("straggler_s", seconds, lambda s: s >= 0, "a number of at least 0"),
            ("deadline_s", seconds, lambda s: s > 0, "a number above 0"),
        ):
            value, optional = getattr(self, name), name in self.MAY_BE_NONE
            if not (value is None and optional) and (type(value) not in kinds or not fits(value)):
                raise ConfigError(
                    f"the rollout option {name} must be {words}{' or None' if optional else ''}, got {value!r}"
                )

    @classmethod
    def of(cls, value: RolloutOptions | Mapping[str, Any] | None) -> Self:
        """``value`` as options of this kind: as it is, from a mapping of field names, or the defaults.

        Options of another kind leave what they do not set (None) to this one's defaults.
        """
        if isinstance(value, cls):
            return value
        if isinstance(value, RolloutOptions):
            value = {name: given for name, given in vars(value).items() if given is not None}
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

    MAY_BE_NONE: ClassVar[tuple[str, ...]] = ("max_turn_tokens",)

    deadline_s: float = 1800.0
