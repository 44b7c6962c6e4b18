"""Operators compute what they say, and refuse questions that would not have one sure answer."""

from __future__ import annotations

import datetime
import random
import sqlite3
from collections import Counter
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aworld_gym.types import PlanStep
from envs.gaia import operators
from envs.gaia.terms import Draft, Reject, Rows, Term, joined, merged, quoted
from envs.gaia.tools.calculator import evaluate
from envs.gaia.world import world

numbers = st.lists(st.integers(1, 100_000), min_size=4, max_size=12, unique=True)


@pytest.fixture(scope="module", autouse=True)
def _world_is_there() -> None:
    """Making it is no part of the time that an example may take."""
    world("synthetic", 0)


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


def test_the_entity_with_the_highest_total_is_found_by_totals_alone() -> None:
    """Counting rows, adding up another column or looking for one large number would else be right half of the time."""
    right: Counter[str] = Counter()
    for seed in range(4000):
        rng = random.Random(seed)
        made = tuple(
            {"Ship": f"ship {rng.randrange(8)}", "Load": rng.randrange(1000), "Crew": rng.randrange(50)}
            for _ in range(40)
        )
        some = replace(rows([1]), rows=made)
        counts, crews, loads = Counter(), Counter(), Counter()
        for row in made:
            counts[row["Ship"]] += 1
            crews[row["Ship"]] += row["Crew"]
            loads[row["Ship"]] = max(loads[row["Ship"]], row["Load"])
        try:
            found = operators.top_group(draft(seed), some, "Load").value
        except Reject:
            continue
        right["all"] += 1
        for name, guesses in (("rows", counts), ("other column", crews), ("largest", loads)):
            (first, _), (second, _) = guesses.most_common(2)
            right[name] += found == first
            right[f"second by {name}"] += found == second
    assert right["all"] > 300
    assert max(count for name, count in right.items() if name != "all") < 0.4 * right["all"], right


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


# --- numbers and dates -------------------------------------------------------------------------------------------

small = st.integers(2, 100_000)


@given(small, small, st.integers(0, 5))
def test_arithmetic_is_the_calculators_and_said_of_both(one: int, other: int, seed: int) -> None:
    a, b = (
        Term("int", value, f"the {word}", needs=frozenset({word})) for value, word in ((one, "one"), (other, "two"))
    )
    for make, value in (
        (operators.plus, one + other),
        (operators.gap, abs(one - other)),
        (operators.times, one * other),
        (operators.extreme, max(one, other)),
    ):
        try:
            term = make(draft(seed), a, b)
        except Reject:
            assert make in (operators.gap, operators.extreme) and abs(one - other) < max(one, other) / 50
            continue
        assert term.value == value == int(evaluate(term.expression))
        assert term.needs == {"one", "two"} and "the one" in term.phrase and "the two" in term.phrase
        assert term.settled().steps[-1].shows == (str(value),) and not term.settled().expression


@given(small, small, small)
def test_expressions_within_expressions_keep_their_order(one: int, two: int, three: int) -> None:
    a, b, c = (Term("int", value, f"the {value}") for value in (one, two, three))
    term = operators.times(draft(), operators.plus(draft(), a, b), operators.plus(draft(), b, c))
    assert int(evaluate(term.expression)) == (one + two) * (two + three) == term.value
    assert len(term.settled().steps) == 1  # one call for all of it


@given(st.integers(2, 90), st.integers(100, 10**6))
def test_shares_are_the_calculators(rate: int, whole: int) -> None:
    try:
        term = operators.percent(draft(), Term("int", rate, "the rate"), Term("int", whole, "the sum")).settled()
    except Reject:
        assert rate * whole % 10 == 0 or rate * whole <= 100
        return
    assert Fraction(term.value) == Fraction(rate * whole, 100)
    assert evaluate(term.steps[-1].arguments["expression"]) == term.value


def test_factors_that_change_nothing_are_refused() -> None:
    for value in (0, 1):
        with pytest.raises(Reject):
            operators.times(draft(), Term("int", value, "a"), Term("int", 7, "b"))


# --- selections by what a term says ------------------------------------------------------------------------------


def found_in(some: Rows) -> set[str]:
    """References of the rows that the SQL conditions select, and, checked on the way, those that the tests do."""
    base = rows([int(row["Load"]) for row in ALL.rows], "abc")
    labels = list(base.rows[0])
    with sqlite3.connect(":memory:") as database:
        columns = ", ".join(f"{quoted(label)} {'INTEGER' if label == 'Load' else 'TEXT'}" for label in labels)
        database.execute(f"CREATE TABLE log ({columns})")
        marks = ", ".join("?" * len(labels))
        database.executemany(f"INSERT INTO log VALUES ({marks})", [tuple(row.values()) for row in base.rows])
        query = replace(some, table="log").query(quoted("Reference")).arguments["sql"]
        selected = {reference for (reference,) in database.execute(query)}
    texts = [{label: str(value) for label, value in row.items()} for row in base.rows]
    assert {row["Reference"] for row in texts if all(eval(test, {"row": row}) for test in some.tests)} == selected  # noqa: S307
    return selected


