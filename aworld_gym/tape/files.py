"""The files of a tape: lines of JSON, one file for each process that writes, read back in order."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from aworld_gym.errors import ConfigError, why
from aworld_gym.trajectory import Journal

log = logging.getLogger(__name__)

FORMAT = 1
_PATTERN = "calls-*.jsonl"


class Writer:
    """Appends lines to a file of its own in the tape's folder, made when the first line comes.

    Args:
        path: the folder.
        extend: whether it may have files already.

    Raises:
        ConfigError: it has, and may not; or it is no folder.
    """

    def __init__(self, path: Path, *, extend: bool):
        self.path, self._pid, self._closed = path, os.getpid(), False
        self._journal: Journal | None = None
        if path.exists() and not path.is_dir():
            raise ConfigError(f"a tape is a folder, and {path} is a file; choose another place")
        if not extend and next(path.glob(_PATTERN), None) is not None:
            raise ConfigError(
                f"{path} already has a tape; record to another place, or go on with that run (--resume, extend=True)"
            )

    def write(self, line: Mapping[str, Any]) -> None:
        """Add a line. When this returns, a kill of the process cannot lose it.

        Raises:
            OutputError: it could not be written. ConfigError: the file could not be made, or is closed.
        """
        if self._closed:
            raise ConfigError(f"the tape {self.path} was closed while an env still used it; close the env first")
        if self._journal is None or self._pid != os.getpid():  # a forked child writes beside its parent
            self._journal, self._pid = self._opened(), os.getpid()
        self._journal.append_line(json.dumps(line))

    def close(self) -> None:
        """Synchronise and close; more than once is harmless."""
        self._closed = True
        journal, self._journal = self._journal, None
        if journal is not None and self._pid == os.getpid():
            journal.close()

    def _opened(self) -> Journal:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            number = len(list(self.path.glob(_PATTERN)))
            while True:
                place = self.path / f"calls-{number:04d}.jsonl"
                try:
                    os.close(os.open(place, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
                    break
                except FileExistsError:
                    number += 1
        except OSError as error:
            raise ConfigError(f"cannot write a tape to {self.path}: {why(error)}; choose another place") from error
        journal = Journal(place)
        journal.append_line(json.dumps({"what": "tape", "format": FORMAT}))
        return journal


def of_kind(value: Any, *kinds: type) -> Any:
    """``value``, if it is of one of these types.

    Raises:
        TypeError: it is not.
    """
    if not isinstance(value, kinds):
        raise TypeError(f"expected {' or '.join(kind.__name__ for kind in kinds)}, got {type(value).__name__}")
    return value


def no_line(where: str, number: int, error: Exception) -> ConfigError:
    """What is raised for a line that was read and makes no sense."""
    return ConfigError(f"{where}:{number} is not a line of a tape ({type(error).__name__}: {error}); record it anew")


def read_lines(path: Path, *, missing_ok: bool = False) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Each file's path and lines, the oldest file first. A torn last line is left out, with a warning.

    Raises:
        ConfigError: there is no such tape, a line cannot be read, or a newer version wrote it.
    """
    files = sorted(path.glob(_PATTERN)) if path.is_dir() else []
    if not files and not missing_ok:
        raise ConfigError(f"there is no tape at {path}: a tape is the folder that --record (tape.Recorder) wrote")
    for file in files:
        yield str(file), _lines(file)


def _lines(file: Path) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    try:
        content = file.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read the tape {file}: {why(error)}") from error
    texts = content.split(b"\n")
    for number, text in enumerate(texts, 1):
        if not text.strip():
            continue
        try:
            line = json.loads(text)
            if not isinstance(line, dict):
                raise ValueError(f"expected an object, got {type(line).__name__}")
        except (ValueError, RecursionError) as error:
            if number == len(texts):
                log.warning("%s: the last line is torn (%d bytes) and is left out", file, len(text))
                break
            raise ConfigError(f"{file}:{number} is not a line of a tape ({error}); record it anew") from error
        if line.get("what") == "tape" and line.get("format") != FORMAT:
            raise ConfigError(
                f"{file} is a tape of format {line.get('format')!r}, and this version reads {FORMAT}; record it anew"
            )
        lines.append(line)
    return lines
