"""Per-turn advantages: GRPO's own where only the end is rewarded, and blind to invalid episodes."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.credit import (
    check_credit,
    credit_by_token,
    mask_turns,
    measured,
    rewards_to_go,
    token_advantages,
    turn_advantages,
)
from aworld_gym.errors import ConfigError

reward = st.floats(-5, 5, allow_nan=False).map(lambda x: round(x, 3))
turns = st.lists(reward, min_size=1, max_size=5)
scales = st.sampled_from(["group", "batch", "none"])


def grpo(totals, scale, batch):
    """GRPO's advantage of each episode of a group (Shao et al. 2024, equation for outcome supervision)."""
    spread = {"group": np.std(totals, ddof=1), "batch": np.std(batch, ddof=1)}
    return (np.array(totals) - np.mean(totals)) / (1.0 if scale == "none" else spread[scale] + 1e-4)


@given(st.lists(st.tuples(reward, st.integers(1, 6)), min_size=8, max_size=8), scales)
def test_where_only_the_last_turn_is_rewarded_it_is_grpo(episodes, scale):
    rewards = [[0.0] * (count - 1) + [total] for total, count in episodes]
    found = turn_advantages(rewards, group_size=4, scale=scale)
    totals = [total for total, _ in episodes]
    expected = [*grpo(totals[:4], scale, totals), *grpo(totals[4:], scale, totals)]
    for (_, count), ours, theirs in zip(episodes, found, expected, strict=True):
        assert ours == pytest.approx([theirs] * count, abs=1e-6)


@given(st.lists(turns, min_size=3, max_size=6), st.integers(0, 6), scales)
def test_an_invalid_episode_might_as_well_not_have_been(valid, place, scale):
    place = min(place, len(valid))
    with_it = valid[:place] + [None] + valid[place:]
    found = turn_advantages(with_it, group_size=len(with_it), scale=scale)
    assert found.pop(place) == []
    assert found == turn_advantages(valid, group_size=len(valid), scale=scale)


@given(st.lists(turns, min_size=4, max_size=4))
def test_advantages_sum_to_nothing_where_episodes_weigh_the_same(rewards):
    found = turn_advantages(rewards, group_size=4, scale="none")
    assert math.fsum(np.mean(row) for row in found) == pytest.approx(0.0, abs=1e-9)


def test_turn_advantages_by_hand():
    rewards = [[1.0, 0.0], [0.0, 2.0, 0.0], [0.0], None]
    assert rewards_to_go(rewards[1]) == [2.0, 2.0, 0.0]
    mean = (0.5 + 4 / 3 + 0.0) / 3
    variance = ((1 - mean) ** 2 / 2 + mean**2 / 2 + 2 * (2 - mean) ** 2 / 3 + mean**2 / 3 + mean**2) / 2
    first, second, third, fourth = turn_advantages(rewards, group_size=4)
    scaled = 1 / (math.sqrt(variance) + 1e-4)
    assert first == pytest.approx([(1 - mean) * scaled, -mean * scaled])
    assert second == pytest.approx([(2 - mean) * scaled, (2 - mean) * scaled, -mean * scaled])
    assert (third, fourth) == (pytest.approx([-mean * scaled]), [])


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_one_valid_episode_has_nothing_to_be_compared_with(scale):
    assert turn_advantages([[1.0, 1.0], None, None, None], group_size=2, scale=scale) == [[0.0, 0.0], [], [], []]


def test_an_episode_that_sampled_nothing_earned_nothing_but_counts():
    assert turn_advantages([[1.0], []], group_size=2, scale="none") == [[0.5], []]


def test_groups_are_whole():
    with pytest.raises(ValueError, match="whole groups of 4, got 3"):
        turn_advantages([[0.0]] * 3, group_size=4)


def test_who_is_in_a_baseline():
    valid, groups = [True, False, True, True, True], ["b", "a", "a", "b", "c"]
    assert measured(valid, groups) == [0, 2, 3, 4] and measured(valid, groups, least=2) == [0, 3]
    assert measured([False] * 5, groups) == []


@given(st.lists(turns | st.none(), min_size=6, max_size=6), st.permutations(range(6)), scales)
def test_groups_need_not_be_consecutive(rewards, order, scale):
    expected = turn_advantages(rewards, group_size=3, scale=scale)
    found = turn_advantages([rewards[k] for k in order], groups=[k // 3 for k in order], scale=scale)
    for k, row in zip(order, found, strict=True):
        assert row == pytest.approx(expected[k])


def test_advantages_stand_at_the_ids_of_their_turns():
    found = token_advantages([[(0, 2), (3, 4)], []], [[1.0, -2.0], []], width=5)
    assert found.tolist() == [[1.0, 1.0, 0.0, -2.0, 0.0], [0.0] * 5]


def test_credit_over_token_level_tensors_is_credit_over_turns():
    mask = np.array([[1, 1, 0, 1, 0], [0, 1, 1, 1, 1], [0, 0, 0, 0, 0], [1, 0, 1, 0, 1]])
    rewards = np.array([[0.0, 1, 0, 2, 0], [0, 0, 0, 0, 3], [9, 9, 9, 9, 9], [1, 0, 0, 0.5, 1]])
    assert [mask_turns(row) for row in mask] == [[(0, 2), (3, 4)], [(1, 5)], [], [(0, 1), (2, 3), (4, 5)]]
    by_turn = turn_advantages([[1.0, 2.0], [3.0], None, [1.0, 0.5, 1.0]], groups=[0, 0, 0, 0])
    found = credit_by_token(rewards, mask, [0, 0, 0, 0], scale="group")
    assert found[0].tolist() == pytest.approx([by_turn[0][0]] * 2 + [0.0, by_turn[0][1], 0.0])
    assert found[3, 2] == pytest.approx(by_turn[3][1]) and not found[mask == 0].any()


def test_credits_have_names():
    check_credit("episode")
    with pytest.raises(ConfigError, match="credit must be 'episode' or 'step', got 'turns'"):
        check_credit("turns")
