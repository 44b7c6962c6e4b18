"""The benchmark of a killed node, small."""

import json

import pytest

pytest.importorskip("ray")

from benchmarks import scaling_ray  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def test_a_node_is_killed_and_nothing_is_lost_or_doubled(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["scaling_ray", "--nodes", "2", "--episodes", "64", "--concurrency", "8", "--json"])
    assert scaling_ray.main() == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["wall_s"] > 0 and (found["nodes"], found["episodes"]) == (2, 64)
    assert (found["lost"], found["doubled"]) == (0, 0)
    assert found["again"] >= 1 and found["workers_lost"] >= 1


def test_what_is_missing_or_twice_is_counted_and_is_the_exit_status(monkeypatch, capsys):
    row = {"nodes": 4, "episodes": 8, "lost": 1, "doubled": 0, "again": 0, "workers_lost": 0, "wall_s": 1.0}
    monkeypatch.setattr(scaling_ray, "ray_node_killed", lambda *args: row)
    monkeypatch.setattr("sys.argv", ["scaling_ray"])
    assert scaling_ray.main() == 1 and "| 4 | 8 | 1 | 0 |" in capsys.readouterr().out
    row |= {"lost": 0, "doubled": 1}
    assert scaling_ray.main() == 1
    row |= {"doubled": 0}
    assert scaling_ray.main() == 0
