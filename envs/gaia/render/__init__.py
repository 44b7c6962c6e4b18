"""File contents as data, and their bytes.

A task holds what its files say (:data:`Content`); :func:`render` turns that into the bytes of a file, by the
ending of its name. The same content gives the same bytes, always: no clock, no random order, fixed dates and
versions inside. Archives are stored rather than compressed, which is quicker to write and does not depend on the
version of zlib.

| ending | content |
|---|---|
| csv, tsv, xml | :class:`Sheet` |
| xlsx | :class:`Book`, with hidden and merged cells, hidden sheets and formulas |
| sqlite | :class:`Database` |
| txt, md, html, docx, pdf | :class:`Doc` |
| pptx | :class:`Slides`, with notes |
| eml | :class:`Mail`, with attachments |
| json, jsonl | :class:`Data`, :class:`Lines` |
| png | :class:`Grid`, :class:`Bars`, :class:`Lettering`, :class:`Qr` |
| wav | :class:`Morse`, :class:`Dtmf`, :class:`Beeps` |
| zip | :class:`Archive`, nested as deep as wanted |
| any | :class:`Text` |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from envs.gaia.render import databases, documents, mail, pictures, slides, sounds, tables
from envs.gaia.render.contents import (
    COLOURS,
    MAX_QR,
    Archive,
    Bars,
    Beeps,
    Book,
    Bullets,
    Cell,
    Content,
    Data,
    Database,
    Doc,
    Dtmf,
    Grid,
    Lettering,
    Lines,
    Mail,
    Morse,
    Qr,
    Sheet,
    Slide,
    Slides,
    Text,
)
from envs.gaia.render.packing import WRITTEN, zipped
from envs.gaia.render.pictures import BAR_GAP_PX, BAR_PX, CELL_PX

__all__ = [
    "BAR_GAP_PX",
    "BAR_PX",
    "CELL_PX",
    "COLOURS",
    "MAX_QR",
    "WRITTEN",
    "Archive",
    "Bars",
    "Beeps",
    "Book",
    "Bullets",
    "Cell",
    "Content",
    "Data",
    "Database",
    "Doc",
    "Dtmf",
    "Grid",
    "Lettering",
    "Lines",
    "Mail",
    "Morse",
    "Qr",
    "Sheet",
    "Slide",
    "Slides",
    "Text",
    "render",
]


def render(name: str, content: Content) -> bytes:
    """The bytes of a file called ``name``.

    Raises:
        ValueError: a content that files of this ending cannot hold.
    """
    if isinstance(content, Text):
        return content.text.encode("utf-8")
    ending = name.rpartition(".")[2]
    renderer = _RENDERERS.get((ending, type(content)))
    if renderer is None:
        raise ValueError(f"a .{ending} file cannot hold a {type(content).__name__} ({name!r})")
    return renderer(content)


def _archive(archive: Archive) -> bytes:
    return zipped((name, render(name, content)) for name, content in archive.members)


def _mail(message: Mail) -> bytes:
    return mail.eml(message, [(name, render(name, content)) for name, content in message.attachments])


_RENDERERS: Mapping[tuple[str, type], Callable[[Any], bytes]] = MappingProxyType(
    {
        ("csv", Sheet): partial(tables.delimited, delimiter=","),
        ("tsv", Sheet): partial(tables.delimited, delimiter="\t"),
        ("xml", Sheet): tables.xml,
        ("xlsx", Book): tables.xlsx,
        ("sqlite", Database): databases.sqlite,
        ("docx", Doc): documents.docx,
        ("pdf", Doc): documents.pdf,
        ("txt", Doc): documents.txt,
        ("md", Doc): documents.md,
        ("html", Doc): documents.html,
        ("pptx", Slides): slides.pptx,
        ("eml", Mail): _mail,
        ("json", Data): documents.json,
        ("jsonl", Lines): documents.jsonl,
        ("png", Grid): pictures.grid,
        ("png", Bars): pictures.bars,
        ("png", Lettering): pictures.lettering,
        ("png", Qr): pictures.qr,
        ("wav", Morse): sounds.morse,
        ("wav", Dtmf): sounds.dtmf,
        ("wav", Beeps): sounds.beeps,
        ("zip", Archive): _archive,
    }
)
