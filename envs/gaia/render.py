"""File contents as data, and their bytes.

A task holds what its files say (:data:`Content`); :func:`render` turns that into the bytes of a file, by the
ending of its name. The same content gives the same bytes, always: no clock, no random order, fixed dates in
archives and document properties. Archives are stored rather than compressed, which is quicker to write and does
not depend on the version of zlib.

Formats: csv, tsv, xlsx (:class:`Sheet`, :class:`Book`); txt, md, html, docx, pdf (:class:`Doc`); json
(:class:`Data`); png (:class:`Grid`, :class:`Bars`); zip (:class:`Archive`, nested as deep as wanted); and any
text file, such as py (:class:`Text`).
"""

from __future__ import annotations

import csv
import datetime
import html
import io
import json
import re
import textwrap
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

Cell = str | int | float

WRITTEN = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
"""The date that files carry inside."""
COLOURS: Mapping[str, tuple[int, int, int]] = MappingProxyType(
    {
        "red": (255, 0, 0),
        "green": (0, 128, 0),
        "blue": (0, 0, 255),
        "yellow": (255, 255, 0),
        "orange": (255, 165, 0),
        "purple": (128, 0, 128),
        "black": (0, 0, 0),
        "white": (255, 255, 255),
    }
)
"""The colours that pictures use, by their CSS names and values."""
CELL_PX = 24
"""Width and height of a grid's cell, in pixels."""
BAR_PX = 30
"""Width of a chart's bar, in pixels."""
BAR_GAP_PX = 20
"""Between two bars, and around all of them."""


@dataclass(frozen=True)
class Sheet:
    """One table: a header and rows of as many cells."""

    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def __post_init__(self) -> None:
        if any(len(row) != len(self.header) for row in self.rows):
            raise ValueError(f"every row of a sheet has {len(self.header)} cells, like its header")


@dataclass(frozen=True)
class Book:
    """A workbook: named sheets in order."""

    sheets: tuple[tuple[str, Sheet], ...]


@dataclass(frozen=True)
class Bullets:
    """A list in a document."""

    items: tuple[str, ...]


@dataclass(frozen=True)
class Doc:
    """A document: a title, then paragraphs (str), lists and tables."""

    title: str
    blocks: tuple[str | Bullets | Sheet, ...]


@dataclass(frozen=True)
class Data:
    """A JSON value."""

    value: Any


@dataclass(frozen=True)
class Text:
    """A text file as it is."""

    text: str


@dataclass(frozen=True)
class Grid:
    """A picture of coloured square cells, :data:`CELL_PX` wide, without gaps or borders. Rows of colour names."""

    cells: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Bars:
    """A bar chart on white: (colour, height in pixels), from left to right."""

    bars: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Archive:
    """A zip archive: (name, content) in order."""

    members: tuple[tuple[str, Content], ...]


Content = Sheet | Book | Doc | Data | Text | Grid | Bars | Archive


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


def _delimited(delimiter: str) -> Callable[[Sheet], bytes]:
    def write(sheet: Sheet) -> bytes:
        out = io.StringIO()
        csv.writer(out, delimiter=delimiter, lineterminator="\n").writerows([sheet.header, *sheet.rows])
        return out.getvalue().encode("utf-8")

    return write


def _xlsx(book: Book) -> bytes:
    import openpyxl

    workbook = openpyxl.Workbook(write_only=True)
    for name, sheet in book.sheets:
        worksheet = workbook.create_sheet(name)
        for row in (sheet.header, *sheet.rows):
            worksheet.append(row)
    return _saved(workbook.save)


def _docx(doc: Doc) -> bytes:
    import docx

    document = docx.Document()
    document.add_heading(doc.title, 1)
    for block in doc.blocks:
        if isinstance(block, str):
            document.add_paragraph(block)
        elif isinstance(block, Bullets):
            for item in block.items:
                document.add_paragraph(item, style="List Bullet")
        else:
            table = document.add_table(rows=1 + len(block.rows), cols=len(block.header))
            for row, values in zip(table.rows, (block.header, *block.rows), strict=True):
                for cell, value in zip(row.cells, values, strict=True):
                    cell.text = str(value)
    return _saved(document.save)


def _pdf(doc: Doc) -> bytes:
    import fpdf

    pdf = fpdf.FPDF()
    pdf.set_compression(False)
    pdf.set_creation_date(WRITTEN)
    pdf.add_page()
    pdf.set_font("helvetica", "B", 14)
    pdf.cell(0, 10, doc.title, new_x="LMARGIN", new_y="NEXT")
    pdf.set_font("helvetica", "", 10)
    for line in _lines(doc.blocks, width=95):
        pdf.cell(0, 6, line, new_x="LMARGIN", new_y="NEXT")
    return bytes(pdf.output())


def _txt(doc: Doc) -> bytes:
    lines = [doc.title, "=" * len(doc.title), "", *_lines(doc.blocks, width=100)]
    return ("\n".join(lines) + "\n").encode("utf-8")


