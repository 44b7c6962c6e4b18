"""Operators over evidence that contradicts itself or has to be followed: revisions, versions, nicknames, references.

Where values contradict each other, an explicit rule says which one counts, and the rule stands in the question: the
value of a day, the one before the latest revision, the latest signed version of a document, the version in force on
a day. What the phrases mean exactly stands in :mod:`envs.gaia.wording`.
"""

from __future__ import annotations

from typing import get_args

from aworld_gym.types import PlanStep
from envs.gaia.terms import Draft, Kind, Term, require
from envs.gaia.world import (
    Column,
    Description,
    Revision,
    Row,
    Table,
    history_line,
    history_title,
    history_url,
    list_title,
    list_url,
)

# --- revisions ---------------------------------------------------------------------------------------------------


def as_of(draft: Draft, entity: Term, table: Table, date: Term) -> Term:
    """What the atlas gave for an entity's revised attribute on a day, which is not what it gives now.

    Reject where nothing was revised, on the day of a revision, where the first or the last entry tells nothing, and
    where there are but two entries: one of them stands now, so that the day would not be needed.
    """
    revisions = _revisions(draft, entity, table)
    require(len(revisions) > 2, "only one value that does not stand any more")
    require(all(revision.date != date.value for revision in revisions), "the day of a revision")
    before = [revision for revision in revisions if revision.date < date.value]
    require(0 < len(before) < len(revisions), "a day before the first entry or after the last one")
    return _entry(draft, "as_of", entity, table, before[-1], date)


def before_last(draft: Draft, entity: Term, table: Table) -> Term:
    """What the atlas gave for an entity's revised attribute before the latest revision."""
    return _entry(draft, "before_last", entity, table, _revisions(draft, entity, table)[-2])


def first_entry(draft: Draft, entity: Term, table: Table) -> Term:
    """What the atlas first gave for an entity's revised attribute."""
    return _entry(draft, "first_entry", entity, table, _revisions(draft, entity, table)[0])


def revised_on(draft: Draft, entity: Term, table: Table) -> Term:
    """The day of the latest revision of an entity's revised attribute."""
    revision = _revisions(draft, entity, table)[-1]
    column = table.column(revision.column)
    said = draft.phrase("revised_on", attribute=column.phrase, entity=entity.phrase)
    steps = (*entity.steps, *_history(entity, table, column, revision))
    return Term("date", revision.date, said, steps, entity.needs | {history_url(table.name, entity.value)})


def between_revisions(draft: Draft, table: Table, row: Row) -> tuple[str, str]:
    """Two days, the day of an entry and that of the next one: on those between, the former's value stood.

    Reject where nothing was revised, or but once (see :func:`as_of`).
    """
    revisions = draft.world.history(table.name, row["name"])
    require(len(revisions) > 1, "nothing was revised")
    require(len(revisions) > 2, "only one value that does not stand any more")
    at = draft.rng.randrange(len(revisions) - 1)
    return revisions[at].date, revisions[at + 1].date


def _revisions(draft: Draft, entity: Term, table: Table) -> tuple[Revision, ...]:
    revisions = draft.world.history(table.name, entity.value)
    require(len(revisions) > 1, "nothing was revised")
    return revisions


def _entry(draft: Draft, production: str, entity: Term, table: Table, revision: Revision, *date: Term) -> Term:
    column = table.column(revision.column)
    day = {"date": date[0].phrase} if date else {}
    said = draft.phrase(production, attribute=column.phrase, entity=entity.phrase, **day)
    steps = [*entity.steps, *(step for term in date for step in term.steps)]
    steps += _history(entity, table, column, revision)
    needs = entity.needs.union({history_url(table.name, entity.value)}, *(term.needs for term in date))
    require(column.kind in get_args(Kind), f"a revised {column.kind}")
    return Term(column.kind, revision.value, said, tuple(steps), needs)  # type: ignore[arg-type]


def _history(entity: Term, table: Table, column: Column, revision: Revision) -> tuple[PlanStep, PlanStep]:
    url = history_url(table.name, entity.value)
    return (
        PlanStep("search", {"query": history_title(entity.value)}, (url,)),
        PlanStep("open_page", {"url": url}, (history_line(column, revision),)),
    )


# --- indirection -------------------------------------------------------------------------------------------------


def looked_up(draft: Draft, table: Table, row: Row, description: Description, text: Term) -> Term:
    """The entity that a nickname, code, name or person leads to; ``text`` is where that stands.

    Args:
        draft: the draft.
        table: the entity's table.
        row: the entity.
        description: one of the world's ways to name it, with the value of ``text``.
        text: the nickname, code, ...; its case may differ.
    """
    require(str(text.value).lower() == str(description.value).lower(), "a description with another value")
    if description.kind == "alias":
        said = draft.phrase("nicknamed", noun=table.name, text=text.phrase)
    else:
        attribute = table.column(description.column).phrase
        said = draft.phrase("coded", noun=table.name, attribute=attribute, text=text.phrase)
    steps = (
        *text.steps,
        PlanStep("search", {"query": description.query}, (description.url,)),
        PlanStep("open_page", {"url": description.url}, (description.shows,)),
    )
    return Term("text", row["name"], said, steps, text.needs | {description.url})


def only(draft: Draft, entity: Term, table: Table, column: Column) -> Term:
    """The only entity of ``table`` whose ``column`` names ``entity``, from the atlas' list of such entities."""
    found = [row["name"] for row in table.rows if row[column.name] == entity.value]
    require(len(found) == 1, "not exactly one of them")
    url = list_url(table, column, entity.value)
    steps = (
        *entity.steps,
        PlanStep("search", {"query": list_title(table, column, entity.value)}, (url,)),
        PlanStep("open_page", {"url": url}, (found[0],)),
    )
    said = draft.phrase("only", noun=table.name, attribute=column.phrase, entity=entity.phrase)
    return Term("text", found[0], said, steps, entity.needs | {url})
