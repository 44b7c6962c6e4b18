"""``read_table``: csv, tsv and xlsx as CSV text, a window of rows at a time."""

from __future__ import annotations

import csv
import datetime
import io
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, BinaryIO

from pydantic import Field

from envs.gaia.tools import ooxml, worksheets
from envs.gaia.tools.base import ToolContext, ToolDef, ToolFault, clip, nearest, quoted

MAX_ROWS = 200
"""Rows in one result."""
MAX_CELL = 500
"""Characters of one cell."""
MAX_RESULT = 12_000
"""Characters of rows in one result; fewer rows are shown where they are wide."""
MAX_CELLS = 200_000
"""Cells of one sheet that are looked at."""
MAX_COLUMNS = 2000
MAX_SHEET = 16 << 20
"""Bytes of markup of one sheet."""
MAX_NAMES = 30
"""Sheets that are named."""

Row = tuple[str, ...]


@dataclass(frozen=True)
class Sheet:
    """One table, read whole."""

    rows: Sequence[Row]
    """The header first; ragged rows stay ragged."""
    name: str = ""
    others: tuple[str, ...] = ()
    """Names of the other sheets of the workbook, with a note on hidden ones."""
    notes: tuple[str, ...] = ()
    hidden: bool = False
    """The sheet itself is."""


def tools(context: ToolContext) -> list[ToolDef]:
    """The table reader."""

    def read_table(
        path: Annotated[str, Field(description="A csv, tsv or xlsx file.")],
        sheet: Annotated[str | None, Field(description="Sheet name of an xlsx; default the first.")] = None,
        start: Annotated[int, Field(ge=0, description="First data row, from 0.")] = 0,
        rows: Annotated[int, Field(ge=1, le=MAX_ROWS)] = 50,
    ) -> str:
        with context.workspace.open(path) as file:
            table = load(file, path, sheet)
        return compact(table.rows) if context.compact else show(table, start, rows)

    description = "Read rows of a table as CSV text, the header first. Hidden rows, columns and sheets are marked."
    return [ToolDef(read_table, description, terse="Read a table.")]


def load(file: BinaryIO, path: str, sheet: str | None = None) -> Sheet:
    """The table in ``file``.

    Raises:
        ToolFault: not a table, broken, too large, or no such sheet.
    """
    ending = path.rsplit(".", 1)[-1].lower()
    if ending in ("xlsx", "xlsm"):
        return _workbook(file, path, sheet)
    if ending in ("sqlite", "sqlite3", "db"):
        raise ToolFault(f"{quoted(path)} is a database; use query_sqlite")
    if ending not in ("csv", "tsv", "txt", "tab"):
        raise ToolFault(f"{quoted(path)} is not a table (csv, tsv, xlsx); try read_document")
    return Sheet(_delimited(file.read(), path, "\t" if ending in ("tsv", "tab") else None))


def show(table: Sheet, start: int, rows: int) -> str:
    """A window of the table as CSV text, with notices of what is not in it.

    Raises:
        ToolFault: the window begins after the last row.
    """
    header, data = table.rows[:1], table.rows[1:]
    if start and start >= len(data):
        raise ToolFault(
            f"there is no row {clip(str(start), 20)}: the table has {len(data)} data rows, 0 to {len(data) - 1}"
        )
    out = [_csv(row) for row in header]
    size = shown = 0
    for row in data[start : start + rows]:
        text = _csv(row)
        size += len(text) + 1
        if shown and size > MAX_RESULT:
            break
        out.append(text)
        shown += 1
    if table.others:
        hidden = " (hidden)" if table.hidden else ""
        out.insert(0, f"[sheet {quoted(table.name)}{hidden}; other sheets: {_listed(table.others)}]")
    out += [f"[{note}]" for note in table.notes]
    left = len(data) - start - shown
    if start or left:
        more = f"; {left} more: start={start + shown}" if left else ""
        out.append(f"[rows {start} to {start + shown - 1} of {len(data)}{more}]")
    return "\n".join(out) or "(empty table)"


def compact(rows: Sequence[Row]) -> str:
    """The table without its first column's name, cells separated by a space: few tokens, for small models."""
    if not rows:
        return "none"
    body = [" ".join(rows[0][1:]) or " ".join(rows[0]), *(" ".join(row) for row in rows[1 : MAX_ROWS + 1])]
    if len(rows) > MAX_ROWS + 1:
        body.append(f"{len(rows) - MAX_ROWS - 1} more")
    return "\n".join(body)


def _delimited(data: bytes, path: str, delimiter: str | None) -> list[Row]:
    text = decode(data, path)
    if delimiter is None:
        first = text.split("\n", 1)[0]
        delimiter = max(",;\t|", key=lambda mark: (first.count(mark), mark == ","))
    limit = csv.field_size_limit()
    try:
        reader = csv.reader(_bearable(io.StringIO(text, newline=""), delimiter, path), delimiter=delimiter)
        return _bounded((tuple(row) for row in reader if row), path)
    except csv.Error as error:
        raise ToolFault(
            f"{quoted(path)} is not a well-formed table: {error} (fields hold at most {limit} characters)"
        ) from None


def _bearable(lines: Iterable[str], delimiter: str, path: str) -> Iterator[str]:
    """The lines, but for one of so many fields that a row of them would fill the memory."""
    for line in lines:
        if len(line) > MAX_CELLS and line.count(delimiter) > MAX_CELLS:
            raise _too_large(path)
        yield line


