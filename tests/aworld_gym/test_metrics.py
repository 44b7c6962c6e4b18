"""The numbers that are reported."""

import json
import math
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from episodes import episode, episodes
from hypothesis import given, settings
from hypothesis import strategies as st

from aworld_gym.metrics import Metrics, bootstrap_ci, final, pass_at, success_interval, summarize, wilson_interval
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
    first, second = found["by_level"]["1"], found["by_level"]["2"]
    assert (first["episodes"], first["success_rate"], first["mean_turns"], first["invalid"]) == (2, 0.5, 2.5, 0)
    assert second["success_rate"] == 0.0
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


# ---- pass@k and avg@k ---------------------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 8), st.data())
def test_pass_at_k_is_the_share_of_the_subsets_with_a_success(samples, data):
    """By counting: of all ways to take k of the samples, those that hold a success."""
    outcomes = data.draw(st.lists(st.booleans(), min_size=samples, max_size=samples))
    k = data.draw(st.integers(1, samples))
    subsets = list(combinations(outcomes, k))
    assert pass_at(k, samples, sum(outcomes)) == pytest.approx(sum(map(any, subsets)) / len(subsets))


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 2000), st.data())
def test_pass_at_k_agrees_with_binomials_at_any_size_and_grows(samples, data):
    successes, k = data.draw(st.integers(0, samples)), data.draw(st.integers(1, samples))
    missed = math.comb(samples - successes, k) / math.comb(samples, k)
    assert pass_at(k, samples, successes) == pytest.approx(1 - missed, abs=1e-9)
    assert pass_at(1, samples, successes) == pytest.approx(successes / samples)
    assert 0.0 <= pass_at(1, samples, successes) <= pass_at(k, samples, successes) + 1e-12 <= 1.0 + 1e-12


def test_pass_at_k_is_unbiased():
    """Over many tasks of n samples it estimates 1 - (1 - p)^k, where one minus the k-th power of c/n does not."""
    rng, p, n, k = np.random.default_rng(0), 0.2, 8, 4
    successes = rng.binomial(n, p, size=4000)
    found = np.mean([pass_at(k, n, int(c)) for c in successes])
    naive = np.mean(1 - (1 - successes / n) ** k)
    true = 1 - (1 - p) ** k
    assert abs(found - true) < 0.015 < abs(naive - true)


@pytest.mark.parametrize(("k", "n", "c"), [(0, 4, 1), (5, 4, 1), (2, 4, 5), (2, 4, -1), (1, 0, 0)])
def test_pass_at_k_of_what_cannot_be(k, n, c):
    with pytest.raises(ValueError, match="1 <= k <= samples"):
        pass_at(k, n, c)


def group(seed, *scores, level=1, **fields):
    return [episode(seed, sample=k, score=score, level=level, **fields) for k, score in enumerate(scores)]


def test_pass_and_avg_by_hand_overall_and_by_level():
    some = group(0, 1.0, 0.0, 0.0, 0.0) + group(1, 1.0, 1.0, 0.0, 0.0) + group(2, 0.0, 0.0, 0.0, 0.5, level=2)
    found = summarize(some)
    assert found["k"] == 4 and found["tasks"] == 3
    assert found["pass_at_1"] == pytest.approx((1 / 4 + 2 / 4 + 0) / 3)
    assert found["pass_at_k"] == pytest.approx(2 / 3)
    assert found["avg_at_k"] == pytest.approx((1 / 4 + 2 / 4 + 1 / 8) / 3), "a partly right answer counts in part"
    # two of four: 3 of 6 pairs hold the one success, 5 of 6 one of the two
    assert found["pass_at"]["2"]["value"] == pytest.approx((3 / 6 + 5 / 6 + 0) / 3)
    assert list(found["pass_at"]) == ["1", "2", "4"]
    assert found["pass_at"]["4"] == {"value": found["pass_at_k"], "ci95": found["pass_at_k_ci95"], "tasks": 3}
    first, second = found["by_level"]["1"], found["by_level"]["2"]
    assert (first["tasks"], first["pass_at_1"], first["pass_at_k"], first["avg_at_k"]) == (2, 0.375, 1.0, 0.375)
    assert (second["tasks"], second["pass_at_1"], second["pass_at_k"], second["avg_at_k"]) == (1, 0.0, 0.0, 0.125)
    assert first["pass_at_k_ci95"] == wilson_interval(1.0, 2), "both tasks passed: nothing to resample"
    assert second["pass_at_k_ci95"] is None, "one task says nothing of others"


