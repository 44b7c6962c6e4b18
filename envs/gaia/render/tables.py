"""Tables: csv, tsv, xml, and workbooks with what makes real ones hard to read."""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any
from xml.sax.saxutils import escape

from envs.gaia.render.contents import Book, Cell, Sheet
from envs.gaia.render.packing import WRITTEN, saved


def plain(sheet: Sheet, ending: str) -> Sheet:
    """The sheet itself.

    Raises:
        ValueError: it has hidden or merged cells or formulas, which such files cannot hold.
    """
    if not sheet.plain:
        raise ValueError(f"{ending} holds no hidden or merged cells and no formulas; use a Book in an .xlsx file")
    return sheet


def delimited(sheet: Sheet, delimiter: str) -> bytes:
    """Values parted by commas or tabs."""
    out = io.StringIO()
    rows = plain(sheet, "a delimited file").rows
    csv.writer(out, delimiter=delimiter, lineterminator="\n").writerows([sheet.header, *rows])
    return out.getvalue().encode("utf-8")


def xml(sheet: Sheet) -> bytes:
    """An element ``row`` per row, and in it one per cell, with the column's label as its tag."""
    tags = _tags(plain(sheet, "an .xml file").header)
    out = ['<?xml version="1.0" encoding="UTF-8"?>', "<rows>"]
    for row in sheet.rows:
        cells = "".join(f"<{tag}>{escape(str(cell))}</{tag}>" for tag, cell in zip(tags, row, strict=True))
        out.append(f"  <row>{cells}</row>")
    return "\n".join([*out, "</rows>", ""]).encode("utf-8")


def _tags(header: Sequence[str]) -> list[str]:
    tags = [re.sub(r"\W+", "_", label.strip(), flags=re.ASCII).strip("_") for label in header]
    tags = [tag if re.match("[A-Za-z]", tag) else f"column_{tag}".rstrip("_") for tag in tags]
    if len(set(tags)) < len(tags):
        raise ValueError(f"the labels {', '.join(header)} give the same XML tags: {', '.join(tags)}")
    return tags


def xlsx(book: Book) -> bytes:
    """A workbook. Formulas stand with their values, as a spreadsheet program leaves them."""
    import xlsxwriter  # openpyxl writes a formula without its value, which readers that do not compute need

    def write(out: io.BytesIO) -> None:
        workbook = xlsxwriter.Workbook(out, {"in_memory": True})
        workbook.set_properties({"created": WRITTEN})
        for name, sheet in book.sheets:
            _worksheet(workbook.add_worksheet(name), sheet)
        visible = next(name for name, _ in book.sheets if name not in book.hidden)
        workbook.get_worksheet_by_name(visible).set_first_sheet()
        workbook.get_worksheet_by_name(visible).activate()
        for name in book.hidden:
            workbook.get_worksheet_by_name(name).hide()
        workbook.close()

    return saved(write)


def _worksheet(worksheet: Any, sheet: Sheet) -> None:
    for x, label in enumerate(sheet.header):
        worksheet.write_string(0, x, label)
        formula, values = sheet.formulas.get(label), [row[x] for row in sheet.rows]
        if label in sheet.merged:
            for first, last in _runs(values):
                if last > first:
                    worksheet.merge_range(1 + first, x, 1 + last, x, "")
                _write(worksheet, 1 + first, x, values[first])
            continue
        for y, value in enumerate(values, 1):
            if formula is None:
                _write(worksheet, y, x, value)
            else:
                worksheet.write_formula(y, x, formula.format(row=y + 1), None, value)
    for y in sheet.hidden_rows:
        worksheet.set_row(1 + y, None, None, {"hidden": True})
    for label in sheet.hidden_columns:
        x = sheet.header.index(label)
        worksheet.set_column(x, x, None, None, {"hidden": True})


def _write(worksheet: Any, y: int, x: int, value: Cell) -> None:
    if isinstance(value, str):
        worksheet.write_string(y, x, value)
    else:
        worksheet.write_number(y, x, value)


def _runs(values: Sequence[Cell]) -> Iterator[tuple[int, int]]:
    """First and last index of each run of equal values."""
    start = 0
    for _, group in itertools.groupby(values):
        length = sum(1 for _ in group)
        yield start, start + length - 1
        start += length
