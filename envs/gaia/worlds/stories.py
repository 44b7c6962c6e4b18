"""What is told about a world's entities beside their facts: revisions, outdated news, nicknames.

All of it is invented, and fits the tables: the last revision of an entity has the value that its row has.
"""

from __future__ import annotations

import datetime
import random
from collections.abc import Iterator, Sequence
from typing import Any

from envs.gaia.worlds.schema import Column, Revision, Row, Table

REVISED = 0.6
"""Share of the entities that have a history, where their table has a column that can change."""
IN_THE_NEWS = 0.6
"""Share of those with a history that have a page of news."""
NICKNAMED = 0.4
"""Share of the entities that have a nickname."""
MARGIN = 0.03
"""How far, relatively, two numbers of one history are apart at least."""
_FIRST_DAY = datetime.date(2004, 1, 1).toordinal()
_LAST_DAY = datetime.date(2026, 6, 30).toordinal()
_GAP = 60
"""Days between two revisions, and between an entity's own dates and the first, at least."""
_NOTES = (
    "after a check of the sources",
    "after a letter from a reader",
    "corrected misprint",
    "new survey",
    "taken over from the yearbook",
    "update by the office",
)

Key = tuple[str, str]


def histories(
    tables: Sequence[Table], people: Iterator[str], rng: random.Random
) -> tuple[dict[Key, tuple[Revision, ...]], dict[Key, Revision]]:
    """Revisions and what the news quote of them, by (table, name of the entity).

    Args:
        tables: the world's.
        people: names that no row has, each once; no person's post is revised after the last of them.
        rng: decides everything.
    """
    found: dict[Key, tuple[Revision, ...]] = {}
    quoted: dict[Key, Revision] = {}
    for table in tables:
        columns = [column for column in table.of_kind("int", "date", "person") if not column.steady]
        for row in table.rows:
            if not columns or rng.random() >= REVISED:
                continue
            revisions = _history(table, row, rng.choice(columns), people, rng)
            if not revisions:
                continue
            key = (table.name, row["name"])
            found[key] = revisions
            if rng.random() < IN_THE_NEWS:
                quoted[key] = rng.choice(revisions[:-1])
    return found, quoted


def nicknames(tables: Sequence[Table], pool: Sequence[str], rng: random.Random) -> dict[Key, str]:
    """Nicknames by (table, name of the entity), each used once, while there are some.

    Args:
        tables: the world's.
        pool: nicknames to draw from.
        rng: decides everything.
    """
    names = iter(rng.sample(pool, len(pool)))
    keys = [(table.name, row["name"]) for table in tables for row in table.rows]
    chosen = rng.sample(keys, min(len(pool), round(NICKNAMED * len(keys))))
    kept = set(chosen)
    return {key: next(names) for key in keys if key in kept}


def _history(table: Table, row: Row, column: Column, people: Iterator[str], rng: random.Random) -> tuple[Revision, ...]:
    count = rng.randrange(2, 5)
    values = _values(row[column.name], column, count, people, rng)
    known = [row[date.name] for date in table.of_kind("date") if not date.steady] + (
        values if column.kind == "date" else []
    )
    first = max([_FIRST_DAY, *(datetime.date.fromisoformat(day).toordinal() + _GAP for day in known)])
    days = _days(first, count, rng)
    if len(values) < count or not days:
        return ()
    notes = ["first entry", *rng.sample(_NOTES, count - 1)]
    dates = [datetime.date.fromordinal(day).isoformat() for day in days]
    return tuple(
        Revision(date, column.name, value, note) for date, value, note in zip(dates, values, notes, strict=True)
    )


def _days(first: int, count: int, rng: random.Random) -> list[int]:
    """``count`` days that are far enough apart, rising; none where there is no room."""
    room = _LAST_DAY - first - _GAP * (count - 1)
    if room < count:
        return []
    return [first + day + _GAP * i for i, day in enumerate(sorted(rng.randrange(room) for _ in range(count)))]


def _values(standing: Any, column: Column, count: int, people: Iterator[str], rng: random.Random) -> list[Any]:
    """Different values, the standing one last."""
    if column.kind == "person":
        return [name for name, _ in zip(people, range(count - 1), strict=False)] + [standing]
    values = [standing]
    while len(values) < count:
        if column.kind == "date":
            day = datetime.date.fromisoformat(standing).toordinal() + rng.choice((-1, 1)) * rng.randrange(20, 2000)
            value: Any = datetime.date.fromordinal(day).isoformat()
            if value in values or day > _LAST_DAY - 5 * _GAP:
                continue
        else:
            value = rng.randint(max(1, standing // 2), 2 * standing + 10)
            if any(abs(value - other) <= MARGIN * max(value, other) for other in values):
                continue
        values.insert(0, value)
    return values
