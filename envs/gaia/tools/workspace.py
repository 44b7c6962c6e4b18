"""The episode's directory, and the only way tools reach files: by descriptor, below it, regular files only.

Every path is opened component by component relative to the directory's descriptor without following a link, so
that neither ``..``, an absolute path, a symbolic link (even one swapped in during the call), a FIFO nor a device
leads anywhere. What the model's own code may do is the sandbox's business; what it leaves behind is met here.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from aworld_gym.errors import did_you_mean
from envs.gaia.bubblewrap import MOUNT
from envs.gaia.processes import MAX_DEPTH

MAX_FILE_BYTES = 32 << 20
"""Largest file that a tool reads or writes."""
MAX_TOTAL_BYTES = 128 << 20
"""All files together, after which tools write no more."""
MAX_ENTRIES = 5000
"""Directory entries after which a listing stops."""
MAX_ECHO = 80
"""Characters of the model's own text that an error text gives back."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class ToolFault(Exception):
    """A tool refuses; the text is for the model and says what to do instead."""


@dataclass(frozen=True)
class Entry:
    """One thing in the workspace."""

    path: str
    """Relative to the workspace, with forward slashes."""
    size: int
    """Bytes; 0 for what is no regular file."""
    kind: str
    """``"file"``, ``"directory"``, ``"link"`` or ``"special"``."""


