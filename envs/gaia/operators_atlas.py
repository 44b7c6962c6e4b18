"""Operators on the atlas: entities, their facts, and what leads from one to another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from aworld_gym.types import PlanStep
from envs.gaia.operators_numbers import apart
from envs.gaia.terms import Draft, Kind, Row, Term, joined, require
from envs.gaia.wording import HIGH, LOW
from envs.gaia.world import Column, Table, link, page_url

_KINDS: Mapping[str, Kind] = MappingProxyType(
    {"int": "int", "float": "float", "date": "date", "person": "person", "text": "text", "ref": "text", "code": "code"}
)


def named(table: Table, row: Row) -> Term:
    """An entity, by its name."""
    return Term("text", row["name"], f"the {table.name} {row['name']}")


def fact(draft: Draft, entity: Term, table: Table, column: Column) -> Term:
    """An attribute of an entity, from its page, which is searched for unless it was opened before."""
    entity = entity.settled()
    row, url = table.row(entity.value), page_url(table.name, entity.value)
    known = any(step.tool == "open_page" and step.arguments["url"] == url for step in entity.steps)
    search = () if known else (PlanStep("search", {"query": entity.value}, (url,)),)
    steps = (*entity.steps, *search, opened(table, row, column))
    said = draft.phrase("fact", attribute=column.phrase, entity=entity.phrase)
    return Term(_KINDS[column.kind], row[column.name], said, steps, entity.needs | {url})


def followed(draft: Draft, entity: Term, table: Table, ref: Column, target: Table, column: Column) -> Term:
    """An attribute of the entity that ``ref`` names on ``entity``'s page, by the link there; that page is open.

    What ``entity`` needs is left to the caller: its page, where opening it is not among its steps.
    """
    row = table.row(entity.value)
    other, url = target.row(row[ref.name]), link(ref, row)
    steps = (*entity.steps, replace(opened(table, row, ref), shows=(ref.line(row), url)), opened(target, other, column))
    via = draft.phrase("reference_of", attribute=ref.phrase, entity=entity.phrase)
    said = draft.phrase("fact", attribute=column.phrase, entity=via)
    needs = entity.needs | {url, page_url(table.name, entity.value)}
    return Term(_KINDS[column.kind], other[column.name], said, steps, needs)


def linked(draft: Draft, entity: Term, table: Table, ref: Column) -> Term:
    """The entity that ``ref`` names on ``entity``'s page, which is searched for."""
    return replace(fact(draft, entity, table, ref), kind="text")


def opened(table: Table, row: Row, *columns: Column) -> PlanStep:
    """Opening an entity's page, which shows these attributes."""
    return PlanStep("open_page", {"url": page_url(table.name, str(row["name"]))}, tuple(c.line(row) for c in columns))


def both_found(one: str, other: str, table: Table) -> PlanStep:
    """One search that finds two entities of a table."""
    return PlanStep("search", {"query": f"{one} {other}"}, (page_url(table.name, one), page_url(table.name, other)))


def without_search(term: Term) -> tuple[PlanStep, ...]:
    """The term's steps but for its searches, which another one replaces."""
    return tuple(step for step in term.steps if step.tool != "search")


def listed_entities(table: Table, names: Sequence[str]) -> Term:
    """Some entities of a table, by their names in the question."""
    return Term("names", tuple(names), f"the {table.plural} {joined(names)}")


def best(draft: Draft, table: Table, column: Column, among: Term) -> Term:
    """The one of several entities that has the most or least of a column; their names are the value of ``among``."""
    order = sorted((table.row(name) for name in among.value), key=lambda row: row[column.name])
    high = draft.rng.random() < 0.5
    if high:
        order.reverse()
    apart(order[0][column.name], order[1][column.name])
    steps = list(among.steps)
    for name in among.value:
        row, url = table.row(name), page_url(table.name, name)
        steps += [PlanStep("search", {"query": name}, (url,)), opened(table, row, column)]
    said = draft.phrase(
        "best",
        noun=table.name,
        superlative=draft.pick(HIGH if high else LOW),
        attribute=column.phrase,
        entities=among.phrase,
    )
    pages = {page_url(table.name, name) for name in among.value}
    return Term("text", order[0]["name"], said, tuple(steps), among.needs | pages)


def coded(draft: Draft, table: Table, code: Column, text: Term) -> Term:
    """The entity whose code a term gives: found by searching for the code."""
    text = text.settled()
    rows = [row for row in table.rows if row[code.name] == text.value]
    require(len(rows) == 1, "a code of none or several")
    row = rows[0]
    url = page_url(table.name, row["name"])
    steps = (
        *text.steps,
        PlanStep("search", {"query": f"{code.label} {text.value}"}, (url,)),
        replace(opened(table, row, code), shows=(code.line(row), row["name"])),
    )
    said = draft.phrase("coded", noun=table.name, attribute=code.phrase, text=text.phrase)
    return Term("text", row["name"], said, steps, text.needs | {url})


def called(draft: Draft, table: Table, text: Term) -> Term:
    """The entity whose name a term gives."""
    text = text.settled()
    table.row(text.value)
    return replace(text, kind="text", phrase=draft.phrase("called", noun=table.name, text=text.phrase))


def weighted(draft: Draft, table: Table, column: Column, measure: str, amounts: Sequence[int], among: Term) -> Term:
    """The sum of amounts, which stand where ``among`` names the entities, times the entities' numbers."""
    terms = [fact(draft, named(table, table.row(name)), table, column) for name in among.value]
    value = sum(amount * int(term.value) for amount, term in zip(amounts, terms, strict=True))
    expression = " + ".join(f"{amount} * {term.value}" for amount, term in zip(amounts, terms, strict=True))
    said = draft.phrase("weighted", measure=measure.lower(), attribute=column.phrase, entities=among.phrase)
    steps = (*among.steps, *(step for term in terms for step in term.steps))
    return Term("int", value, said, steps, among.needs.union(*(term.needs for term in terms)), expression)
