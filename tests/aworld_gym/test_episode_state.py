"""Copies of JSON values, and what the model sees of a result."""

import copy
from collections import OrderedDict

import numpy as np
import pytest
from episodes import json_values
from hypothesis import given

from aworld_gym.episode_state import json_copy, tool_message
from aworld_gym.types import ToolResult


@given(json_values)
def test_a_copy_is_equal_and_shares_nothing_that_can_change(value):
    again = json_copy(value)
    assert again == copy.deepcopy(value) and type(again) is type(value)
    if isinstance(value, dict | list):
        assert again is not value
        again.clear()
        assert json_copy(value) == value


@pytest.mark.parametrize(
    "value", [(1, [2]), OrderedDict(a=[1]), {"ids": np.arange(3)}, {1: {"a": ({"b": []},)}}, None, b"x"], ids=repr
)
def test_what_is_no_json_is_copied_as_deepcopy_does(value):
    again, right = json_copy(value), copy.deepcopy(value)
    assert type(again) is type(right) and str(again) == str(right)


def test_inner_lists_are_copied_too():
    value = {"a": ([1, {"b": [2]}],)}
    json_copy(value)["a"][0][1]["b"].append(3)
    assert value == {"a": ([1, {"b": [2]}],)}


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}


def says(text):
    return {"type": "text", "text": text}


@pytest.mark.parametrize(
    ("content", "error", "seen"),
    [
        ((), None, ""),
        ((says("a"), says("b")), None, "a\nb"),
        ((says("a"), IMAGE), None, [says("a"), IMAGE]),
        ((says("no disk"),), "tool_error", "Error: no disk"),
        ((says("Error: no disk"),), "tool_error", "Error: no disk"),
        ((says("error 5"),), "tool_error", "error 5"),
        ((), "tool_timeout", "Error: "),
        ((says("a"), IMAGE, says("b")), "tool_error", [says("Error: a\nb"), IMAGE]),
    ],
)
def test_a_result_is_shown_whole_and_a_failure_as_one(content, error, seen):
    message = tool_message(ToolResult("c7", "look", content, error=error))
    assert message == {"role": "tool", "tool_call_id": "c7", "name": "look", "content": seen}
    if isinstance(seen, list):
        message["content"][-1]["image_url"]["url"] = "changed"
        assert "changed" not in str(content)


def test_a_name_is_shown_up_to_as_long_as_a_tools_may_be():
    for length in (1, 64, 65, 9999):
        assert tool_message(ToolResult("c", "n" * length, (), error="call_unknown_tool"))["name"] == "n" * min(
            length, 64
        )
