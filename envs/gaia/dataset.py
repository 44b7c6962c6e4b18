"""The real GAIA data set, from a copy of yours, as a task source. None of its content is here.

The data set is gated: its owners ask that it be downloaded from them and that questions and answers be put nowhere
where crawlers find them. What is read is a folder as they publish it::

    DIR/2023/validation/metadata.jsonl      (or metadata.parquet, or metadata.level1.parquet and so on)
    DIR/2023/validation/<attached files>
    DIR/2023/test/...

The answers of the test split are not public: they are ``?``, and such a task has no score.
"""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from aworld_gym import scorers
from aworld_gym.errors import ConfigError, did_you_mean
from aworld_gym.records.files import safe_name
from aworld_gym.records.rows import read_parquet, read_rows
from aworld_gym.records.verdicts import specification
from aworld_gym.tasks import TaskList
from aworld_gym.types import Score, Task

log = logging.getLogger(__name__)

SPLITS = ("validation", "test")
LEVELS = (1, 2, 3)
YEAR = "2023"
COLUMNS = ("task_id", "Question", "Level", "Final answer", "file_name")
"""Those that are read; others (the annotators' notes) are not."""
NO_ANSWER = ("?", "")
"""What stands where the true answer is not public."""

_WHOLE = ("metadata.jsonl", "metadata.parquet")
_OF_LEVEL = re.compile(r"metadata[._-]level(?P<level>[123])\.parquet")
_SHOWN = 5


class GaiaDataset(TaskList):
    """One split of the real data set, as a :class:`aworld_gym.tasks.TaskSource`. Task ids are the data set's own.

    Args:
        directory: the data set's root, its folder ``2023``, or the split's own folder.
        split: ``"validation"`` or ``"test"``.
        level: 1, 2 or 3; all where None.
        scorer: ``"official"``, by which published scores are made, or ``"strict"``, which sees from each true answer
            whether it is a number, a list or words.

    Raises:
        ConfigError: the folder does not hold that split, a row is broken, or attached files are missing or would lead
            out of the folder; the message says which and what to do.
        MissingDependencyError: the split is a Parquet file, and pyarrow is not installed.
    """

    def __init__(self, directory: str | Path, split: str, level: int | None = None, scorer: str = "official"):
        if split not in SPLITS:
            raise ConfigError(
                f"the GAIA data set has the splits {' and '.join(SPLITS)}, got {split!r}: "
                f"pass split='validation'.{did_you_mean(str(split), SPLITS)}"
            )
        if level is not None and (isinstance(level, bool) or level not in LEVELS):
            raise ConfigError(f"level must be None or one of {list(LEVELS)}, got {level!r}")
        self.split, self.scorer = split, scorers.check_which(scorer)
        self._folder = _split_folder(Path(directory), split)
        self._attached: dict[str, str] = {}
        tasks = tuple(self._read(level))
        if not tasks:
            raise ConfigError(f"{self._folder} has no tasks{f' of level {level}' if level else ''}")
        super().__init__(tasks)
        self._check_files()
        self.scored = any(task.answer is not None for task in self.tasks)
        """Whether any task has a true answer."""
        if not self.scored and str(self._folder) not in _warned:
            _warned.add(str(self._folder))
            log.warning(
                "the answers of GAIA's %s split are not public: its episodes get no reward, and their score is None",
                split,
            )

    def setup(self, task: Task, workspace: Path) -> None:
        """Copy the attached file into the workspace."""
        name = self._attached.get(task.id)
        if name is not None:
            shutil.copyfile(self._file(name), workspace / name)

    def score(self, task: Task, answer: str | None) -> Score | None:
        """The verdict of the chosen scorer; None where the true answer is not public."""
        if task.answer is None:
            return None
        return scorers.score(task.answer, answer, which=self.scorer)

    # ---- reading ---------------------------------------------------------------------------------------------------

    def _read(self, level: int | None) -> Iterator[Task]:
        seen: set[str] = set()
        for where, row in _rows(self._folder, level):
            for column in COLUMNS:
                if column not in row:
                    raise ConfigError(f"{where} has no column {column!r}; it has {', '.join(row)}")
            task = self._task(where, row)
            if task.id in seen:
                raise ConfigError(f"{where}: the id {task.id!r} stands there twice")
            seen.add(task.id)
            if level is None or task.level == level:
                yield task
            else:
                self._attached.pop(task.id, None)

    def _task(self, where: str, row: Mapping[str, Any]) -> Task:
        task_id, question, answer, name = (row[c] for c in ("task_id", "Question", "Final answer", "file_name"))
        for column, value in (("task_id", task_id), ("Question", question)):
            if not isinstance(value, str) or not value.strip():
                raise ConfigError(f"{where}, column {column!r}: expected text, got {value!r:.80}")
        level = str(row["Level"]).removesuffix(".0")
        if level not in map(str, LEVELS):
            raise ConfigError(f"{where}, column 'Level': expected 1, 2 or 3, got {row['Level']!r:.80}")
        if name:
            try:
                if "/" in str(name):
                    raise ConfigError(f"{name!r} is no plain name of a file")
                if _is_metadata(str(name)):
                    raise ConfigError(f"{name!r} lists the answers; it is attached to no question")
                self._attached[task_id] = safe_name(str(name))
            except ConfigError as error:
                raise ConfigError(f"{where}, column 'file_name': {error}") from error
            question = f"{question}\n\nA file belongs to this question; it is in your workspace: {name}"
        text = "" if answer is None else str(answer)
        return Task(
            id=task_id,
            prompt=question,
            answer=None if text.strip() in NO_ANSWER else _specification(text),
            level=int(level),
            metadata={"dataset": "gaia-2023", "split": self.split, "files": [name] if name else []},
        )

    def _check_files(self) -> None:
        missing = [name for name in self._attached.values() if not self._file(name).is_file()]
        if missing:
            more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
            raise ConfigError(
                f"{len(missing)} of {len(self._attached)} attached files are not in {self._folder}: "
                f"{', '.join(missing[:_SHOWN])}{more}. Download the data set whole, attachments included"
            )

    def _file(self, name: str) -> Path:
        """The path of an attached file.

        A link is followed into the ``blobs`` of a download cache alone, which is where such a cache keeps every file.
        """
        path = self._folder / name
        if path.is_symlink():
            target = path.resolve()
            if not any(target.is_relative_to(blobs) for blobs in _blobs(self._folder)):
                raise ConfigError(f"the attached file {name!r} in {self._folder} is a link that leads elsewhere")
        return path


