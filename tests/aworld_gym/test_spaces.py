import json

import jsonschema
import numpy as np
import pytest
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate
from hypothesis import given
from hypothesis import strategies as st

from aworld_gym.spaces import AssistantMessage, Messages, UnicodeText, sample_json, why_not_a_message

CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TOOL = {
    "type": "function",
    "function": {
        "name": "read",
        "description": "d",
        "parameters": {
            "type": "object",
            "properties": {
                "path": {"type": "string"},
                "mode": {"enum": ["a", "b"]},
                "rows": {"type": "integer", "minimum": 1, "maximum": 9},
                "where": {"anyOf": [{"type": "null"}, {"type": "array", "items": {"type": "number"}}]},
                "deep": {"type": "object", "properties": {"x": {"type": "boolean"}}, "required": ["x"]},
                "odd": {"type": ["string", "null"]},
                "fixed": {"const": 3},
            },
            "required": ["path"],
        },
    },
}


@pytest.mark.parametrize("space", [UnicodeText(30), AssistantMessage(), AssistantMessage([TOOL]), Messages()])
def test_samples_are_inside_and_seeded(space):
    space.seed(3)
    first = [space.sample() for _ in range(50)]
    assert all(sample in space for sample in first)
    space.seed(3)
    assert [space.sample() for _ in range(50)] == first
    assert json.loads(json.dumps(first)) is not None
    assert not space.is_np_flattenable


def test_a_sampled_call_fits_its_schema():
    space = AssistantMessage([TOOL], seed=0)
    calls = [call for _ in range(200) for call in space.sample()["tool_calls"]]
    assert len(calls) > 50 and {call["function"]["name"] for call in calls} == {TOOL["function"]["name"]}
    for call in calls:
        jsonschema.validate(json.loads(call["function"]["arguments"]), TOOL["function"]["parameters"])


def test_a_recursive_schema_ends():
    node = {"type": "object", "properties": {}}
    node["properties"]["children"] = {"type": "array", "items": node}
    drawn = [sample_json(node, np.random.default_rng(seed)) for seed in range(20)]
    written = {"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#"}}}}
    for one in drawn:
        jsonschema.validate(json.loads(json.dumps(one)), written)
    assert any(one.get("children") for one in drawn), "it goes down at least once"


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "integer", "maximum": -1},
        {"type": "integer", "minimum": 0, "maximum": 2**64 - 1},  # an unsigned integer of 64 bits
        {"type": "integer", "minimum": 10**30},
        {"type": "integer", "minimum": 0.5, "maximum": 1.5},
        {"type": "number", "maximum": -5},
        {"type": "number", "minimum": -1.7e308, "maximum": 1.7e308},
        {"type": "object", "properties": {"x": True}, "required": ["x"]},  # Rust's "any value"
        {"type": "array", "items": True, "minItems": 1},
        {"anyOf": [True]},
    ],
    ids=str,
)
def test_numbers_of_any_range_and_parts_of_any_kind_are_drawn(schema):
    for seed in range(20):
        jsonschema.validate(sample_json(schema, np.random.default_rng(seed)), schema)


def test_offered_tools_do_not_change_the_space():
    plain, offered = AssistantMessage(), AssistantMessage()
    offered.offer([TOOL])
    assert plain == offered
    assert plain != Messages() and UnicodeText(3) != UnicodeText(4) and Messages(("tool",)) != Messages()


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        (None, "expected a dict"),
        ("hello", "expected a dict"),
        ({"content": "x"}, "expected role"),
        ({"role": "user", "content": "x"}, "expected role"),
        ({"role": "assistant", "content": 3}, "expected content"),
        ({"role": "assistant", "content": [{"text": "no type"}]}, "content parts"),
        ({"role": "assistant", "tool_calls": "f()"}, "tool_calls to be a list"),
        ({"role": "assistant", "tool_calls": [{"name": "f"}]}, "tool calls like"),
        ({"role": "assistant", "tool_calls": [{"function": {"name": 3}}]}, "tool calls like"),
        ({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": 3}}]}, "JSON string or a dict"),
    ],
)
def test_what_is_no_assistant_message(message, complaint):
    assert complaint in why_not_a_message(message, ("assistant",))
    assert message not in AssistantMessage()


def test_what_is_an_assistant_message():
    for message in (
        {"role": "assistant", "content": None},
        {"role": "assistant", "content": ""},
        {"role": "assistant", "content": [{"type": "text", "text": "x"}]},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}], "sampled": {}},
    ):
        assert message in AssistantMessage()


def test_a_tool_message_names_its_call():
    assert ({"role": "tool", "content": "x", "tool_call_id": "c"},) in Messages()
    assert ({"role": "tool", "content": "x"},) not in Messages()
    assert ({"role": "user", "content": "x", "tool_calls": [CALL]},) not in Messages()
    assert [{"role": "user", "content": "x"}] not in Messages()


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
def test_membership_never_raises(value):
    for space in (AssistantMessage(), Messages(), UnicodeText(5)):
        assert (value in space) in (True, False)


def test_gymnasium_can_batch_them():
    for space in (AssistantMessage(), Messages(), UnicodeText()):
        batched = batch_space(space, 3)
        items = tuple(space.sample() for _ in range(3))
        assert items in batched and tuple(iterate(batched, items)) == items
        assert concatenate(space, items, create_empty_array(space, 3)) == items
