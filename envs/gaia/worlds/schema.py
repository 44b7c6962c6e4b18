"""The records of a world: columns, tables, revisions, descriptions, pages, and where pages stand.

Nothing here draws or reads anything; see ``real``, ``synthetic``, ``stories`` and ``web`` beside it for that.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from aworld_gym.errors import did_you_mean

FLAVOURS = ("real", "shifted", "synthetic")
"""All kinds of worlds."""
TRAINING_FLAVOURS = ("shifted", "synthetic")
"""Those that tasks are drawn from unless one is asked for: what a model remembers is of no use in them."""
SITE = "https://atlas.example"
"""Root of every page's address (RFC 2606: ``.example`` never resolves)."""

Row = Mapping[str, Any]
Kind = Literal["code", "text", "person", "group", "ref", "int", "float", "date"]
ASKABLE = ("text", "person", "ref", "int", "float", "date")
"""Kinds of columns whose values may be the answer of a task. A ``code`` may be known from elsewhere, and a ``group``
is right by chance too often."""


@dataclass(frozen=True)
class Column:
    """One typed attribute of a table's entities."""

    name: str
    kind: Kind
    """``code``: an identifier. ``group``: few distinct values. Neither may be asked for (see :data:`ASKABLE`).
    ``ref``: the name of an entity of table ``to``. ``date``: ISO 8601. ``int`` and ``float`` are positive."""
    label: str
    """What stands before the value on a page."""
    phrase: str
    """How a question names the attribute, unit included."""
    unit: str = ""
    """What stands after the value on a page."""
    to: str = ""
    origin: str = ""
    """Where the values are from: ``""`` as the table; ``"invented"`` where this package made them up."""
    note: str = ""
    """What must be known about the values, such as as of when they hold."""
    steady: bool = False
    """Whether it never changes, so that no history is about it."""

    @property
    def askable(self) -> bool:
        """Whether a task may ask for the value."""
        return self.kind in ASKABLE

    def said(self, value: object) -> str:
        """A value as pages write it, with its unit."""
        return f"{value}{' ' if self.unit else ''}{self.unit}"

    def line(self, row: Row) -> str:
        """The attribute as a line of the entity's page."""
        return f"{self.label}: {self.said(row[self.name])}"


@dataclass(frozen=True)
class Table:
    """Entities of one kind; every row has ``name`` and each column."""

    name: str
    plural: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    source: str
    licence: str

    def column(self, name: str) -> Column:
        """The column of that name."""
        return next(column for column in self.columns if column.name == name)

    def of_kind(self, *kinds: str) -> tuple[Column, ...]:
        """The columns of these kinds, in order; may be none, above all in the world ``real``."""
        return tuple(column for column in self.columns if column.kind in kinds)

    def row(self, name: str) -> Row:
        """The entity of that name.

        Raises:
            KeyError: there is none; the message has the closest names.
        """
        try:
            return self._by_name[name]
        except KeyError:
            raise KeyError(f"no {self.name} {name!r}.{did_you_mean(str(name), list(self._by_name))}") from None

    @cached_property
    def _by_name(self) -> dict[str, Row]:
        return {row["name"]: row for row in self.rows}


@dataclass(frozen=True)
class Revision:
    """One value that a column of an entity had, and since when."""

    date: str
    """ISO 8601: the day on which the value was entered."""
    column: str
    """Name of the column; the same in all revisions of an entity."""
    value: Any
    note: str
    """Why it was entered, in words of the page; without values."""


@dataclass(frozen=True)
class Description:
    """A way to name an entity without its name; true of no other entity of its table."""

    kind: Literal["alias", "code", "text", "person", "ref"]
    """``alias``: a nickname; else the kind of ``column``. ``ref``: it is the only one with that value."""
    column: str
    """Name of the column; ``""`` for an alias."""
    value: str
    """The nickname, or the column's value."""
    url: str
    """The page that says which entity it is: of the nickname, the entity's own, or a list of one (``ref``)."""
    shows: str
    """The line of that page that says it."""
    query: str
    """A search that finds the page among the first five."""


