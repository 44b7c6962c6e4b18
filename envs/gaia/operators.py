"""Typed operators: they make terms from terms.

Each operator computes the value, says it in English, and adds the tool calls that a careful person would make.
Each refuses (Reject) what would make a bad question: selections that are empty or everything, ties and near ties,
numbers that sit on a rounding edge. Paraphrases are few and regular on purpose: a question must mean one thing.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from aworld_gym.types import PlanStep
from envs.gaia.render import Cell
from envs.gaia.terms import Draft, Row, Rows, Term, joined, ordinal, require
from envs.gaia.world import Column, Table, page_url

MARGIN = Fraction(1, 50)
"""How far, relatively, the first must be ahead of the second where a maximum or a rank decides."""
ROUNDING_MARGIN = Fraction(1, 20)
"""How far a value must stay from a rounding edge, in units of the last digit."""


# --- rows ------------------------------------------------------------------------------------------------------


def where(draft: Draft, rows: Rows, label: str, value: Cell) -> Rows:
    """The rows that have ``value`` under ``label``."""
    found = tuple(row for row in rows.rows if row[label] == value)
    require(3 <= len(found) < len(rows.rows), "a selection of too few or all rows")
    said = draft.say(f"with {value} as {label.lower()}", f"whose {label.lower()} is {value}")
    test = f"row[{label!r}] == {str(value)!r}"
    return replace(rows, rows=found, phrase=f"{rows.phrase} {said}", tests=(*rows.tests, test))


def total(draft: Draft, rows: Rows, label: str) -> Term:
    """The sum of a column."""
    values = [int(row[label]) for row in rows.rows]
    said = draft.say(f"the total {label.lower()} of", f"the sum of the {label.lower()} over")
    steps = (*rows.seen(rows.rows, label), calculation(" + ".join(map(str, values)), str(sum(values))))
    return Term("int", sum(values), f"{said} {rows.phrase}", steps, rows.needs)


def ranked(draft: Draft, rows: Rows, label: str, k: int, ask: str, *, high: bool = True) -> Term:
    """A cell of the row that comes ``k``-th by a column."""
    order = sorted(rows.rows, key=lambda row: int(row[label]), reverse=high)
    require(len(order) > k, "too few rows to rank")
    for ahead, behind in zip(order[:k], order[1:], strict=False):
        apart(int(ahead[label]), int(behind[label]))
    superlative = draft.say("highest", "largest") if high else draft.say("lowest", "smallest")
    said = (
        f"the {ask.lower()} of the {rows.noun} with the {ordinal(k)}{superlative} {label.lower()} among {rows.phrase}"
    )
    value = order[k - 1][ask]
    steps = rows.seen(order[: k + 1], label) + rows.seen(order[k - 1 : k], ask)
    return Term("int" if isinstance(value, int) else "text", value, said, steps, rows.needs)


def top_group(draft: Draft, rows: Rows, label: str) -> Term:
    """The entity whose rows have the highest total of a column. The rows' file must be csv or tsv."""
    totals: dict[str, int] = {}
    for row in rows.rows:
        totals[str(row[rows.key])] = totals.get(str(row[rows.key]), 0) + int(row[label])
    require(len(totals) > 2, "too few groups")
    first, second = sorted(totals, key=lambda name: -totals[name])[:2]
    apart(totals[first], totals[second])
    steps = (*rows.seen(rows.rows[:1], rows.key, label), _totals_by_program(rows, label, f"{first}: {totals[first]}"))
    said = f"the {rows.key.lower()} with the {draft.say('highest', 'largest')} total {label.lower()} over {rows.phrase}"
    return Term("text", first, said, steps, rows.needs)


def _totals_by_program(rows: Rows, label: str, fact: str) -> PlanStep:
    path = str(rows.read.arguments["path"])
    delimiter = ", delimiter='\\t'" if path.endswith(".tsv") else ""
    test = f"    if {' and '.join(rows.tests)}:\n    " if rows.tests else ""
    code = (
        "import collections, csv\n"
        "totals = collections.Counter()\n"
        f"for row in csv.DictReader(open({path!r}, newline=''){delimiter}):\n"
        f"{test}    totals[row[{rows.key!r}]] += int(row[{label!r}])\n"
        "for name, total in totals.most_common():\n"
        "    print(f'{name}: {total}')\n"
    )
    return PlanStep("run_python", {"code": code}, (fact,))


# --- the atlas -------------------------------------------------------------------------------------------------


def named(draft: Draft, table: Table, row: Row) -> Term:
    """An entity, by its name."""
    return Term("text", row["name"], f"the {table.name} {row['name']}")


def fact(draft: Draft, entity: Term, table: Table, column: Column) -> Term:
    """An attribute of an entity, from its page."""
    row = table.row(entity.value)
    url = page_url(table.name, entity.value)
    steps = (
        *entity.steps,
        PlanStep("search", {"query": entity.value}, (url,)),
        PlanStep("open_page", {"url": url}, (column.line(row),)),
    )
    kind = {"int": "int", "float": "float", "date": "date"}.get(column.kind, "text")
    return Term(kind, row[column.name], f"the {column.phrase} of {entity.phrase}", steps, entity.needs | {url})  # type: ignore[arg-type]


# --- arithmetic ------------------------------------------------------------------------------------------------


def calculation(expression: str, result: str) -> PlanStep:
    """A call of the calculator."""
    return PlanStep("calculate", {"expression": expression}, (result,))


def apart(ahead: float, behind: float) -> None:
    """Require that two numbers are no near tie."""
    gap = abs(Fraction(ahead) - Fraction(behind))
    require(gap > 0 and gap >= MARGIN * max(abs(Fraction(ahead)), abs(Fraction(behind))), "a near tie")
