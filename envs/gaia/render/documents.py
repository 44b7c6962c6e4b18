"""Documents: txt, md, html, docx, pdf, and json."""

from __future__ import annotations

import functools
import io
import json as json_
import textwrap
from collections.abc import Iterable, Iterator
from html import escape

from envs.gaia.render.contents import Block, Bullets, Cell, Data, Doc, Lines, Sheet
from envs.gaia.render.packing import WRITTEN, drop_parts, saved
from envs.gaia.render.tables import plain


def docx(doc: Doc) -> bytes:
    """A Word document."""
    import docx as library

    document = library.Document(io.BytesIO(_empty_docx()))
    document.add_heading(doc.title, 1)
    for block in doc.blocks:
        if isinstance(block, str):
            document.add_paragraph(block)
        elif isinstance(block, Bullets):
            for item in block.items:
                document.add_paragraph(item, style="List Bullet")
        else:
            rows = table_rows(block)
            table = document.add_table(rows=len(rows), cols=len(block.header))
            for row, values in zip(table.rows, rows, strict=True):
                for cell, value in zip(row.cells, values, strict=True):
                    cell.text = value
    return saved(document.save)


@functools.cache
def _empty_docx() -> bytes:
    """The library's empty document with what is used of it here: less than half the time, a tenth of the size.

    What goes are some 150 styles of tables, the styles once more for older programs, and the picture of a page.
    """
    import docx as library

    document = library.Document()
    styles = document.styles
    for style in [style for style in styles if style.name not in _STYLES]:
        style.delete()
    drop_parts(document.part, "stylesWithEffects", "customXml")
    drop_parts(document.part.package, "thumbnail")
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()


_STYLES = ("Normal", "Heading 1", "List Bullet", "Default Paragraph Font", "Normal Table", "No List")


def pdf(doc: Doc) -> bytes:
    """A PDF of one column of text."""
    import fpdf

    file = fpdf.FPDF()
    file.set_compression(False)
    file.set_creation_date(WRITTEN)
    file.add_page()
    file.set_font("helvetica", "B", 14)
    file.cell(0, 10, doc.title, new_x="LMARGIN", new_y="NEXT")
    file.set_font("helvetica", "", 10)
    for line in lines(doc.blocks, width=95):
        file.cell(0, 6, line, new_x="LMARGIN", new_y="NEXT")
    return bytes(file.output())


def txt(doc: Doc) -> bytes:
    """Plain text."""
    out = [doc.title, "=" * len(doc.title), "", *lines(doc.blocks, width=100)]
    return ("\n".join(out) + "\n").encode("utf-8")


def md(doc: Doc) -> bytes:
    """Markdown."""
    out = [f"# {doc.title}"]
    for block in doc.blocks:
        if isinstance(block, str):
            out.append(block)
        elif isinstance(block, Bullets):
            out.append("\n".join(f"- {item}" for item in block.items))
        else:
            header, *rows = table_rows(block)
            ruled = [header, ["---"] * len(header), *rows]
            out.append("\n".join("| " + " | ".join(row) + " |" for row in ruled))
    return ("\n\n".join(out) + "\n").encode("utf-8")


def html(doc: Doc) -> bytes:
    """A web page."""
    out = [f"<h1>{escape(doc.title)}</h1>"]
    for block in doc.blocks:
        if isinstance(block, str):
            out.append(f"<p>{escape(block)}</p>")
        elif isinstance(block, Bullets):
            items = "".join(f"<li>{escape(item)}</li>\n" for item in block.items)
            out.append(f"<ul>\n{items}</ul>")
        else:
            header, *body = table_rows(block)
            rows = [_html_row("th", header), *(_html_row("td", row) for row in body)]
            out.append("<table>\n{}\n</table>".format("\n".join(rows)))
    title, text = escape(doc.title), "\n".join(out)
    head = f'<!DOCTYPE html>\n<html lang="en">\n<head><meta charset="utf-8"><title>{title}</title></head>\n'
    return f"{head}<body>\n{text}\n</body>\n</html>\n".encode()


def _html_row(tag: str, cells: Iterable[Cell]) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(str(cell))}</{tag}>" for cell in cells) + "</tr>"


def lines(blocks: Iterable[Block], *, width: int) -> Iterator[str]:
    """The blocks as lines of plain text, an empty one after each block; table cells are parted by `` | ``."""
    for block in blocks:
        if isinstance(block, str):
            yield from textwrap.wrap(block, width, break_on_hyphens=False)
        elif isinstance(block, Bullets):
            yield from (f"- {item}" for item in block.items)
        else:
            yield from (" | ".join(row) for row in table_rows(block))
        yield ""


def table_rows(sheet: Sheet) -> list[list[str]]:
    """The cells of a table in a document as text, the header first.

    Raises:
        ValueError: a sheet with hidden or merged cells or formulas.
    """
    return [[str(cell) for cell in row] for row in (sheet.header, *plain(sheet, "a table in a document").rows)]


def json(data: Data) -> bytes:
    """JSON with a line per item."""
    return (json_.dumps(data.value, indent=1, ensure_ascii=False) + "\n").encode("utf-8")


def jsonl(content: Lines) -> bytes:
    """A JSON value per line."""
    return "".join(json_.dumps(value, ensure_ascii=False) + "\n" for value in content.values).encode("utf-8")
