"""Rows as tasks: which columns are what, ids that stay, and the description from which workers rebuild the set."""

from __future__ import annotations

import copy
import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from aworld_gym.errors import ConfigError, did_you_mean
from aworld_gym.imports import load
from aworld_gym.records.files import RecordFile, files_of, write_all
from aworld_gym.records.rows import Row, read_rows
from aworld_gym.records.verdicts import Scorer, check_truth, scorer_of
from aworld_gym.tasks import TaskList
from aworld_gym.types import PlanStep, Task

Column = str | Callable[[Row], Any]
"""The name of a column, a function of the row, or such a function's import path ``package.module:function``."""

MAX_ID = 200
"""Characters of a task's id."""


class RecordTasks(TaskList):
    """Tasks made of rows. Made by :func:`from_records`, which says what the arguments mean."""

    def __init__(
        self,
        tasks: list[Task],
        scorer: str | Scorer | None,
        files: Mapping[str, tuple[RecordFile, ...]],
        config: dict[str, Any] | None,
    ):
        super().__init__(tasks, scorer_of(scorer))
        self.scorer = scorer if isinstance(scorer, str) else "strict" if scorer is None else _name_of(scorer)
        """The scorer's name."""
        self._files, self._config = files, config

    @property
    def config(self) -> dict[str, Any]:
        """The arguments of :func:`from_records` as JSON: pass it wherever an env's spec has to survive.

        Raises:
            ConfigError: an argument that JSON cannot hold; it says which, and what to give instead.
        """
        config = self._config or {}
        for name, value in config.items():
            try:
                json.dumps(value, allow_nan=False)
            except (TypeError, ValueError) as error:
                instead = "a .jsonl or .parquet file" if name == "rows" else "'package.module:function'"
                raise ConfigError(
                    f"this task set cannot be written as JSON, because of {name}={value!r:.60}; give {instead}"
                ) from error
        return copy.deepcopy(config)

    def setup(self, task: Task, workspace: Path) -> None:
        """Write the task's files into the workspace."""
        write_all(self._files.get(task.id, ()), workspace)


def from_records(
    rows: Any,
    *,
    prompt: Column = "prompt",
    answer: Column | None = "answer",
    files: Column | None = None,
    scorer: str | Scorer | None = None,
    id: Column | None = None,
    level: Column | None = None,
    plan: Column | None = None,
    metadata: list[str] | tuple[str, ...] = (),
    folder: str | os.PathLike[str] | None = None,
) -> RecordTasks:
    """A task source of rows.

    Each of ``prompt``, ``answer``, ``files``, ``id``, ``level`` and ``plan`` is the name of a column, a function of
    the row, or the import path of one. The last four are taken from columns of those names where there are such.

    Args:
        rows: a list of mappings; the path of a ``.jsonl``, ``.json`` or ``.parquet`` file; a pandas DataFrame; or a
            Hugging Face Dataset. All rows are read at once.
        prompt: the question: text.
        answer: the true answer: a text, a number, a list of them or a typed specification
            (:mod:`aworld_gym.scorers`). A row where it is null has none, and gets no reward; None: no row has one.
        files: the files of the workspace (:mod:`aworld_gym.records.files`).
        scorer: a name (:mod:`aworld_gym.records.verdicts`; ``"strict"`` where None), the import path of a function
            ``(truth, answer) -> float | Score``, or such a function.
        id: unique texts or numbers. Without such a column an id is a hash of the task's content.
        level: whole numbers.
        plan: the oracle's calls: lists of ``{"tool", "arguments"}``, the submission included.
        metadata: columns that are kept with each episode's record, never shown to the model.
        folder: where relative paths of files begin, and which no file may lie outside of. The folder of ``rows``
            where that is a file; else relative paths begin in the current folder, and are not confined.

    Raises:
        ConfigError: what cannot work; it names the row and the column.

    Example:
        >>> tasks = from_records([{"question": "2 + 3?", "result": 5}], prompt="question", answer="result")
        >>> tasks.score(tasks.tasks[0], "5.0").value
        1.0
    """
    if isinstance(metadata, str):
        raise ConfigError(f"metadata is a list of columns, got the text {metadata!r}: write [{metadata!r}]")
    chosen = {"prompt": prompt, "answer": answer, "files": files, "id": id, "level": level, "plan": plan}
    is_file = isinstance(rows, str | os.PathLike)
    base = Path(folder) if folder is not None else Path(rows).parent if is_file else None
    reader = _Reader(chosen, tuple(metadata), scorer, base, Path(rows).resolve() if is_file else None)
    for where, row in read_rows(rows):
        reader.add(where, row)
    config = {
        "rows": os.fspath(rows) if is_file else rows,
        **{name: value for name, value in chosen.items() if value != _DEFAULTS.get(name)},
        **({"scorer": scorer} if scorer is not None else {}),
        **({"metadata": list(metadata)} if metadata else {}),
        **({"folder": os.fspath(folder)} if folder is not None else {}),
    }
    if not reader.tasks:
        raise ConfigError(f"there are no rows in {os.fspath(rows)!r}" if is_file else "there are no rows")
    return RecordTasks(reader.tasks, scorer, reader.files, config)


