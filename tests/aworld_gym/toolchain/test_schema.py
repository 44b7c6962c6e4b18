"""Names and schemas; what must hold for all of them is tested on generated ones."""

from __future__ import annotations

import copy
import json
import re
import time

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aworld_gym.toolchain.arguments import Arguments
from aworld_gym.toolchain.schema import aliases, openai_tool, parameters

# -- names ----------------------------------------------------------------------------------------------------

NAMES = st.one_of(
    st.text(max_size=140),
    st.sampled_from(["read", "read_2", "a__read", "b__read", "a.read", "a/read", "x" * 64, "x" * 65, "x" * 128]),
)


@given(st.lists(st.tuples(st.sampled_from(["a", "b", "a.b", "long" * 20]), NAMES), max_size=12))
def test_names_are_legal_and_one_to_one(tools):
    names = aliases(tools)
    assert len(names) == len(tools) == len(set(names))
    assert all(re.fullmatch("[A-Za-z0-9_-]{1,64}", name) for name in names)
    assert names == aliases(tools)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.from_regex("[a-z]{1,3}", fullmatch=True)), unique=True))
def test_a_legal_name_stays_where_it_is_unique(tools):
    names = aliases(tools)
    for (server, tool), name in zip(tools, names, strict=True):
        count = sum(other == tool for _, other in tools)
        assert name == (tool if count == 1 else f"{server}__{tool}")


def test_a_composed_name_does_not_take_anothers():
    tools = [("a", "read"), ("b", "read"), ("c", "a__read")]
    assert aliases(tools) == ["a__read_2", "b__read", "a__read"]


# -- schemas --------------------------------------------------------------------------------------------------


def test_everything_a_schema_says_is_kept():
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {
            "kind": {"enum": ["a", "b"], "default": "a", "title": "Kind"},
            "size": {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "null"}], "default": None},
            "union": {"type": ["string", "number"]},
            "map": {"type": "object", "propertyNames": {"pattern": "^x"}, "additionalProperties": {"type": "array"}},
            "nested": {"type": "object", "properties": {"a": {"type": "object", "required": ["b"]}}},
            "free": True,
        },
        "required": ["kind"],
        "additionalProperties": False,
    }
    before = copy.deepcopy(schema)
    assert parameters(schema) == before == schema
    made = openai_tool("t", {"name": "T", "title": "A tool", "inputSchema": schema})
    assert made == {"type": "function", "function": {"name": "t", "description": "A tool", "parameters": before}}
    made["function"]["parameters"]["properties"].clear()
    assert schema == before  # nothing is shared


@pytest.mark.parametrize("schema", [None, True, {}, {"type": ["object", "null"]}, {"properties": None}, "object"])
def test_a_schema_always_is_an_objects(schema):
    made = parameters(schema)
    assert made["type"] == "object" and made["properties"] == {}


def test_references_are_inlined_where_that_is_finite():
    schema = {
        "type": "object",
        "properties": {
            "a": {"$ref": "#/$defs/A", "description": "Mine."},
            "b": {"type": "array", "items": {"$ref": "#/definitions/B~1b"}},
            "again": {"$ref": "#/properties/b"},
            "$ref": {"type": "string"},  # a property of this name is no reference
            "data": {"default": {"$ref": "#/$defs/A"}, "enum": [{"$ref": "x"}]},  # nor is data
        },
        "$defs": {"A": {"type": "integer", "description": "Theirs."}},
        "definitions": {"B/b": {"anyOf": [{"$ref": "#/$defs/A"}, {"type": "null"}]}},
    }
    b = {"type": "array", "items": {"anyOf": [{"type": "integer", "description": "Theirs."}, {"type": "null"}]}}
    assert parameters(schema) == {
        "type": "object",
        "properties": {
            "a": {"type": "integer", "description": "Mine."},
            "b": b,
            "again": b,
            "$ref": {"type": "string"},
            "data": {"default": {"$ref": "#/$defs/A"}, "enum": [{"$ref": "x"}]},
        },
    }


def test_a_reference_with_conflicting_neighbours_keeps_both():
    schema = {
        "properties": {"a": {"$ref": "#/$defs/A", "minimum": 5}},
        "$defs": {"A": {"type": "integer", "minimum": 0}},
    }
    assert parameters(schema)["properties"]["a"] == {"minimum": 5, "allOf": [{"type": "integer", "minimum": 0}]}


