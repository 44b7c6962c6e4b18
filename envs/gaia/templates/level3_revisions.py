"""Level 3: what the atlas gave before it was revised. Revisions contradict each other; the question has the rule."""

from __future__ import annotations

import datetime

from envs.gaia.composition import Composition, Rule, composed
from envs.gaia.ledgers import draw_records
from envs.gaia.makers import measure
from envs.gaia.operators import days_between, extreme, gap, percent, since, total
from envs.gaia.operators_evidence import as_of, before_last, between_revisions, first_entry, revised_on
from envs.gaia.sources import tabulated
from envs.gaia.sources_documents import random_date
from envs.gaia.templates import template
from envs.gaia.terms import Draft, Question, Term, require
from envs.gaia.world import TRAINING_FLAVOURS, Row, Table

CLAUSE = 5
"""Words of the longest phrase that needs no short name before a clause follows it, such as ``the ship Quiet Heron``."""
_RATES = tuple(rate for rate in range(3, 60) if rate % 2 and rate % 5)
"""Percentages that seldom give a last digit of zero, which is written in several ways."""
_RULES: tuple[Rule, ...] = ("latest_signed", "in_force")


@template("revision-day", level=3, worlds=TRAINING_FLAVOURS)
def revision_day(draft: Draft) -> Question:
    """A chain to an entity, a chain to a day, and what the atlas gave for the one on the other."""

    def shape(c: Composition, depth: int) -> Term:
        table, row = c.revised(least=3)
        entity = c.short("entity", c.entity(depth, table, row), words=CLAUSE)
        first, last = between_revisions(c.draft, table, row)
        day = c.day(day_between(c.draft, first, last), differs=lambda other: not first <= other <= last)
        return as_of(c.draft, entity, table, c.short("date", day))

    return composed(draft, shape, least=draft.rng.randrange(1, 4))


@template("revision-rate", level=3, worlds=TRAINING_FLAVOURS)
def revision_rate(draft: Draft) -> Question:
    """A rate from the version of a document that counts, of an outdated number of an entity."""

    def shape(c: Composition, depth: int) -> Term:
        base = outdated(c, depth)
        rate = c.version("rate", c.draft.pick(_RATES), c.draft.pick(_RULES))
        return percent(c.draft, c.short("number", rate), c.short("number", base))

    return composed(draft, shape)


@template("revision-gap", level=3, worlds=TRAINING_FLAVOURS)
def revision_gap(draft: Draft) -> Question:
    """An outdated number of an entity, and the total of the records after a day, subtracted."""

    def shape(c: Composition, depth: int) -> Term:
        base = c.short("number", outdated(c, depth))
        records = draw_records(c.draft, c.draft.rng.randrange(24, 46))
        ending = c.fresh(("csv", "tsv", "xlsx", "sqlite"), lambda one: "database" if one == "sqlite" else "table")
        rows = tabulated(c.draft, records, ending, c.box())
        dates = sorted(str(row[records.ledger.date]) for row in records.rows)
        day = datetime.date.fromisoformat(c.draft.pick(dates[4:-4])) + datetime.timedelta(days=1)
        bound = c.short("date", c.carried("date", day.isoformat()))
        rows = since(c.draft, rows, bound, after=c.draft.rng.random() < 0.5)
        other = c.seen(total(c.draft, rows, measure(c.draft, records)))
        return gap(c.draft, *c.draft.some((base, c.short("number", other)), 2))

    return composed(draft, shape)


@template("revision-days", level=3, worlds=TRAINING_FLAVOURS)
def revision_days(draft: Draft) -> Question:
    """Days between the latest revision of an entity, which a chain leads to, and a day that stands elsewhere."""

    def shape(c: Composition, depth: int) -> Term:
        table, row = c.revised()
        entity = c.short("entity", c.entity(depth, table, row), words=CLAUSE)
        revised = c.seen(revised_on(c.draft, entity, table))
        other = random_date(c.draft)
        require(abs(int(other[:4]) - int(revised.value[:4])) > 0, "a day too close")
        days = [c.short("date", revised), c.short("date", c.day(other))]
        return days_between(c.draft, *sorted(days, key=lambda term: term.value))

    return composed(draft, shape, least=draft.rng.randrange(1, 3))


@template("two-histories", level=3, worlds=TRAINING_FLAVOURS)
def two_histories(draft: Draft) -> Question:
    """What the atlas gave for one entity on the day when it last revised another one."""

    def shape(c: Composition, depth: int) -> Term:
        table, row = c.revised(least=3)
        first, last = between_revisions(c.draft, table, row)
        other_table, other = c.pick(
            lambda one, entity: entity is not row and _revised_within(c, one, entity, first, last)
        )
        dated = c.short("entity", c.entity(1, other_table, other, plain=True), words=CLAUSE)
        day = c.short("date", c.seen(revised_on(c.draft, dated, other_table)), words=CLAUSE)
        entity = c.short("entity", c.entity(depth, table, row), words=CLAUSE)
        return as_of(c.draft, entity, table, day)

    return composed(draft, shape)


@template("revision-larger", level=3, worlds=TRAINING_FLAVOURS)
def revision_larger(draft: Draft) -> Question:
    """The larger or smaller of two entities' outdated numbers, and another number subtracted."""

    def shape(c: Composition, depth: int) -> Term:
        one, other = (c.short("number", outdated(c, depth if i else 1, plain=True)) for i in range(2))
        larger = c.draft.rng.random() < 0.5
        found = extreme(c.draft, *c.draft.some((one, other), 2), larger=larger)
        chosen = c.short("number", found, words=CLAUSE)
        return gap(c.draft, *c.draft.some((chosen, c.short("number", c.number("atlas", "linked"))), 2))

    return composed(draft, shape)


def outdated(c: Composition, depth: int, *, plain: bool = False) -> Term:
    """A number that the atlas first gave, or gave before the latest revision, for an entity that a chain leads to."""
    table, row = c.revised("int")
    entity = c.short("entity", c.entity(depth, table, row, plain=plain), words=CLAUSE)
    return c.seen(c.draft.pick((before_last, first_entry))(c.draft, entity, table))


def day_between(draft: Draft, first: str, last: str) -> str:
    """A day after the one and before the other."""
    start, end = (datetime.date.fromisoformat(day).toordinal() for day in (first, last))
    return datetime.date.fromordinal(draft.rng.randrange(start + 1, end)).isoformat()


def _revised_within(c: Composition, table: Table, row: Row, first: str, last: str) -> bool:
    revisions = c.draft.world.history(table.name, row["name"])
    return bool(revisions) and first < revisions[-1].date < last