@dataclass(frozen=True)
class World:
    """Tables of one flavour and seed, and what is told about their entities."""

    flavour: str
    seed: int
    split: str
    tables: Mapping[str, Table]
    digest: str
    """SHA-256 of the content: worlds with equal digests are equal."""
    histories: Mapping[tuple[str, str], tuple[Revision, ...]]
    """(table, name) -> revisions; not every entity has some."""
    quoted: Mapping[tuple[str, str], Revision]
    """(table, name) -> the outdated revision that a page of news quotes."""
    aliases: Mapping[tuple[str, str], str]
    """(table, name) -> nickname, unique in the world and no name of an entity; not every entity has one."""

    @property
    def corpus(self) -> dict[str, Any]:
        """The JSON that names this world."""
        return {"world": self.flavour, "seed": self.seed}

    def with_kinds(self, *kinds: str) -> list[Table]:
        """The tables that have a column of each of these kinds, in order; may be none."""
        return [table for table in self.tables.values() if all(table.of_kind(kind) for kind in kinds)]

    def history(self, table: str, name: str) -> tuple[Revision, ...]:
        """The revisions of one column of an entity, oldest first; none where nothing was revised.

        Dates rise, values differ, and the last one stands: it is what the entity's page says. The page at
        :func:`history_url` lists them all; no other page says that there were revisions.

        Raises:
            KeyError: no such entity.
        """
        return self.histories.get((table, self.tables[table].row(name)["name"]), ())

    def news(self, table: str, name: str) -> Revision | None:
        """The revision that the page at :func:`news_url` quotes, which is not the last one; None without such a page.

        Raises:
            KeyError: no such entity.
        """
        return self.quoted.get((table, self.tables[table].row(name)["name"]))

    def alias(self, table: str, name: str) -> str | None:
        """The nickname of an entity, which the page at :func:`alias_url` explains; None where it has none.

        Raises:
            KeyError: no such entity.
        """
        return self.aliases.get((table, self.tables[table].row(name)["name"]))

    def descriptions(self, table: str, name: str) -> tuple[Description, ...]:
        """The ways to name an entity without its name by which a search finds it, nickname first.

        Raises:
            KeyError: no such entity.
        """
        found, row = self.tables[table], self.tables[table].row(name)
        out: list[Description] = []
        nickname = self.alias(table, name)
        if nickname is not None:
            shows = alias_line(found, name, nickname)
            out.append(Description("alias", "", nickname, alias_url(self, table, name), shows, nickname))
        own = page_url(table, name)
        for column in found.columns:
            value = row[column.name]
            if column.kind not in ("code", "text", "person", "ref") or self._counts[table, column.name, value] > 1:
                continue
            if column.kind in ("code", "text") and self._common_words & set(_stems(value)):
                continue  # a search for it would find other pages
            if column.kind == "ref":
                url = list_url(found, column, value)
                query = list_title(found, column, value)
                out.append(Description("ref", column.name, value, url, name, query))
            else:
                kind: Any = column.kind
                out.append(Description(kind, column.name, value, own, column.line(row), f"{column.label} {value}"))
        return tuple(out)

    @cached_property
    def _common_words(self) -> set[str]:
        """The words that stand on many pages, and those of the entities' names."""
        tables = self.tables.values()
        said = [text for table in tables for column in table.columns for text in (column.label, column.unit)]
        names = [text for table in tables for text in (table.name, *(row["name"] for row in table.rows))]
        groups = [row[c.name] for table in tables for c in table.of_kind("group") for row in table.rows]
        common = ("is a an in this atlas as by with list of", *said, *names, *dict.fromkeys(groups))
        return {stem for text in common for stem in _stems(text)}

    @cached_property
    def _counts(self) -> dict[tuple[str, str, Any], int]:
        counts: dict[tuple[str, str, Any], int] = {}
        for table in self.tables.values():
            for column in table.columns:
                for row in table.rows:
                    key = (table.name, column.name, row[column.name])
                    counts[key] = counts.get(key, 0) + 1
        return counts


@dataclass(frozen=True)
class Page:
    """One page of the local web."""

    title: str
    text: str


def _stems(text: str) -> list[str]:
    """Its words, shortened so far that all words which the search takes for one are one."""
    return [re.sub("y$", "i", word.rstrip("es")) for word in re.findall(r"\w+", text.lower())]


# --- where pages stand, and how they are called ----------------------------------------------------------------


def page_url(section: str, name: str) -> str:
    """The address of a page: of the entity ``name`` where ``section`` is its table."""
    return f"{SITE}/{section}/{re.sub('[^a-z0-9]+', '-', name.lower())}"


def history_url(table: str, name: str) -> str:
    """The address of the page that lists the revisions of an entity, where it has some."""
    return page_url("revisions", f"{table} {name}")


def history_title(name: str) -> str:
    """The title of that page."""
    return f"Revision history of {name}"


def history_line(column: Column, revision: Revision) -> str:
    """The line of that page about one revision."""
    return f"{revision.date}: {column.label} {column.said(revision.value)} ({revision.note})"


def news_url(table: str, name: str) -> str:
    """The address of the page of news that quotes an outdated value of an entity, where it has one."""
    return page_url("news", f"{table} {name}")


def news_title(name: str, revision: Revision) -> str:
    """The title of that page."""
    return f"News of {revision.date} about {name}"


def news_line(table: Table, name: str, revision: Revision) -> str:
    """The line of that page that quotes the value."""
    column = table.column(revision.column)
    return f"On {revision.date} the {column.phrase} of the {table.name} {name} is {revision.value}."


def alias_url(world: World, table: str, name: str) -> str:
    """The address of the page that explains an entity's nickname.

    Raises:
        KeyError: no such entity, or it has no nickname.
    """
    nickname = world.alias(table, name)
    if nickname is None:
        raise KeyError(f"the {table} {name!r} has no nickname")
    return page_url("nicknames", nickname)


def alias_line(table: Table, name: str, nickname: str) -> str:
    """The line of a nickname's page that says whose it is."""
    return f"{nickname} is a nickname of the {table.name} {name}."


def list_url(table: Table, column: Column, value: str) -> str:
    """The address of the list of the entities that share a value of a ``group`` or ``ref`` column."""
    return page_url(f"{table.name}-by-{column.name}", value)


def list_title(table: Table, column: Column, value: str) -> str:
    """The title of that list."""
    return f"List of {table.plural} by {column.label.lower()}: {value}"


def link(column: Column, row: Row) -> str:
    """The address of the page that a ``ref`` column's value names."""
    return page_url(column.to, row[column.name])
