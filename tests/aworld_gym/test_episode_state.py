"""Copies of JSON values."""

import copy
from collections import OrderedDict

import numpy as np
import pytest
from episodes import json_values
from hypothesis import given

from aworld_gym.episode_state import json_copy


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
