"""Typed operators: they make terms from terms.

Each operator computes the value, says it in English, and adds the tool calls that a careful person would make.
Each refuses (Reject) what would make a bad question: selections that are empty or everything, ties and near ties,
numbers that sit on a rounding edge. Paraphrases are few and regular on purpose: a question must mean one thing.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction

from aworld_gym.types import PlanStep
from envs.gaia.render import Cell
from envs.gaia.terms import Draft, Kind, Row, Rows, Term, ordinal, require
from envs.gaia.world import Column, Table, link, page_url

MARGIN = Fraction(1, 50)
"""How far, relatively, the first must be ahead of the second where a maximum or a rank decides."""
ROUNDING_MARGIN = Fraction(1, 20)
"""How far a value must stay from a rounding edge, in units of the last digit."""


# --- rows ------------------------------------------------------------------------------------------------------


def where(draft: Draft, rows: Rows, label: str, value: Cell, *, least: int = 3) -> Rows:
    """The rows that have ``value`` under ``label``: at least ``least``, and not all."""
    found = tuple(row for row in rows.rows if row[label] == value)
    require(least <= len(found) < len(rows.rows), "a selection of too few or all rows")
    said = draft.say(f"with {value} as {label.lower()}", f"whose {label.lower()} is {value}")
    test = f"row[{label!r}] == {str(value)!r}"
    return replace(rows, rows=found, filters=(*rows.filters, said), tests=(*rows.tests, test))


def in_year(draft: Draft, rows: Rows, label: str) -> Rows:
    """The rows whose date under ``label`` lies in a year."""
    year = draft.pick(sorted({str(row[label])[:4] for row in rows.rows}))
    found = tuple(row for row in rows.rows if str(row[label]).startswith(year))
    require(8 <= len(found) < len(rows.rows), "a selection of too few or all rows")
    said = draft.say(f"dated in {year}", f"from the year {year}")
    test = f"row[{label!r}][:4] == {year!r}"
    return replace(rows, rows=found, filters=(*rows.filters, said), tests=(*rows.tests, test))


def total(draft: Draft, rows: Rows, label: str) -> Term:
    """The sum of a column."""
    values = [int(row[label]) for row in rows.rows]
    said = draft.say(f"the total {label.lower()} of", f"the sum of the {label.lower()} over")
    steps = (*rows.seen(rows.rows, label), calculation(added(values), sum(values)))
    return Term("int", sum(values), f"{said} {rows.phrase}", steps, rows.needs)


def average(draft: Draft, rows: Rows, label: str) -> Term:
    """The mean of a column, to one decimal."""
    values = [int(row[label]) for row in rows.rows]
    said = draft.say(f"the average {label.lower()} of", f"the mean {label.lower()} over")
    whole = Term("int", sum(values), f"{said} {rows.phrase}", rows.seen(rows.rows, label), rows.needs)
    return rounded(whole, Fraction(sum(values), len(values)), 1, f"({added(values)}) / {len(values)}")


def spread(draft: Draft, rows: Rows, label: str) -> Term:
    """The difference between the largest and the smallest value of a column."""
    order = sorted(rows.rows, key=lambda row: int(row[label]))
    low, high = int(order[0][label]), int(order[-1][label])
    pair = draft.say("highest and lowest", "greatest and smallest")
    said = f"the difference between the {pair} {label.lower()} among {rows.phrase}"
    steps = (*rows.seen((order[-1], order[0]), label), calculation(f"{high} - {low}", high - low))
    return Term("int", high - low, said, steps, rows.needs)


def ranked(draft: Draft, rows: Rows, label: str, k: int, ask: str, *, high: bool = True) -> Term:
    """The cell under ``ask`` of the row that comes ``k``-th by ``label``."""
    order = sorted(rows.rows, key=lambda row: int(row[label]), reverse=high)
    require(len(order) > k, "too few rows to rank")
    for ahead, behind in zip(order[:k], order[1:], strict=False):
        apart(int(ahead[label]), int(behind[label]))
    superlative = draft.say("highest", "greatest") if high else draft.say("lowest", "smallest")
    said = (
        f"the {ask.lower()} of the {rows.noun} with the {ordinal(k)}{superlative} {label.lower()} among {rows.phrase}"
    )
    value = order[k - 1][ask]
    kind: Kind = "int" if isinstance(value, int) else "code" if ask == "Reference" else "text"
    steps = rows.seen(order[: k + 1], label) + rows.seen(order[k - 1 : k], ask)
    return Term(kind, value, said, steps, rows.needs)


def top_group(draft: Draft, rows: Rows, label: str) -> Term:
    """The entity whose rows have the highest total of a column. The rows' file must be csv or tsv."""
    totals: dict[str, int] = {}
    for row in rows.rows:
        totals[str(row[rows.key])] = totals.get(str(row[rows.key]), 0) + int(row[label])
    require(len(totals) > 2, "too few groups")
    first, second = sorted(totals, key=lambda name: -totals[name])[:2]
    apart(totals[first], totals[second])
    steps = (*rows.seen(rows.rows[:1], rows.key, label), _totals_by_program(rows, label, f"{first}: {totals[first]}"))
    said = (
        f"the {rows.key.lower()} with the {draft.say('highest', 'greatest')} total {label.lower()} over {rows.phrase}"
    )
    return Term("text", first, said, steps, rows.needs)


