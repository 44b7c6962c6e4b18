"""Questions that only the local web answers."""

from __future__ import annotations

from dataclasses import dataclass, replace

from aworld_gym.types import PlanStep
from envs.gaia.operators import best, both_found, fact, followed, gap, named, scaled
from envs.gaia.templates import template
from envs.gaia.terms import Draft, Question, Term, joined


@template("web-gap", level=1)
def web_gap(draft: Draft) -> Question:
    """The difference between a number of one entity and that of another."""
    table = draft.table()
    one, other = (named(table, row) for row in draft.some(table.rows, 2))
    column = draft.pick(table.of_kind("int"))
    difference = gap(draft, fact(one, table, column), fact(other, table, column))
    search = both_found(one.value, other.value, table)
    return draft.ask(replace(difference, steps=(search, *without_search(difference))))


@template("web-chain", level=1)
def web_chain(draft: Draft) -> Question:
    """The one of two entities that has more or less of something, and a fact about what its page names."""
    table = draft.pick([table for table in draft.world.tables.values() if table.of_kind("ref")])
    names = [row["name"] for row in draft.some(table.rows, 2)]
    by = draft.pick(table.of_kind("int"))
    found = best(draft, names, table, by, Term("names", (), ""))
    more = "higher" if table.row(found.value)[by.name] == max(table.row(name)[by.name] for name in names) else "lower"
    found = replace(
        found,
        phrase=f"whichever of the {table.plural} {joined(names)} has the {more} {by.phrase}",
        steps=(both_found(names[0], names[1], table), *without_search(found)),
    )
    ref = draft.pick(table.of_kind("ref"))
    target = draft.table(ref.to)
    column = draft.pick(target.of_kind("text", "person", "int", "date"))
    return draft.ask(followed(found, table, ref, target, column))


def without_search(term: Term) -> tuple[PlanStep, ...]:
    """The term's steps but for its searches, which another one replaces."""
    return tuple(step for step in term.steps if step.tool != "search")


@dataclass(frozen=True)
class _Conversion:
    """What to do to a column: ``(value + n) * factor``, to some decimals."""

    table: str
    column: str
    low: int
    high: int
    factor: str
    decimals: int
    rate: str
    """What the factor is, in words that name it."""
    phrases: tuple[str, ...]
    """With the places ``{name}``, ``{n}`` and ``{rate}``."""


_CONVERSIONS = (
    _Conversion(
        "airport",
        "elevation_ft",
        300,
        9000,
        "0.3048",
        0,
        "at 0.3048 metres per foot",
        (
            "the altitude in whole metres ({rate}) of a balloon that is {n} feet above the airport {name}",
            "the whole number of metres ({rate}) that a kite {n} feet above the airport {name} is above the sea",
        ),
    ),
    _Conversion(
        "element",
        "melting_k",
        20,
        400,
        "1.8",
        1,
        "at 1.8 per kelvin",
        (
            "the temperature in degrees Rankine ({rate}) {n} kelvin above the melting point of the element {name}",
            "the value in degrees Rankine ({rate}) of the melting point of the element {name} plus {n} kelvin",
        ),
    ),
    _Conversion(
        "country",
        "area_km2",
        40,
        9000,
        "0.3861",
        0,
        "at 0.3861 per square kilometre",
        (
            "the area in whole square miles ({rate}) of the country {name} and of {n} square kilometres of new land",
            "the size in whole square miles ({rate}) that the country {name} has once it gains {n} square kilometres",
        ),
    ),
    _Conversion(
        "station",
        "altitude_m",
        5,
        800,
        "3.2808",
        0,
        "at 3.2808 feet per metre",
        (
            "the altitude in whole feet ({rate}) of a balloon that is {n} metres above the station {name}",
            "the whole number of feet ({rate}) that a kite {n} metres above the station {name} is above the sea",
        ),
    ),
    _Conversion(
        "firm",
        "revenue",
        50,
        9000,
        "0.137",
        0,
        "at 0.137 per crown",
        (
            "the revenue in whole thousand guilders ({rate}) of the firm {name} plus {n} thousand crowns",
            "the sum in whole thousand guilders ({rate}) of the revenue of the firm {name} and {n} thousand crowns",
        ),
    ),
    _Conversion(
        "ship",
        "tonnage",
        20,
        4000,
        "2.2046",
        1,
        "at 2.2046 per ton",
        (
            "the tonnage in thousand pounds ({rate}) of the ship {name} plus {n} tons",
            "the weight in thousand pounds ({rate}) of the tonnage of the ship {name} and {n} tons more",
        ),
    ),
)


@template("web-convert", level=1)
def web_convert(draft: Draft) -> Question:
    """A number from a page, with something added, in another unit."""
    chosen = draft.pick([one for one in _CONVERSIONS if one.table in draft.world.tables])
    table = draft.table(chosen.table)
    entity = named(table, draft.pick(table.rows))
    n = draft.rng.randrange(chosen.low, chosen.high)
    phrase = draft.pick(chosen.phrases).format(name=entity.value, n=n, rate=chosen.rate)
    value = fact(entity, table, table.column(chosen.column))
    return draft.ask(scaled(value, n, chosen.factor, chosen.decimals, phrase))
