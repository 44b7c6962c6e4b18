"""The benchmark of many episodes at once, in a small form."""

import sys

import pytest

from benchmarks import scaling


def test_many_at_once_are_faster_than_one_after_another():
    found = scaling.speedup(8, 0.05, 0.02, serial=1, repeat=1)
    assert list(found) == ["a model in this process", "an endpoint over HTTP"]
    for one in found.values():
        assert one["alone_s"] >= 5 * 0.05 + 4 * 0.02 and len(one["together_s"]) == 1
    table, missed = scaling.speedup_table(found, 0.05, 0.02)
    assert len(table.splitlines()) == 4 and len(missed) == 2  # eight cannot be a hundred times faster
    assert "0.33" in table


def test_the_others_end_before_the_one_that_hangs(monkeypatch):
    monkeypatch.setattr(scaling, "HANG_S", 1.5)
    found = scaling.hung(4, 0.02, 0.01, 1)
    assert found["episodes"] == 4 and all(0 < found[kind][0] < 1.5 for kind in ("none", "loop", "thread"))
    table, _ = scaling.hung_table(found)
    assert len(table.splitlines()) == 5
    slow = {"none": [1.0], "loop": [1.0], "thread": [1.2], "episodes": 4}
    assert scaling.hung_table(slow)[1] == ["one blocks its thread: the others end 1.200 times as late"]


def test_a_cluster_that_lost_episodes_is_a_missed_bar():
    found = {"nodes": 4, "episodes": 8, "lost": 1, "doubled": 0, "wall_s": 3.0, "again": 2}
    table, missed = scaling.ray_table(found)
    assert missed == ["ray: 1 episodes lost"] and "2 episodes played again" in table
    assert scaling.ray_table(found | {"lost": 0})[1] == []


@pytest.mark.parametrize("python", ["/no/such/python", sys.executable])
def test_a_cluster_that_could_not_be_had_says_why(python, monkeypatch, tmp_path):
    monkeypatch.setattr(scaling.common, "REPOSITORY", tmp_path)  # where there is no benchmarks.scaling_ray
    found = scaling.ray(python, limit_s=60)
    table, missed = scaling.ray_table(found)
    assert ("No such file" in table or "No module named" in table) and len(missed) == 1


def test_a_replay_that_is_too_slow_or_differs_is_named(monkeypatch):
    row = {
        "concurrency": 16, "episodes": 4, "rewarded": 2, "record_wall_s": 3.0, "replay_wall_s": 1.0,
        "times_faster": 3.0, "record_cpu_s": 1.0, "replay_cpu_s": 0.5, "identical_rewards": False, "tape_bytes": 2048,
    }  # fmt: skip
    assert scaling.replay_table([row], 0.25)[1] == [
        "rewards of the replay at 16 differ", "replay: 3.0 times faster at 16 at once"
    ]  # fmt: skip