ALL = rows([100 * n + n * n for n in range(1, 25)], "abc")


@pytest.mark.parametrize(
    ("select", "chosen"),
    [
        (lambda d, r: operators.where(d, r, "Cargo", "b"), lambda row: row["Cargo"] == "b"),
        (lambda d, r: operators.where_term(d, r, "Cargo", WORD), lambda row: row["Cargo"] == "a"),
        (lambda d, r: operators.in_year(d, r), lambda row: row["Sailed"][:4] in ("2020", "2021")),
        (lambda d, r: operators.bounded(d, r, "Load", NUMBER), lambda row: row["Load"] > 1400),
        (lambda d, r: operators.bounded(d, r, "Load", NUMBER, above=False), lambda row: row["Load"] < 1400),
        (lambda d, r: operators.since(d, r, DATE), lambda row: row["Sailed"] > "2020-06-01"),
        (lambda d, r: operators.since(d, r, DATE, after=False), lambda row: row["Sailed"] < "2020-06-01"),
    ],
)
def test_a_selection_is_the_same_in_words_python_and_sql(select, chosen) -> None:
    some = select(draft(3), ALL)
    references = {row["Reference"] for row in some.rows}
    assert references == found_in(some) < {row["Reference"] for row in ALL.rows}
    assert all(chosen(row) for row in some.rows)
    assert some.phrase(draft()) == f"the voyages in log.csv {some.filters[0]}"


def step(tool: str) -> PlanStep:
    return PlanStep(tool, {"path": tool}, ("x",))


WORD = Term("text", "a", "the word", (step("read_qr"),), frozenset({"code.png"}))
NUMBER = Term("int", 1400, "the number", (step("decode_audio"),), frozenset({"call.wav"}))
DATE = Term("date", "2020-06-01", "the date", (step("read_qr"),), frozenset({"day.png"}))


def test_what_a_selection_learns_comes_first_and_is_needed() -> None:
    some = operators.bounded(draft(), operators.where(draft(), ALL, "Cargo", "b", least=2), "Load", NUMBER, least=2)
    term = operators.total(draft(), some, "Load")
    assert [one.tool for one in term.steps] == ["decode_audio", "read_table"]
    assert term.needs == {"log.csv", "call.wav"}
    assert term.phrase.endswith(("above the number", "is more than the number"))


def test_bounds_near_a_row_are_refused() -> None:
    near = Term("int", ALL.rows[5]["Load"] + 1, "the number")
    with pytest.raises(Reject, match="near tie"):
        operators.bounded(draft(), ALL, "Load", near)
    with pytest.raises(Reject, match="that very day"):
        operators.since(draft(), ALL, Term("date", "2020-01-01", "the date"))


def test_a_record_is_found_by_its_reference() -> None:
    code = Term("code", "V-7", "the code", (step("read_qr"),), frozenset({"code.png"}))
    term = operators.referenced(draft(), ALL, code, "Load")
    assert term.value == ALL.rows[7]["Load"] and term.needs == {"log.csv", "code.png"}
    assert "the voyage in log.csv whose reference is the code" in term.phrase
    database = replace(ALL, table="log", place="in table log of a.sqlite")
    *_, query = operators.referenced(draft(), database, code, "Load").steps
    assert query.arguments["sql"] == """SELECT "Reference", "Load" FROM "log" WHERE "Reference" = 'V-7'"""


# --- the atlas -----------------------------------------------------------------------------------------------------


def test_an_entity_found_by_its_code_is_not_searched_for_again() -> None:
    where = world("synthetic", 0)
    table = where.tables["town"]
    row, code = table.rows[0], table.column("code")
    found = operators.coded(draft(), table, code, Term("code", row["code"], "the code", (step("read_qr"),)))
    term = operators.fact(draft(), found, table, table.column("population"))
    assert term.value == row["population"]
    assert [one.tool for one in merged(term.steps)] == ["read_qr", "search", "open_page"]
    assert operators.called(draft(), table, Term("text", row["name"], "the name")).value == row["name"]


def test_the_best_of_some_has_no_near_rival() -> None:
    where = world("synthetic", 0)
    table = where.tables["town"]
    column = table.column("population")
    order = sorted(table.rows, key=lambda row: row["population"])
    names = [order[0]["name"], order[len(order) // 2]["name"], order[-1]["name"]]
    found = {
        operators.best(draft(seed), table, column, operators.listed_entities(table, names)).value for seed in range(8)
    }
    assert found == {names[0], names[-1]}