_DEFAULTS: Mapping[str, Any] = {"prompt": "prompt", "answer": "answer"}
_OPTIONAL = ("files", "id", "level", "plan")


class _Reader:
    """Makes a task of each row."""

    def __init__(
        self,
        chosen: Mapping[str, Column | None],
        metadata: tuple[str, ...],
        scorer: str | Scorer | None,
        base: Path | None,
        itself: Path | None,
    ):
        scorer_of(scorer)  # a wrong name is said before any row is read
        self._chosen, self._metadata, self._scorer, self._base = dict(chosen), metadata, scorer, base
        self._itself = itself
        self.tasks: list[Task] = []
        self.files: dict[str, tuple[RecordFile, ...]] = {}
        self._rows_of: dict[str, str] = {}
        self._copies: Counter[str] = Counter()

    def add(self, where: str, row: Row) -> None:
        """Make the row's task."""
        prompt = self._value("prompt", where, row)
        if not isinstance(prompt, str) or not prompt.strip():
            raise self._error("prompt", where, f"expected text, got {prompt!r:.80}{_CHAT if _is_chat(prompt) else ''}")
        answer = self._value("answer", where, row)
        files = self._files_of(where, row)
        try:
            if answer is not None:
                check_truth(self._scorer, answer)
                json.dumps(answer, allow_nan=False)
        except (ConfigError, TypeError, ValueError) as error:
            raise self._error("answer", where, str(error)) from error
        task_id = self._id_of(where, row, prompt, answer, files)
        self.tasks.append(
            Task(
                id=task_id,
                prompt=prompt,
                answer=answer,
                level=self._level_of(where, row),
                plan=self._plan_of(where, row),
                metadata={name: self._kept(name, where, row) for name in self._metadata},
            )
        )
        if files:
            self.files[task_id] = files

    def _value(self, name: str, where: str, row: Row) -> Any:
        """What the row holds for one of the arguments; None where there is nothing to look at."""
        column = self._chosen[name]
        if column is None:
            return row.get(name) if name in _OPTIONAL else None
        if isinstance(column, str) and column not in row and ":" in column:
            column = self._chosen[name] = load(column)
        if isinstance(column, str):
            return _column(row, column, name, where)
        if not callable(column):
            raise ConfigError(f"{name} is the name of a column or a function of the row, got {type(column).__name__}")
        try:
            return column(row)
        except Exception as error:
            raise ConfigError(f"{where}: the function for {name!r} raised {type(error).__name__}: {error}") from error

    def _files_of(self, where: str, row: Row) -> tuple[RecordFile, ...]:
        try:
            files = files_of(self._value("files", where, row), self._base, inside=self._base is not None)
            if self._itself is not None and any(file.path == self._itself for file in files):
                raise ConfigError(f"{self._itself.name!r} is the task set itself, with all answers")
        except ConfigError as error:
            raise self._error("files", where, str(error)) from error
        return files

    def _id_of(self, where: str, row: Row, prompt: str, answer: Any, files: tuple[RecordFile, ...]) -> str:
        given = self._value("id", where, row)
        if given is None and self._chosen["id"] is None:
            key = _content_hash(prompt, answer, files)
            self._copies[key] += 1
            return key if self._copies[key] == 1 else f"{key}-{self._copies[key]}"
        if isinstance(given, bool) or not isinstance(given, str | int) or not 0 < len(str(given)) <= MAX_ID:
            raise self._error(
                "id", where, f"expected a text of 1 to {MAX_ID} characters or a number, got {given!r:.80}"
            )
        if str(given) in self._rows_of:
            raise self._error(
                "id", where, f"{given!r} is the id of {self._rows_of[str(given)]} too; choose a column of unique ids"
            )
        self._rows_of[str(given)] = where
        return str(given)

    def _level_of(self, where: str, row: Row) -> int | None:
        level = self._value("level", where, row)
        if isinstance(level, str) and level.strip().isdigit() or isinstance(level, float) and level.is_integer():
            level = int(level)
        if level is not None and (isinstance(level, bool) or not isinstance(level, int)):
            if self._chosen["level"] is None:  # a column of that name which nobody chose may mean something else
                return None
            raise self._error("level", where, f"expected a whole number, got {level!r:.80}")
        return level

    def _plan_of(self, where: str, row: Row) -> tuple[PlanStep, ...]:
        plan = self._value("plan", where, row)
        if isinstance(plan, str):  # a column of JSON text, as tables hold nested values
            try:
                plan = json.loads(plan)
            except (ValueError, RecursionError) as error:
                raise self._error("plan", where, f"it is not valid JSON: {error}") from error
        if plan is not None and not isinstance(plan, list | tuple):
            raise self._error("plan", where, f"expected a list of calls, got {plan!r:.80}")
        steps = []
        for number, step in enumerate(plan or (), 1):
            if isinstance(step, PlanStep):
                steps.append(step)
                continue
            if not isinstance(step, Mapping) or not isinstance(step.get("tool"), str):
                raise self._error(
                    "plan", where, f'step {number} is {{"tool": ..., "arguments": ...}}, got {step!r:.80}'
                )
            if not isinstance(step.get("arguments") or {}, Mapping):
                raise self._error("plan", where, f"the arguments of step {number} are an object")
            shows, content = step.get("shows") or (), step.get("content") or ""
            if not isinstance(shows, list | tuple) or not isinstance(content, str):
                raise self._error("plan", where, f"step {number} has a list of texts as `shows`, and text as `content`")
            facts = tuple(map(str, shows))
            steps.append(PlanStep(step["tool"], dict(step.get("arguments") or {}), facts, content))
        return tuple(steps)

    def _kept(self, name: str, where: str, row: Row) -> Any:
        value = _column(row, name, "metadata", where)
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{where}, column {name!r}: metadata is kept as JSON, and {error}") from error
        return value

    def _error(self, name: str, where: str, text: str) -> ConfigError:
        column = self._chosen[name]
        what = f"column {(column or name)!r}" if isinstance(column, str | None) else f"the function for {name!r}"
        return ConfigError(f"{where}, {what}: {text}")


_CHAT = "; of a conversation, give a function of the row that takes the user's text out of it"


def _is_chat(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], Mapping) and "role" in value[0]


def _column(row: Row, column: str, argument: str, where: str) -> Any:
    if column not in row:
        known = ", ".join(row) or "none"
        hint = did_you_mean(column, row)
        raise ConfigError(f"{where} has no column {column!r} ({argument}=); it has {known}.{hint}")
    return row[column]


def _content_hash(prompt: str, answer: Any, files: tuple[RecordFile, ...]) -> str:
    """Equal for equal tasks, in every process. A file that is copied counts by its name: it is not read yet."""
    named = [[f.name, None if f.content is None else hashlib.sha256(f.content).hexdigest()] for f in files]
    text = json.dumps([prompt, answer, named], sort_keys=True, ensure_ascii=False)
    return f"task-{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def _name_of(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", type(function).__qualname__)
