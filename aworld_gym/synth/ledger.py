"""The file that a synthesis keeps beside its output: what was asked, answered and decided, a line each, as it happens.

From it a synthesis that was broken off goes on where it stood, with the replies that it already paid for. A line is
handed over in one write; a torn last line is cut off when the file is opened again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from aworld_gym.errors import ConfigError, OutputError, why
from aworld_gym.trajectory import lock_file, write_whole


class Lines:
    """A JSON-lines file that is read once and then appended to; one process at a time.

    Args:
        path: it and its folder are made where absent.

    Raises:
        ConfigError: it cannot be written, another process writes it, or a line is no JSON object.
    """

    def __init__(self, path: Path):
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("ab+", buffering=0)
        except OSError as error:
            raise ConfigError(f"cannot write {path}: {why(error)}; choose another place") from error
        try:
            lock_file(self._file.fileno(), path)
            self.rows = self._read()
        except BaseException:
            self.close()
            raise

    def append(self, row: Mapping[str, Any]) -> None:
        """Write one line. When this returns, a kill of the process cannot lose it.

        Raises:
            OutputError: it could not be written (a full disk, say); the file is then as it was before.
        """
        line = json.dumps(row, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
        try:
            write_whole(self._file.fileno(), line)
        except OSError as error:
            raise OutputError(f"cannot write {self.path}: {why(error)}; what it holds is whole") from error
        self.rows.append(dict(row))

    def close(self) -> None:
        """Close the file, which frees it for others."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _read(self) -> list[dict[str, Any]]:
        self._file.seek(0)
        data = self._file.read()
        whole, _, torn = data.rpartition(b"\n")
        if torn:
            os.ftruncate(self._file.fileno(), len(data) - len(torn))
        rows = []
        for number, line in enumerate(whole.split(b"\n") if whole else (), 1):
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise ConfigError(f"{self.path}, line {number} is not valid JSON: {error}") from error
            if not isinstance(row, dict):
                raise ConfigError(f"{self.path}, line {number} must be an object, got {type(row).__name__}")
            rows.append(row)
        return rows