def test_recursive_references_stay_with_what_they_need():
    schema = {
        "type": "object",
        "properties": {"tree": {"$ref": "#/$defs/Node"}, "leaf": {"$ref": "#/$defs/Leaf"}},
        "$defs": {
            "Node": {
                "type": "object",
                "properties": {"value": {"$ref": "#/$defs/Leaf"}, "next": {"$ref": "#/$defs/Node"}},
            },
            "Leaf": {"type": "integer"},
        },
    }
    made = parameters(schema)
    assert made["properties"] == {"tree": {"$ref": "#/$defs/Node"}, "leaf": {"type": "integer"}}
    assert made["$defs"] == schema["$defs"]
    check = Arguments("t", made)
    assert check.problem({"tree": {"value": 1, "next": {"value": 2}}}) is None
    assert "`tree.next.value`: expected integer" in check.problem({"tree": {"next": {"value": "2"}}})


def test_references_that_would_explode_stay():
    level = {
        f"L{k}": {"type": "object", "properties": dict.fromkeys("abcd", {"$ref": f"#/$defs/L{k + 1}"})}
        for k in range(12)
    }
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/L0"}},
        "$defs": level | {"L12": {"type": "string"}},
    }
    made = parameters(schema)
    assert made == schema
    assert Arguments("t", made).problem({"a": {"b": {"c": {"d": {"a": 3}}}}}) is not None


def test_references_that_lead_nowhere_stay_and_check_nothing():
    for reference in ("#/$defs/Missing", "https://example.invalid/schema.json", "other.json#/a"):
        made = parameters({"properties": {"a": {"$ref": reference}}})
        assert made["properties"]["a"] == {"$ref": reference}
        assert Arguments("t", made).problem({"a": 1}) is None


TYPES = st.sampled_from(
    [{"type": "integer"}, {"type": "string"}, {"type": "boolean"}, True, {"type": ["number", "null"]}]
)
SCHEMAS = st.recursive(
    st.one_of(TYPES, st.sampled_from("ABC").map(lambda name: {"$ref": f"#/$defs/{name}"})),
    lambda inner: st.one_of(
        st.dictionaries(st.sampled_from("xyz"), inner, max_size=3).map(lambda p: {"type": "object", "properties": p}),
        inner.map(lambda item: {"type": "array", "items": item}),
        st.lists(inner, min_size=1, max_size=2).map(lambda options: {"anyOf": options}),
    ),
    max_leaves=5,
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.text(max_size=2)),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.sampled_from("xyz"), inner, max_size=3)),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.sampled_from("xyz"), SCHEMAS, max_size=3), st.tuples(SCHEMAS, SCHEMAS, SCHEMAS), st.data())
def test_inlining_changes_nothing_that_a_schema_accepts(properties, definitions, data):
    schema = {"type": "object", "properties": properties, "$defs": dict(zip("ABC", definitions, strict=True))}
    made = parameters(schema)
    assert json.loads(json.dumps(made)) == made
    value = data.draw(st.dictionaries(st.sampled_from("xyz"), VALUES, max_size=3))

    def accepts(some):
        try:
            return jsonschema.Draft202012Validator(some).is_valid(value)
        except RecursionError:  # {"$ref": itself} says nothing at all
            return None

    assert accepts(made) == accepts(schema)


def test_a_schema_of_absurd_depth_keeps_its_outermost(caplog):
    deep = {"type": "string"}
    for _ in range(60):
        deep = {"type": "array", "description": "Deep.", "items": {"anyOf": [deep]}}
    made = parameters({"properties": {"a": deep, "b": {"type": "integer"}}, "required": ["a"], "$defs": {"d": deep}})
    assert made == {
        "type": "object",
        "properties": {"a": {"type": "array", "description": "Deep."}, "b": {"type": "integer"}},
        "required": ["a"],
    }
    assert "more than 100 levels" in caplog.text


def test_references_by_the_thousand_are_left_soon():
    definitions = {f"d{k}": {"anyOf": [{"$ref": f"#/$defs/d{j}"} for j in range(150)]} for k in range(150)}
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": definitions}
    started = time.thread_time()
    assert parameters(schema) == schema
    assert time.thread_time() - started < 2.0
