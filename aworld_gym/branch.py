"""Forks: the steps of a recorded episode taken again, and what must be the same for that.

What tree search and step-level group methods need: several continuations of one state. A state of tools cannot be
copied, so it is reached again: the recorded actions are taken in a fresh env, and each result is compared with the
recorded one. The first that differs ends it: a continuation from there would be of another state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aworld_gym.actions import canonical_json
from aworld_gym.errors import ConfigError, ReplayError
from aworld_gym.types import Episode, StepRecord, ToolResult

_AROUND = 40  # characters shown of a text around its first difference


@dataclass(frozen=True)
class Prefix:
    """The first steps of a recorded episode.

    Raises:
        ConfigError: the episode has fewer steps, or never began.
    """

    episode: Episode
    steps: int
    """How many; the fork plays on after them."""

    def __post_init__(self) -> None:
        steps, has = self.steps, len(self.episode.steps)
        if isinstance(steps, bool) or not isinstance(steps, int) or not 0 <= steps <= has:
            raise ConfigError(
                f"step is how many steps of the episode come before the fork: 0 to {has} for {self.episode.key}, "
                f"got {steps!r}"
            )
        if not self.episode.prompt:
            raise ConfigError(f"episode {self.episode.key} never began, so there is nothing to fork")

    @property
    def group_id(self) -> str:
        """The group of all forks from here."""
        return f"{self.episode.key}#{self.steps}"

    def check_reset(self, prompt: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> None:
        """Raise ReplayError where the fresh env asks something else, or offers other tools."""
        for what, then, now in (("messages", self.episode.prompt, prompt), ("tools", self.episode.tools, tools)):
            found = _first_difference(then, now)
            if found is not None:
                place = "message" if what == "messages" else "tool"
                self.refuse(f"the env begins with other {what}: {place} {found[0]} {found[1]}")

    def check_step(self, now: StepRecord, ended: str | None) -> None:
        """Raise ReplayError where a step gave something else than in the recording, or ended the episode."""
        then = self.episode.steps[now.index]
        for number, (was, given) in enumerate(zip(then.results, now.results, strict=False), 1):
            for what in ("name", "error", "content", "structured"):
                one, other = getattr(was, what), getattr(given, what)
                if canonical_json(one) != canonical_json(other):
                    place = f"step {now.index}, call {number} ({was.name})"
                    if what == "content":
                        what, one, other = "text", _readable(was), _readable(given)
                    self.refuse(f"{place} gave another {what}: {_differing(one, other)}")
        if len(then.results) != len(now.results):
            self.refuse(f"step {now.index} had {len(then.results)} results, and now {len(now.results)}")
        if ended is not None:
            self.refuse(f"step {now.index} ends the episode ({ended}), so there is nothing to go on with")

    def refuse(self, why: str) -> None:
        """Raise ReplayError, saying what cannot be done."""
        raise ReplayError(f"episode {self.episode.key} cannot be forked after {self.steps} steps: {why}")


def _first_difference(then: Sequence[Any], now: Sequence[Any]) -> tuple[int, str] | None:
    for number, (one, other) in enumerate(zip(then, now, strict=False)):
        if canonical_json(one) != canonical_json(other):
            return number, f"is another: {_differing(canonical_json(one), canonical_json(other))}"
    if len(then) != len(now):
        return min(len(then), len(now)), f"is one of {len(then)} in the recording, and there are {len(now)}"
    return None


def _readable(result: ToolResult) -> str:
    """The text of a result, and its pictures by what they hold."""
    return "\n".join(part["text"] if part.get("type") == "text" else canonical_json(part) for part in result.content)


def _differing(one: Any, other: Any) -> str:
    """Both, as far as is needed to see where they differ."""
    if not (isinstance(one, str) and isinstance(other, str)):
        return f"{one!r:.200} was recorded, now it is {other!r:.200}"
    at = next((k for k, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    start = max(0, at - _AROUND)
    shown = [("…" if start else "") + text[start : at + _AROUND] for text in (one, other)]
    return f"{shown[0]!r} was recorded, now it is {shown[1]!r} (they differ from character {at} on)"
