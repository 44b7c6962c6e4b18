"""What the makers of tables share."""

from __future__ import annotations

import datetime
import random
from collections.abc import Iterable, Sequence
from types import MappingProxyType
from typing import Any

from envs.gaia.splits import split_of
from envs.gaia.worlds.schema import Column, Table


def table_of(
    name: str, plural: str, rows: Sequence[dict[str, Any]], columns: Sequence[Column], source: tuple[str, str]
) -> Table:
    """A table of these rows, with read-only rows in the order of the columns; ``source`` is (source, licence)."""
    order = ("name", *(column.name for column in columns))
    frozen = tuple(MappingProxyType({key: row[key] for key in order}) for row in rows)
    return Table(name, plural, tuple(columns), frozen, *source)


def owned(table: str, names: Iterable[str], split: str) -> list[str]:
    """Those of the names that belong to the split, in order."""
    return [name for name in names if split_of(table, name) == split]


def any_date(rng: random.Random, first_year: int, last_year: int) -> str:
    """A day of these years, ISO 8601."""
    first = datetime.date(first_year, 1, 1).toordinal()
    last = datetime.date(last_year, 12, 31).toordinal()
    return datetime.date.fromordinal(rng.randint(first, last)).isoformat()


def few_each(rng: random.Random, names: Sequence[str], count: int) -> list[str]:
    """``count`` of the names at random, none much more often than the others: some never, many once."""
    return rng.sample(list(names) * (-(-count // len(names)) + 1), count)
