"""The checking of arguments: what it says, and that it ends soon and is never stricter than the schema."""

from __future__ import annotations

import time

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aworld_gym.toolchain.arguments import Arguments, clip

READ = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "rows": {"type": "integer", "minimum": 1},
        "mode": {"enum": ["text", "bytes"]},
        "sheet": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "cells": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}},
    },
    "required": ["path"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({}, "`path` is required but missing"),
        ({"pth": "a"}, "`path` is required but missing (it is not `pth`)"),
        ({"path": "a", "row": 2}, "`row` is not known (is it `rows`?)"),
        ({"path": "a", "zzz": 2}, "`zzz` is not known"),
        ({"path": "a", "rows": "ten"}, '`rows`: expected integer, got "ten"'),
        ({"path": "a", "rows": 0}, "`rows`: 0 is less than the minimum of 1"),
        ({"path": "a", "mode": "words"}, '`mode`: expected one of ["text", "bytes"], got "words"'),
        ({"path": "a", "sheet": 3}, "`sheet`: expected string or null, got 3"),
        ({"path": "a", "cells": [{"n": 1}, {"n": "x"}]}, '`cells[1].n`: expected integer, got "x"'),
        ({"path": None}, "`path`: expected string, got null"),
    ],
)
def test_complaints_say_what_was_expected_and_what_came(arguments, complaint):
    problem = Arguments("read_table", READ).problem(arguments)
    assert problem.startswith("the arguments do not fit the schema of 'read_table': ")
    assert complaint in problem
    assert problem.endswith(
        "It takes (path: string, rows: integer (optional), mode: any (optional), sheet: any (optional), "
        "cells: array (optional))."
    )


def test_many_complaints_are_few():
    problem = Arguments("t", {"properties": {f"p{k}": {"type": "null"} for k in range(9)}}).problem(
        {f"p{k}": k for k in range(9)}
    )
    assert problem.count("expected null") == 5 and "and 4 more" in problem


def test_long_values_are_shortened():
    problem = Arguments("t", {"properties": {"a": {"type": "integer"}}}).problem({"a": "x" * 10_000})
    assert len(problem) < 300


def test_a_broken_schema_checks_nothing(caplog):
    assert Arguments("t", {"type": "object", "properties": {"a": {"type": "strnig"}}}).problem({"a": 1}) is None
    assert "broken" in caplog.text
    assert Arguments("t", {"properties": {"a": {"pattern": "("}}}).problem({"a": "x"}) is None


def test_what_the_model_made_up_is_clipped():
    problem = Arguments("read_table", READ).problem({"path": "a"} | {f"{k}" + "y" * 5000: k for k in range(50)})
    assert "and 45 more" in problem and len(problem) < 1500
    problem = Arguments("t", {"properties": {"a": {"additionalProperties": {"type": "integer"}}}}).problem(
        {"a": {"k" * 5000: "x"}}
    )
    assert f"`a.{'k' * 79}…`: expected integer" in problem
    assert clip("x" * 80) == "x" * 80 and clip("x" * 81) == "x" * 79 + "…"


# -- the time it takes ----------------------------------------------------------------------------------------

EVIL = "a" * 60 + "b"
EVIL_PATTERN = "^(a+)+$"
DRAFT_7 = "http://json-schema.org/draft-07/schema#"


def bomb(keyword):
    levels = {f"d{k}": {keyword: [{"$ref": f"#/$defs/d{k + 1}"}] * 2} for k in range(40)}
    return {"properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": levels | {"d40": {"type": "string"}}}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"properties": {"a": {"pattern": EVIL_PATTERN}}}, EVIL),
        ({"properties": {"a": {"$schema": DRAFT_7, "pattern": EVIL_PATTERN}}}, EVIL),
        ({"properties": {"a": {"oneOf": [{"$schema": DRAFT_7, "not": {"pattern": EVIL_PATTERN}}]}}}, EVIL),
        ({"properties": {"a": {"propertyNames": {"pattern": EVIL_PATTERN}}}}, {EVIL: 1}),
        ({"properties": {"a": {"patternProperties": {EVIL_PATTERN: {}}, "additionalProperties": False}}}, {EVIL: 1}),
        ({"properties": {"a": {"patternProperties": {EVIL_PATTERN: {}}, "unevaluatedProperties": False}}}, {EVIL: 1}),
        ({"properties": {"a": {"$ref": "#/x/y"}}, "x": {"y": {"pattern": EVIL_PATTERN}}}, EVIL),
        ({"properties": {"a": {"format": "email"}}}, "@" * 100_000),
        ({"properties": {"a": {"pattern": "a{99999999999}"}}}, "a"),
        ({"properties": {"a": {"uniqueItems": True}}}, [{"k": [k]} for k in range(30_000)]),
        ({"properties": {"a": {"items": {"enum": list(range(1000))}}}}, list(range(1000, 4000))),
        ({"properties": {"a": {"items": {"enum": [[k] for k in range(1000)]}}}}, [[-k] for k in range(20_000)]),
        ({"properties": {"a": {"allOf": [{"maxItems": k} for k in range(999)]}}}, ["x" * 100] * 5000),
        (bomb("allOf"), "x"),
        (bomb("anyOf"), 3),
        (bomb("oneOf"), "x"),
    ],
)
def test_a_check_ends_soon_whatever_the_schema(schema, value):
    check = Arguments("t", schema)
    check.problem({})  # makes the validator
    started = time.thread_time()
    check.problem({"a": value})
    assert time.thread_time() - started < 2.0


