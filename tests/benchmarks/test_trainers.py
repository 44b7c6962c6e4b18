"""The comparison of trainers: numbers, page and plot come from what the runs left."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks import trainers

ROOT = Path(__file__).parents[2]


def run(name, first, last, step):
    times = [trainers.split(step, step / 2, step / 4)] * 3
    versions = {trainers.FRAMEWORKS[name]: "1.2", "torch": "2"}
    counts = {"episodes": 640, "invalid": 1}
    rewards = [first] * 3 + [last] * 3
    return {"trainer": name, "versions": versions, "wall_s": 90.0, "counts": counts, "rewards": rewards, "times": times}


RUNS = [run("trl", 0.1, 0.5, 4.0), run("verl", 0.2, 0.4, 8.0), run("swift", 0.15, 0.45, 2.0)]
ABOUT = {
    "steps": 6,
    "tasks": 8,
    "group": 8,
    "machine": "2 CPU cores",
    "note": "It was busy.",
    "command": trainers.command(6, 8),
}


def test_the_table_has_each_trainer():
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in trainers.table(RUNS).splitlines()]
    assert len({len(line) for line in lines}) == 1 and len(lines) == 5
    assert lines[2] == ["trl 1.2", "0.100", "0.500", "4.00 s", "2.00 s", "1.00 s", "1.00 s", "90 s"]
    assert lines[4][0] == "ms-swift 1.2"


def test_page_and_plot(tmp_path):
    page = trainers.page(RUNS, ABOUT)
    assert "on 2 CPU cores. It was busy." in " ".join(page.split())
    assert trainers.table(RUNS) in page and "python -m benchmarks.trainers --steps 6 --tasks 8" in page
    assert "verl: 640 episodes, 1 invalid" in page
    trainers.plot(RUNS, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_rewards_are_means_of_valid_episodes_by_step(tmp_path):
    rows = [(0, 1.0, True), (0, 0.0, True), (0, 9.0, False), (1, 0.5, True)]
    lines = [json.dumps({"group_id": f"{step}/77", "return": value, "valid": valid}) for step, value, valid in rows]
    (tmp_path / "episodes.jsonl").write_text("\n".join(lines) + "\n")
    assert trainers.rewards(tmp_path / "episodes.jsonl", 2) == [0.5, 0.5]
    with pytest.raises(RuntimeError, match="expected episodes of 3 steps, got 2"):
        trainers.rewards(tmp_path / "episodes.jsonl", 3)


def test_times_of_trl_and_swift_are_from_line_to_line():
    logged = {"loss": 0.0, "time/generate_s": 1.0, "time/env_s": 0.5}
    found = trainers.hf_times(
        [logged, logged, logged, {"train_loss": 0.0}], Path(), [100.0, 130.0, 134.0, 140.0, 141.0]
    )
    assert [row["step_s"] for row in found] == [4.0, 6.0]
    assert found[0] == {"step_s": 4.0, "generation_s": 1.0, "env_s": 0.5, "update_s": 2.5}


def test_times_of_verl_share_the_rollout(tmp_path):
    times = {"time/generate_s": 3.0, "time/env_s": 1.0}
    logged = [{"step": k, "timing_s/step": 10.0, "timing_s/gen": 4.0, **times} for k in (1, 2)]
    (found,) = trainers.verl_times(logged, tmp_path, [])
    assert found == {"step_s": 10.0, "generation_s": 3.0, "env_s": 1.0, "update_s": 6.0}


def test_the_clock_sees_a_file_grow(tmp_path):
    with trainers.Clock(tmp_path) as clock:
        for k in range(3):
            with (tmp_path / "metrics.jsonl").open("a") as file:
                file.write(f"{k}\n")
            time.sleep(0.3)
    assert len(clock.times) == 4 and clock.times == sorted(clock.times)


def test_settings_say_the_same():
    trl, swift, verl = (trainers.CONFIGS[name](10, 8) for name in ("trl", "swift", "verl"))
    actor = verl["actor_rollout_ref"]["actor"]
    assert trl["learning_rate"] == swift["learning_rate"] == actor["optim"]["lr"]
    assert trl["per_device_train_batch_size"] == swift["per_device_train_batch_size"] == 64
    assert verl["data"]["train_batch_size"] * verl["actor_rollout_ref"]["rollout"]["n"] == 64
    assert trl["adam_beta2"] == swift["adam_beta2"] == actor["optim"]["betas"][1]
    assert trl["max_steps"] == swift["max_steps"] == verl["trainer"]["total_training_steps"]


def test_what_was_run_is_not_run_again(tmp_path):
    for row in RUNS:
        folder = tmp_path / "work" / f"{row['trainer']}-6x8"
        folder.mkdir(parents=True)
        (folder / "result.json").write_text(json.dumps(row))
    command = [sys.executable, "-m", "benchmarks.trainers", "--steps", "6", "--work", tmp_path / "work"]
    done = subprocess.run(
        [*command, "--output", tmp_path / "out"], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "trainers.json",
        "trainers.md",
        "trainers.png",
    ]
    again = [*command, "--trainers", "trl,areal"]
    done = subprocess.run(again, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and "unknown trainers" in done.stderr
