"""A trajectory that could mislead a trainer cannot be built."""

from __future__ import annotations

import dataclasses
import math
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aworld_gym.tokens import TokenTrajectory, TrajectoryBuilder

ids = st.lists(st.integers(0, 2**31), min_size=1, max_size=5)
logprob = st.floats(-100, 0.0)


@st.composite
def episodes(draw: st.DrawFn) -> tuple[list[int], list[dict[str, Any]]]:
    """A prompt, and turns as an episode gives them."""
    with_logprobs = draw(st.booleans())
    turns = []
    for _ in range(draw(st.integers(0, 4))):
        sampled = draw(ids)
        turns.append(
            {
                "ids": sampled,
                "logprobs": [draw(logprob) for _ in sampled] if with_logprobs else None,
                "rewards": draw(st.lists(st.floats(-2, 2), max_size=2)),
                "appended": draw(ids),
            }
        )
    return draw(ids), turns


def build(prompt: list[int], turns: list[dict[str, Any]], last_appended: bool = True) -> TokenTrajectory:
    builder = TrajectoryBuilder()
    builder.prompt(prompt)
    for k, turn in enumerate(turns):
        builder.sampled(turn["ids"], turn["logprobs"])
        for reward in turn["rewards"]:
            builder.reward(reward)
        if last_appended or k + 1 < len(turns):
            builder.appended(turn["appended"])
    return builder.build()


@given(episodes(), st.booleans())
def test_what_was_sampled_is_what_is_trained(episode: tuple, last_appended: bool) -> None:
    prompt, turns = episode
    made = build(prompt, turns, last_appended)
    assert made.prompt_ids == tuple(prompt)
    assert [i for i, bit in zip(made.response_ids, made.mask, strict=True) if bit] == [
        i for turn in turns for i in turn["ids"]
    ]
    assert [list(made.response_ids[a:b]) for a, b in made.turns] == [turn["ids"] for turn in turns]
    assert all(made.mask[end] == 1 for end in made.turn_ends)
    assert made.sampled_count == sum(len(turn["ids"]) for turn in turns)
    assert made.turn_rewards == tuple(pytest.approx(sum(turn["rewards"])) for turn in turns)
    assert sum(made.token_rewards()) == pytest.approx(made.total_reward)
    assert {k for k, reward in enumerate(made.token_rewards()) if reward} <= set(made.turn_ends)
    assert made.ids == made.prompt_ids + made.response_ids
    if turns and turns[0]["logprobs"] is not None:
        assert made.logprobs is not None
        by_bit = zip(made.logprobs, made.mask, strict=True)
        assert [value for value, bit in by_bit if bit] == [value for turn in turns for value in turn["logprobs"]]
    else:
        assert made.logprobs is None
    assert pickle.loads(pickle.dumps(made)) == made


@given(episodes(), st.data())
def test_any_single_lie_is_refused(episode: tuple, data: st.DataObject) -> None:
    """Flip one bit of the mask, or move one boundary, and the record cannot be made."""
    prompt, turns = episode
    made = build(prompt, turns)
    if not turns:
        return
    k = data.draw(st.integers(0, len(made.mask) - 1))
    mask = list(made.mask)
    mask[k] = 1 - mask[k]
    ends = {j for j in range(len(mask)) if mask[j] and (j + 1 == len(mask) or not mask[j + 1])}
    if ends != set(made.turn_ends) or not mask[0]:
        with pytest.raises(ValueError, match="mask|turn_ends"):
            dataclasses.replace(made, mask=tuple(mask))
    elif made.logprobs is not None and not mask[k] and made.logprobs[k] != 0.0:
        with pytest.raises(ValueError, match="not sampled"):
            dataclasses.replace(made, mask=tuple(mask))
    with pytest.raises(ValueError, match="turn_ends"):
        dataclasses.replace(made, turn_ends=tuple(end + 1 for end in made.turn_ends))


