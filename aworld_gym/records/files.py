"""A record's files: what a column may hold, and how it gets into a workspace. Rows may come from strangers.

A column of files holds, per row:

* a mapping of names in the workspace to contents: ``bytes``, text (a string), ``{"text": ...}``,
  ``{"base64": ...}``, or a file to copy, ``{"path": ...}`` or a :class:`~pathlib.Path`;
* a path, or a list of paths: each is copied under its own name;
* ``{"path": ..., "bytes": ...}``, as data sets hold a media file, or a list of those;
* None or nothing: no files.
"""

from __future__ import annotations

import base64
import binascii
import os
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from aworld_gym.errors import ConfigError

MAX_NAME = 255
"""Bytes of one part of a file's name."""
MAX_PATH = 1024
"""Bytes of a whole name: what fits below a workspace, wherever that is."""


@dataclass(frozen=True)
class RecordFile:
    """One file of a task: its content, or the path of what is copied."""

    name: str
    """Where it goes: a relative path of plain parts, below the workspace."""
    content: bytes | None = None
    path: Path | None = None

    def write(self, workspace: Path) -> None:
        """Put it into the workspace."""
        target = workspace / self.name
        target.parent.mkdir(parents=True, exist_ok=True)
        if self.path is None:
            target.write_bytes(self.content or b"")
        else:
            shutil.copyfile(self.path, target)


def write_all(files: Iterable[RecordFile], workspace: Path) -> None:
    """Put all of them into the workspace."""
    for file in files:
        file.write(workspace)


def files_of(value: Any, folder: Path | None, *, inside: bool) -> tuple[RecordFile, ...]:
    """The files that a column's value describes, in order of their names.

    Args:
        value: see the module.
        folder: where relative paths begin; the current one where None.
        inside: refuse paths that lead out of ``folder``, by whatever way.

    Raises:
        ConfigError: a value that is none of those, an unsafe name, a file that is not there or lies outside.
    """
    here = Path() if folder is None else folder
    made: list[RecordFile] = []
    if value is None or (isinstance(value, str) and not value):
        return ()
    if isinstance(value, str | os.PathLike):
        made = [_copied(value, here, inside)]
    elif isinstance(value, Mapping) and "bytes" in value and set(value) <= {"path", "bytes"}:
        made = [_media(value, here, inside)]
    elif isinstance(value, Mapping):
        made = [_named(str(name), content, here, inside) for name, content in value.items() if content is not None]
    elif isinstance(value, list | tuple):
        for item in value:
            if isinstance(item, list | tuple):
                raise ConfigError(f"a list of files holds no lists, got {item!r:.80}")
            made += files_of(item, folder, inside=inside)
    else:
        raise ConfigError(
            "expected a mapping of file names to contents, a path, a list of paths, or "
            f'{{"path": ..., "bytes": ...}}, got {type(value).__name__}'
        )
    names = Counter(file.name for file in made)
    for name, count in names.items():
        if count > 1:
            raise ConfigError(f"two files are called {name!r}")
        for parent in PurePosixPath(name).parents:
            if str(parent) in names:
                raise ConfigError(f"{str(parent)!r} is both a file and a folder")
    return tuple(sorted(made, key=lambda file: file.name))


def safe_name(name: str) -> str:
    """The name itself, if it stays below whatever folder it is put into and any system can hold it.

    Raises:
        ConfigError: it is absolute, climbs, or is no name at all.
    """
    parts = PurePosixPath(name).parts
    if not parts or name != "/".join(parts) or "\\" in name or not name.isprintable():
        raise ConfigError(f"{name!r} is not a plain relative name of a file")
    too_long = len(name.encode()) > MAX_PATH or any(len(part.encode()) > MAX_NAME for part in parts)
    if name.startswith("/") or ".." in parts or too_long:
        raise ConfigError(f"{name!r:.80} leads out of the workspace, or is too long; give a plain relative name")
    return name


def _named(name: str, content: Any, folder: Path, inside: bool) -> RecordFile:
    safe_name(name)
    if isinstance(content, bytes | str):
        return RecordFile(name, _bytes(name, content) if isinstance(content, str) else content)
    if isinstance(content, os.PathLike):
        return RecordFile(name, path=_found(content, folder, inside))
    if isinstance(content, Mapping) and len(content) == 1:
        kind, value = next(iter(content.items()))
        if kind == "text" and isinstance(value, str):
            return RecordFile(name, _bytes(name, value))
        if kind == "path" and isinstance(value, str | os.PathLike):
            return RecordFile(name, path=_found(value, folder, inside))
        if kind == "base64" and isinstance(value, str):
            try:
                return RecordFile(name, base64.b64decode(value, validate=True))
            except (binascii.Error, ValueError) as error:
                raise ConfigError(f"file {name!r} is not base64: {error}") from error
    raise ConfigError(
        f'file {name!r} is given as bytes, text, {{"text": ...}}, {{"base64": ...}} or {{"path": ...}}, '
        f"got {type(content).__name__}"
    )


def _bytes(name: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:  # half of a surrogate pair, which JSON can write and UTF-8 cannot
        raise ConfigError(f"the text of file {name!r} cannot be written as UTF-8: {error}") from error


def _media(value: Mapping[str, Any], folder: Path, inside: bool) -> RecordFile:
    name = Path(str(value.get("path") or "")).name
    if value["bytes"] is None:
        return _copied(value.get("path") or "", folder, inside)
    if not isinstance(value["bytes"], bytes):
        raise ConfigError(f"the bytes of a file are bytes, got {type(value['bytes']).__name__}")
    if not name:
        raise ConfigError('a file with "bytes" needs a "path", from which it has its name')
    return RecordFile(safe_name(name), value["bytes"])


def _copied(path: str | os.PathLike[str], folder: Path, inside: bool) -> RecordFile:
    found = _found(path, folder, inside)
    return RecordFile(safe_name(Path(path).name), path=found)


def _found(path: str | os.PathLike[str], folder: Path, inside: bool) -> Path:
    text = os.fspath(path)
    if not isinstance(text, str) or not text or "\0" in text:
        raise ConfigError(f"{text!r} is no path")
    try:
        found = (folder / text).resolve()
        there = found.is_file()
    except (OSError, ValueError) as error:  # longer than a path may be, or not to be written as one
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(f"{text!r:.80} is no path of a file: {reason}") from error
    if inside and not found.is_relative_to(folder.resolve()):
        raise ConfigError(
            f"the file {text!r} lies outside of {str(folder)!r}, where this task set's files are; "
            "name another folder= that holds them all, if you trust it"
        )
    if not there:
        raise ConfigError(f"there is no file {text!r} (looked in {str(folder.absolute())!r})")
    return found
