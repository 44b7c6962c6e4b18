"""Typed operators: they make terms from terms. This module has those on rows and lists, and hands on the others.

Each operator computes the value, says it in English (:mod:`envs.gaia.wording`), and adds the tool calls that a
careful person would make. Each refuses (Reject) what would make a bad question: selections that are empty or
everything, ties and near ties, numbers that sit on a rounding edge.

* rows and lists: here;
* numbers and dates: :mod:`envs.gaia.operators_numbers`;
* entities and facts of the atlas: :mod:`envs.gaia.operators_atlas`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction

from aworld_gym.types import PlanStep
from envs.gaia.operators_atlas import (
    best,
    both_found,
    called,
    coded,
    fact,
    followed,
    linked,
    listed_entities,
    named,
    opened,
    weighted,
    without_search,
)
from envs.gaia.operators_numbers import (
    MARGIN,
    ROUNDING_MARGIN,
    added,
    apart,
    calculation,
    converted,
    days_between,
    extreme,
    gap,
    literal,
    percent,
    plus,
    rounded,
    times,
)
from envs.gaia.render import Cell
from envs.gaia.terms import Draft, Kind, Row, Rows, Term, joined, ordinal, quoted, require
from envs.gaia.wording import HIGH, LOW

# --- selections ------------------------------------------------------------------------------------------------


def where(draft: Draft, rows: Rows, label: str, value: Cell, *, least: int = 3) -> Rows:
    """The rows that have ``value`` under ``label``: at least ``least``, and not all."""
    said = draft.phrase("has", label=label.lower(), value=f'"{value}"')
    found = tuple(row for row in rows.rows if row[label] == value)
    return _selected(rows, found, said, f"row[{label!r}] == {str(value)!r}", f"{quoted(label)} = {_sql(value)}", least)


def where_term(draft: Draft, rows: Rows, label: str, value: Term, *, least: int = 3) -> Rows:
    """The rows that have under ``label`` what a term says. No other selection may follow."""
    value = value.settled()
    found = tuple(row for row in rows.rows if str(row[label]) == value.text)
    said = draft.phrase("has_text", label=label.lower(), text=value.phrase)
    test, condition = f"row[{label!r}] == {value.text!r}", f"{quoted(label)} = {_sql(value.value)}"
    return _learned(_selected(rows, found, said, test, condition, least), value)


def in_year(draft: Draft, rows: Rows, *, least: int = 8) -> Rows:
    """The rows whose date lies in a year."""
    label = rows.date
    year = draft.pick(sorted({str(row[label])[:4] for row in rows.rows}))
    found = tuple(row for row in rows.rows if str(row[label]).startswith(year))
    said = draft.phrase("in_year", year=year)
    condition = f"{quoted(label)} LIKE '{year}-%'"
    return _selected(rows, found, said, f"row[{label!r}][:4] == {year!r}", condition, least)


def bounded(draft: Draft, rows: Rows, label: str, bound: Term, *, above: bool = True, least: int = 3) -> Rows:
    """The rows with more (or less) under ``label`` than a number. No row is near it; no other selection may follow."""
    bound = bound.settled()
    limit = int(bound.value)
    for row in rows.rows:
        apart(int(row[label]), limit)
    found = tuple(row for row in rows.rows if (int(row[label]) > limit) == above)
    said = draft.phrase("above" if above else "below", measure=label.lower(), number=bound.phrase)
    sign = ">" if above else "<"
    test, condition = f"int(row[{label!r}]) {sign} {limit}", f"{quoted(label)} {sign} {limit}"
    return _learned(_selected(rows, found, said, test, condition, least), bound)


def since(draft: Draft, rows: Rows, date: Term, *, after: bool = True, least: int = 3) -> Rows:
    """The rows dated after (or before) a date, none of them on it. No other selection may follow."""
    date = date.settled()
    label = rows.date
    require(all(row[label] != date.value for row in rows.rows), "a row of that very day")
    found = tuple(row for row in rows.rows if (str(row[label]) > date.value) == after)
    said = draft.phrase("after" if after else "before", date=date.phrase)
    sign = ">" if after else "<"
    test, condition = f"row[{label!r}] {sign} {date.value!r}", f"{quoted(label)} {sign} {_sql(date.value)}"
    return _learned(_selected(rows, found, said, test, condition, least), date)


def _selected(rows: Rows, found: tuple[Row, ...], said: str, test: str, condition: str, least: int) -> Rows:
    require(least <= len(found) < len(rows.rows), "a selection of too few or all rows")
    return replace(
        rows,
        rows=found,
        filters=(*rows.filters, said),
        tests=(*rows.tests, test),
        conditions=(*rows.conditions, condition),
    )


def _learned(rows: Rows, term: Term) -> Rows:
    return replace(rows, before=(*rows.before, *term.steps), needs=rows.needs | term.needs)


def _sql(value: Cell) -> str:
    return str(value) if isinstance(value, int) else "'" + str(value).replace("'", "''") + "'"


# --- numbers from rows ---------------------------------------------------------------------------------------------


def total(draft: Draft, rows: Rows, label: str) -> Term:
    """The sum of a column."""
    values = [int(row[label]) for row in rows.rows]
    said = draft.phrase("total", measure=label.lower(), rows=rows.phrase(draft))
    if rows.table:
        return _queried(rows, said, f"sum({quoted(label)})", sum(values))
    return Term("int", sum(values), said, rows.seen(rows.rows, label), rows.needs, added(values))


def average(draft: Draft, rows: Rows, label: str) -> Term:
    """The mean of a column, to one decimal."""
    values = [int(row[label]) for row in rows.rows]
    said = draft.phrase("average", measure=label.lower(), rows=rows.phrase(draft))
    if rows.table:
        sums = f"sum({quoted(label)}), count(*)"
        steps = (*rows.before, rows.read, rows.query(sums, str(sum(values)), str(len(values))))
        whole = Term("int", 0, said, steps, rows.needs, f"{sum(values)} / {len(values)}")
    else:
        expression = f"({added(values)}) / {len(values)}"
        whole = Term("int", 0, said, rows.seen(rows.rows, label), rows.needs, expression)
    return rounded(whole, Fraction(sum(values), len(values)), 1)


def spread(draft: Draft, rows: Rows, label: str) -> Term:
    """The difference between the largest and the smallest value of a column."""
    order = sorted(rows.rows, key=lambda row: int(row[label]))
    low, high = int(order[0][label]), int(order[-1][label])
    said = draft.phrase("spread", measure=label.lower(), rows=rows.phrase(draft))
    if rows.table:
        return _queried(rows, said, f"max({quoted(label)}) - min({quoted(label)})", high - low)
    return Term("int", high - low, said, rows.seen((order[-1], order[0]), label), rows.needs, f"{high} - {low}")


def count(draft: Draft, rows: Rows) -> Term:
    """How many rows there are."""
    said = draft.phrase("count", rows=rows.phrase(draft))
    if rows.table:
        return _queried(rows, said, "count(*)", len(rows.rows))
    return Term("int", len(rows.rows), said, rows.seen(rows.rows, rows.key), rows.needs)


def _queried(rows: Rows, said: str, select: str, value: int) -> Term:
    return Term("int", value, said, (*rows.before, rows.read, rows.query(select, str(value))), rows.needs)


def ranked(draft: Draft, rows: Rows, label: str, k: int, ask: str, *, high: bool = True) -> Term:
    """The cell under ``ask`` of the row that comes ``k``-th by ``label``."""
    order = sorted(rows.rows, key=lambda row: int(row[label]), reverse=high)
    require(len(order) > k, "too few rows to rank")
    for ahead, behind in zip(order[:k], order[1:], strict=False):
        apart(int(ahead[label]), int(behind[label]))
    row = draft.phrase(
        "ranked",
        noun=rows.noun,
        ordinal=ordinal(k),
        superlative=draft.pick(HIGH if high else LOW),
        measure=label.lower(),
        rows=rows.phrase(draft),
    )
    if rows.table:
        tail = f"ORDER BY {quoted(label)} {'DESC' if high else 'ASC'} LIMIT {k}"
        last = rows.query(", ".join(map(quoted, (label, ask))), str(order[k - 1][ask]), tail=tail)
        steps = (*rows.before, rows.read, last)
    else:
        steps = rows.seen(order[: k + 1], label) + rows.seen(order[k - 1 : k], ask)
    return cell_of(draft, rows, order[k - 1], row, ask, steps)


def referenced(draft: Draft, rows: Rows, reference: Term, ask: str) -> Term:
    """The cell under ``ask`` of the row whose reference a term gives. The rows must be all of their table."""
    reference = reference.settled()
    (row,) = (row for row in rows.rows if row["Reference"] == reference.value)
    said = draft.phrase("referenced", noun=rows.noun, place=rows.place, text=reference.phrase)
    rows = replace(rows, conditions=(f"{quoted('Reference')} = {_sql(reference.value)}",))
    steps = (*reference.steps, *rows.seen((row,), "Reference", ask))
    return cell_of(draft, replace(rows, needs=rows.needs | reference.needs), row, said, ask, steps)


def cell_of(draft: Draft, rows: Rows, row: Row, said: str, ask: str, steps: tuple[PlanStep, ...]) -> Term:
    """A cell of one row, which ``said`` names and ``steps`` show."""
    value = row[ask]
    kind: Kind
    if isinstance(value, int):
        kind, phrase = "int", draft.phrase("cell", measure=ask.lower(), row=said)
    elif ask == "Reference":
        kind, phrase = "code", draft.phrase("reference", row=said)
    elif ask == rows.key:
        kind, phrase = "text", draft.phrase("cell_entity", key=ask.lower(), row=said)
    elif ask == rows.date:
        kind, phrase = "date", draft.phrase("row_date", row=said)
    else:
        kind, phrase = "text", draft.phrase("cell_text", label=ask.lower(), row=said)
    return Term(kind, value, phrase, steps, rows.needs)


# --- entities from rows --------------------------------------------------------------------------------------------


def top_group(draft: Draft, rows: Rows, label: str) -> Term:
    """The entity whose rows have the highest total of a column. The rows are in a csv or tsv file, or a database."""
    totals: dict[str, int] = {}
    for row in rows.rows:
        totals[str(row[rows.key])] = totals.get(str(row[rows.key]), 0) + int(row[label])
    require(len(totals) > 2, "too few groups")
    first, second = sorted(totals, key=lambda name: -totals[name])[:2]
    apart(totals[first], totals[second])
    _seldom_otherwise(draft, rows, label, first)
    if rows.table:
        key, by = quoted(rows.key), f"sum({quoted(label)})"
        query = rows.query(f"{key}, {by}", first, str(totals[first]), tail=f"GROUP BY {key} ORDER BY {by} DESC LIMIT 3")
        steps: tuple[PlanStep, ...] = (*rows.before, rows.read, query)
    else:
        program = _totals_by_program(rows, label, f"{first}: {totals[first]}")
        steps = (*rows.seen(rows.rows[:1], rows.key, label), program)
    said = draft.phrase(
        "top_group",
        key=rows.key.lower(),
        superlative=draft.pick(HIGH),
        measure=label.lower(),
        rows=rows.phrase(draft),
    )
    return Term("text", first, said, steps, rows.needs)


def _seldom_otherwise(draft: Draft, rows: Rows, label: str, first: str) -> None:
    """Reject most draws in which counting rows, adding up another column or a single large number points to ``first``.

    Totals go with counts: without this rule, the entity with the most rows would be the right one half of the time. Not
    all such draws are rejected, or the one with the second most rows would be.
    """
    ways: dict[str, Counter[str]] = {"rows": Counter(), "largest": Counter()}
    for row in rows.rows:
        key = str(row[rows.key])
        ways["rows"][key] += 1
        ways["largest"][key] = max(ways["largest"][key], int(row[label]))
        for other, cell in row.items():
            if isinstance(cell, int) and other != label:
                ways.setdefault(other, Counter())[key] += cell
    if len(rows.rows) == len(ways["rows"]):  # one row each: there is nothing to add up
        return
    for name, found in ways.items():
        places = sorted(found.values(), reverse=True)
        kept = _KEPT[places.index(found[first]) :][:1] if len(set(places)) > 1 else ()
        require(all(draft.rng.random() < share for share in kept), f"{name} point to the same entity")


_KEPT = (0.3, 0.6)
"""Of the draws in which another way puts the right entity first, and second, the share that is kept."""


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
    largest = (
        max(left.rows, key=lambda row: int(row[left_label]))[left.key],
        max(factors, key=lambda name: factors[name]),
    )
    require(first not in largest or draft.rng.random() < _KEPT[0], "one column points to the same entity")
    expression = ", ".join(f"{row[left_label]} * {factors[row[left.key]]}" for row in left.rows)
    steps = (
        *left.seen(left.rows, left.key, left_label),
        *right.seen(right.rows, right_label),
        calculation(f"max({expression})", products[first]),
    )
    said = draft.phrase(
        "top_product",
        key=left.key.lower(),
        superlative=draft.pick(HIGH),
        measure=left_label.lower(),
        measure2=right_label.lower(),
        rows=replace(left, place=place).phrase(draft),
    )
    return Term("text", first, said, steps, left.needs | right.needs)


# --- names ---------------------------------------------------------------------------------------------------------


def shared(
    draft: Draft, one: Sequence[str], other: Sequence[str], noun: str, lists: Sequence[str], listed: Term
) -> Term:
    """The only name on both of two lists, which ``lists`` names; ``listed`` is the file that has them."""
    both = sorted(set(one) & set(other))
    require(len(both) == 1, "not exactly one name in common")
    said = draft.phrase("shared", noun=noun, list=lists[0], list2=lists[1], file=listed.phrase)
    return Term("text", both[0], said, listed.steps, listed.needs)


def missing(
    draft: Draft, expected: Iterable[str], found: Iterable[str], plural: str, files: Sequence[str], listed: Term
) -> Term:
    """The names of ``expected`` that are not among ``found``, in alphabetical order.

    Args:
        draft: the draft.
        expected: all names.
        found: those that stand in ``files``.
        plural: what they are.
        files: how the question names the files.
        listed: the file with all names, as a term; its steps read all files, and its needs are all of them.
    """
    left = tuple(sorted(set(expected) - set(found)))
    require(2 <= len(left) <= 4, "too few or too many names are missing")
    said = draft.phrase("missing", plural=plural, file=listed.phrase, files=joined(files))
    return Term("names", left, said, listed.steps, listed.needs)


__all__ = ["MARGIN", "ROUNDING_MARGIN", "added", "apart", "average", "best", "both_found", "bounded", "calculation"]
__all__ += ["called", "cell_of", "coded", "converted", "count", "days_between", "extreme", "fact", "followed", "gap"]
__all__ += [
    "in_year",
    "linked",
    "listed_entities",
    "literal",
    "missing",
    "named",
    "opened",
    "percent",
    "plus",
    "ranked",
]
__all__ += ["referenced", "rounded", "shared", "since", "spread", "times", "top_group", "top_product", "total"]
__all__ += ["weighted", "where", "where_term", "without_search"]
