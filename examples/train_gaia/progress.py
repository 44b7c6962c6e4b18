"""Progress on stderr: one bar per phase, with the time left."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from transformers import TrainerCallback


class Bar:
    """The bar of one phase."""

    def __init__(self, progress: Progress, task: Any):
        self._progress, self._task = progress, task

    def advance(self, note: str = "") -> None:
        """One more step done."""
        self._progress.update(self._task, advance=1, note=note)


@contextmanager
def bar(console: Console, phase: str, total: int) -> Iterator[Bar]:
    """A bar over ``total`` steps; where the console is no terminal, one line at the end."""
    columns = (TextColumn(f"{phase:<30}"), BarColumn(30), MofNCompleteColumn(), TimeElapsedColumn())
    left = (TextColumn("left"), TimeRemainingColumn(), TextColumn("{task.fields[note]}"))
    with Progress(*columns, *left, console=console) as progress:
        yield Bar(progress, progress.add_task(phase, total=total, note=""))


class GrpoBar(TrainerCallback):
    """Advances a bar with TRL's trainer, showing the success of the last five steps' episodes."""

    def __init__(self, target: Bar):
        self._bar, self._scores = target, list[float]()

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """One training step was logged."""
        if logs and "env/score" in logs:
            self._scores.append(logs["env/score"])
            recent = self._scores[-5:]
            self._bar.advance(f"success {sum(recent) / len(recent):.2f}")