def _totals_by_program(rows: Rows, label: str, shown: str) -> PlanStep:
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
    return PlanStep("run_python", {"code": code}, (shown,))


def top_product(draft: Draft, left: Rows, right: Rows, left_label: str, right_label: str, place: str) -> Term:
    """The entity with the highest product of a column of ``left`` and one of ``right``, joined by their key.

    ``place`` is where both are, in words.
    """
    factors = {row[right.key]: int(row[right_label]) for row in right.rows}
    products = {str(row[left.key]): int(row[left_label]) * factors[row[left.key]] for row in left.rows}
    first, second = sorted(products, key=lambda name: -products[name])[:2]
    apart(products[first], products[second])
    expression = ", ".join(f"{row[left_label]} * {factors[row[left.key]]}" for row in left.rows)
    steps = (
        *left.seen(left.rows, left.key, left_label),
        *right.seen(right.rows, right_label),
        calculation(f"max({expression})", products[first]),
    )
    times = draft.say("times", "multiplied by")
    said = f"the {left.key.lower()} with the highest {left_label.lower()} {times} {right_label.lower()} {place}"
    return Term("text", first, said, steps, left.needs | right.needs)


# --- the atlas -------------------------------------------------------------------------------------------------


def named(table: Table, row: Row) -> Term:
    """An entity, by its name."""
    return Term("text", row["name"], f"the {table.name} {row['name']}")


def fact(entity: Term, table: Table, column: Column) -> Term:
    """An attribute of an entity, from its page."""
    row, url = table.row(entity.value), page_url(table.name, entity.value)
    steps = (*entity.steps, PlanStep("search", {"query": entity.value}, (url,)), opened(table, row, column))
    said = f"the {column.phrase} of {entity.phrase}"
    return Term(_KINDS[column.kind], row[column.name], said, steps, entity.needs | {url})


def opened(table: Table, row: Row, *columns: Column) -> PlanStep:
    """Opening an entity's page, which shows these attributes."""
    return PlanStep("open_page", {"url": page_url(table.name, str(row["name"]))}, tuple(c.line(row) for c in columns))


def followed(entity: Term, table: Table, ref: Column, target: Table, column: Column) -> Term:
    """An attribute of the entity that ``ref`` names on ``entity``'s page, by the link there; that page is open."""
    row = table.row(entity.value)
    other, url = target.row(row[ref.name]), link(ref, row)
    steps = (*entity.steps, replace(opened(table, row, ref), shows=(ref.line(row), url)), opened(target, other, column))
    said = f"the {column.phrase} of the {ref.phrase} of {entity.phrase}"
    return Term(_KINDS[column.kind], other[column.name], said, steps, entity.needs | {url})


def both_found(one: str, other: str, table: Table) -> PlanStep:
    """One search that finds two entities of a table."""
    return PlanStep("search", {"query": f"{one} {other}"}, (page_url(table.name, one), page_url(table.name, other)))


def best(draft: Draft, names: Sequence[str], table: Table, column: Column, among: Term) -> Term:
    """The one of several entities that has the most or least of a column; their names stand in ``among``."""
    order = sorted((table.row(name) for name in names), key=lambda row: row[column.name])
    high = draft.rng.random() < 0.5
    if high:
        order.reverse()
    apart(order[0][column.name], order[1][column.name])
    steps = list(among.steps)
    for name in names:
        row, url = table.row(name), page_url(table.name, name)
        steps += [PlanStep("search", {"query": name}, (url,)), opened(table, row, column)]
    said = f"the {table.name} with the {'highest' if high else 'lowest'} {column.phrase} among {among.phrase}"
    pages = {page_url(table.name, name) for name in names}
    return Term("text", order[0]["name"], said, tuple(steps), among.needs | pages)


_KINDS: dict[str, Kind] = {
    "int": "int",
    "float": "float",
    "date": "date",
    "person": "person",
    "text": "text",
    "ref": "text",
}


# --- numbers ---------------------------------------------------------------------------------------------------


