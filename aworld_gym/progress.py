"""Progress on stderr, with the time left. Needs a terminal to move; elsewhere it prints one line at the end."""

from __future__ import annotations

import sys
from contextlib import suppress
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Self

from aworld_gym.types import Episode

if TYPE_CHECKING:
    from rich.console import Console


class Stderr:
    """Stderr, where what cannot be said is lost: a closed pipe or a full disk there ends no run.

    It is looked up at each write, since others put another in its place, a progress bar of rich among them.
    """

    def write(self, text: str) -> int:
        """Write what can be written."""
        with suppress(OSError):
            if (file := _stderr()) is not None:
                file.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush what can be flushed."""
        with suppress(OSError):
            if (file := _stderr()) is not None:
                file.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(_stderr(), name)


def _stderr() -> IO[str] | None:
    return getattr(sys.stderr, "rich_proxied_file", sys.stderr)


def stderr_console() -> Console:
    """A console on stderr that never raises for it."""
    from rich.console import Console  # here, so that rollouts without a bar do not pay for it

    file: IO[str] = Stderr()  # type: ignore[assignment]
    return Console(file=file, stderr=True)


class EpisodeProgress:
    """A progress bar over episodes: done, success, failures, episodes per second, time left.

    Args:
        total: episodes to come.
        console: where to draw; stderr where None.
    """

    def __init__(self, total: int, *, console: Console | None = None):
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        self._done = self._scored = self._right = self._invalid = 0
        self._bar = Progress(
            TextColumn("episodes"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console or stderr_console(),
        )
        self._task = self._bar.add_task("episodes", total=total, rate="", note="")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._bar.stop()

    def add(self, episode: Episode) -> None:
        """Count one record; an invalid attempt does not advance the bar."""
        if episode.valid:
            self._done += 1
            if episode.score is not None:
                self._scored += 1
                self._right += episode.score == 1.0
        else:
            self._invalid += 1
        note = f"success {self._right / self._scored:.2f}" if self._scored else ""
        if self._invalid:
            note += f"  failed attempts {self._invalid}"
        speed = self._bar.tasks[self._task].speed
        rate = f"{speed:.1f}/s" if speed else ""
        self._bar.update(self._task, completed=self._done, note=note.strip(), rate=rate)