def decode(data: bytes, path: str) -> str:
    """Text in UTF-8 (or UTF-16 with its mark), else Latin-1 where nothing speaks for a binary file.

    Raises:
        ToolFault: a binary file.
    """
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16", "replace")
    if b"\0" in data[:4096]:
        raise ToolFault(f"{quoted(path)} is a binary file, not text")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("cp1252", "replace")


def _workbook(file: BinaryIO, path: str, sheet: str | None) -> Sheet:
    import openpyxl  # not at import time: it takes 0.2 s, and most tasks need none

    with ooxml.container(file, path) as archive:
        ooxml.refuse_entities(archive, path)
        formulas, marked = False, set()
        for info in archive.infolist():
            if not info.filename.startswith("xl/worksheets/"):
                if info.file_size > ooxml.MAX_PART:
                    raise ToolFault(f"{quoted(path)} holds too much in {quoted(info.filename)}. Use run_python.")
                continue
            # what it takes to read depends on what is written, not on where it stands
            data = archive.read(info)
            if data.count(b"<row") > MAX_CELLS or data.count(b"<c") > MAX_CELLS or info.file_size > MAX_SHEET:
                raise _too_large(path)
            formulas |= b"<f" in data
            if b"hidden" in data or b"mergeCell" in data:
                marked.add(info.filename)
    try:
        book = openpyxl.load_workbook(file, data_only=True, read_only=True)
        names = list(book.sheetnames)
        if not names:
            raise ToolFault(f"{quoted(path)} has no sheets")
        chosen = _choose(names, sheet, path)
        values = _cells(book[chosen], path)
        if formulas:  # a cell that was never computed shows its formula instead of nothing
            written = _cells(openpyxl.load_workbook(file, read_only=True)[chosen], path)
            values = [_uncomputed(a, b) for a, b in zip(values, written, strict=True)]
        hidden = {name for name in names if book[name].sheet_state != "visible"}
        part = worksheets.part_of(book[chosen])
        marks = worksheets.marks(file, part, path) if part in marked else worksheets.Marks()
    except ToolFault:
        raise
    except Exception as error:  # openpyxl raises nearly anything for a broken file
        raise ToolFault(
            f"{quoted(path)} cannot be read as a workbook: {type(error).__name__}: {clip(str(error), 80)}"
        ) from None
    rows, notes = marks.shown(_rectangle([tuple(map(_cell, row)) for row in marks.filled(values, path)]))
    others = tuple(f"{quoted(name)} (hidden)" if name in hidden else quoted(name) for name in names if name != chosen)
    return Sheet(rows, chosen, others, notes, chosen in hidden)


def _choose(names: list[str], sheet: str | None, path: str) -> str:
    if sheet is None or sheet == "":
        return names[0]
    if sheet in names:
        return sheet
    folded = [name for name in names if name.casefold() == sheet.casefold().strip()]
    if len(folded) == 1:
        return folded[0]
    raise ToolFault(
        f"{quoted(path)} has no sheet {quoted(sheet)}; sheets: {_listed(map(quoted, names))}.{nearest(sheet, names)}"
    )


def _listed(names: Iterable[str]) -> str:
    known = list(names)
    more = f" and {len(known) - MAX_NAMES} more" if len(known) > MAX_NAMES else ""
    return ", ".join(known[:MAX_NAMES]) + more


def _cells(sheet: Any, path: str) -> list[tuple[Any, ...]]:
    if not hasattr(sheet, "reset_dimensions"):  # a chart sheet has no cells
        raise ToolFault(f"the sheet {quoted(sheet.title)} of {quoted(path)} is a chart, not a table")
    sheet.reset_dimensions()  # what the file claims of its size is not to be trusted
    return _bounded(sheet.iter_rows(values_only=True), path)


def _bounded(rows: Iterable[tuple[Any, ...]], path: str) -> list[tuple[Any, ...]]:
    kept: list[tuple[Any, ...]] = []
    cells = 0
    for row in rows:
        cells += len(row) + 1
        if cells > MAX_CELLS or len(row) > MAX_COLUMNS:
            raise _too_large(path)
        kept.append(row)
    return kept


def _too_large(path: str) -> ToolFault:
    return ToolFault(f"{quoted(path)} is too large a table: over {MAX_CELLS:,} cells or {MAX_COLUMNS:,} columns")


def _uncomputed(values: tuple[Any, ...], written: tuple[Any, ...]) -> tuple[Any, ...]:
    pairs = itertools.zip_longest(values, written)
    return tuple(b if a is None and isinstance(b, str) and b.startswith("=") else a for a, b in pairs)


def _cell(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "TRUE" if value else "FALSE"
        case float():
            return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
        case datetime.datetime():
            return value.date().isoformat() if value.time() == datetime.time() else value.isoformat(" ")
        case datetime.date() | datetime.time():
            return value.isoformat()
    return str(value)


def _rectangle(rows: list[Row]) -> list[Row]:
    """The rows up to the last one with anything in it, all as wide as the widest content."""
    while rows and not any(rows[-1]):
        rows.pop()
    width = max((i + 1 for row in rows for i, cell in enumerate(row) if cell), default=0)
    return [(row + ("",) * width)[:width] for row in rows]


def _csv(row: Row) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow([clip(cell, MAX_CELL) for cell in row])
    return out.getvalue()[:-1]
