"""SQLite databases."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing

from envs.gaia.render.contents import Cell, Database, Sheet
from envs.gaia.render.tables import plain

_PAGE_BYTES = 4096
_CHANGES, _VERSIONS = slice(24, 28), slice(92, 100)
"""Header fields (https://sqlite.org/fileformat2.html): a counter of changes; the counter that the version was noted
at, and the number of the SQLite version that wrote last."""


def sqlite(database: Database) -> bytes:
    """A database file. The same tables, built in the same order, lie in the same pages.

    What the header says of the library is zeroed, which SQLite allows: the version is a note, and counters that
    are equal say that the size in the header holds.
    """
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
        connection.execute("PRAGMA encoding = 'UTF-8'")
        connection.execute("PRAGMA auto_vacuum = NONE")
        for name, sheet in database.tables:
            _create(connection, name, plain(sheet, "an .sqlite file"))
        connection.commit()
        data = bytearray(connection.serialize())
    data[_CHANGES] = bytes(4)
    data[_VERSIONS] = bytes(8)
    return bytes(data)


def _create(connection: sqlite3.Connection, name: str, sheet: Sheet) -> None:
    columns = ", ".join(
        f"{_quoted(label)} {_type(row[x] for row in sheet.rows)}".rstrip() for x, label in enumerate(sheet.header)
    )
    connection.execute(f"CREATE TABLE {_quoted(name)} ({columns})")
    marks = ", ".join("?" * len(sheet.header))
    connection.executemany(f"INSERT INTO {_quoted(name)} VALUES ({marks})", sheet.rows)


def _type(cells: Iterable[Cell]) -> str:
    kinds = {type(cell) for cell in cells}
    if kinds == {int}:
        return "INTEGER"
    if kinds and kinds <= {int, float}:
        return "REAL"
    return "TEXT" if kinds == {str} else ""


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
