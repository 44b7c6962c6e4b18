"""What the markup of a worksheet says beside its cells: which rows and columns are hidden, which cells are merged."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO
from xml.etree import ElementTree

from envs.gaia.tools.base import ToolFault, quoted

MAX_MERGES = 5000
"""Ranges of merged cells of one sheet."""
MAX_FILLED = 200_000
"""Cells that all of them cover, as far as there are rows."""
MAX_ADDED = 10_000
"""Rows that a merged range may add to a sheet which ends above them."""
_LAST_COLUMN = 16_384
_MARK = "(row)"

Row = tuple[str, ...]
Range = tuple[int, int, int, int]
"""First row, first column, last row, last column, from 0."""


@dataclass
class Marks:
    """Of one sheet; rows and columns are counted from 0, and row 0 is the table's header."""

    hidden_rows: set[int] = field(default_factory=set)
    hidden_columns: set[int] = field(default_factory=set)
    merged: list[Range] = field(default_factory=list)

    def filled(self, rows: Sequence[tuple[Any, ...]], path: str) -> Sequence[tuple[Any, ...]]:
        """The rows with the value of merged cells in every cell they cover.

        Raises:
            ToolFault: they cover more than :data:`MAX_FILLED` cells.
        """
        if not self.merged:
            return rows
        table, left = [list(row) for row in rows], MAX_FILLED
        for top, first, bottom, last in self.merged:
            if bottom >= len(table) and bottom - top >= MAX_ADDED:  # of a whole column: as far as there are rows
                bottom = len(table) - 1
            left -= max(0, bottom - top + 1) * (last + 1)  # short rows are filled up from the left
            if left < 0:
                raise ToolFault(f"{quoted(path)} has merged cells over more than {MAX_FILLED:,} cells. Use run_python.")
            if top > bottom or top >= len(table) or first >= len(table[top]) or table[top][first] is None:
                continue
            value = table[top][first]
            table += ([] for _ in range(bottom + 1 - len(table)))  # the last rows may hold nothing else
            for row in table[top : bottom + 1]:
                row += [None] * (last + 1 - len(row))
                row[first : last + 1] = [value] * (last + 1 - first)
        return [tuple(row) for row in table]

    def shown(self, rows: Sequence[Row]) -> tuple[Sequence[Row], tuple[str, ...]]:
        """The rows with what is hidden marked in them, and notes that say how."""
        notes = []
        hidden = {y for y in self.hidden_rows if y < len(rows)}
        columns = {x for x in self.hidden_columns if rows and x < len(rows[0])}
        if self.merged:
            notes.append("cells are merged: their value stands in every row and column they cover")
        if columns:
            notes.append("columns with (hidden) in their name are hidden")
            header = tuple(f"{label} (hidden)" if x in columns else label for x, label in enumerate(rows[0]))
            rows = [header, *rows[1:]]
        if hidden:
            notes.append(f"hidden rows, marked in the last column: {len(hidden - {0})} of {len(rows) - 1}")
            rows = [(*row, "hidden" if y in hidden else "" if y else _MARK) for y, row in enumerate(rows)]
        return rows, tuple(notes)


def part_of(sheet: Any) -> str:
    """The name of the archive's member that holds a sheet of a workbook that openpyxl (3.1) reads read-only."""
    path: str = sheet._worksheet_path  # the relations of the workbook, resolved; no public name has it
    return path.lstrip("/")


def marks(file: BinaryIO, part: str, path: str) -> Marks:
    """The marks in the member ``part`` of the workbook in ``file``, whose size has been looked at.

    Raises:
        ToolFault: more than :data:`MAX_MERGES` merged ranges, or broken markup.
    """
    target = _Target(path)
    parser = ElementTree.XMLParser(target=target)
    try:
        with zipfile.ZipFile(file) as archive, archive.open(part) as data:
            while piece := data.read(1 << 16):
                parser.feed(piece)
        parser.close()
    except (
        ElementTree.ParseError,
        LookupError,
        ValueError,
    ) as error:  # an encoding that nobody knows, or of many bytes
        raise ToolFault(f"{quoted(path)} has broken XML in {quoted(part)}: {error}") from None
    return target.found


class _Target:
    """Takes elements as they are parsed; no tree is built."""

    def __init__(self, path: str):
        self.found = Marks()
        self._path = path
        self._row = -1
        self._columns = 0

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        match tag.rpartition("}")[2]:
            case "row":
                number = attributes.get("r", "")
                self._row = int(number) - 1 if re.fullmatch(r"[0-9]{1,7}", number) else self._row + 1
                if _true(attributes.get("hidden")):
                    self.found.hidden_rows.add(self._row)
            case "col" if _true(attributes.get("hidden")):
                first, last = (attributes.get(name, "") for name in ("min", "max"))
                if re.fullmatch(r"[0-9]{1,5} [0-9]{1,5}", f"{first} {last}"):
                    span = range(int(first) - 1, min(int(last), _LAST_COLUMN))
                    self._columns += len(span)
                    if self._columns > 2 * _LAST_COLUMN:
                        raise ToolFault(f"{quoted(self._path)} hides columns over and over. Use run_python.")
                    self.found.hidden_columns.update(span)
            case "mergeCell":
                if len(self.found.merged) >= MAX_MERGES:
                    raise ToolFault(f"{quoted(self._path)} has over {MAX_MERGES:,} merged ranges. Use run_python.")
                if (where := _range(attributes.get("ref", ""))) is not None:
                    self.found.merged.append(where)

    def end(self, tag: str) -> None:
        """Nothing to do."""

    def data(self, text: str) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing to do."""


def _true(value: str | None) -> bool:
    return value in ("1", "true")


def _range(reference: str) -> Range | None:
    """Of ``A2:B7``; None for what is no range, or a single cell."""
    match = re.fullmatch(r"\$?([A-Z]{1,3})\$?([0-9]{1,7}):\$?([A-Z]{1,3})\$?([0-9]{1,7})", reference.strip())
    if match is None:
        return None
    left, right = (_column(match[i]) for i in (1, 3))
    top, bottom = (int(match[i]) - 1 for i in (2, 4))
    inside = 0 <= top <= bottom and 0 <= left <= right < _LAST_COLUMN
    return (top, left, bottom, right) if inside and (top, left) != (bottom, right) else None


def _column(letters: str) -> int:
    number = 0
    for letter in letters:
        number = number * 26 + ord(letter) - ord("A") + 1
    return number - 1
