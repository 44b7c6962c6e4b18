"""How the independent solver reads files: plain functions over bytes, with nothing of the tools' readers.

Office files are read as what they are, archives of XML; PDFs by the text operators of their pages. All raise
AssertionError, LookupError or ValueError where a file is not what was expected.
"""

from __future__ import annotations

import email
import email.policy
import io
import json
import re
import sqlite3
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_S = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_R = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"


@dataclass(frozen=True)
class Line:
    """A row of a table: label in lower case -> cell."""

    cells: dict[str, str]
    hidden: bool = False

    def __getitem__(self, label: str) -> str:
        return self.cells[label]


def lines_of(header: list[str], rows: list[list[str]], hidden: frozenset[int] = frozenset()) -> list[Line]:
    labels = [label.lower() for label in header]
    assert len(set(labels)) == len(labels) and rows, "no table"
    return [Line(dict(zip(labels, row, strict=True)), i in hidden) for i, row in enumerate(rows)]


@dataclass(frozen=True)
class Document:
    """What stands in a document, in order: paragraphs, items of lists, and tables (a header, then rows)."""

    parts: tuple[tuple[str, Any], ...]
    """("title" | "text" | "item" | "note", str) or ("table", rows)."""

    @property
    def text(self) -> str:
        """All but tables and notes; lines that were broken are joined."""
        return "\n".join(part for kind, part in self.parts if kind in ("title", "text", "item"))

    @property
    def notes(self) -> str:
        return "\n".join(part for kind, part in self.parts if kind == "note")

    @property
    def items(self) -> list[str]:
        return [part for kind, part in self.parts if kind == "item"]

    @property
    def table(self) -> list[Line]:
        (table,) = (part for kind, part in self.parts if kind == "table")
        header, *rows = table
        return lines_of(header, rows)


# --- tables ------------------------------------------------------------------------------------------------------


def table(name: str, data: bytes, place: str | None = None) -> list[Line]:
    """The table of a file; ``place`` is the sheet or the database's table."""
    ending = name.rpartition(".")[2]
    assert (place is not None) == (ending in ("xlsx", "sqlite")), f"{name} has sheets or not"
    match ending:
        case "csv" | "tsv":
            text = data.decode()
            assert '"' not in text  # no cell of ours holds the delimiter, so that splitting is enough
            header, *rows = (line.split("\t" if ending == "tsv" else ",") for line in text.splitlines())
            return lines_of(header, rows)
        case "xlsx":
            return sheets(data)[place or ""]
        case "sqlite":
            return _database(data, place or "")
        case "json":
            (rows,) = _lists(json.loads(data))
            return _objects(rows)
        case "jsonl":
            return _objects([json.loads(line) for line in data.decode().splitlines()])
        case "xml":
            return [
                Line({cell.tag.replace("_", " ").lower(): cell.text or "" for cell in row})
                for row in ElementTree.fromstring(data)
            ]
    return document(name, data).table


def _lists(value: Any) -> Iterator[list[dict[str, Any]]]:
    """The lists of objects within a JSON value."""
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _lists(inner)


def _objects(rows: list[dict[str, Any]]) -> list[Line]:
    return [Line({key.lower(): str(value) for key, value in row.items()}) for row in rows]


def _database(data: bytes, name: str) -> list[Line]:
    connection = sqlite3.connect(":memory:")
    try:
        connection.deserialize(data)
        names = [row[0] for row in connection.execute("select name from sqlite_master where type = 'table'")]
        assert name in names, f"no table {name} but {names}"
        found = connection.execute(f'select * from "{name}"')
        return lines_of([column[0] for column in found.description], [list(map(str, row)) for row in found])
    finally:
        connection.close()


def sheets(data: bytes) -> dict[str, list[Line]]:
    """Sheets of a workbook, hidden ones too. A merged cell's value stands in each of its cells."""
    return {
        name: lines_of(rows[0], rows[1:], frozenset(y - 2 for y in hidden))
        for name, (rows, hidden) in grids(data).items()
    }


