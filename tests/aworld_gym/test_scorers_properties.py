"""What holds of both scorers for any text: where they differ, what never pays, and what never breaks."""

import time
import warnings

import pytest
from answer_texts import INTS, ITEMS, TEXTS
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from aworld_gym import answers
from aworld_gym.scorers import Truth, official, score

pytestmark = pytest.mark.filterwarnings("ignore:the lists have different lengths")

# ---- where they differ ----------------------------------------------------------------------------------------

STRING, CODE, INT = ({"type": kind} for kind in ("string", "code", "int"))
DIFFERENT = [
    # the true answer, its kind, an answer, what the public scorer says: the strict one says the opposite
    # those of GAIA.md
    ("inf", STRING, "any text at all", True),
    ("35 kg", STRING, "3.5 kg", True),
    ("1/2", STRING, "12", True),
    ("-5C", STRING, "5C", True),
    ("007", CODE, "7", True),
    ("?", STRING, "", True),
    ("1,000", INT, "1000", False),
    ("17", INT | {"unit": "km"}, "17 km", False),
    ("-5", INT, "\u22125", False),
    ("a, b", {"type": "list"}, "a and b", False),
    ("St. Louis, Rome", {"type": "list"}, "St Louis, Rome", False),
    ("it's", STRING, "it\u2019s", False),
    ("caf\u00e9", STRING, "cafe\u0301", False),
    ("caf\u00e9", STRING, "cafe", False),
    # our own
    ("nan", STRING, "nan", False),
    ("nan, x", {"type": "list"}, "nan, x", False),
    ("1e999", CODE, "never", True),
    ("C++", STRING, "C", True),
    ("C#", STRING, "C++", True),
    ("A-1", CODE, "A1", True),
    ("A.1", CODE, "A-1", True),
    ("10:30", STRING, "1030", True),
    ("x^2", STRING, "x2", True),
    ("3:2", STRING, "32", True),
    ("$5", STRING, "5", True),
    ("1e3", CODE, "1000", True),
    ("0012", CODE, "12.0", True),
    ("now here", STRING, "nowhere", True),
    ("17", INT, "1,7", True),
    ("17", INT, "$17", True),
    ("1200", INT, "1 200", False),
    ("1200", INT | {"unit": "$"}, "1200 USD", False),
    ("2.50", {"type": "float", "unit": "kg"}, "2.5 kilograms", False),
    ("2024-03-05", {"type": "date"}, "5 March 2024", False),
    ("2024-03-05", {"type": "date"}, "20240305", True),
    ("a, b", {"type": "list"}, "a\nb", False),
    ("a, b", {"type": "list", "ordered": False}, "b, a", False),
    ("1,000; 2", {"type": "list", "items": "int"}, "1000; 2", False),
    ("STRASSE", STRING, "Stra\u00dfe", False),
    ("17", INT, "**17**", False),
    ("New Haven", STRING, "\u201cNew Haven\u201d", False),
]


@pytest.mark.parametrize(("truth", "kind", "answer", "said"), DIFFERENT)
def test_the_strict_scorer_is_right_where_the_public_one_is_not(truth, kind, answer, said):
    spec = {"text": truth, **kind}
    assert official(answer, truth) is said
    assert score(spec, answer).value == float(not said), score(spec, answer)


# ---- what never pays, and what never breaks -----------------------------------------------------------------------

KINDS = {
    "int": (INTS.map(str), {"unit": "km"}),
    "float": (ITEMS["float"], {}),
    "string": (st.text("abcdefgh", min_size=3, max_size=9), {}),
    "code": (ITEMS["code"], {}),
    "date": (ITEMS["date"], {}),
}


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(sorted(KINDS)), st.data())
def test_no_answer_that_says_two_things_pays(kind, data):
    values, more = KINDS[kind]
    truth, other = data.draw(values), data.draw(values)
    spec = Truth.of({"text": truth, "type": kind, **more})
    assume(not spec.judge(other)[0])
    for pair in ((truth, other), (other, truth)):
        for separator in (", ", "; ", " or ", " and ", " | ", "\n", " / ", " (", "\n\n", "</answer><answer>", " vs "):
            assert not spec.judge(separator.join(pair))[0], separator
    for claim in ("{} is not right", "not {}", "about {}", "{} or more", "more than {}", "~{}", "{}?{}"):
        if kind != "string" or "?" not in claim:
            assert not spec.judge(claim.format(truth, other))[0], claim


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(sorted(KINDS)), st.data())
def test_both_take_the_true_answer_as_it_is_written(kind, data):
    values, more = KINDS[kind]
    spec = {"text": data.draw(values), "type": kind, **more}
    assert score(spec, spec["text"]).value == score(spec, spec["text"], "official").value == 1.0


