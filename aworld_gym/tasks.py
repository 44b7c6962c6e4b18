"""Where tasks come from: the protocol an env asks of a task source, and a plain in-memory one.

A task source makes tasks, places their files, and scores answers. It runs in the env's process and is the
only holder of true answers; tool servers are given ``Task.public`` and a workspace, nothing else.
"""

from __future__ import annotations

import inspect
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from aworld_gym.errors import ConfigError, UnknownTaskError, did_you_mean
from aworld_gym.types import PlanStep, Score, Task

if TYPE_CHECKING:
    from aworld_gym.records import from_records as from_records


@runtime_checkable
class TaskSource(Protocol):
    """What an env asks of its tasks. All methods are synchronous and deterministic.

    They may wait: they are called in threads, by several episodes at once where these share a source.
    """

    def sample(self, rng: np.random.Generator) -> Task:
        """A task drawn with ``rng`` alone."""

    def get(self, task_id: str) -> Task:
        """The task of that id. Raises UnknownTaskError, naming close ids, if there is none."""

    def setup(self, task: Task, workspace: Path) -> None:
        """Write the task's files into the (empty) workspace, byte for byte the same each time."""

    def score(self, task: Task, answer: str | None) -> Score | None:
        """The verdict on an answer (None: nothing was submitted); None where the task has no true answer."""


class TaskList:
    """A fixed list of tasks with one scorer.

    Args:
        tasks: the tasks; ids are unique.
        scorer: ``(truth, answer) -> float | Score``; by default stripped, case-folded equality.

    Raises:
        ConfigError: no tasks, or two of one id.
    """

    def __init__(self, tasks: Iterable[Task], scorer: Callable[[object, str], float | Score] | None = None):
        self.tasks: Sequence[Task] = tuple(tasks)
        self._by_id = {task.id: task for task in self.tasks}
        if not self.tasks:
            raise ConfigError("a task list needs at least one task, got none")
        if len(self._by_id) != len(self.tasks):
            double = next(name for name, count in Counter(task.id for task in self.tasks).items() if count > 1)
            raise ConfigError(f"task ids must be unique within a task list, and {double!r} is there more than once")
        self._scorer = scorer or _equal

    def sample(self, rng: np.random.Generator) -> Task:
        """One of the tasks, uniformly."""
        return self.tasks[int(rng.integers(len(self.tasks)))]

    def get(self, task_id: str) -> Task:
        """The task of that id; raises UnknownTaskError."""
        try:
            return self._by_id[task_id]
        except KeyError:
            hint = did_you_mean(task_id, self._by_id)
            raise UnknownTaskError(f"unknown task id {task_id!r}; there are {len(self.tasks)} tasks.{hint}") from None

    def setup(self, task: Task, workspace: Path) -> None:
        """Plain tasks have no files."""

    def score(self, task: Task, answer: str | None) -> Score | None:
        """The scorer's verdict; 0 where nothing was submitted, None where there is no true answer."""
        if task.answer is None:
            return None
        if answer is None:
            return Score(0.0, "no answer was submitted")
        return as_score(self._scorer(task.answer, answer))


def as_score(verdict: Any) -> Score:
    """What a scorer gave, as a Score; TypeError or ValueError where it is no number from 0 to 1."""
    if isinstance(verdict, Score):
        return verdict
    try:
        return Score(float(verdict))
    except TypeError as error:
        raise TypeError(f"a scorer gives a number from 0 to 1 or a Score, got {verdict!r:.80}") from error


def task_source(tasks: Any) -> TaskSource:
    """What an env was given for its tasks, as a task source.

    Args:
        tasks: a TaskSource; a list of :class:`~aworld_gym.types.Task` or of their fields; the path of a file of rows;
            or a mapping of the arguments of :func:`~aworld_gym.records.from_records`, ``rows`` among them. The last
            three are JSON.

    Raises:
        ConfigError: it is none of those.
    """
    if isinstance(tasks, TaskSource):
        return tasks
    if isinstance(tasks, str | os.PathLike):
        return _described({"rows": tasks})
    if isinstance(tasks, Mapping):
        return _described(tasks)
    if isinstance(tasks, bytes) or not isinstance(tasks, Sequence):
        raise ConfigError(
            "tasks must be a TaskSource (sample, get, setup, score), a list of tasks, the path of a file of rows, or "
            f"a mapping of the arguments of from_records, got {type(tasks).__name__}"
        )
    try:
        return TaskList([task if isinstance(task, Task) else _of_fields(task) for task in tasks])
    except TypeError as error:
        raise ConfigError(f"each task needs 'id' and 'prompt', and may have other fields of Task: {error}") from error


def _of_fields(fields: Mapping[str, Any]) -> Task:
    """The task of these fields, as JSON has them: the steps of its plan may be mappings."""
    steps = [PlanStep(**step) if isinstance(step, Mapping) else step for step in fields.get("plan") or ()]
    return Task(**{**fields, "plan": tuple(steps)})


def _described(arguments: Mapping[str, Any]) -> TaskSource:
    from aworld_gym.records import from_records

    known = inspect.signature(from_records).parameters
    if "rows" not in arguments:
        raise ConfigError(f"a mapping of tasks needs 'rows' (a path or a list), got {', '.join(map(str, arguments))}")
    for name in arguments:
        if name not in known:
            hint = did_you_mean(str(name), known)
            raise ConfigError(f"from_records takes no argument {name!r}; it takes {', '.join(known)}.{hint}")
    return from_records(**arguments)


def __getattr__(name: str) -> Any:
    if name == "from_records":  # it stands on this module
        from aworld_gym.records import from_records

        return from_records
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _equal(truth: object, answer: str) -> float:
    return float(str(truth).strip().casefold() == answer.strip().casefold())
