"""Operators compute what they say, and refuse questions that would not have one sure answer."""

from __future__ import annotations

import datetime
import random
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aworld_gym.types import PlanStep
from envs.gaia import operators
from envs.gaia.terms import Draft, Reject, Rows, Term, joined, merged
from envs.gaia.tools.calculator import evaluate
from envs.gaia.world import world

numbers = st.lists(st.integers(1, 100_000), min_size=4, max_size=12, unique=True)


def draft(seed: int = 0) -> Draft:
    return Draft(random.Random(seed), world("synthetic", 0))


def rows(values: list[int], groups: str = "ab") -> Rows:
    """Voyages ``ship 0``, ``ship 1``, ..., whose cargo alternates."""
    made = tuple(
        {
            "Ship": f"ship {i}",
            "Reference": f"V-{i}",
            "Load": value,
            "Cargo": groups[i % len(groups)],
            "Sailed": f"202{i % 2}-01-01",
        }
        for i, value in enumerate(values)
    )
    read = PlanStep("read_table", {"path": "log.csv"})
    needs = frozenset({"log.csv"})
    return Rows("Ship", "voyage", "voyages", "in log.csv", made, read, needs=needs, date="Sailed")


@given(numbers)
def test_the_calculator_gives_what_a_total_says(values: list[int]) -> None:
    term = operators.total(draft(), rows(values), "Load").settled()
    read, calculation = term.steps
    assert term.value == sum(values) == int(evaluate(calculation.arguments["expression"]))
    assert calculation.shows == (str(term.value),)
    assert set(read.shows) == {str(value) for value in values}
    assert term.needs == {"log.csv"}


@given(numbers)
def test_an_average_is_the_calculators_and_off_every_edge(values: list[int]) -> None:
    exact = Fraction(sum(values), len(values)) * 10
    try:
        term = operators.average(draft(), rows(values), "Load").settled()
    except Reject:
        near = abs(exact - int(exact) - Fraction(1, 2)) < operators.ROUNDING_MARGIN
        assert near or round(exact) % 10 == 0 or round(exact) <= 10
        return
    assert term.value == evaluate(term.steps[-1].arguments["expression"])
    assert abs(Fraction(term.value) - exact / 10) < Fraction(45, 1000) + Fraction(1, 10**9)


@given(numbers, st.integers(1, 3), st.booleans())
def test_a_rank_has_no_tie_near_it(values: list[int], k: int, high: bool) -> None:
    order = sorted(values, reverse=high)
    try:
        term = operators.ranked(draft(), rows(values), "Load", k, "Ship", high=high)
    except Reject:
        pairs = list(zip(order[:k], order[1:], strict=False))
        assert len(order) <= k or any(abs(a - b) < operators.MARGIN * max(a, b) for a, b in pairs)
        return
    assert term.value == f"ship {values.index(order[k - 1])}"
    assert str(order[k - 1]) in term.steps[0].shows


@given(numbers)
def test_a_selection_is_neither_empty_nor_everything(values: list[int]) -> None:
    some = rows(values)
    found = [row for row in some.rows if row["Cargo"] == "a"]
    if len(found) < 3:
        with pytest.raises(Reject):
            operators.where(draft(), some, "Cargo", "a")
        return
    chosen = operators.where(draft(), some, "Cargo", "a")
    assert list(chosen.rows) == found
    said = {chosen.phrase(draft(seed)) for seed in range(3)}
    filters = ('whose cargo is "a"', 'with "a" as cargo', 'that have "a" as cargo')
    assert said <= {f"the voyages in log.csv {one}" for one in filters}
    assert all(eval(chosen.tests[0], {"row": row}) == (row["Cargo"] == "a") for row in some.rows)  # noqa: S307
    with pytest.raises(Reject):
        operators.where(draft(), rows(values, "a"), "Cargo", "a")


