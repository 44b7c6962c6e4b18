"""Revisions and references: what the operators give is what the pages say, read here in another way."""

from __future__ import annotations

import datetime
import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.gaia import operators_evidence as evidence
from envs.gaia.operators import named
from envs.gaia.splits import world_seeds
from envs.gaia.terms import Draft, Reject, Term
from envs.gaia.world import TRAINING_FLAVOURS, World, history_url, page_url, pages, world

DAYS = st.dates(datetime.date(2003, 1, 1), datetime.date(2027, 1, 1)).map(datetime.date.isoformat)


def somewhere(flavour: str) -> World:
    return world(flavour, world_seeds("train")[0])


@pytest.fixture(scope="module", autouse=True)
def _worlds_are_there() -> None:
    """Making them is no part of the time that an example may take."""
    for flavour in TRAINING_FLAVOURS:
        pages(somewhere(flavour).corpus)


def entries(where: World, table: str, name: str) -> list[tuple[str, str]]:
    """(day, value) as the page of revisions lists them, oldest first."""
    column = where.tables[table].column(where.history(table, name)[0].column)
    text = pages(where.corpus)[history_url(table, name)].text
    unit = f" {column.unit}" if column.unit else ""
    pattern = rf"^(\d{{4}}-\d\d-\d\d): {re.escape(column.label)} (.+?){re.escape(unit)} \([^()]*\)$"
    return re.findall(pattern, text, re.M)


revised = st.sampled_from(
    [(flavour, *key) for flavour in TRAINING_FLAVOURS for key in list(somewhere(flavour).histories)[::7]]
)


def entity_of(flavour: str, table: str, name: str) -> tuple[Draft, Term]:
    where = somewhere(flavour)
    return Draft(random.Random(name), where), named(where.tables[table], where.tables[table].row(name))


@given(revised, DAYS)
def test_as_of_is_the_last_entry_on_or_before_the_day(key: tuple[str, str, str], day: str) -> None:
    flavour, table, name = key
    draft, entity = entity_of(*key)
    found = entries(draft.world, table, name)
    before = [value for when, value in found if when <= day]
    date = Term("date", day, "the day in question")
    if not before or len(before) == len(found) or day in dict(found) or len(found) < 3:
        with pytest.raises(Reject):
            evidence.as_of(draft, entity, draft.world.tables[table], date)
        return
    term = evidence.as_of(draft, entity, draft.world.tables[table], date)
    assert str(term.value) == before[-1]
    assert term.needs == {history_url(table, name)}
    assert "the day in question" in term.phrase and entity.phrase in term.phrase


@given(revised)
def test_the_other_operators_on_revisions_read_the_same_page(key: tuple[str, str, str]) -> None:
    _, table, name = key
    draft, entity = entity_of(*key)
    found = entries(draft.world, table, name)
    where = draft.world.tables[table]
    assert str(evidence.first_entry(draft, entity, where).value) == found[0][1]
    assert str(evidence.before_last(draft, entity, where).value) == found[-2][1]
    assert evidence.revised_on(draft, entity, where).value == found[-1][0]
    page = pages(draft.world.corpus)[page_url(table, name)].text
    assert found[-1][1] in page  # what stands now
    if len(found) < 3:  # the day would not be needed
        with pytest.raises(Reject, match="only one value"):
            evidence.between_revisions(draft, where, where.row(name))
        return
    first, last = evidence.between_revisions(draft, where, where.row(name))
    assert (first, last) in list(zip([day for day, _ in found], [day for day, _ in found[1:]], strict=False))


@pytest.mark.parametrize("flavour", TRAINING_FLAVOURS)
def test_what_was_never_revised_is_refused(flavour: str) -> None:
    where = somewhere(flavour)
    table, row = next((t, r) for t in where.tables.values() for r in t.rows if not where.history(t.name, r["name"]))
    draft, entity = Draft(random.Random(0), where), named(table, row)
    day = Term("date", "2015-01-01", "the day")
    for refused in (
        lambda: evidence.as_of(draft, entity, table, day),
        lambda: evidence.before_last(draft, entity, table),
        lambda: evidence.first_entry(draft, entity, table),
        lambda: evidence.revised_on(draft, entity, table),
        lambda: evidence.between_revisions(draft, table, row),
    ):
        with pytest.raises(Reject, match="nothing was revised"):
            refused()


@pytest.mark.parametrize("flavour", TRAINING_FLAVOURS)
def test_a_description_leads_to_its_entity_alone(flavour: str) -> None:
    where = somewhere(flavour)
    kinds = set()
    for table in where.tables.values():
        for row in table.rows[::9]:
            for description in where.descriptions(table.name, row["name"]):
                if description.kind == "ref":
                    continue
                kinds.add(description.kind)
                draft = Draft(random.Random(0), where)
                text = Term("text", description.value, "the cue", needs=frozenset({"a.png"}))
                found = evidence.looked_up(draft, table, row, description, text)
                assert found.value == row["name"] and "the cue" in found.phrase
                assert found.needs == {"a.png", description.url}
                assert description.shows in pages(where.corpus)[description.url].text
                with pytest.raises(Reject):
                    evidence.looked_up(draft, table, row, description, Term("text", "something else", "the cue"))
    assert {"alias", "code"} < kinds


@pytest.mark.parametrize("flavour", TRAINING_FLAVOURS)
def test_only_takes_the_one_entity_that_names_another(flavour: str) -> None:
    where = somewhere(flavour)
    seen = {True: 0, False: 0}
    for table in where.tables.values():
        for ref in table.of_kind("ref"):
            target = where.tables[ref.to]
            for row in target.rows:
                naming = [one["name"] for one in table.rows if one[ref.name] == row["name"]]
                draft = Draft(random.Random(0), where)
                seen[len(naming) == 1] += 1
                if len(naming) == 1:
                    found = evidence.only(draft, named(target, row), table, ref)
                    assert [found.value] == naming
                    (url,) = found.needs
                    assert pages(where.corpus)[url].text.splitlines()[1:] == naming
                else:
                    with pytest.raises(Reject):
                        evidence.only(draft, named(target, row), table, ref)
    assert all(seen.values())
