"""What a synthesis is told, and what it reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aworld_gym.errors import ConfigError


@dataclass(frozen=True)
class Settings:
    """What decides which tasks are made. A synthesis is not continued with others."""

    seed: int = 0
    batch: int = 5
    """Proposals asked for at once."""
    samples: int = 12
    """Sample calls asked for, per 40 tools."""
    closed_book: int = 4
    """Times that each question is asked without tools; 0 asks never."""
    similarity: float = 0.8
    """See :class:`aworld_gym.synth.gates.Seen`."""
    gap_s: float = 2.0
    """Seconds between the two runs of a solution, at least: what changes with the clock should have changed."""
    steps: str = "2 to 4"
    """Calls of a solution, in words for the prompt."""
    tools: tuple[str, ...] | None = None
    """Names of the tools to use; all where None."""

    def __post_init__(self) -> None:
        for name, least in (("seed", 0), ("batch", 1), ("samples", 0), ("closed_book", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ConfigError(f"{name} must be a whole number of at least {least}, got {value!r}")
        if not 0 < self.similarity <= 1:
            raise ConfigError(f"similarity must be above 0 and at most 1, got {self.similarity!r}")
        if not self.gap_s >= 0:
            raise ConfigError(f"gap_s must be at least 0, got {self.gap_s!r}")


@dataclass(frozen=True)
class Report:
    """What a synthesis came to."""

    output: str
    log: str
    """The file with every proposal and its verdict."""
    wanted: int
    accepted: int
    proposals: int
    """Judged; they are the accepted ones and those that fell at a gate."""
    fell: Mapping[str, int]
    """How many fell at each gate (:data:`aworld_gym.synth.gates.GATES`)."""
    rounds: int
    stopped: str | None = None
    """Why it ended before there were enough."""

    @property
    def complete(self) -> bool:
        """Whether there are as many tasks as were wanted."""
        return self.accepted >= self.wanted
