"""The files that every task of a synthesis has: a folder of yours, copied beside the output."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from aworld_gym.errors import ConfigError
from aworld_gym.records.files import RecordFile, safe_name


def place(files: str | os.PathLike[str] | None, output: Path) -> list[RecordFile]:
    """The files of a folder, copied beside the output so that the tasks can be moved with them.

    Raises:
        ConfigError: there is no such folder, it is empty or holds links, or the copy is of another folder.
    """
    if files is None:
        return []
    source, folder = Path(files), output.parent / folder_of(output)
    if not source.is_dir():
        raise ConfigError(f"--files is a folder; there is none at {str(source)!r}")
    found = []
    for path in sorted(source.rglob("*")):
        if path.is_symlink():
            raise ConfigError(f"{path} is a link; put the file itself there")
        if path.is_file():
            found.append(RecordFile(safe_name(path.relative_to(source).as_posix()), path=path))
    if not found:
        raise ConfigError(f"the folder {str(source)!r} holds no files")
    for file in found:
        target = folder / file.name
        if target.is_file() and target.read_bytes() != content_of(file):
            raise ConfigError(f"{target} is there already, and is another file than {file.path}; choose another place")
        if not target.is_file() and file.path is not None:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file.path, target)
    return found


def folder_of(output: Path) -> str:
    """The name of the folder, beside ``output``, that holds the files."""
    return f"{output.stem}_files"


def content_of(file: RecordFile) -> bytes:
    """The file's bytes."""
    return file.content or b"" if file.path is None else file.path.read_bytes()
