"""The tables of the worlds ``real`` and ``shifted``: names that exist.

``real`` has the facts of the snapshots in ``envs/gaia/data``, as they are. ``shifted`` has the same entities with
every value moved to another one, so that none has its own, and invented columns beside them.
"""

from __future__ import annotations

import csv
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import envs.gaia.data
from envs.gaia.splits import split_of
from envs.gaia.worlds.build import any_date, table_of
from envs.gaia.worlds.schema import Column, Table

SOURCES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "country": ("package countryinfo 1.0.1", "MIT"),
        "airport": ("package airportsdata 20260905", "MIT"),
        "element": ("package periodictable 2.1.0", "public domain"),
        "holiday": ("package holidays 0.109", "MIT"),
        "symbol": ("Unicode Character Database 14.0, by the module unicodedata of Python 3.11", "Unicode License v3"),
    }
)
"""Source and licence, by table."""

MOST = 0.04
"""Share of the places at which one reference may stand in ``shifted``."""

Draw = Callable[[random.Random], Any]


@dataclass(frozen=True)
class Spec:
    """A table of real names."""

    name: str
    plural: str
    snapshot: str
    """Its file in ``envs/gaia/data``."""
    facts: tuple[Column, ...]
    """The columns of the file, but for the name."""
    invented: tuple[tuple[Column, Draw], ...]
    """What ``shifted`` has beside them, and how it is drawn."""
    together: tuple[str, ...] = ()
    """Columns that ``shifted`` moves as one, since each follows from the others."""

    @property
    def source(self) -> tuple[str, str]:
        """Source and licence."""
        return SOURCES[self.name]


def _int(name: str, label: str, phrase: str, unit: str, low: int, high: int) -> tuple[Column, Draw]:
    return Column(name, "int", label, phrase, unit, origin="invented"), lambda rng: rng.randrange(low, high)


def _day(name: str, label: str, phrase: str, first: int, last: int) -> tuple[Column, Draw]:
    return Column(name, "date", label, phrase, origin="invented"), lambda rng: any_date(rng, first, last)


SPECS = (
    Spec(
        "country",
        "countries",
        "countries.csv",
        (
            Column("code", "code", "Country code", "country code", note="ISO 3166-1 alpha-3"),
            Column(
                "capital", "text", "Capital", "capital", note="the official one; those that have moved are left out"
            ),
            Column("region", "group", "Region", "region", note="subregion of the United Nations' geoscheme (M49)"),
            Column(
                "area_km2",
                "int",
                "Area",
                "area in square kilometres",
                "square kilometres",
                note="land and inland water, rounded; France with its overseas regions",
            ),
            Column(
                "population",
                "int",
                "Population",
                "population",
                "inhabitants",
                note="estimates and counts of about 2012 to 2015; the package does not say of which day",
            ),
        ),
        (_day("founded", "Constitution in force since", "date of the constitution", 1800, 1990),),
    ),
    Spec(
        "airport",
        "airports",
        "airports.csv",
        (
            Column("code", "code", "IATA code", "IATA code", note="as of September 2026"),
            Column("city", "text", "City", "city", note="which the airport serves or in which it lies"),
            Column("country", "ref", "Country", "country", to="country"),
            Column(
                "elevation_ft", "int", "Elevation", "elevation in feet", "feet", note="above mean sea level, rounded"
            ),
        ),
        (
            _int("passengers", "Passengers per year", "number of passengers per year", "", 20_000, 9_000_000),
            _day("opened", "Opened", "opening date", 1925, 2015),
        ),
    ),
    Spec(
        "element",
        "elements",
        "elements.csv",
        (
            Column("code", "code", "Symbol", "symbol", note="of the IUPAC"),
            Column("number", "int", "Atomic number", "atomic number", steady=True),
            Column(
                "mass_u",
                "float",
                "Atomic mass",
                "atomic mass in u",
                "u",
                note="abridged standard atomic weight of 2021; of radioactive elements, the mass number of one isotope",
            ),
        ),
        (
            _int("price", "Price per kilogram", "price per kilogram in crowns", "crowns", 3, 9_000),
            _int("melting_k", "Melting point", "melting point in kelvin", "kelvin", 15, 4_000),
            _day("isolated", "First isolated", "date of first isolation", 1700, 1990),
        ),
    ),
    Spec(
        "holiday",
        "holidays",
        "holidays.csv",
        (
            Column(
                "country",
                "ref",
                "Country",
                "country",
                to="country",
                note="the only one for which the package lists a holiday of this name",
            ),
            Column(
                "date_2025",
                "date",
                "Date in 2025",
                "date in 2025",
                note="public holidays only, not days observed instead",
                steady=True,
            ),
            Column(
                "date_2026",
                "date",
                "Date in 2026",
                "date in 2026",
                note="as announced or reckoned when the package was released",
                steady=True,
            ),
        ),
        (_int("visitors", "Visitors", "number of visitors", "", 400, 900_000),),
    ),
    Spec(
        "symbol",
        "symbols",
        "symbols.csv",
        (
            Column("code", "code", "Character", "character code", note="in shifted, moved with the code point"),
            Column("block", "group", "Block", "block", note="of Unicode, by a short name"),
            Column("code_point", "int", "Code point", "decimal code point", steady=True),
        ),
        (
            _int("printings", "Printings", "number of printings", "", 30, 700_000),
            _day("adopted", "Adopted", "adoption date", 1960, 2015),
        ),
        together=("code", "code_point"),
    ),
)