def test_the_programs_totals_are_the_terms(tmp_path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    some = rows([10, 200, 30, 400, 5000, 60, 70, 8, 9, 110, 12, 13, 14, 15, 16, 17], "abc")
    lines = [",".join(some.rows[0]), *(",".join(map(str, row.values())) for row in some.rows)]
    (tmp_path / "log.csv").write_text("\n".join(lines) + "\n")
    monkeypatch.chdir(tmp_path)
    chosen = operators.in_year(draft(), some)
    term = operators.top_group(draft(), chosen, "Load")
    exec(term.steps[-1].arguments["code"], {})  # noqa: S102 - our own program
    best = max(chosen.rows, key=lambda row: row["Load"])
    assert term.value == best["Ship"]
    assert capsys.readouterr().out.startswith(f"{best['Ship']}: {best['Load']}\n")
    assert term.steps[-1].shows == (f"{best['Ship']}: {best['Load']}",)


@given(st.dates(), st.dates())
def test_days_run_forward(one: datetime.date, other: datetime.date) -> None:
    terms = [Term("date", date.isoformat(), "a day") for date in (one, other)]
    if (other - one).days <= 1:
        with pytest.raises(Reject):
            operators.days_between(draft(), *terms)
    else:
        assert operators.days_between(draft(), *terms).value == (other - one).days


@given(st.integers(1, 10**6), st.integers(1, 1000), st.sampled_from(["0.3048", "1.8", "2.2046"]), st.integers(0, 2))
def test_conversion_is_the_calculators(value: int, add: int, factor: str, decimals: int) -> None:
    number = operators.plus(draft(), Term("int", value, "x"), operators.literal(add))
    try:
        term = operators.converted(draft(), number, "miles", factor, "miles per foot", decimals).settled()
    except Reject:
        return
    assert term.text == evaluate(term.steps[-1].arguments["expression"])
    assert term.kind == ("float" if decimals else "int")


def test_two_equal_numbers_have_no_gap() -> None:
    with pytest.raises(Reject):
        operators.gap(draft(), Term("int", 5, "a"), Term("int", 5, "b"))


@pytest.mark.parametrize(
    ("ahead", "behind", "fine"), [(100, 98, True), (100, 99, False), (5, 5, False), (-3, -9, True)]
)
def test_near_ties_are_refused(ahead: float, behind: float, fine: bool) -> None:
    if fine:
        operators.apart(ahead, behind)
    else:
        with pytest.raises(Reject):
            operators.apart(ahead, behind)


def test_one_name_in_common_and_no_more() -> None:
    listed, lists = Term("names", (), "lists.html"), ("spring", "summer")
    assert operators.shared(draft(), ["a", "b"], ["c", "b"], "ship", lists, listed).value == "b"
    for other in (["c"], ["a", "b"]):
        with pytest.raises(Reject):
            operators.shared(draft(), ["a", "b"], other, "ship", lists, listed)


def test_a_question_that_tells_its_answer_is_refused() -> None:
    for kind, value, phrase in (("int", 17, "the age of 17 ships"), ("text", "Quiet Heron", "the quiet heron")):
        with pytest.raises(Reject, match="answer in the question"):
            draft().ask(Term(kind, value, phrase))  # type: ignore[arg-type]
    with pytest.raises(Reject, match="not a plain answer"):
        draft().ask(Term("text", "Zürich", "the town"))
    assert draft().ask(Term("int", 17, "the age of 175 ships")).answer == {"text": "17", "type": "int"}


def test_a_call_is_planned_once_and_shows_all_that_its_uses_need() -> None:
    steps = [PlanStep("a", {"x": 1}, ("p",)), PlanStep("b", {}, ("q",)), PlanStep("a", {"x": 1}, ("r", "p"))]
    assert merged(steps) == (PlanStep("a", {"x": 1}, ("p", "r")), PlanStep("b", {}, ("q",)))


def test_lists_in_words() -> None:
    assert [joined(list("abc"[:n])) for n in (1, 2, 3)] == ["a", "a and b", "a, b and c"]
    assert joined(["a", "b"], "or") == "a or b"