def gap(draft: Draft, a: Term, b: Term) -> Term:
    """How far two numbers lie apart."""
    low, high = sorted((int(a.value), int(b.value)))
    require(high > low, "two equal numbers")
    said = draft.say(f"the difference between {a.phrase} and {b.phrase}", f"the gap between {a.phrase} and {b.phrase}")
    steps = (*a.steps, *b.steps, calculation(f"{high} - {low}", high - low))
    return Term("int", high - low, said, steps, a.needs | b.needs)


def scaled(term: Term, add: int, factor: str, decimals: int, phrase: str) -> Term:
    """``(term + add) * factor``, rounded; ``phrase`` says so."""
    value = (Fraction(term.value) + add) * Fraction(factor)
    inner = f"({term.value} + {add})" if add else str(term.value)
    return rounded(replace(term, phrase=phrase), value, decimals, f"{inner} * {factor}")


def weighted(amounts: Sequence[int], terms: Sequence[Term], phrase: str, listed: Term) -> Term:
    """The sum of amounts times numbers; ``listed`` is where the amounts stand."""
    value = sum(amount * int(term.value) for amount, term in zip(amounts, terms, strict=True))
    expression = " + ".join(f"{amount} * {term.value}" for amount, term in zip(amounts, terms, strict=True))
    steps = (*listed.steps, *(step for term in terms for step in term.steps), calculation(expression, value))
    needs = listed.needs.union(*(term.needs for term in terms))
    return Term("int", value, phrase, steps, needs)


def rounded(term: Term, value: Fraction, decimals: int, expression: str) -> Term:
    """``value`` to ``decimals`` decimals, as the calculator gives it for ``expression``.

    Rejected are values near a rounding edge, and results whose last digit is zero: they are written in several ways.
    """
    scale = 10**decimals
    digits = value * scale
    require(abs(digits - int(digits) - Fraction(1, 2)) >= ROUNDING_MARGIN, "a value on a rounding edge")
    whole = round(digits)
    text = str(whole)
    if decimals:
        require(whole % 10 != 0 and whole > scale, "a last digit of zero")
        text = f"{whole // scale}.{whole % scale:0{decimals}d}"
    step = calculation(f"round({expression}, {decimals})" if decimals else f"round({expression})", text)
    return replace(
        term, kind="float" if decimals else "int", value=text if decimals else whole, steps=(*term.steps, step)
    )


def calculation(expression: str, result: int | str) -> PlanStep:
    """A call of the calculator."""
    return PlanStep("calculate", {"expression": expression}, (str(result),))


def added(values: Iterable[int]) -> str:
    """The sum, as an expression."""
    return " + ".join(map(str, values))


def apart(ahead: float, behind: float) -> None:
    """Require that two numbers are no near tie."""
    one, other = Fraction(ahead), Fraction(behind)
    require(one != other and abs(one - other) >= MARGIN * max(abs(one), abs(other)), "a near tie")


# --- dates -----------------------------------------------------------------------------------------------------


def days_between(draft: Draft, earlier: Term, later: Term) -> Term:
    """The number of days from one date to another."""
    days = (datetime.date.fromisoformat(later.value) - datetime.date.fromisoformat(earlier.value)).days
    require(days > 1, "dates in the wrong order")
    code = (
        "import datetime\n"
        f"print((datetime.date.fromisoformat({later.value!r}) - datetime.date.fromisoformat({earlier.value!r})).days)\n"
    )
    said = draft.say("the number of days from", "the count of days from")
    steps = (*earlier.steps, *later.steps, PlanStep("run_python", {"code": code}, (str(days),)))
    return Term("int", days, f"{said} {earlier.phrase} to {later.phrase}", steps, earlier.needs | later.needs)


# --- names -----------------------------------------------------------------------------------------------------


def shared(draft: Draft, one: Sequence[str], other: Sequence[str], noun: str, phrase: str, listed: Term) -> Term:
    """The only name on both of two lists; ``phrase`` names the lists."""
    both = sorted(set(one) & set(other))
    require(len(both) == 1, "not exactly one name in common")
    said = draft.say(f"the only {noun} on both {phrase}", f"the one {noun} that stands on both {phrase}")
    return Term("text", both[0], said, listed.steps, listed.needs)


def missing(expected: Iterable[str], found: Iterable[str], listed: Term) -> Term:
    """The names of ``expected`` that are not among ``found``, in alphabetical order; ``listed`` has words and steps."""
    left = tuple(sorted(set(expected) - set(found)))
    require(2 <= len(left) <= 4, "too few or too many names are missing")
    return Term("names", left, listed.phrase, listed.steps, listed.needs)
