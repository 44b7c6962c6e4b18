"""Scorers by name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aworld_gym.records import SCORERS
from aworld_gym.records.verdicts import check_truth, scorer_of, specification
from aworld_gym.types import Score


def verdict(scorer, truth, answer):
    found = scorer_of(scorer)(truth, answer)
    return found.value if isinstance(found, Score) else float(found)


@pytest.mark.parametrize(
    ("scorer", "truth", "answer", "value"),
    [
        ("exact", "Ab", " Ab ", 1),
        ("exact", "Ab", "ab", 0),
        ("exact", 7, "7", 1),
        ("exact", 7.0, "7", 1),
        ("exact", "", "", 1),
        ("official", "17", "$17", 1),
        ("official", "inf", "anything", 1),
        ("official", "a, b", "A,b", 1),
        ("int", "17", "17.0", 1),
        ("int", 17, "17.5", 0),
        ("float", "3.5", "7/2", 1),
        ("code", "007", "7", 0),
        ("code", "ab-1", "AB-1", 1),
        ("date", "2024-01-02", "2 January 2024", 1),
        ("date", "2024-01-02", "3 January 2024", 0),
        ("list", "a, b", "a; b", 1),
        ("string", "12", "12", 1),
        ("number", "2 + 3 = <<2+3=5>>5\n#### 5", "so it is 5.", 1),
        ("number", 72, "first 70, then 72", 1),
        ("number", 72, "72, not 70", 0),
        ("number", "1,234", "$1234.00", 1),
        ("number", "-3", "it is −3", 1),
        ("number", "-3", "3", 0),
        ("number", "4", "1-4", 1),
        ("number", ".5", "0.50", 1),
        ("number", "1000", "1e3", 1),
        ("number", "3", "none", 0),
        ("number", "3", "v3", 0),
        ("number", "3", "9" * 10_000, 0),
        ("strict", {"text": "17", "type": "int"}, "17", 1),
        ("strict", "1/2", "1/2", 1),
    ],
)
def test_verdicts(scorer, truth, answer, value):
    check_truth(scorer, truth)
    assert verdict(scorer, truth, answer) == value


def test_every_name_has_a_scorer():
    truths = {"date": "2024-01-02", "list": "a, b"}
    for name in SCORERS:
        truth = truths.get(name, "7")
        assert verdict(name, truth, truth) == 1.0
        assert verdict(name, truth, "another 8 x") == 0.0


@pytest.mark.parametrize(
    ("truth", "kind"),
    [("12", "float"), ("-1,024.5", "float"), (3, "float"), ("007", "string"), ("1/2", "string"), ("a, b", "string")],
)
def test_what_kind_of_answer_is_seen_in_a_truth(truth, kind):
    assert specification(truth)["type"] == kind


@given(st.text(max_size=200).filter(str.strip), st.text(max_size=200))
def test_no_answer_makes_a_scorer_fail(truth, answer):
    for name in ("exact", "official"):
        assert verdict(name, truth, answer) in (0.0, 1.0)
    assert verdict("number", "12", answer) in (0.0, 1.0)


@given(st.integers(-(10**12), 10**12), st.sampled_from(["{}", "it is {}", "{}.", "1 and then {} in all", "**{:,}**"]))
def test_the_last_number_is_read_however_it_is_written(number, words):
    assert verdict("number", number, words.format(number)) == 1.0