def test_names_by_the_thousand_are_compared_soon():
    started = time.thread_time()
    Arguments("read_table", READ).problem({f"pathh{k}": k for k in range(10_000)} | {"p" * 1_000_000: 1})
    assert time.thread_time() - started < 2.0


def test_a_large_but_honest_call_is_checked():
    rows = {"properties": {"rows": {"type": "array", "items": {"type": "array", "items": {"type": "number"}}}}}
    check = Arguments("t", rows)
    table = [[1, 2, 3, 4]] * 5000
    assert check.problem({"rows": table}) is None
    assert "`rows[5000][0]`: expected number" in check.problem({"rows": [*table, ["x"]]})


@pytest.mark.parametrize(
    "schema",
    [
        {"$schema": [], "properties": {"a": {"type": "string"}}},
        {"properties": {"a": {"$schema": []}}},
        {"properties": {"a": {"type": "string", "description": "x" * 60_000}}},
        {"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"$ref": "#/$defs/a"}}},
    ],
    ids=["dialect", "inner dialect", "long", "loop"],
)
def test_a_schema_that_cannot_be_applied_checks_nothing(schema):
    assert Arguments("t", schema).problem({"a": 1}) is None


# -- what is not checked --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"not": {"pattern": "^b"}}, "x"),
        ({"if": {"pattern": "^b"}, "then": {"type": "integer"}}, "x"),
        ({"oneOf": [{"pattern": "^b"}, {"pattern": "^x"}]}, "x"),
        ({"oneOf": [{"$ref": "#/$defs/b"}, {"type": "string"}]}, "x"),
        ({"contains": {"pattern": "^b"}, "maxContains": 1}, ["x", "b"]),
        ({"patternProperties": {"^x": {}}, "additionalProperties": False}, {"x": 1}),
        ({"allOf": [{"patternProperties": {"^x": {}}}], "unevaluatedProperties": False}, {"x": 1}),
    ],
)
def test_where_a_pattern_would_decide_less_is_checked(schema, value):
    schema = {"properties": {"a": schema}, "$defs": {"b": {"pattern": "^b"}}}
    assert jsonschema.Draft202012Validator(schema).is_valid({"a": value})
    assert Arguments("t", schema).problem({"a": value}) is None
    assert Arguments("t", schema | {"required": ["z"]}).problem({"a": value}) is not None  # all else is


STRINGS = st.sampled_from(["a", "b", "ab", "1"])
PATTERNS = st.sampled_from(["^a", "b$", "^.$", "1"])
LEAVES = st.one_of(
    PATTERNS.map(lambda p: {"pattern": p}),
    st.sampled_from([{"type": "string"}, {"type": "integer"}, {"const": "a"}, {"$ref": "#/$defs/D"}, {"maxItems": 1}]),
    st.tuples(PATTERNS, st.booleans()).map(
        lambda t: {"patternProperties": {t[0]: {"type": "integer"}}, "additionalProperties": t[1]}
    ),
)
SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        inner.map(lambda s: {"not": s}),
        st.lists(inner, min_size=1, max_size=3).map(lambda s: {"oneOf": s}),
        st.lists(inner, min_size=1, max_size=2).map(lambda s: {"anyOf": s}),
        st.tuples(inner, inner, inner).map(lambda t: {"if": t[0], "then": t[1], "else": t[2]}),
        inner.map(lambda s: {"contains": s, "maxContains": 1}),
        inner.map(lambda s: {"properties": {"a": s}, "unevaluatedProperties": False}),
        inner.map(lambda s: {"items": s, "uniqueItems": True}),
        st.tuples(inner, inner).map(lambda t: {"allOf": list(t), "unevaluatedProperties": False}),
    ),
    max_leaves=6,
)
VALUES = st.recursive(
    st.one_of(STRINGS, st.integers(0, 2), st.booleans()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(STRINGS, inner, max_size=2)),
    max_leaves=5,
)


@settings(max_examples=300, deadline=None)
@given(SCHEMAS, SCHEMAS, VALUES)
def test_a_check_is_never_stricter_than_the_schema(inner, definition, value):
    schema = {"type": "object", "properties": {"a": inner}, "$defs": {"D": definition}}
    try:
        valid = jsonschema.Draft202012Validator(schema).is_valid({"a": value})
    except RecursionError:
        return
    if valid:
        assert Arguments("t", schema).problem({"a": value}) is None
