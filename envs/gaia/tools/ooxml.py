"""Zip containers opened with care: office files and archives, bounded before a byte is inflated."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO
from xml.etree import ElementTree

from envs.gaia.tools.base import ToolFault, clip, quoted

MAX_MEMBERS = 5000
MAX_INFLATED = 32 << 20
"""Bytes that all members of one container may inflate to."""


@contextmanager
def container(file: BinaryIO, path: str) -> Iterator[zipfile.ZipFile]:
    """The zip file in ``file``, once its directory promises a bearable size (``zipfile`` reads no more than that).

    Raises:
        ToolFault: not a zip file, encrypted, too many members or too large.
    """
    try:
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
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, ValueError) as error:
        raise ToolFault(f"{quoted(path)} is damaged or not what its name says: {clip(str(error), 80)}") from None


def refuse_entities(archive: zipfile.ZipFile, path: str) -> None:
    """Refuse an office file with a document type: none has a use for one, and entities can inflate without end."""
    for info in archive.infolist():
        if info.filename.endswith((".xml", ".rels", ".vml")):
            data = archive.read(info)
            if any(mark.encode(code) in data for mark in ("<!DOCTYPE", "<!ENTITY") for code in _CODES):
                raise ToolFault(f"{quoted(path)} declares XML entities in {quoted(info.filename)} and is not read")


_CODES = ("ascii", "utf-16-le", "utf-16-be")


def parse(archive: zipfile.ZipFile, name: str, path: str) -> ElementTree.Element:
    """The XML member ``name``; raises ToolFault where it is missing or broken."""
    try:
        return ElementTree.fromstring(archive.read(name))
    except KeyError:
        raise ToolFault(f"{quoted(path)} has no {quoted(name)}: it is not the kind of file its name says") from None
    except ElementTree.ParseError as error:
        raise ToolFault(f"{quoted(path)} has broken XML in {quoted(name)}: {error}") from None
