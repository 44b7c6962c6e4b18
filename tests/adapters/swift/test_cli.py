"""swift's own command line with the example's plugin: the launcher of one's own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from aworld_gym.trajectory import read_jsonl

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "swift_gaia" / "run.sh"


@pytest.mark.slow
def test_the_example_trains(warm_start, tmp_path, small):
    bin_folder = str(Path(sys.executable).parent)
    environment = os.environ | {
        "PATH": bin_folder + os.pathsep + os.environ["PATH"],
        "MODEL": str(warm_start),
        "OUT": str(tmp_path),
        "TASKS": "4",
        "ENV_ARGS": json.dumps({"preset": "mini"}),
        "CREDIT": "step",
        "OMP_NUM_THREADS": "1",
    }
    given = {**small, "model_type": "qwen3", "max_completion_length": 300, "save_strategy": "steps", "save_steps": 2}
    given |= {"report_to": "none", "use_cpu": True, "torch_dtype": "float32", "bf16": False, "save_only_model": True}
    flags = [word for name, value in given.items() if name != "seed" for word in (f"--{name}", str(value))]
    done = subprocess.run(
        ["bash", str(EXAMPLE), *flags], env=environment, capture_output=True, text=True, cwd=tmp_path, timeout=280
    )
    assert done.returncode == 0, done.stderr[-3000:]
    metrics = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [m["step"] for m in metrics] == [1, 2, 2] and max(m["sampling/logprob_gap/max"] for m in metrics[:2]) < 1e-4
    assert sum(m["env/invalid"] for m in metrics[:2]) == 0 and metrics[0]["env/tool_calls"] > 1
    assert len(list(read_jsonl(tmp_path / "episodes.jsonl"))) == 16
    assert (tmp_path / "checkpoint-2" / "model.safetensors").is_file()
