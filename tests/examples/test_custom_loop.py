"""The loop that the README points to: it runs, stays short, and trains on what was sampled."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_model import build

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "examples" / "custom_loop.py"


def test_it_is_under_120_lines():
    assert len(SCRIPT.read_text(encoding="utf-8").splitlines()) < 120


def test_it_runs(tmp_path):
    build(tmp_path / "model", steps=40)
    command = [sys.executable, str(SCRIPT), "--model", str(tmp_path / "model"), "--steps", "2", "--episodes", "3"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 2 and all("over 3 valid episodes" in line for line in lines)


@pytest.mark.parametrize("model", ["./nomodel", "nomodel"])
def test_a_model_that_is_not_there_is_said_without_a_traceback(model):
    environment = os.environ | {"HF_HUB_OFFLINE": "1"}
    command = [sys.executable, str(SCRIPT), "--model", model]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 2 and f"error: '{model}' is no model's folder" in done.stderr
    assert "Traceback" not in done.stderr
    shown = subprocess.run([*command[:2], "--help"], capture_output=True, text=True, timeout=120)
    assert "runs/gaia/start" in shown.stdout and "make train" in shown.stdout


def test_reward_to_go_is_given_to_sampled_tokens_only():
    sys.path.insert(0, str(ROOT))
    try:
        from examples.custom_loop import returns_to_go
    finally:
        sys.path.remove(str(ROOT))
    from aworld_gym.tokens import TrajectoryBuilder

    builder = TrajectoryBuilder()
    builder.prompt([1, 2])
    for sampled, appended, reward in (([3, 4], [5], 0.5), ([6], [7, 8], -0.25), ([9, 9], [], 1.0)):
        builder.sampled(sampled)
        builder.reward(reward)
        if appended:
            builder.appended(appended)
    assert returns_to_go(builder.build()) == pytest.approx([1.25, 1.25, 0, 0.75, 0, 0, 1.0, 1.0])
