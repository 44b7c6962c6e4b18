"""The numbers that are reported."""

import json

import numpy as np
import pytest
from episodes import episode, episodes
from hypothesis import given, settings
from hypothesis import strategies as st

from aworld_gym.metrics import Metrics, bootstrap_ci, final, success_interval, summarize, wilson_interval
from aworld_gym.types import Outcome

BROKEN = dict(outcome=Outcome.INFRA_FAILURE, score=None, error_kind="server_died")


def test_a_run_by_hand():
    found = summarize(
        [
            episode(0, level=1, turns=2),
            episode(1, level=2, score=0.0, turns=4, errors=("tool_error", "call_bad_arguments", "tool_error")),
            episode(2, **BROKEN),
            episode(2, attempt=1, level=1, outcome=Outcome.MAX_TURNS, score=0.0, turns=3),
            episode(3, **BROKEN, errors=("tool_error",)),
            episode(3, attempt=1, **BROKEN | {"error_kind": "session_lost"}),
        ]
    )
    assert (found["episodes"], found["valid"], found["invalid"], found["retried"]) == (4, 3, 1, 2)
    assert found["failures"] == {"server_died": 2, "session_lost": 1}
    assert found["success_rate"] == pytest.approx(1 / 3)
    assert found["mean_return"] == pytest.approx(1 / 3)
    assert found["mean_turns"] == 3.0
    assert found["tool_calls"] == 12 and found["tool_errors"] == 3
    assert found["tool_errors_by_kind"] == {"call_bad_arguments": 1, "tool_error": 2}
    assert found["outcomes"] == {"answered": 2, "infra_failure": 1, "max_turns": 1}
    assert found["by_level"]["1"] == {"episodes": 2, "success_rate": 0.5, "mean_turns": 2.5}
    assert found["by_level"]["2"]["success_rate"] == 0.0
    assert found["k"] == 1 and found["pass_at_k"] is None


def test_nothing_is_nothing_and_not_zero():
    found = summarize([])
    assert found["episodes"] == 0
    assert all(found[name] is None for name in ("success_rate", "success_ci95", "mean_return", "mean_turns"))
    found = summarize([episode(0, **BROKEN)])
    assert found["invalid"] == 1 and found["success_rate"] is None


def test_a_partly_right_answer_is_no_success_and_an_unscored_one_is_not_counted():
    found = summarize([episode(0, score=0.5), episode(1, score=1.0), episode(2, score=None)])
    assert found["success_rate"] == 0.5 and found["mean_score"] == 0.75 and found["valid"] == 3


def test_groups():
    group = [episode(0, sample=k, score=float(k == 3)) for k in range(4)]
    other = [episode(1, sample=k, score=0.0) for k in range(4)]
    torn = [episode(2, sample=0, score=1.0), *(episode(2, sample=k, **BROKEN) for k in (1, 2, 3))]
    found = summarize(group + other + torn)
    assert found["k"] == 4 and found["pass_at_k"] == 0.5


def test_an_attempt_counts_as_replaced_even_if_its_task_was_never_known():
    some = [episode(0, **BROKEN, task_id=""), episode(0, attempt=1)]
    assert summarize(some)["retried"] == 1
    assert final(some) == some[1:]


def test_repeats_of_a_seed_are_all_counted():
    assert summarize([episode(0), episode(0), episode(0, score=0.0)])["episodes"] == 3


@settings(max_examples=50, deadline=None)
@given(st.lists(episodes, max_size=6))
def test_any_records_add_up_and_are_json(some):
    found = Metrics(some).summary()
    json.dumps(found, allow_nan=False)
    assert found["episodes"] == found["valid"] + found["invalid"] == sum(found["outcomes"].values())
    assert found["episodes"] + found["retried"] == len(some)
    assert found["episodes"] == len(final(some))
    assert found["valid"] == sum(e.valid for e in some)
    assert sum(found["failures"].values()) == len(some) - found["valid"]
    if found["success_ci95"] is not None:
        low, high = found["success_ci95"]
        assert 0.0 <= low <= found["success_rate"] <= high <= 1.0 and low < high


def test_an_episode_without_an_answer_is_a_measurement_and_no_success():
    found = summarize([episode(0), episode(1, outcome=Outcome.NO_ANSWER, score=0.0)])
    assert (found["valid"], found["invalid"], found["success_rate"]) == (2, 0, 0.5)
    assert found["outcomes"] == {"answered": 1, "no_answer": 1} and found["failures"] == {}


@pytest.mark.parametrize("rate", [0.4, 0.97])
def test_the_interval_covers_as_often_as_it_says(rate):
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(150):
        draws = (rng.random(60) < rate).astype(float)
        low, high = success_interval(list(enumerate(draws)))
        hits += low <= rate <= high
    assert 0.88 <= hits / 150 <= 1.0


def test_wilsons_interval():
    # From Wilson's closed forms at the ends, and a value worked out by hand in the middle.
    z2 = 1.959963984540054**2
    assert wilson_interval(1.0, 20) == pytest.approx([20 / (20 + z2), 1.0])
    assert wilson_interval(0.0, 20) == pytest.approx([0.0, z2 / (20 + z2)])
    assert wilson_interval(0.5, 10) == pytest.approx([0.236593, 0.763407], abs=1e-6)


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_equal_successes_are_not_certainty(value):
    assert success_interval([(k, value) for k in range(50)]) == wilson_interval(value, 50)
    grouped = [(k // 5, value) for k in range(50)]
    assert success_interval(grouped) == wilson_interval(value, 10), "groups are counted, not their episodes"
    assert success_interval([(k // 2, float(k % 2)) for k in range(20)]) == wilson_interval(0.5, 10)
    assert success_interval([(0, value)]) is None and success_interval([]) is None
    mixed = [(k, float(k > 4)) for k in range(50)]
    assert success_interval(mixed) == bootstrap_ci(mixed)


def test_the_interval_resamples_groups_whole():
    alone = bootstrap_ci([(k, float(k % 2)) for k in range(40)])
    grouped = bootstrap_ci([(k // 8, float((k // 8) % 2)) for k in range(40)])
    assert grouped[1] - grouped[0] > 1.5 * (alone[1] - alone[0])
    assert bootstrap_ci([(0, 1.0), (0, 0.0)]) is None
    assert bootstrap_ci([(0, 1.0), (1, 1.0)]) == [1.0, 1.0]
