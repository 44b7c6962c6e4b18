"""What the public scorer says, faults included: a table made by hand, and its rules on any text."""

import math
import re
import string
import warnings

import pytest
from answer_texts import TEXTS, number_of
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aworld_gym.scorers import official, score

pytestmark = pytest.mark.filterwarnings("ignore:the lists have different lengths")

# --- official: a table made by hand from the rules of the public scorer, not by running our own ---------------------

OFFICIAL = [
    # truth, answer, verdict
    ("17", "17", True),
    ("17", " 17 ", True),
    ("17", "17.0", True),
    ("17", "1.7e1", True),
    ("17", "$17", True),
    ("17", "17%", True),
    ("17", "1,7", True),  # commas are taken out wherever they stand
    ("17", "17 km", False),
    ("17", "seventeen", False),
    ("17", "18", False),
    ("17", "", False),
    ("17", None, False),
    ("1000", "1,000", True),
    ("1000", "$1,000.00", True),
    ("1000", "1 000", False),
    ("1_000", "1000", True),  # Python's float takes underscores
    ("1,000", "1000", False),  # a list of two
    ("1,000", "1,000", True),
    ("1,000", "1;000", True),
    ("1,000", "1,0", True),  # 000 == 0
    ("3.5", "3.50", True),
    ("3.5", "3,5", False),  # 35
    ("3.5", "35e-1", True),
    ("0.1", "0.1000000000000000055", True),
    ("-5", "-5", True),
    ("-5", "−5", False),  # U+2212
    ("007", "7", True),
    ("inf", "anything at all", True),  # unreadable answers become infinity
    ("inf", "", True),
    ("inf", "17", False),
    ("-inf", "anything", False),
    ("infinity", "1e999", True),
    ("nan", "nan", False),
    ("1e400", "whatever", True),
    ("٣", "3", True),  # Arabic-Indic digits are digits to float
    ("35 kg", "3.5 kg", True),
    ("1/2", "12", True),
    ("-5C", "5C", True),
    ("C++", "c", True),
    ("?", "", True),
    ("?", "!!", True),
    ("", "...", True),
    ("", "a", False),
    ("St. Louis", "St Louis", True),
    ("sea gull", "Seagull", True),
    ("The  Cat", "thecat", True),
    ("café", "cafe", False),
    ("café", "cafe\u0301", False),
    ("it's", "its", True),
    ("it's", "it’s", False),  # a curly quote is no ASCII punctuation
    ("naïve", "NAÏVE", True),
    ("STRASSE", "straße", False),
    ("None", None, True),
    ("none", None, True),
    ("a, b", "a, b", True),
    ("a, b", "A,B", True),
    ("a, b", "a; b", True),
    ("a; b", "a, b", True),
    ("a, b", "b, a", False),
    ("a, b", "a and b", False),
    ("a, b", "a, b,", False),
    ("a, b", "a", False),
    ("a, b", "a., b", False),  # punctuation counts in lists
    ("St. Louis, Rome", "St Louis, Rome", False),
    ("a b, c", "ab,c", True),
    ("1, 2", "1.0, $2", True),
    ("1, 2", "1, two", False),
    ("1, inf", "1, unreadable", True),
    ("1,", "1,", True),
    ("1,", "1", False),
    (",", ",", True),
    (",", ";", True),
    ("a,b;c", "a;b,c", True),
    ("12, x", "12%, X", True),
    ("12, x", "12, x%", False),
    ("3, nan", "3, nan", False),
]


@pytest.mark.parametrize(("truth", "answer", "verdict"), OFFICIAL)
def test_official_agrees_with_the_public_scorer(truth, answer, verdict):
    assert official(answer, truth) is verdict


def test_official_warns_of_lists_of_different_lengths():
    with pytest.warns(UserWarning, match="different lengths"):
        official("a", "a, b")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        official("a, b", "a, b")
        assert score({"text": "a, b", "type": "list"}, "a", "official").value == 0.0


