"""Questions about tables in csv, tsv and xlsx files."""

from __future__ import annotations

from dataclasses import replace

from envs.gaia.ledgers import Records, draw_ledger, draw_records
from envs.gaia.operators import fact, gap, in_year, ranked, spread, top_group, top_product, total, where
from envs.gaia.sources import sheet_rows, table_file, workbook
from envs.gaia.templates import template
from envs.gaia.terms import Draft, Question

_ASKED = ("text", "person", "int", "date")
"""Kinds of facts that are asked for: those of many different values."""


@template("csv-total", level=1)
def csv_total(draft: Draft) -> Question:
    """Sum of a column over a selection."""
    records = draw_records(draft, draft.rng.randrange(24, 46))
    rows = table_file(draft, records, "csv")
    ledger = records.ledger
    rows = where(draft, rows, ledger.group, draft.pick(ledger.groups))
    return draft.ask(total(draft, rows, draft.pick(ledger.measures).label))


@template("tsv-spread", level=1)
def tsv_spread(draft: Draft) -> Question:
    """Largest minus smallest value of a column over a selection."""
    records = draw_records(draft, draft.rng.randrange(24, 46))
    rows = table_file(draft, records, "tsv")
    ledger = records.ledger
    rows = where(draft, rows, ledger.group, draft.pick(ledger.groups))
    return draft.ask(spread(draft, rows, draft.pick(ledger.measures).label))


@template("xlsx-rank", level=1)
def xlsx_rank(draft: Draft) -> Question:
    """The k-th row of one sheet among several."""
    ledger = draw_ledger(draft)
    names = draft.some(("North", "South", "East", "West", "Centre"), 3)
    parts = [draw_records(draft, draft.rng.randrange(10, 22), ledger=ledger) for _ in names]
    book = workbook(draft, f"{parts[0].stem(draft)}.xlsx", [(n, p.sheet()) for n, p in zip(names, parts, strict=True)])
    chosen = draft.rng.randrange(len(names))
    rows = sheet_rows(draft, parts[chosen], book, names[chosen])
    measure = draft.pick(ledger.measures).label
    ask = draft.pick((ledger.key, "Reference", next(m.label for m in ledger.measures if m.label != measure)))
    high = draft.rng.random() < 0.5
    return draft.ask(ranked(draft, rows, measure, draft.rng.randrange(1, 5), ask, high=high))


@template("xlsx-sheets-gap", level=1)
def xlsx_sheets_gap(draft: Draft) -> Question:
    """The difference between the totals of two sheets."""
    ledger = draw_ledger(draft)
    years = sorted(draft.some(range(2012, 2025), 3))
    parts = [draw_records(draft, draft.rng.randrange(7, 13), ledger=ledger, year=year) for year in years]
    sheets = [(str(year), part.sheet()) for year, part in zip(years, parts, strict=True)]
    book = workbook(draft, f"{draft.pick(ledger.stems)}_by_year.xlsx", sheets)
    measure = draft.pick(ledger.measures).label
    one, other = draft.some(range(len(years)), 2)
    totals = [total(draft, sheet_rows(draft, parts[i], book, str(years[i])), measure) for i in (one, other)]
    reads = [replace(term, steps=term.steps[:1]) for term in totals]  # one calculation does for both
    difference = gap(draft, *reads)
    sums = sorted((sum(int(row[measure]) for row in parts[i].rows), i) for i in (one, other))
    expression = " - ".join(f"({' + '.join(str(row[measure]) for row in parts[i].rows)})" for _, i in reversed(sums))
    last = replace(difference.steps[-1], arguments={"expression": expression})
    return draft.ask(replace(difference, steps=(*difference.steps[:-1], last)))


@template("csv-top-web", level=2)
def csv_top_web(draft: Draft) -> Question:
    """The entity with the highest total in a table, then a fact about it from the atlas."""
    records = draw_records(draft, draft.rng.randrange(40, 81), entities=draft.rng.randrange(6, 11))
    rows = table_file(draft, records, draft.pick(("csv", "tsv")))
    ledger = records.ledger
    if draft.rng.random() < 0.5:
        rows = in_year(draft, rows, ledger.date)
    table = draft.table(ledger.table)
    found = top_group(draft, rows, draft.pick(ledger.measures).label)
    return draft.ask(fact(found, table, draft.pick(table.of_kind(*_ASKED))))


@template("xlsx-join-web", level=2)
def xlsx_join_web(draft: Draft) -> Question:
    """Two sheets joined by their key, the entity with the highest product, then a fact from the atlas."""
    records = draw_records(draft, draft.rng.randrange(8, 14))
    ledger = records.ledger
    first, second = draft.some([measure.label for measure in ledger.measures], 2)
    shuffled = Records(ledger, tuple(draft.some(records.rows, len(records.rows))))
    spare = Records(ledger, tuple(draft.some(records.rows, 5)))
    stem = draft.pick(ledger.stems)
    book = workbook(
        draft,
        f"{stem}_{draft.rng.randrange(10, 100)}.xlsx",
        [
            (first, records.sheet((ledger.key, ledger.date, first))),
            ("Notes", spare.sheet(("Reference", ledger.group))),
            (second, shuffled.sheet((ledger.key, second))),
        ],
    )
    left, right = sheet_rows(draft, records, book, first), sheet_rows(draft, shuffled, book, second)
    place = f"in {book}, whose sheets {first} and {second} are joined by {ledger.key.lower()}"
    found = top_product(draft, left, right, first, second, place)
    table = draft.table(ledger.table)
    return draft.ask(fact(found, table, draft.pick(table.of_kind(*_ASKED))))
