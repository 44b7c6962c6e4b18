"""Level 1 on the local web: facts of entities that the question names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from envs.gaia.operators import (
    best,
    both_found,
    converted,
    fact,
    followed,
    gap,
    listed_entities,
    literal,
    named,
    plus,
    without_search,
)
from envs.gaia.templates import template
from envs.gaia.terms import Draft, Question


@template("web-gap", level=1)
def web_gap(draft: Draft) -> Question:
    """The difference between a number of one entity and that of another."""
    table = draft.table_with("int")
    one, other = (named(table, row) for row in draft.some(table.rows, 2))
    column = draft.pick(table.of_kind("int"))
    difference = gap(draft, fact(draft, one, table, column), fact(draft, other, table, column))
    search = both_found(one.value, other.value, table)
    return draft.ask(replace(difference, steps=(search, *without_search(difference))))


@template("web-chain", level=1)
def web_chain(draft: Draft) -> Question:
    """The one of two entities that has more or less of something, and a fact about what its page names."""
    table = draft.table_with("ref", "int")
    names = [row["name"] for row in draft.some(table.rows, 2)]
    found = best(draft, table, draft.pick(table.of_kind("int")), listed_entities(table, names))
    found = replace(found, steps=(both_found(names[0], names[1], table), *without_search(found)))
    ref = draft.pick(table.of_kind("ref"))
    target = draft.table(ref.to)
    return draft.ask(followed(draft, found, table, ref, target, draft.asked(target)))


_CONVERSIONS: Mapping[str, tuple[str, str, int, str]] = MappingProxyType(
    {
        "feet": ("metres", "0.3048", 0, "metres per foot"),
        "metres": ("feet", "3.2808", 0, "feet per metre"),
        "kelvin": ("degrees Rankine", "1.8", 1, "degrees per kelvin"),
        "square kilometres": ("square miles", "0.3861", 0, "square miles per square kilometre"),
        "thousand crowns": ("thousand guilders", "0.137", 0, "guilders per crown"),
        "tons": ("thousand pounds", "2.2046", 1, "thousand pounds per ton"),
        "inhabitants": ("dozens", "0.0833", 0, "dozens per inhabitant"),
    }
)
"""Unit of a column of the atlas -> other unit, factor, decimals, and what the factor is."""


@template("web-convert", level=1)
def web_convert(draft: Draft) -> Question:
    """A number from a page, with something added, in another unit."""
    table = draft.table_with("int")
    column = draft.pick([column for column in table.of_kind("int") if column.unit in _CONVERSIONS])
    unit, factor, decimals, per = _CONVERSIONS[column.unit]
    value = fact(draft, named(table, draft.pick(table.rows)), table, column)
    more = literal(draft.rng.randrange(20, 900))
    whole = plus(draft, *draft.some((value, more), 2))
    return draft.ask(converted(draft, whole, unit if decimals else f"whole {unit}", factor, per, decimals))