def by_the_rules(answer, truth):
    """The rules as GAIA.md gives them, written another way than the scorer: one element at a time, no tables."""

    def as_number(text):
        found = number_of(text.replace("$", "").replace("%", "").replace(",", ""))
        return math.inf if found is None else found

    def bare(text, punctuation):
        kept = [c for c in text if re.fullmatch(r"\S", c, re.DOTALL)]
        return "".join(c for c in "".join(kept).lower() if punctuation or c not in string.punctuation)

    if number_of(truth) is not None:
        return as_number(answer) == number_of(truth)
    if not set(truth) & set(",;"):
        return bare(answer, False) == bare(truth, False)
    given_items, true_items = answer.replace(";", ",").split(","), truth.replace(";", ",").split(",")
    if len(given_items) != len(true_items):
        return False
    for item, true in zip(given_items, true_items, strict=True):
        if number_of(true) is None and bare(item, True) != bare(true, True):
            return False
        if number_of(true) is not None and as_number(item) != number_of(true):
            return False
    return True


@settings(max_examples=300, deadline=None)
@given(TEXTS, TEXTS)
@example("", "")
@example("", "inf")
@example("17,", "17")
@example("a;b", "a,b")
def test_official_follows_the_rules_on_any_text(answer, truth):
    for a, t in ((answer, truth), (truth, answer), (truth, truth), (answer, answer)):
        assert official(a, t) is by_the_rules(a, t)


@settings(max_examples=80, deadline=None)
@given(st.floats(allow_nan=False), st.data())
def test_official_numbers_do_not_see_currency_percent_and_commas(value, data):
    truth = repr(value)
    answer = data.draw(st.sampled_from([truth, repr(value + 1.0), "x"]))
    places = data.draw(st.lists(st.tuples(st.integers(0, len(answer)), st.sampled_from("$%,")), max_size=4))
    marked = answer
    for place, mark in places:
        marked = marked[:place] + mark + marked[place:]
    assert official(marked, truth) is official(answer, truth)
    assert official(f" {answer}\n", truth) is official(answer, truth), "white space around a number is float's"


WORD = st.text("abcXYZéß09", min_size=1, max_size=6).filter(lambda w: number_of(w) is None)


@settings(max_examples=80, deadline=None)
@given(WORD, WORD, st.data())
def test_official_texts_do_not_see_space_punctuation_and_case(truth, other, data):
    for answer in (truth, other):
        changed = answer
        marks = st.sampled_from(string.punctuation + string.whitespace + "\u00a0\u2003")
        for _ in range(data.draw(st.integers(0, 4))):
            place = data.draw(st.integers(0, len(changed)))
            changed = changed[:place] + data.draw(marks) + changed[place:]
        changed = "".join(c.swapcase() if c.isascii() else c for c in changed)
        assert official(changed, truth) is official(answer, truth)


@settings(max_examples=80, deadline=None)
@given(st.lists(WORD, min_size=2, max_size=4), st.lists(WORD, min_size=2, max_size=4), st.data())
def test_official_lists_do_not_see_space_case_and_which_separator(truths, others, data):
    truth = ", ".join(truths)
    for items in (truths, others):
        joined = items[0]
        for item in items[1:]:
            joined += data.draw(st.sampled_from([",", ";", " , ", ";\n"])) + item
        spaced = "".join(c.swapcase() if c.isascii() else c for c in joined)
        assert official(spaced, truth) is official(", ".join(items), truth)
        dotted = f"{joined}."
        assert not official(dotted, truth), "punctuation counts in a list"


@settings(max_examples=100, deadline=None)
@given(TEXTS)
def test_official_takes_a_truth_for_itself_unless_it_is_no_number(truth):
    elements = re.split("[,;]", truth) if number_of(truth) is None else [truth]
    odd = any(math.isnan(number_of(e) or 0.0) for e in elements)
    assert official(truth, truth) is not odd


DENSE = st.text(st.sampled_from("0123456789.,;$%-+einfa bAB'!?/\t\u00a0é−"), max_size=10)


@settings(max_examples=500, deadline=None)
@given(DENSE, DENSE)
def test_official_on_random_texts(answer, truth):
    assert official(answer, truth) is by_the_rules(answer, truth)
    assert official(truth, truth) is by_the_rules(truth, truth)
