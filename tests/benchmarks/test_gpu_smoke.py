"""The GPU script's arguments, and all of it but its size on a CPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from aworld_gym.tokens import ChatCodec
from benchmarks import gpu_smoke

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks" / "gpu_smoke.sh"


def smoke(*arguments, path=os.environ["PATH"], timeout=60):
    command = ["bash", str(SCRIPT), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=os.environ | {"PATH": path})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--steps", "0"], "--steps must be a whole number of at least 1, got 0"),
        (["--steps", "two"], "--steps must be a whole number of at least 1, got two"),
        (["--steps"], "--steps needs a value"),
        (["--dryrun"], "unknown argument --dryrun"),
        (["--python", "/no/python"], "no interpreter at /no/python: run `make venv`"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    done = smoke(*arguments)
    assert done.returncode == 2 and message in done.stderr and "Traceback" not in done.stderr


def test_without_a_gpu_it_says_what_to_do(tmp_path):
    for name in ("bash", "dirname"):
        (tmp_path / name).symlink_to(f"/usr/bin/{name}")
    done = smoke("--python", sys.executable, path=str(tmp_path))
    assert done.returncode == 2 and "no NVIDIA GPU here" in done.stderr and "--dry-run" in done.stderr


def test_help():
    done = smoke("--help")
    assert done.returncode == 0 and "--steps N" in done.stdout


@pytest.mark.slow
def test_a_dry_run(tmp_path):
    done = smoke("--dry-run", "--python", sys.executable, "--output", tmp_path, timeout=280)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads((tmp_path / "result.json").read_text())
    assert len(found["steps"]) == 1 and found["mean_tokens_s"] > 0 and found["episodes"]["episodes"] == 8
    assert found["largest_logprob_gap"] < 1e-4 and found["device"] == "CPU"
    assert "tok/s" in done.stdout and "supervised steps" in done.stdout


def test_the_wide_tokenizer_reads_every_id_and_writes_as_before():
    narrow = AutoTokenizer.from_pretrained(ROOT / "tests/data/warm_start")
    wide = gpu_smoke.widened(narrow, gpu_smoke.SHAPE["vocab_size"])
    text = "Open the file north_12.csv, word7 <|im_end|>"
    assert len(wide) == 151_936 and wide.encode(text) == narrow.encode(text)
    codec = ChatCodec(wide)
    codec.self_check()
    assert codec.stop_ids == ChatCodec(narrow).stop_ids
    assert codec.parse([151_935, *sorted(codec.stop_ids)[:1]]).message["content"] == "word151935"


def test_summary_leaves_the_first_step_out_of_means():
    row = {"time/generate_s": 2.0, "time/env_s": 0.5, "env/sampled_tokens": 10.0, "reward": 0.1}
    steps = [row | {"step": k, "step_time": 4.0 * k, "sampling/logprob_gap/mean": 0.01 * k} for k in (1, 2, 3)]
    found = gpu_smoke.summary([*steps, {"train_runtime": 9.0}], rows=8)
    assert found["mean_step_s"] == 10.0 and found["mean_tokens_s"] == 40.0 and found["largest_logprob_gap"] == 0.03
    assert [step["sampled_tokens"] for step in found["steps"]] == [80, 80, 80]