def real_tables(split: str) -> list[Table]:
    """The facts about the split's entities."""
    return [table_of(spec.name, spec.plural, entities(spec, split), spec.facts, spec.source) for spec in SPECS]


def entities(spec: Spec, split: str) -> list[dict[str, Any]]:
    """The rows of the split's entities, as they are in the snapshot.

    What belongs to a country goes with it, so that no ``ref`` leads out of the split; all else by its own name.
    """
    refs = [column for column in spec.facts if column.kind == "ref"]
    kind, key = (refs[0].to, refs[0].name) if refs else (spec.name, "name")
    return [dict(row) for row in snapshot(spec.snapshot) if split_of(kind, row[key]) == split]


def shifted_tables(split: str, rng: random.Random) -> list[Table]:
    """The split's entities with values that are not theirs."""
    made: dict[str, Table] = {}
    for spec in SPECS:
        rows = entities(spec, split)
        for column in spec.facts:
            if column.kind == "ref":
                others = [row["name"] for row in made[column.to].rows]
                for row, name in zip(rows, spread([row[column.name] for row in rows], others, rng), strict=True):
                    row[column.name] = name
            elif column.name not in spec.together:  # codes too: who knows them must not find an entity by one
                for row, value in zip(rows, moved([row[column.name] for row in rows], rng), strict=True):
                    row[column.name] = value
        for row, values in zip(rows, moved([tuple(row[c] for c in spec.together) for row in rows], rng), strict=True):
            row.update(zip(spec.together, values, strict=True))
        for column, draw in spec.invented:
            for row in rows:
                row[column.name] = draw(rng)
        columns = (*spec.facts, *(column for column, _ in spec.invented))
        made[spec.name] = table_of(spec.name, spec.plural, rows, columns, spec.source)
    return list(made.values())


def moved(values: Sequence[Any], rng: random.Random) -> list[Any]:
    """The same values in another order, so that no place has the value that it had.

    Where one value fills more than half of the places, some of them keep it.
    """
    places: dict[Any, list[int]] = {}
    for place in rng.sample(range(len(values)), len(values)):
        places.setdefault(values[place], []).append(place)
    order = [place for same in places.values() for place in same]  # equal values are neighbours
    most = max(Counter(values).values(), default=0)
    if most == len(values):
        return list(values)
    shift = rng.randint(most, max(most, len(values) - most))
    out = list(values)
    for i, place in enumerate(order):
        out[place] = values[order[(i + shift) % len(order)]]
    for _ in range(4 * len(values)):  # so that neighbours do not stay neighbours
        i, j = rng.randrange(len(values)), rng.randrange(len(values))
        if out[i] != values[j] and out[j] != values[i]:
            out[i], out[j] = out[j], out[i]
    return out


def spread(true: Sequence[str], others: Sequence[str], rng: random.Random) -> list[str]:
    """For each place one of ``others`` that is not the true one, none at more than :data:`MOST` of the places.

    So no guess is right often, however unequal the shares of the true ones are. Where ``others`` are too few for
    that, all are used about equally often.
    """
    most = max(-(-len(true) // len(others)), int(MOST * len(true)))
    used = dict.fromkeys(others, 0)
    out: list[str] = []
    for name in true:
        free = [other for other in others if other != name and used[other] < most]
        chosen = rng.choice(free or [other for other in others if other != name])
        used[chosen] += 1
        out.append(chosen)
    return out


@lru_cache(maxsize=16)
def snapshot(filename: str) -> tuple[Mapping[str, Any], ...]:
    """The rows of a snapshot, with numbers as numbers."""
    text = (Path(envs.gaia.data.__file__).parent / filename).read_text(encoding="ascii")
    return tuple(
        MappingProxyType({k: int(v) if v.isdigit() else float(v) if "." in v else v for k, v in row.items()})
        for row in csv.DictReader(text.splitlines())
    )
