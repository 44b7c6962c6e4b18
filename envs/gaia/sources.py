"""Sources: they put drawn records, pictures and programs into files, and give what operators work on."""

from __future__ import annotations

from aworld_gym.types import PlanStep
from envs.gaia.ledgers import Records
from envs.gaia.terms import Draft, Rows


def table_file(draft: Draft, records: Records, ending: str) -> Rows:
    """The records in a csv or tsv file."""
    ledger = records.ledger
    name = draft.attach(f"{records.stem(draft)}.{ending}", records.sheet())
    phrase = draft.say(f"the {ledger.plural} in {name}", f"the {ledger.plural} listed in {name}")
    arguments = {"path": name} if len(records.rows) <= 50 else {"path": name, "rows": len(records.rows)}
    return Rows(
        ledger.key,
        ledger.noun,
        ledger.plural,
        phrase,
        records.rows,
        PlanStep("read_table", arguments),
        needs=frozenset({name}),
    )
