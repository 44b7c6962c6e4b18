"""``unpack_archive``: zip, tar, gzip and what is attached to mails, into the workspace and never outside it."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, BinaryIO

from pydantic import Field

from envs.gaia.tools import mail, ooxml
from envs.gaia.tools.base import ToolContext, ToolDef, ToolFault, clip, lines, quoted

MAX_MEMBERS = 500
MAX_BYTES = 32 << 20
"""Bytes that one archive may unpack to."""
MAX_OVERHEAD = 8 << 20
"""Bytes of a tar file beside its members."""
MAX_ENTRIES = 5000
"""Entries of a tar file, directories included."""
MAX_LISTED = 100

_ENDINGS = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".gz", ".eml")


def tools(context: ToolContext) -> list[ToolDef]:
    """The unpacker."""

    def unpack_archive(path: Annotated[str, Field(description="A zip, tar, tar.gz or gz file, or an eml.")]) -> str:
        workspace = context.workspace
        target = _target(path)
        if workspace.exists(target):
            raise ToolFault(f"{quoted(target)} exists already: {quoted(path)} seems to be unpacked. Use list_files.")
        names: list[str] = []
        left = min(MAX_BYTES, workspace.room())
        try:
            with workspace.open(path) as file, _members(file, path) as members:
                for name, stream in members:
                    if len(names) >= MAX_MEMBERS:
                        raise ToolFault(f"{quoted(path)} has over {MAX_MEMBERS} members and is not unpacked")
                    inner = f"{target}/{name}" if name else target
                    left -= workspace.write(inner, stream, limit=left)
                    names.append(inner)
        except BaseException:
            workspace.remove(target)  # all or nothing
            raise
        nothing = "has no attachments" if path.lower().endswith(".eml") else "is empty"
        return lines(names, MAX_LISTED, noun="files") or f"{quoted(path)} {nothing}"

    description = (
        "Unpack an archive, or the attachments of a mail, into a directory named after it; lists the extracted files."
    )
    return [ToolDef(unpack_archive, description, read_only=False, idempotent=False)]


def _target(path: str) -> str:
    for ending in sorted(_ENDINGS, key=len, reverse=True):
        if path.lower().endswith(ending) and len(path) > len(ending):
            return path[: -len(ending)]
    raise ToolFault(f"{quoted(path)} is not an archive that can be unpacked ({', '.join(_ENDINGS)})")


@contextmanager
def _members(file: BinaryIO, path: str) -> Iterator[Iterator[tuple[str, BinaryIO]]]:
    """The regular members as (name, stream), in stored order; an empty name for a lone gzip stream.

    Raises:
        ToolFault: damaged, encrypted or over the bounds, or a member that leads outside.
    """
    ending = path.lower()
    try:
        if ending.endswith(".zip"):
            with ooxml.container(file, path) as archive:
                yield _zip_members(archive, path)
        elif ending.endswith(".eml"):
            yield ((_inner(one.name, path), io.BytesIO(one.data)) for one in mail.attachments(file, path))
        elif ending.endswith(".gz") and not ending.endswith(".tar.gz"):
            with gzip.open(file) as stream:
                yield iter([("", stream)])  # type: ignore[list-item]
        else:
            with _Inflated(file, path) as inner, tarfile.open(fileobj=inner, mode="r|") as archive:
                yield _tar_members(archive, path)
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError) as error:
        raise ToolFault(f"{quoted(path)} is damaged or not what its name says: {clip(str(error), 80)}") from None


def _zip_members(archive: zipfile.ZipFile, path: str) -> Iterator[tuple[str, BinaryIO]]:
    for info in archive.infolist():
        kind = info.external_attr >> 28
        if info.filename.endswith("/"):
            continue
        if kind not in (0, 0o10):  # the upper bits of the Unix mode: anything but a regular file
            raise _special(path, info.filename)
        with archive.open(info) as stream:
            yield _inner(info.filename, path), stream  # type: ignore[misc]


class _Inflated(io.RawIOBase):
    """What a tar file holds, inflated, and no more than an archive within bounds can: whoever reads on is refused.

    Headers of gigabytes, members that are only skipped, and zeros without end are so bounded like the rest.
    """

    def __init__(self, file: BinaryIO, path: str):
        magic = file.read(6)
        file.seek(0)
        openers: dict[bytes, Callable[[BinaryIO], Any]] = {
            b"\x1f\x8b": gzip.open,
            b"BZh": bz2.open,
            b"\xfd7zXZ\0": lzma.open,
        }
        opener = next((opener for start, opener in openers.items() if magic.startswith(start)), None)
        self._stream: Any = opener(file) if opener else file
        self._path = path
        self._left = MAX_BYTES + MAX_OVERHEAD

    def read(self, size: int = -1) -> bytes:
        """At most ``size`` bytes; raises ToolFault after too many in all."""
        data: bytes = self._stream.read(min(size, self._left + 1) if size >= 0 else self._left + 1)
        self._left -= len(data)
        if self._left < 0:
            raise ToolFault(f"{quoted(self._path)} would unpack to more than {MAX_BYTES:,} bytes")
        return data


def _tar_members(archive: tarfile.TarFile, path: str) -> Iterator[tuple[str, BinaryIO]]:
    for count, info in enumerate(archive):
        if count >= MAX_ENTRIES:
            raise ToolFault(f"{quoted(path)} has over {MAX_ENTRIES:,} entries and is not unpacked")
        if info.isdir():
            continue
        if not info.isreg():
            raise _special(path, info.name)
        stream = archive.extractfile(info)
        yield _inner(info.name, path), stream or io.BytesIO()  # type: ignore[misc]


def _special(path: str, name: str) -> ToolFault:
    return ToolFault(f"{quoted(path)} holds a link or special file ({quoted(name)}), which is not unpacked")


def _inner(name: str, path: str) -> str:
    """A member's name, refused where it leads outside the archive's own directory."""
    name = name.replace("\\", "/")
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts or not parts or "\0" in name or ":" in parts[0]:
        raise ToolFault(f"{quoted(path)} holds a member that leads outside it ({quoted(name)}) and is not unpacked")
    return "/".join(parts)