def test_the_intervals_are_over_tasks_and_not_over_samples():
    some = [e for seed in range(20) for e in group(seed, *[float(seed % 2)] * 8)]
    found = summarize(some)
    by_task = bootstrap_ci([(seed, float(seed % 2)) for seed in range(20)])
    for name in ("pass_at_1", "pass_at_k", "avg_at_k"):
        assert found[name] == 0.5 and found[f"{name}_ci95"] == by_task


def test_tasks_with_fewer_samples_than_k_are_left_out_of_pass_at_k_alone():
    torn = [episode(2, sample=0, score=1.0), *(episode(2, sample=k, **BROKEN, level=1) for k in (1, 2, 3))]
    found = summarize(group(0, 0.0, 0.0, 0.0, 0.0) + torn)
    assert (found["pass_at_k"], found["pass_at"]["4"]["tasks"]) == (0.0, 1)
    assert (found["pass_at_1"], found["pass_at"]["1"]["tasks"]) == (0.5, 2)
    assert found["invalid"] == 3 and found["by_level"]["1"]["invalid"] == 3


def test_single_samples_have_pass_at_1_alone():
    found = summarize([episode(0), episode(1, score=0.0)])
    assert found["k"] == 1 and found["pass_at_k"] is None and found["pass_at_k_ci95"] is None
    assert found["pass_at_1"] == found["success_rate"] == 0.5
    assert found["pass_at_1_ci95"] == found["success_ci95"]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.sampled_from([0.0, 1.0]), min_size=3, max_size=3), min_size=1, max_size=6))
def test_whole_groups_agree_with_plain_means(groups):
    found = summarize([e for seed, scores in enumerate(groups) for e in group(seed, *scores)])
    assert found["pass_at_1"] == pytest.approx(found["success_rate"])
    assert found["avg_at_k"] == pytest.approx(found["mean_score"])
    assert found["pass_at_k"] == pytest.approx(np.mean([max(scores) for scores in groups]))
    values = [found["pass_at"][k]["value"] for k in ("1", "2", "3")]
    assert values == sorted(values)
    for name in ("pass_at_1", "pass_at_k", "avg_at_k"):
        interval = found[f"{name}_ci95"]
        assert interval is None or interval[0] - 1e-12 <= found[name] <= interval[1] + 1e-12


def test_nothing_has_no_pass():
    for some in ([], [episode(0, **BROKEN)]):
        found = summarize(some)
        assert found["k"] is None and found["pass_at"] == {} and found["tasks"] == 0
        assert all(
            found[f"{name}{end}"] is None for name in ("pass_at_1", "pass_at_k", "avg_at_k") for end in ("", "_ci95")
        )


# ---- the rest -----------------------------------------------------------------------------------------------------


def test_an_attempt_counts_as_replaced_even_if_its_task_was_never_known():
    some = [episode(0, **BROKEN, task_id=""), episode(0, attempt=1)]
    assert summarize(some)["retried"] == 1
    assert final(some) == some[1:]


def test_forks_from_different_steps_are_different_episodes():
    forks = [
        replace(played, parent="p", forked_at=step)
        for played, step in ((episode(0, **BROKEN), 2), (episode(0, **BROKEN), 3), (episode(0, attempt=1), 3))
    ]
    found = summarize(forks)
    assert (found["episodes"], found["invalid"], found["retried"]) == (2, 1, 1)
    assert final(forks) == [forks[0], forks[2]]


def test_levels_may_be_anything_that_a_tasks_metadata_has():
    levels = [10, 2, "hard", "2", [1, 2], None]
    found = summarize([episode(seed, level=level) for seed, level in enumerate(levels)])["by_level"]
    assert {level: numbers["episodes"] for level, numbers in found.items()} == {"2": 2, "10": 1, "[1, 2]": 1, "hard": 1}
    assert list(found) == ["2", "10", "[1, 2]", "hard"]


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
    for n in range(1, 400):
        assert wilson_interval(1.0, n)[1] == 1.0 and wilson_interval(0.0, n)[0] == 0.0, "exactly, not nearly"


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


@pytest.mark.parametrize("block", [1, 7, 1999, 2000])
def test_how_much_is_resampled_at_a_time_changes_nothing(monkeypatch, block):
    values = [(k, k * 0.37 % 1.0) for k in range(41)]
    whole = bootstrap_ci(values)
    monkeypatch.setattr("aworld_gym.metrics._RESAMPLE_BLOCK", block * len(values))
    assert bootstrap_ci(values) == whole