def _md(doc: Doc) -> bytes:
    out = [f"# {doc.title}"]
    for block in doc.blocks:
        if isinstance(block, str):
            out.append(block)
        elif isinstance(block, Bullets):
            out.append("\n".join(f"- {item}" for item in block.items))
        else:
            rows = [block.header, ("---",) * len(block.header), *block.rows]
            out.append("\n".join("| " + " | ".join(map(str, row)) + " |" for row in rows))
    return ("\n\n".join(out) + "\n").encode("utf-8")


def _html(doc: Doc) -> bytes:
    out = [f"<h1>{html.escape(doc.title)}</h1>"]
    for block in doc.blocks:
        if isinstance(block, str):
            out.append(f"<p>{html.escape(block)}</p>")
        elif isinstance(block, Bullets):
            items = "".join(f"<li>{html.escape(item)}</li>\n" for item in block.items)
            out.append(f"<ul>\n{items}</ul>")
        else:
            rows = [_html_row("th", block.header), *(_html_row("td", row) for row in block.rows)]
            out.append("<table>\n{}\n</table>".format("\n".join(rows)))
    title, body = html.escape(doc.title), "\n".join(out)
    head = f'<!DOCTYPE html>\n<html lang="en">\n<head><meta charset="utf-8"><title>{title}</title></head>\n'
    return f"{head}<body>\n{body}\n</body>\n</html>\n".encode()


def _html_row(tag: str, cells: Iterable[Cell]) -> str:
    return "<tr>" + "".join(f"<{tag}>{html.escape(str(cell))}</{tag}>" for cell in cells) + "</tr>"


def _lines(blocks: Iterable[str | Bullets | Sheet], *, width: int) -> Iterable[str]:
    """The blocks as lines of plain text, an empty one after each block; table cells are parted by `` | ``."""
    for block in blocks:
        if isinstance(block, str):
            yield from textwrap.wrap(block, width, break_on_hyphens=False)
        elif isinstance(block, Bullets):
            yield from (f"- {item}" for item in block.items)
        else:
            yield from (" | ".join(map(str, row)) for row in (block.header, *block.rows))
        yield ""


def _json(data: Data) -> bytes:
    return (json.dumps(data.value, indent=1, ensure_ascii=False) + "\n").encode("utf-8")


def _grid(grid: Grid) -> bytes:
    from PIL import Image, ImageDraw

    height, width = len(grid.cells), len(grid.cells[0])
    image = Image.new("RGB", (width * CELL_PX, height * CELL_PX))
    draw = ImageDraw.Draw(image)
    for y, row in enumerate(grid.cells):
        for x, colour in enumerate(row):
            left, top = x * CELL_PX, y * CELL_PX
            draw.rectangle((left, top, left + CELL_PX - 1, top + CELL_PX - 1), fill=COLOURS[colour])
    return _png(image)


def _bars(chart: Bars) -> bytes:
    from PIL import Image, ImageDraw

    floor = BAR_GAP_PX + max(height for _, height in chart.bars)
    width = BAR_GAP_PX + (BAR_PX + BAR_GAP_PX) * len(chart.bars)
    image = Image.new("RGB", (width, floor + BAR_GAP_PX), COLOURS["white"])
    draw = ImageDraw.Draw(image)
    for i, (colour, height) in enumerate(chart.bars):
        left = BAR_GAP_PX + i * (BAR_PX + BAR_GAP_PX)
        draw.rectangle((left, floor - height, left + BAR_PX - 1, floor - 1), fill=COLOURS[colour])
    return _png(image)


def _png(image: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


def _archive(archive: Archive) -> bytes:
    return _zip((name, render(name, content)) for name, content in archive.members)


def _saved(save: Callable[[io.BytesIO], object]) -> bytes:
    """An Office file with the moment of writing taken out of it."""
    out = io.BytesIO()
    save(out)
    stamp = WRITTEN.strftime("%Y-%m-%dT%H:%M:%SZ").encode()
    with zipfile.ZipFile(out) as written:
        members: Sequence[tuple[str, bytes]] = [(name, written.read(name)) for name in written.namelist()]
    return _zip(
        (name, re.sub(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", stamp, body) if name == "docProps/core.xml" else body)
        for name, body in members
    )


def _zip(members: Iterable[tuple[str, bytes]]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for name, body in members:
            info = zipfile.ZipInfo(name, (WRITTEN.year, WRITTEN.month, WRITTEN.day, 0, 0, 0))
            info.create_system = 3  # Unix, whatever this runs on
            info.external_attr = 0o644 << 16
            archive.writestr(info, body)
    return out.getvalue()


_RENDERERS: Mapping[tuple[str, type], Callable[[Any], bytes]] = MappingProxyType(
    {
        ("csv", Sheet): _delimited(","),
        ("tsv", Sheet): _delimited("\t"),
        ("xlsx", Book): _xlsx,
        ("docx", Doc): _docx,
        ("pdf", Doc): _pdf,
        ("txt", Doc): _txt,
        ("md", Doc): _md,
        ("html", Doc): _html,
        ("json", Data): _json,
        ("png", Grid): _grid,
        ("png", Bars): _bars,
        ("zip", Archive): _archive,
    }
)
