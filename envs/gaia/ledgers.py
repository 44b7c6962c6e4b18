"""Ledgers: what the tables in a task's files are about.

A ledger is a kind of record about entities of a world's table: harvests of countries, invoices of firms. It says
what the columns are called and what values they take; :func:`draw_ledger` draws one at random.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass

from envs.gaia.render import Cell, Sheet
from envs.gaia.terms import Draft, Row, require


@dataclass(frozen=True)
class Measure:
    """A column of whole numbers."""

    label: str
    low: int
    high: int


@dataclass(frozen=True)
class Ledger:
    """A kind of record."""

    table: str
    """The world's table whose entities the records are about."""
    key: str
    """Label of the column that names the entity."""
    noun: str
    plural: str
    stems: tuple[str, ...]
    """What a file of such records may be called."""
    group: str
    """Label of the column of few values."""
    groups: tuple[str, ...]
    measures: tuple[Measure, ...]
    date: str
    """Label of the date column."""
    reference: str
    """Prefix of a record's number."""


LEDGERS: Sequence[Ledger] = (
    Ledger(
        "country",
        "Country",
        "harvest",
        "harvests",
        ("harvests", "crops", "farm_output"),
        "Crop",
        ("barley", "cocoa", "cotton", "maize", "millet", "rice", "soy", "wheat"),
        (Measure("Weight", 120, 9_800), Measure("Value", 1_100, 98_000)),
        "Harvested",
        "H",
    ),
    Ledger(
        "airport",
        "Airport",
        "landing",
        "landings",
        ("landings", "arrivals", "flight_log"),
        "Carrier",
        ("Blue Arrow", "Corvair", "Heliox", "Nimbus", "Polar Lines", "Sundart"),
        (Measure("Passenger count", 12, 540), Measure("Freight", 100, 42_000)),
        "Landed",
        "L",
    ),
    Ledger(
        "element",
        "Element",
        "sample",
        "samples",
        ("samples", "lab_stock", "specimens"),
        "Laboratory",
        ("Annex", "Cellar", "East wing", "Main hall", "North wing", "Tower"),
        (Measure("Mass", 15, 4_900), Measure("Cost", 20, 7_600)),
        "Received",
        "S",
    ),
    Ledger(
        "firm",
        "Firm",
        "invoice",
        "invoices",
        ("invoices", "bills", "receivables"),
        "Department",
        ("Design", "Legal", "Maintenance", "Purchasing", "Sales", "Transport"),
        (Measure("Amount", 90, 48_000), Measure("Work time", 3, 900)),
        "Issued",
        "INV",
    ),
    Ledger(
        "station",
        "Station",
        "storm",
        "storms",
        ("storms", "storm_log", "weather_events"),
        "Direction",
        ("east", "north", "northeast", "south", "southwest", "west"),
        (Measure("Rainfall", 10, 3_200), Measure("Duration", 15, 2_900)),
        "Began",
        "ST",
    ),
    Ledger(
        "ship",
        "Ship",
        "voyage",
        "voyages",
        ("voyages", "sailings", "cargo_log"),
        "Cargo",
        ("cement", "coal", "grain", "paper", "salt", "steel", "timber"),
        (Measure("Load", 110, 28_000), Measure("Distance", 80, 11_500)),
        "Sailed",
        "V",
    ),
    Ledger(
        "town",
        "Town",
        "permit",
        "permits",
        ("permits", "licences", "town_register"),
        "Purpose",
        ("bakery", "bridge", "market", "road works", "school", "warehouse"),
        (Measure("Fee", 25, 6_400), Measure("Area", 30, 9_900)),
        "Granted",
        "P",
    ),
    Ledger(
        "holiday",
        "Holiday",
        "parade",
        "parades",
        ("parades", "processions", "street_log"),
        "Band",
        ("accordions", "brass", "drums", "fiddles", "pipes", "steel pans"),
        (Measure("Budget", 20, 4_800), Measure("Crowd", 300, 88_000)),
        "Held",
        "PR",
    ),
    Ledger(
        "symbol",
        "Symbol",
        "engraving",
        "engravings",
        ("engravings", "plates", "workshop_book"),
        "Metal",
        ("brass", "copper", "iron", "pewter", "silver", "zinc"),
        (Measure("Width", 12, 2_400), Measure("Wage", 30, 7_900)),
        "Engraved",
        "EN",
    ),
    Ledger(
        "museum",
        "Museum",
        "loan",
        "loans",
        ("loans", "lendings", "loan_register"),
        "Section",
        ("clocks", "coins", "maps", "old masters", "pottery", "weapons"),
        (Measure("Insured value", 400, 96_000), Measure("Packing weight", 5, 3_100)),
        "Lent",
        "LN",
    ),
    Ledger(
        "book",
        "Book",
        "shipment",
        "shipments",
        ("shipments", "consignments", "dispatch_log"),
        "Binding",
        ("board", "cloth", "half leather", "leather", "linen", "paper"),
        (Measure("Box count", 4, 1_900), Measure("Postage", 60, 9_700)),
        "Shipped",
        "SP",
    ),
)