def grids(data: bytes) -> dict[str, tuple[list[list[str]], set[int]]]:
    """Sheets of a workbook: cells by row and column, and the numbers (from 1) of the hidden rows."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        shared = []
        if "xl/sharedStrings.xml" in archive.namelist():
            root = ElementTree.fromstring(archive.read("xl/sharedStrings.xml"))
            shared = ["".join(text.text or "" for text in item.iter(f"{_S}t")) for item in root]
        targets = {
            relation.get("Id"): str(relation.get("Target")).removeprefix("/xl/")
            for relation in ElementTree.fromstring(archive.read("xl/_rels/workbook.xml.rels"))
        }
        book = ElementTree.fromstring(archive.read("xl/workbook.xml"))
        return {
            str(sheet.get("name")): _grid(archive.read(f"xl/{targets[sheet.get(f'{_R}id')]}"), shared)
            for sheet in book.iter(f"{_S}sheet")
        }


def _grid(xml: bytes, shared: list[str]) -> tuple[list[list[str]], set[int]]:
    root = ElementTree.fromstring(xml)
    cells: dict[tuple[int, int], str] = {}
    formulas: dict[tuple[int, int], str] = {}
    hidden = set()
    for row in root.iter(f"{_S}row"):
        if row.get("hidden") in ("1", "true"):
            hidden.add(int(str(row.get("r"))))
        for cell in row.iter(f"{_S}c"):
            at, value = address(str(cell.get("r"))), cell.find(f"{_S}v")
            if cell.get("t") == "inlineStr":
                cells[at] = "".join(text.text or "" for text in cell.iter(f"{_S}t"))
            elif value is not None and value.text is not None:
                cells[at] = shared[int(value.text)] if cell.get("t") == "s" else value.text
            formula = cell.find(f"{_S}f")
            if formula is not None and formula.text:
                formulas[at] = formula.text
    for merged in root.iter(f"{_S}mergeCell"):
        (top, left), (bottom, right) = map(address, str(merged.get("ref")).split(":"))
        for y in range(top, bottom + 1):
            for x in range(left, right + 1):
                cells[y, x] = cells[top, left]
    for at, formula in formulas.items():
        assert Fraction(cells[at]) == _computed(formula, cells), f"={formula} is not {cells[at]}"
    height, width = max(y for y, _ in cells), max(x for _, x in cells)
    return [[cells.get((y, x), "") for x in range(1, width + 1)] for y in range(1, height + 1)], hidden


def address(text: str) -> tuple[int, int]:
    """``B7`` -> (7, 2)."""
    match = re.fullmatch(r"([A-Z]+)(\d+)", text)
    assert match, text
    column = 0
    for letter in match[1]:
        column = column * 26 + ord(letter) - 64
    return int(match[2]), column


def _computed(formula: str, cells: dict[tuple[int, int], str]) -> Fraction:
    """Sums, differences and products of cells and numbers, left to right, products first."""
    total = Fraction(0)
    for sign, product in re.findall(r"([+-]?)([^+-]+)", formula.replace(" ", "")):
        factors = [
            Fraction(cells[address(part)] if part[0].isalpha() else part) for part in product.strip("()").split("*")
        ]
        value = Fraction(1)
        for factor in factors:
            value *= factor
        total += -value if sign == "-" else value
    return total


# --- documents -----------------------------------------------------------------------------------------------------


def document(name: str, data: bytes) -> Document:
    """What stands in a document."""
    match name.rpartition(".")[2]:
        case "docx":
            return _docx(data)
        case "pptx":
            return _pptx(data)
        case "html":
            return _html(data)
        case "pdf":
            return _plain("\n".join(pdf_lines(data)))
        case "txt" | "md":
            return _plain(data.decode())
        case "eml":
            body = message(data).get_body(("plain",))
            assert body is not None
            return _plain(body.get_content())
        case "json":
            return _plain("\n".join(_sentences(json.loads(data))))
    raise ValueError(f"{name} is no document")


def _sentences(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _sentences(inner)


def _docx(data: bytes) -> Document:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        body = ElementTree.fromstring(archive.read("word/document.xml")).find(f"{_W}body")
    assert body is not None
    parts: list[tuple[str, Any]] = []
    for element in body:
        if element.tag == f"{_W}p":
            style = element.find(f"{_W}pPr/{_W}pStyle")
            named = "" if style is None else str(style.get(f"{_W}val"))
            kind = "item" if named.startswith("List") else "title" if named.startswith("Heading") else "text"
            parts.append((kind, _joined(element, f"{_W}t")))
        elif element.tag == f"{_W}tbl":
            rows = [[_joined(cell, f"{_W}t") for cell in row.iter(f"{_W}tc")] for row in element.iter(f"{_W}tr")]
            parts.append(("table", rows))
    return Document(tuple(parts))


def _joined(element: ElementTree.Element, tag: str) -> str:
    return "".join(text.text or "" for text in element.iter(tag))


def _pptx(data: bytes) -> Document:
    parts: list[tuple[str, Any]] = []
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        names = [name for name in archive.namelist() if re.fullmatch(r"ppt/slides/slide\d+\.xml", name)]
        for name in sorted(names, key=lambda name: int(re.findall(r"\d+", name)[0])):
            slide = ElementTree.fromstring(archive.read(name))
            in_tables = {id(p) for table in slide.iter(f"{_A}tbl") for p in table.iter(f"{_A}p")}
            paragraphs = [_joined(p, f"{_A}t") for p in slide.iter(f"{_A}p") if id(p) not in in_tables]
            title, *body = paragraphs
            parts += [("title", title), *(("item" if _is_item(text) else "text", text) for text in body if text)]
            for found in slide.iter(f"{_A}tbl"):
                rows = [[_joined(cell, f"{_A}t") for cell in row.iter(f"{_A}tc")] for row in found.iter(f"{_A}tr")]
                parts.append(("table", rows))
            relations = f"ppt/slides/_rels/{name.rpartition('/')[2]}.rels"
            for relation in ElementTree.fromstring(archive.read(relations)):
                target = str(relation.get("Target"))
                if "notesSlide" in target:
                    notes = ElementTree.fromstring(archive.read(f"ppt/{target.removeprefix('../')}"))
                    parts += [("note", text) for p in notes.iter(f"{_A}p") if (text := _joined(p, f"{_A}t"))]
    return Document(tuple(parts))


def _is_item(text: str) -> bool:
    """Slides do not tell items from paragraphs; a paragraph ends like a sentence."""
    return not text.endswith((".", ":", ",", "?"))


def _plain(text: str) -> Document:
    """Plain text: blocks are parted by empty lines; a table's cells by ``|``, a list's items begin with a dash."""
    parts: list[tuple[str, Any]] = []
    for block in re.split(r"\n\s*\n", text.strip("\n")):
        lines = [line.strip() for line in block.splitlines()]
        if all(line.startswith("- ") for line in lines):
            parts += [("item", line[2:]) for line in lines]
        elif all(" | " in line for line in lines) and len(lines) > 1:
            rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
            parts.append(("table", [row for row in rows if set("".join(row)) != {"-"}]))
        else:
            kept = [line.lstrip("# ") for line in lines if set(line) != {"="}]
            parts.append(("title" if not parts else "text", " ".join(kept)))
    return Document(tuple(parts))


def pdf_lines(data: bytes) -> list[str]:
    """The text of an uncompressed PDF line by line, an empty one wherever the distance is larger."""
    found: list[str] = []
    height = None
    for y, text in re.findall(rb"BT [\d.]+ ([\d.]+) Td \((.*?)(?<!\\)\) Tj ET", data, re.S):
        gap = 0.0 if height is None else height - float(y)
        height = float(y)
        if found and gap > 25:  # lines are 17 points apart, or 28 below the title
            found.append("")
        found.append(re.sub(rb"\\(.)", rb"\1", text).decode("latin-1"))
    assert found, "no text in the PDF"
    return found


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.parts: list[tuple[str, Any]] = []
        self.text = ""
        self.rows: list[list[str]] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.text = ""
        if tag == "table":
            self.rows = []
        elif tag == "tr":
            self.rows.append([])

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self.rows[-1].append(self.text)
        elif tag == "table":
            self.parts.append(("table", self.rows))
        elif tag in ("h1", "p", "li"):
            self.parts.append(({"h1": "title", "p": "text", "li": "item"}[tag], self.text))
        self.text = ""


def _html(data: bytes) -> Document:
    page = _Page()
    page.feed(data.decode())
    return Document(tuple(page.parts))


def message(data: bytes) -> email.message.EmailMessage:
    found = email.message_from_bytes(data, policy=email.policy.default)
    assert isinstance(found, email.message.EmailMessage)
    return found


# --- what is inside ------------------------------------------------------------------------------------------------


def members(name: str, data: bytes) -> dict[str, bytes]:
    """The members of an archive, of those within it too, or a mail's attachments, by the last part of their name."""
    found: dict[str, bytes] = {}
    for inner, body in _direct(name, data):
        assert inner not in found, f"two files {inner}"
        found[inner] = body
        if inner.endswith((".zip", ".eml")):
            found |= members(inner, body)
    return found


def _direct(name: str, data: bytes) -> Iterator[tuple[str, bytes]]:
    if name.endswith(".zip"):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for inner in archive.namelist():
                yield inner.rpartition("/")[2], archive.read(inner)
    elif name.endswith(".eml"):
        for part in message(data).iter_attachments():
            yield (
                str(part.get_filename()),
                part.get_content()
                if part.get_content_maintype()
                not in (
                    "text",
                    "message",
                )
                else part.get_payload(decode=True),
            )  # type: ignore[misc]
    else:
        raise ValueError(f"nothing is inside {name}")
