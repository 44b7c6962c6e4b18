"""Two processes train together: a group is spread over both, and their episodes take different numbers of turns."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from adapters.credit import turn_advantages
from aworld_gym.trajectory import read_jsonl

LIB = Path(__file__).parents[2] / "lib"


@pytest.mark.slow
def test_two_processes(taught, tmp_path):
    paths = os.pathsep.join([str(LIB), str(LIB.parents[1])])
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    done = subprocess.run(
        [*command, str(LIB / "distributed_run.py"), str(taught), str(tmp_path)],
        env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    ranks = [json.loads((tmp_path / f"rank{k}.json").read_text()) for k in range(2)]
    assert ranks[0]["weights"] == ranks[1]["weights"], "both hold the same model"
    assert (ranks[0]["invalid"], ranks[1]["invalid"]) == (0, 1)
    for step in range(2):
        rows = [row for rank in ranks for row in rank["rows"][4 * step : 4 * step + 4]]
        assert len({row["seed"] for row in rows}) == 1, "one group, spread over two processes"
        expected = turn_advantages([row["rewards"] for row in rows], group_size=8)
        for row, values in zip(rows, expected, strict=True):
            assert row["advantages"] == pytest.approx(values, abs=1e-5)
    episodes = [list(read_jsonl(tmp_path / name)) for name in ("episodes.jsonl", "episodes.rank1.jsonl")]
    assert [len(e) for e in episodes] == [8, 8]
    assert sorted(e.sample for part in episodes for e in part) == sorted(list(range(8)) * 2)
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 3, "written once"