@dataclass(frozen=True)
class Records:
    """Drawn records of one ledger, not yet in any file."""

    ledger: Ledger
    rows: tuple[Row, ...]
    """Label -> cell, with the labels in the order of the file's columns."""

    def sheet(self, labels: Sequence[str] | None = None) -> Sheet:
        """The records as a table, of all columns or of those named."""
        header = tuple(labels or self.rows[0])
        return Sheet(header, tuple(tuple(row[label] for label in header) for row in self.rows))

    def stem(self, draft: Draft) -> str:
        """A name for a file of these records, without ending."""
        stem = draft.pick(self.ledger.stems)
        return draft.say(stem, f"{stem}_{draft.rng.randrange(2015, 2026)}", f"{stem}-{draft.rng.randrange(1, 30)}")


def draw_ledger(draft: Draft) -> Ledger:
    """A ledger about one of the world's tables."""
    return draft.pick([ledger for ledger in LEDGERS if ledger.table in draft.world.tables])


def draw_records(
    draft: Draft, count: int, *, ledger: Ledger | None = None, entities: int | None = None, year: int | None = None
) -> Records:
    """``count`` records, in random order.

    Args:
        draft: the draft.
        count: number of records.
        ledger: what they are about; by default a random one.
        entities: how many entities they are spread over, each with at least one record; by default as many as records,
            or all there are.
        year: the year of all dates; by default they lie within four years.
    """
    ledger = ledger or draw_ledger(draft)
    rng = draft.rng
    known = draft.world.tables[ledger.table].rows
    names = [row["name"] for row in draft.some(known, entities or min(count, len(known)))]
    keys = names + [rng.choice(names) for _ in range(count - len(names))]
    rng.shuffle(keys)
    numbers = rng.sample(range(1000, 10_000), count)
    first = year or rng.randrange(2012, 2022)
    days = (datetime.date(first, 1, 1).toordinal(), datetime.date(year or first + 3, 12, 31).toordinal())
    measures = {measure.label: _values(draft, measure, count) for measure in ledger.measures}
    labels = [ledger.key, ledger.group, ledger.date, *measures]
    rng.shuffle(labels)
    rows = []
    for i, key in enumerate(keys):
        row: dict[str, Cell] = {
            ledger.key: key,
            ledger.group: rng.choice(ledger.groups),
            ledger.date: datetime.date.fromordinal(rng.randint(*days)).isoformat(),
            **{label: values[i] for label, values in measures.items()},
        }
        rows.append({"Reference": f"{ledger.reference}-{numbers[i]}", **{label: row[label] for label in labels}})
    return Records(ledger, tuple(rows))


def _values(draft: Draft, measure: Measure, count: int) -> list[int]:
    """Different values, so that no two records tie."""
    require(measure.high - measure.low > 4 * count, "too few values")
    return draft.rng.sample(range(measure.low, measure.high + 1), count)
