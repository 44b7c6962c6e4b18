"""swift's own command line with the example's plugin, over two processes: the launcher of one's own."""

import json
import os
import socket
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
        "NPROC_PER_NODE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(_free_port()),
    }
    given = {**small, "model_type": "qwen3", "max_completion_length": 300, "save_strategy": "steps", "save_steps": 2}
    given["per_device_train_batch_size"] = 4
    given |= {"report_to": "none", "use_cpu": True, "torch_dtype": "float32", "bf16": False, "save_only_model": True}
    flags = [word for name, value in given.items() if name != "seed" for word in (f"--{name}", str(value))]
    done = subprocess.run(
        ["bash", str(EXAMPLE), *flags], env=environment, capture_output=True, text=True, cwd=tmp_path, timeout=280
    )
    assert done.returncode == 0, done.stderr[-3000:]
    metrics = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [m["step"] for m in metrics] == [1, 2, 2] and max(m["sampling/logprob_gap/max"] for m in metrics[:2]) < 1e-4
    assert sum(m["env/invalid"] for m in metrics[:2]) == 0 and metrics[0]["env/tool_calls"] > 1
    episodes = [list(read_jsonl(tmp_path / name)) for name in ("episodes.jsonl", "episodes.rank1.jsonl")]
    assert [len(of_process) for of_process in episodes] == [8, 8]
    groups: dict[str, list] = {}
    for episode in episodes[0] + episodes[1]:
        groups.setdefault(episode.group_id, []).append(episode)
    assert all(sorted(e.sample for e in group) == [0, 1, 2, 3] for group in groups.values()) and len(groups) == 4
    first = [e.total_reward for e in episodes[0] + episodes[1] if e.group_id.startswith("0/")]
    assert metrics[0]["reward"] == pytest.approx(sum(first) / 8) == pytest.approx(metrics[0]["env/return"])
    assert (tmp_path / "checkpoint-2" / "model.safetensors").is_file()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
