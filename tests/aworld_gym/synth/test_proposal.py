"""Reading what a language model wrote: whatever it is, it is a proposal or it is said why not."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aworld_gym.synth.gates import Seen, told_by_question
from aworld_gym.synth.proposal import Malformed, Proposal, read_items, read_proposal

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
PLACE = st.fixed_dictionaries(
    {"step": st.integers(-1, 3)}, optional={"json": JSON, "after": JSON, "as": JSON, "x": JSON}
)
STEP = st.fixed_dictionaries(
    {"tool": st.sampled_from(["a", "b"]) | JSON},
    optional={"arguments": st.dictionaries(st.text(max_size=4), JSON | PLACE.map(lambda p: {"$from": p})) | JSON},
)
ITEM = st.fixed_dictionaries(
    {"question": st.text(max_size=20) | JSON, "steps": st.lists(STEP, max_size=3) | JSON, "answer": PLACE | JSON},
    optional={"type": st.sampled_from(["int", "string", "date"]) | JSON, "unit": JSON},
)


def check(tool, arguments):
    return None if tool in ("a", "b") else ("call_unknown_tool", f"there is no {tool!r}")


@settings(max_examples=300)
@given(ITEM | JSON)
def test_any_item_is_a_proposal_or_is_refused_with_a_reason(item):
    try:
        found = read_proposal(item, check)
    except Malformed as reason:
        assert str(reason)
    else:
        assert isinstance(found, Proposal) and found.question and 1 <= len(found.steps)
        assert found == read_proposal(json.loads(json.dumps(item)), check)


@given(
    st.lists(st.dictionaries(st.text(max_size=5), JSON, min_size=1, max_size=3), min_size=1, max_size=4),
    st.text(max_size=40),
)
def test_objects_are_found_behind_any_prose_without_braces(items, prose):
    prose = prose.translate(dict.fromkeys(map(ord, "{}`"))).replace("</think>", "")
    items = [
        item for item in items if not isinstance(item.get("tasks"), list) and not isinstance(item.get("calls"), list)
    ]
    if items:
        assert read_items(f"prose {prose} {json.dumps(items)}") == items
        assert read_items(json.dumps({"tasks": items})) == items


@given(st.text(alphabet='{}[]":,1 ae`\n', max_size=300))
def test_no_reply_makes_reading_fail(text):
    try:
        assert isinstance(read_items(text), list)
    except Malformed:
        pass


@pytest.mark.parametrize("depth", [500, 990, 5000, 200_000])
def test_items_that_are_nested_too_deep(depth):
    text = '{"question": "?", "steps": [{"tool": "a", "arguments": {"x": ' + "[" * depth + "]" * depth + "}}], "
    text += '"answer": {"step": 1}}'
    try:
        items = read_items(text)
    except Malformed:
        return
    for item in items:
        try:
            read_proposal(item, check)
        except Malformed as reason:
            assert str(reason)


WORDS = st.lists(
    st.sampled_from("how many red green boats sail to the old harbour today".split()), min_size=1, max_size=20
)


@given(WORDS, WORDS, st.floats(0.05, 1.0))
def test_repetition_is_symmetric_and_every_question_repeats_itself(one, other, similarity):
    one, other = " ".join(one), " ".join(other)
    found = []
    for first, second in ((one, other), (other, one)):
        seen = Seen(similarity)
        seen.add(first, "key")
        assert seen.repeats(first) and seen.repeats(f"{first.upper()}?") and seen.repeats("x y z", "key")
        found.append(seen.repeats(second) is not None)
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("question", "kind", "answer", "told"),
    [
        ("Is the Red boat or the blue boat faster?", "string", "red BOAT", True),
        ("Is it the redboat?", "string", "red boat", False),
        ("What is 'St. Mary' called?", "string", "st mary", True),
        ("What is A-17 in the list?", "code", "a-17", True),
        ("How many are 3 and 4 and 3?", "int", "3", False),
        ("Which day is 2024-01-02?", "date", "2024-01-02", False),
        ("Anything?", "string", "!!!", False),
    ],
)
def test_what_a_question_tells(question, kind, answer, told):
    assert told_by_question(question, {"type": kind, "text": answer}) is told
