"""The benchmark of replays: what it measures is a recording and its replays, and it fails where they differ."""

import json
import sys

import pytest

from benchmarks import replay


def test_a_row_is_of_a_recording_and_its_replays():
    row = replay.compared(0.05, concurrency=4, episodes=8, repeat=2)
    assert row["valid"] == 8 and row["identical_rewards"] and len(row["replay_wall_all_s"]) == 2
    assert row["record_wall_s"] > 2 * replay.CALLS * 0.05 and row["tape_bytes"] > 1000
    lines = replay.table([row], 0.05).splitlines()
    assert len({line.count("|") for line in lines}) == 1 and "identical" in lines[2]


def test_results_are_kept_and_a_short_fall_is_an_exit_status(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(replay.common, "RESULTS", tmp_path / "results")
    row = {
        "concurrency": 16, "episodes": 4, "rewarded": 2, "record_wall_s": 3.0, "replay_wall_s": 1.0,
        "times_faster": 3.0, "record_cpu_s": 1.0, "replay_cpu_s": 0.5, "identical_rewards": True, "tape_bytes": 2048,
    }  # fmt: skip
    monkeypatch.setattr(replay, "compared", lambda *args: row)
    monkeypatch.setattr(sys, "argv", ["replay.py", "--concurrency", "16", "--save"])
    with pytest.raises(SystemExit) as end:
        replay.main()
    assert end.value.code == 1 and "| 16 | 4 | 2 | 3.00 |" in capsys.readouterr().out
    kept = (tmp_path / "results/replay.md").read_text(encoding="utf-8")
    assert "`python -m benchmarks.replay --concurrency 16 --save`" in kept and "cores, load" in kept
    assert json.loads((tmp_path / "results/replay.json").read_text())["rows"][0]["times_faster"] == 3.0
    row |= {"times_faster": 30.0}
    replay.main()
    row |= {"identical_rewards": False}
    with pytest.raises(SystemExit):
        replay.main()
    assert "DIFFERENT" in capsys.readouterr().out
