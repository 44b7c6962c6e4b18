"""Questions about tables in csv, tsv and xlsx files."""

from __future__ import annotations

from envs.gaia.ledgers import draw_records
from envs.gaia.operators import fact, top_group, total, where
from envs.gaia.sources import table_file
from envs.gaia.templates import template
from envs.gaia.terms import Draft, Question


@template("csv-total", level=1)
def csv_total(draft: Draft) -> Question:
    """Sum of a column over a selection."""
    records = draw_records(draft, draft.rng.randrange(24, 46))
    rows = table_file(draft, records, "csv")
    ledger = records.ledger
    rows = where(draft, rows, ledger.group, draft.pick(ledger.groups))
    return draft.ask(total(draft, rows, draft.pick(ledger.measures).label))


@template("csv-top-web", level=2)
def csv_top_web(draft: Draft) -> Question:
    """The entity with the highest total in a table, then a fact about it from the atlas."""
    records = draw_records(draft, draft.rng.randrange(40, 81), entities=draft.rng.randrange(6, 11))
    rows = table_file(draft, records, draft.pick(("csv", "tsv")))
    ledger = records.ledger
    table = draft.table(ledger.table)
    best = top_group(draft, rows, draft.pick(ledger.measures).label)
    return draft.ask(fact(draft, best, table, draft.pick(table.of_kind("text", "int", "date"))))