class Workspace:
    """Confined access to one directory.

    Args:
        root: the directory; it must exist.
    """

    def __init__(self, root: Path):
        self.root = Path(root)

    def parts(self, path: str) -> tuple[str, ...]:
        """``path`` as names below the workspace; empty for the workspace itself.

        Raises:
            ToolFault: a path that leads elsewhere.
        """
        if path == MOUNT or path.startswith(MOUNT + "/"):
            path = path[len(MOUNT) :].lstrip("/")
        parts = tuple(part for part in path.split("/") if part not in ("", "."))
        odd = "\0" in path or any("\ud800" <= c <= "\udfff" for c in path)
        if path.startswith("/") or ".." in parts or odd or len(parts) > MAX_DEPTH or len(path) > 4096:
            raise ToolFault(f"only files of the workspace can be used, by relative path; got {quoted(path)}")
        return parts

    @contextmanager
    def open(self, path: str, *, limit: int = MAX_FILE_BYTES) -> Iterator[BinaryIO]:
        """The regular file at ``path``, open for reading.

        Raises:
            ToolFault: no such file, not a regular file, or over ``limit`` bytes.
        """
        parts = self.parts(path)
        if not parts:
            raise ToolFault(f"{quoted(path)} is a directory, not a file. {self.hint(path)}")
        with self._directory(parts[:-1], path) as directory:
            try:
                descriptor = os.open(_stored(parts[-1]), _FILE, dir_fd=directory)
            except OSError as error:
                raise self._fault(path, error) from None
            try:
                self._check(path, os.fstat(descriptor), limit)
                file = os.fdopen(descriptor, "rb")
            except BaseException:
                os.close(descriptor)
                raise
            with file:
                yield file

    def _check(self, path: str, status: os.stat_result, limit: int) -> None:
        if stat.S_ISDIR(status.st_mode):
            raise ToolFault(f"{quoted(path)} is a directory, not a file. {self.hint(path)}")
        if not stat.S_ISREG(status.st_mode):
            raise ToolFault(f"{quoted(path)} is not a regular file")
        if status.st_size > limit:
            raise ToolFault(
                f"{quoted(path)} has {status.st_size:,} bytes; this tool reads at most {limit:,}. "
                "Use run_python to read a part of it."
            )

    def read(self, path: str, *, limit: int = MAX_FILE_BYTES) -> bytes:
        """The bytes of the file at ``path``; raises ToolFault as :meth:`open` does."""
        with self.open(path, limit=limit) as file:
            data = file.read(limit + 1)
        if len(data) > limit:  # it grew while it was read
            raise ToolFault(f"{quoted(path)} has more than {limit:,} bytes; this tool reads at most that")
        return data

    def write(self, path: str, data: BinaryIO, *, limit: int) -> int:
        """Create the file at ``path``, and the directories it needs, from a stream; the bytes written.

        Where it fails, what was written until then stays; :meth:`remove` takes it away.

        Raises:
            ToolFault: the path leads elsewhere, exists already, or the stream has more than ``limit`` bytes.
        """
        parts = self.parts(path)
        if not parts:
            raise ToolFault(f"{quoted(path)} is no file name")
        written = 0
        with self._directory(parts[:-1], path, create=True) as directory:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            try:
                descriptor = os.open(_stored(parts[-1]), flags, 0o644, dir_fd=directory)
            except FileExistsError:
                raise ToolFault(f"{quoted(path)} exists already") from None
            except OSError as error:
                raise self._fault(path, error) from None
            with os.fdopen(descriptor, "wb") as file:
                while chunk := data.read(1 << 16):
                    written += len(chunk)
                    if written > limit:
                        raise ToolFault(f"{quoted(path)} would have more than {limit:,} bytes")
                    file.write(chunk)
        return written

    def exists(self, path: str) -> bool:
        """True where something stands at ``path``, links not followed."""
        parts = self.parts(path)
        try:
            with self._directory(parts[:-1], path) as directory:
                os.stat(_stored(parts[-1]) if parts else ".", dir_fd=directory, follow_symlinks=False)
        except (ToolFault, OSError):
            return False
        return True

    def remove(self, path: str) -> None:
        """Take away a file, or a directory and all below it, links not followed; nothing where there is nothing."""
        parts = self.parts(path)
        with self._directory(parts[:-1], path) as directory:
            name = _stored(parts[-1])
            try:
                kind = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
            except OSError as error:
                if error.errno in (errno.ENOENT, errno.ENAMETOOLONG):
                    return
                raise self._fault(path, error) from None
            if stat.S_ISDIR(kind):
                shutil.rmtree(name, dir_fd=directory)
            else:
                os.unlink(name, dir_fd=directory)

    def room(self) -> int:
        """Bytes that tools may still write."""
        return max(0, MAX_TOTAL_BYTES - sum(entry.size for entry in self.entries()))

    def entries(self, path: str = ".") -> list[Entry]:
        """Everything below ``path``, sorted by path, directories included; at most :data:`MAX_ENTRIES`.

        Raises:
            ToolFault: ``path`` is not a directory of the workspace.
        """
        parts = self.parts(path)
        found: list[Entry] = []
        with self._directory(parts, path) as directory:
            self._walk(directory, "/".join(parts), found, len(parts))
        return sorted(found, key=lambda entry: entry.path)

    def hint(self, path: str) -> str:
        """Which files there are, and which of them ``path`` may have meant."""
        known = [entry.path for entry in self.entries() if entry.kind == "file"]
        files = [name for name in known if len(name) <= MAX_ECHO]
        if not files:
            return "The files have long names: use list_files." if known else "The workspace has no files."
        name = path.rstrip("/").rsplit("/", 1)[-1].casefold()
        same = [file for file in files if file.rsplit("/", 1)[-1].casefold() == name]
        close = f" Did you mean {same[0]!r}?" if same and same[0] != path else nearest(path, files)
        more = f" and {len(known) - len(files[:20])} more" if len(known) > len(files[:20]) else ""
        return f"Files: {', '.join(files[:20])}{more}.{close}"

    @contextmanager
    def _directory(self, parts: tuple[str, ...], path: str, *, create: bool = False) -> Iterator[int]:
        """A descriptor of the directory that ``parts`` name; ``path`` is for error texts."""
        try:
            descriptor = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:  # closed by a program that runs beside this call
            raise ToolFault(f"the workspace cannot be opened now: {error.strerror}") from None
        try:
            for part in map(_stored, parts):
                try:
                    if create:
                        try:
                            os.mkdir(part, 0o755, dir_fd=descriptor)
                        except FileExistsError:
                            pass
                    inner = os.open(part, _DIRECTORY, dir_fd=descriptor)
                except OSError as error:
                    raise self._fault(path, error) from None
                os.close(descriptor)
                descriptor = inner
            yield descriptor
        finally:
            os.close(descriptor)

    def _walk(self, directory: int, prefix: str, found: list[Entry], depth: int) -> None:
        with os.scandir(directory) as scan:
            names = sorted(scan, key=lambda item: os.fsencode(item.name))
        for item in names:
            if len(found) >= MAX_ENTRIES:
                return
            name = os.fsencode(item.name).decode("utf-8", "surrogateescape")
            path = f"{prefix}/{name}" if prefix else name
            try:
                status = os.stat(item.name, dir_fd=directory, follow_symlinks=False)
            except FileNotFoundError:  # a program that runs beside this call
                continue
            if stat.S_ISDIR(status.st_mode):
                found.append(Entry(path, 0, "directory"))
                if depth < MAX_DEPTH:
                    try:
                        inner = os.open(item.name, _DIRECTORY, dir_fd=directory)
                    except OSError:  # closed to us, or swapped for a link just now
                        continue
                    try:
                        self._walk(inner, path, found, depth + 1)
                    finally:
                        os.close(inner)
            elif stat.S_ISREG(status.st_mode):
                found.append(Entry(path, status.st_size, "file"))
            else:
                found.append(Entry(path, 0, "link" if stat.S_ISLNK(status.st_mode) else "special"))

    def _fault(self, path: str, error: OSError) -> ToolFault:
        if isinstance(error, FileNotFoundError):
            return ToolFault(f"there is no {quoted(path)}. {self.hint(path)}")
        if isinstance(error, NotADirectoryError) or error.errno in (errno.ELOOP, errno.ENXIO):
            return ToolFault(f"{quoted(path)} is not a plain path: links and special files are not followed")
        return ToolFault(f"{quoted(path)} cannot be opened: {error.strerror}")


def nearest(text: str, known: Iterable[str]) -> str:
    """`` Did you mean …?`` for the one name close to ``text``, or nothing; no look at what is too long for a name."""
    return did_you_mean(text, known, limit=1) if len(text) <= 3 * MAX_ECHO else ""


def _stored(name: str) -> str:
    """A name as the system calls take it, so that it is stored in UTF-8, whatever the locale."""
    return os.fsdecode(name.encode("utf-8", "surrogateescape"))


def clip(text: str, limit: int) -> str:
    """``text`` in at most ``limit`` characters, with an ellipsis where it was cut."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def quoted(text: str) -> str:
    """A path or other text of the model's as error texts give it: in quotes, and not too long."""
    return repr(clip(text, MAX_ECHO))
