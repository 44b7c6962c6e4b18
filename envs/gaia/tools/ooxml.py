"""Zip containers opened with care: office files and archives, bounded before a byte is inflated."""

from __future__ import annotations

import lzma
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO
from xml.etree import ElementTree

from envs.gaia.tools.base import ToolFault, clip, quoted

MAX_MEMBERS = 5000
MAX_DIRECTORY = 4 << 20
"""Bytes of the directory."""
MAX_INFLATED = 32 << 20
"""Bytes that all members of one container may inflate to."""
MAX_PART = 8 << 20
"""Bytes of one member that is parsed into a tree (which takes some twenty times the memory)."""


@contextmanager
def container(file: BinaryIO, path: str) -> Iterator[zipfile.ZipFile]:
    """The zip file in ``file``, once its directory promises a bearable size (``zipfile`` reads no more than that).

    Raises:
        ToolFault: not a zip file, encrypted, too many members or too large.
    """
    try:
        if _directory_size(file) > MAX_DIRECTORY:
            raise ToolFault(f"{quoted(path)} has too many members; at most {MAX_MEMBERS:,} are taken")
        with zipfile.ZipFile(file) as archive:
            infos = archive.infolist()
            total = sum(info.file_size for info in infos)
            if len(infos) > MAX_MEMBERS or total > MAX_INFLATED:
                raise ToolFault(
                    f"{quoted(path)} would unpack to {len(infos):,} members and {total:,} bytes; "
                    f"at most {MAX_MEMBERS:,} and {MAX_INFLATED:,} are taken"
                )
            if any(info.flag_bits & 1 for info in infos):
                raise ToolFault(f"{quoted(path)} is encrypted; no password is known")
            yield archive
    except (
        zipfile.BadZipFile,
        zlib.error,
        lzma.LZMAError,
        NotImplementedError,
        EOFError,
        ValueError,
        OSError,
    ) as error:
        # OSError: what bz2 says of broken data
        raise ToolFault(f"{quoted(path)} is damaged or not what its name says: {clip(str(error), 80)}") from None


def _directory_size(file: BinaryIO) -> int:
    """Bytes that the directory of a zip file says it has; 0 where none is found. ``zipfile`` reads it whole."""
    end = file.seek(0, 2)
    file.seek(max(0, end - 65_557))  # the end record and the longest comment after it
    tail = file.read()
    file.seek(0)
    at = tail.rfind(b"PK\x05\x06")
    return int.from_bytes(tail[at + 12 : at + 16], "little") if at >= 0 else 0


def refuse_entities(archive: zipfile.ZipFile, path: str) -> None:
    """Refuse an office file with a document type: none has a use for one, and entities can inflate without end."""
    for info in archive.infolist():
        if info.filename.endswith((".xml", ".rels", ".vml")):
            data = archive.read(info)
            if any(mark.encode(code) in data for mark in ("<!DOCTYPE", "<!ENTITY") for code in _CODES):
                raise ToolFault(f"{quoted(path)} declares XML entities in {quoted(info.filename)} and is not read")


_CODES = ("ascii", "utf-16-le", "utf-16-be")


def parse(archive: zipfile.ZipFile, name: str, path: str) -> ElementTree.Element:
    """The XML member ``name``; raises ToolFault where it is missing, broken or over :data:`MAX_PART` bytes."""
    try:
        if archive.getinfo(name).file_size > MAX_PART:
            raise ToolFault(f"{quoted(path)} holds more than {MAX_PART:,} bytes in {quoted(name)}. Use run_python.")
        parser = ElementTree.XMLParser()
        with archive.open(name) as part:
            while piece := part.read(1 << 16):  # in pieces, between which other threads get to run
                parser.feed(piece)
        root: ElementTree.Element = parser.close()
        return root
    except KeyError:
        raise ToolFault(f"{quoted(path)} has no {quoted(name)}: it is not the kind of file its name says") from None
    except (
        ElementTree.ParseError,
        LookupError,
        ValueError,
    ) as error:  # an encoding that nobody knows, or of many bytes
        raise ToolFault(f"{quoted(path)} has broken XML in {quoted(name)}: {error}") from None