@settings(max_examples=200, deadline=None)
@given(TEXTS, st.sampled_from(sorted(KINDS)), st.data())
def test_no_text_breaks_either_and_no_reason_tells_the_answer(answer, kind, data):
    values, more = KINDS[kind]
    truth = data.draw(values)
    for which in ("strict", "official"):
        found = score({"text": truth, "type": kind, **more}, answer, which)
        assert found.value in (0.0, 1.0) and found.reason
        assert len(truth) < 3 or truth not in found.reason.replace(repr(answer[:80]), "")
    items = {"values": [truth, "x y"] if kind == "string" else [truth], "type": "list", "items": {"type": kind, **more}}
    found = score(items, answer)
    assert found.value in (0.0, 1.0) and (len(truth) < 3 or truth not in found.reason.replace(repr(answer[:80]), ""))


@settings(max_examples=150, deadline=None)
@given(TEXTS)
def test_folding_again_changes_nothing(text):
    once = answers.fold(text)
    assert answers.fold(once) == once


HUGE = [
    piece * (2_000_000 // len(piece))
    for piece in ("1", ",", "(", "a and ", "1,000", "-", "e\u0301", "** ", "\n- ", "<answer>", "9e9", "/")
]


def test_huge_answers_are_quick():
    """Two million characters each, of the kinds that make a careless expression take for ever."""
    specs = [
        {"text": "17", "type": "int", "unit": "km"},
        {"text": "2.5", "type": "float"},
        {"text": "2024-03-05", "type": "date"},
        {"text": "a, b", "type": "list"},
        {"text": "x", "type": "string"},
        {"text": "x", "type": "code"},
    ]
    began = time.process_time()
    for answer in HUGE:
        for spec in specs:
            assert score(spec, answer).value == 0.0
    assert time.process_time() - began < 1.0, "strict reads no answer that long"
    for answer in HUGE:
        began = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for truth in ("17", "a, b", "x", "inf"):
                official(answer, truth)
        assert time.process_time() - began < 6.0, answer[:10]


@pytest.mark.parametrize(
    "piece", ["1", ",", "(", "a and ", "1,000", "-", "e\u0301", "** ", "\n- ", "'a', ", "[[", "1/"]
)
def test_answers_as_long_as_are_read_are_quick(piece):
    """Up to ten times a long true text: the worst that strict reads in full."""
    long = piece * (20_000 // len(piece))
    words = " ".join(f"w{k}" for k in range(600))
    values = [f"w{k}" for k in range(400)]
    began = time.process_time()
    for spec in (
        {"text": words, "type": "string"},
        {"text": words, "type": "code"},
        {"values": values, "type": "list", "ordered": False},
    ):
        assert score(spec, long).value == 0.0
    assert score({"values": values, "type": "list", "ordered": False}, "; ".join(values[::-1])).value == 1.0
    assert time.process_time() - began < 3.0


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=30), st.sampled_from(["int", "float", "string", "code", "date", "list"]))
def test_any_answer_gets_a_verdict(answer, kind):
    truth = {"int": "17", "float": "2.5", "string": "x", "code": "X1", "date": "2024-03-05", "list": "x, y"}[kind]
    found = score({"text": truth, "type": kind}, answer)
    assert found.value in (0.0, 1.0) and found.reason


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=20))
def test_folding_twice_changes_nothing_more(value):
    once = answers.fold(value)
    assert answers.fold(once) == once