GOOD: dict[str, Any] = {
    "prompt_ids": (1, 2),
    "response_ids": (3, 4, 5, 6),
    "mask": (1, 1, 0, 1),
    "logprobs": (-0.1, -0.2, 0.0, -0.3),
    "turn_ends": (1, 3),
    "turn_rewards": (0.0, 1.0),
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prompt_ids": ()}, "prompt_ids must not be empty"),
        ({"prompt_ids": (1, -2)}, r"prompt_ids\[1\] must be an int of at least 0, got -2"),
        ({"response_ids": (3, 4, 5, 6.0)}, r"response_ids\[3\] must be an int"),
        ({"response_ids": (3, 4, 5, True)}, r"response_ids\[3\] must be an int"),
        ({"mask": (1, 1, 0)}, r"mask must be a tuple with one entry per response id \(4\), got 3"),
        ({"mask": [1, 1, 0, 1]}, "mask must be a tuple"),
        ({"mask": (1, 1, 0, 2)}, r"mask\[3\] must be 0 or 1, got 2"),
        ({"mask": (0, 1, 0, 1)}, "what comes before any sampled id is the prompt"),
        ({"turn_ends": (0, 3)}, r"expected \(1, 3\), got \(0, 3\)"),
        ({"turn_ends": (1,)}, "turn_ends"),
        ({"turn_rewards": (0.0,)}, r"one entry per turn \(2\), got 1"),
        ({"turn_rewards": (0.0, math.nan)}, r"turn_rewards\[1\] must be a finite float, got nan"),
        ({"turn_rewards": (0.0, 1)}, r"turn_rewards\[1\] must be a finite float, got 1"),
        ({"logprobs": (-0.1, -0.2, 0.0)}, "logprobs must be a tuple with one entry"),
        ({"logprobs": (-0.1, -0.2, -0.5, -0.3)}, r"logprobs\[2\] must be 0.0, as the id was not sampled"),
        ({"logprobs": (-0.1, -math.inf, 0.0, -0.3)}, r"logprobs\[1\] must be a finite float of at most 0"),
        ({"logprobs": (-0.1, 0.2, 0.0, -0.3)}, r"logprobs\[1\] must be a finite float of at most 0, got 0.2"),
        ({"logprobs": (-0.1, math.nan, 0.0, -0.3)}, r"logprobs\[1\]"),
    ],
)
def test_what_does_not_hold_is_named(change: dict[str, Any], message: str) -> None:
    assert TokenTrajectory(**GOOD).turns == ((0, 2), (3, 4))
    with pytest.raises(ValueError, match=message):
        TokenTrajectory(**{**GOOD, **change})


def test_nothing_sampled_is_a_trajectory_too() -> None:
    builder = TrajectoryBuilder()
    builder.prompt([1])
    made = builder.build()
    assert (made.response_ids, made.turns, made.total_reward) == ((), (), 0.0)


def test_the_builder_refuses_events_out_of_order() -> None:
    builder = TrajectoryBuilder()
    for act, message in (
        (lambda: builder.sampled([1]), "prompt must come before sampled"),
        (lambda: builder.appended([1]), "sampled must come before appended"),
        (lambda: builder.reward(1.0), "none was sampled yet"),
        (lambda: builder.prompt([]), "must not be empty"),
        (builder.build, "prompt_ids must not be empty"),
    ):
        with pytest.raises(ValueError, match=message):
            act()
    builder.prompt([1])
    with pytest.raises(ValueError, match="a new prompt starts a new trajectory"):
        builder.prompt([1])
    with pytest.raises(ValueError, match="at least one sampled id"):
        builder.sampled([])
    with pytest.raises(ValueError, match="expected 1 log-probabilities, got 2"):
        builder.sampled([1], [0.0, 0.0])
    builder.sampled([1], [-1.0])
    with pytest.raises(ValueError, match="appended must come between them"):
        builder.sampled([2], [-1.0])
    builder.appended([3])
    with pytest.raises(ValueError, match="for every turn or for none"):
        builder.sampled([2])
    assert builder.ids == [1, 1, 3]
    assert (builder.response_length, builder.sampled_count) == (2, 1)


def test_a_refused_event_leaves_the_builder_as_it_was() -> None:
    builder = TrajectoryBuilder()
    builder.prompt([1])
    with pytest.raises(ValueError, match="expected 1 log-probabilities"):
        builder.sampled([7], [0.0, 0.0])
    builder.sampled([7])
    assert builder.build().logprobs is None


def test_numpy_numbers_are_taken_as_numbers() -> None:
    builder = TrajectoryBuilder()
    builder.prompt(np.array([1, 2]))
    builder.sampled(np.array([3]), np.array([-0.5], dtype=np.float32))
    builder.reward(np.float32(0.5))
    made = builder.build()
    assert made == TokenTrajectory((1, 2), (3,), (1,), (-0.5,), (0,), (0.5,))
    with pytest.raises(TypeError):
        builder.appended([1.5])