_warned: set[str] = set()


def _split_folder(directory: Path, split: str) -> Path:
    """The folder of a split, from whichever of its parents was named."""
    if not directory.is_dir():
        raise ConfigError(f"dataset= is the folder of the GAIA data set; there is no folder {str(directory)!r}")
    tried = [directory / YEAR / split, directory / split]
    if directory.resolve().name in SPLITS and directory.resolve().name != split and _metadata(directory):
        raise ConfigError(f"{directory} is the folder of another split than {split!r}; pass its parent folder")
    for folder in (*tried, directory):
        if folder.is_dir() and _metadata(folder):
            return folder
    raise ConfigError(
        f"there is no metadata.jsonl or metadata.parquet of split {split!r} in {str(directory)!r}: expected it in "
        f"{YEAR}/{split}/, as the data set is published"
    )


def _metadata(folder: Path) -> list[Path]:
    """The files that list the tasks: one for all, or one for each level."""
    for name in _WHOLE:
        if (folder / name).is_file():
            return [folder / name]
    return sorted(path for path in folder.iterdir() if _OF_LEVEL.fullmatch(path.name))


def _is_metadata(name: str) -> bool:
    return name in _WHOLE or _OF_LEVEL.fullmatch(name) is not None


def _rows(folder: Path, level: int | None) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for path in _metadata(folder):
        of_level = _OF_LEVEL.fullmatch(path.name)
        if of_level and level is not None and int(of_level["level"]) != level:
            continue
        if path.suffix == ".parquet":
            for number, row in enumerate(read_parquet(path), 1):
                yield f"{path.name}, row {number}", row
        else:
            yield from read_rows(path)


def _specification(text: str) -> Mapping[str, Any]:
    """What ``strict`` makes of an answer of which only the text is known: number, list or words."""
    spec = specification(text)
    if spec["type"] == "string" and re.search("[,;]", text):
        parts = [part.strip() for part in re.split(";" if ";" in text else ",", text) if part.strip()]
        if len(parts) > 1:
            return {**specification(parts), "text": text}
    return spec


def _blobs(folder: Path) -> Iterator[Path]:
    """Where a download cache keeps the content of the files that its snapshot folders link to."""
    for parent in folder.absolute().parents:
        if parent.name == "snapshots" and (parent.parent / "blobs").is_dir():
            yield (parent.parent / "blobs").resolve()
