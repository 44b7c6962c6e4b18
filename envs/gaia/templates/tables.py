"""Level 1 on tables and databases: one source of rows, a selection, and what is asked of it."""

from __future__ import annotations

from envs.gaia.ledgers import Records, draw_ledger, draw_records
from envs.gaia.makers import measure
from envs.gaia.operators import average, gap, in_year, ranked, spread, top_group, total, where
from envs.gaia.render import Book
from envs.gaia.sources import database, hiding, merging, scoring, sheet_rows, tabulated
from envs.gaia.templates import template
from envs.gaia.terms import Draft, Question, Rows, Term


@template("csv-total", level=1)
def csv_total(draft: Draft) -> Question:
    """Sum of a column over a selection."""
    records = draw_records(draft, draft.rng.randrange(24, 46))
    return draft.ask(total(draft, of_group(draft, records, tabulated(draft, records, "csv")), measure(draft, records)))


@template("tsv-spread", level=1)
def tsv_spread(draft: Draft) -> Question:
    """Largest minus smallest value of a column over a selection."""
    records = draw_records(draft, draft.rng.randrange(24, 46))
    return draft.ask(spread(draft, of_group(draft, records, tabulated(draft, records, "tsv")), measure(draft, records)))


@template("xlsx-rank", level=1)
def xlsx_rank(draft: Draft) -> Question:
    """The k-th row of one sheet among several."""
    ledger = draw_ledger(draft)
    names = draft.some(("North", "South", "East", "West", "Centre"), 3)
    parts = [draw_records(draft, draft.rng.randrange(10, 22), ledger=ledger) for _ in names]
    sheets = tuple((name, part.sheet()) for name, part in zip(names, parts, strict=True))
    chosen = draft.rng.randrange(len(names))
    hidden = tuple(draft.some(names, draft.rng.randrange(2)))  # it may be the one that is asked about
    book = draft.put(f"{parts[0].stem(draft)}.xlsx", Book(sheets, hidden))
    return draft.ask(any_rank(draft, parts[chosen], sheet_rows(draft, parts[chosen], book, names[chosen])))


@template("xlsx-sheets-gap", level=1)
def xlsx_sheets_gap(draft: Draft) -> Question:
    """The difference between the totals of two sheets."""
    ledger = draw_ledger(draft)
    years = sorted(draft.some(range(2012, 2025), 3))
    parts = [draw_records(draft, draft.rng.randrange(7, 13), ledger=ledger, year=year) for year in years]
    sheets = tuple((str(year), part.sheet()) for year, part in zip(years, parts, strict=True))
    book = draft.put(f"{draft.pick(ledger.stems)}_by_year.xlsx", Book(sheets))
    label = draft.pick(ledger.measures).label
    one, other = (
        total(draft, sheet_rows(draft, parts[i], book, str(years[i])), label) for i in draft.some(range(len(years)), 2)
    )
    return draft.ask(gap(draft, one, other))


@template("xlsx-hidden", level=1)
def xlsx_hidden(draft: Draft) -> Question:
    """Sum of a column over the visible or the hidden rows of a sheet."""
    records = draw_records(draft, draft.rng.randrange(16, 34))
    rows = hiding(draft, records, visible=draft.rng.random() < 0.7)
    return draft.ask(total(draft, rows, measure(draft, records)))


@template("xlsx-merged", level=1)
def xlsx_merged(draft: Draft) -> Question:
    """A number from the rows that a merged cell spans."""
    records = draw_records(draft, draft.rng.randrange(18, 34))
    rows = of_group(draft, records, merging(draft, records))
    return draft.ask(draft.pick((total, spread))(draft, rows, measure(draft, records)))


@template("xlsx-score", level=1)
def xlsx_score(draft: Draft) -> Question:
    """A number from a column that formulas give."""
    records = draw_records(draft, draft.rng.randrange(16, 30))
    label = draft.pick(("Score", "Points", "Rating"))
    rows = of_group(draft, records, scoring(draft, records, label))
    return draft.ask(draft.pick((total, spread, average))(draft, rows, label))


@template("sqlite-total", level=1)
def sqlite_total(draft: Draft) -> Question:
    """A number from a selection of a database's rows."""
    records = draw_records(draft, draft.rng.randrange(80, 240))
    rows = of_group(draft, records, database(draft, records))
    if draft.rng.random() < 0.5:
        rows = in_year(draft, rows, least=3)
    return draft.ask(draft.pick((total, average, spread))(draft, rows, measure(draft, records)))


@template("sqlite-rank", level=1)
def sqlite_rank(draft: Draft) -> Question:
    """The k-th row of a selection of a database's rows."""
    records = draw_records(draft, draft.rng.randrange(60, 160))
    return draft.ask(any_rank(draft, records, of_group(draft, records, database(draft, records))))


@template("sqlite-top", level=1)
def sqlite_top(draft: Draft) -> Question:
    """The entity with the highest total over a year's rows of a database."""
    records = draw_records(draft, draft.rng.randrange(160, 320), entities=draft.rng.randrange(18, 26))
    return draft.ask(top_group(draft, in_year(draft, database(draft, records)), measure(draft, records)))


def of_group(draft: Draft, records: Records, rows: Rows) -> Rows:
    """The rows of one group."""
    return where(draft, rows, records.ledger.group, draft.pick(records.ledger.groups))


def any_rank(draft: Draft, records: Records, rows: Rows) -> Term:
    """The entity, the reference, the date or another number of the k-th row by a number."""
    ledger, label = records.ledger, measure(draft, records)
    other = next(one.label for one in ledger.measures if one.label != label)
    ask = draft.pick((ledger.key, "Reference", ledger.date, other))
    return ranked(draft, rows, label, draft.rng.randrange(1, 5), ask, high=draft.rng.random() < 0.5)
