"""``eval --record``, ``--replay`` and ``--cache``, as a user runs them."""

import contextlib
import json
import time

import psutil
import pytest
import waits
from cli_process import in_process, only_json, process
from leaks import commands_below

from aworld_gym.trajectory import read_jsonl

ENV = "quiet_envs:QuietTest/Small-v0"


@pytest.fixture
def run(capfd):
    command = in_process(capfd, "eval", ENV, "--json")

    def run(*args):
        code, out, err = command(*args)
        return code, only_json(out), err

    return run


def numbers(found):
    return {k: v for k, v in found.items() if k not in ("wall_s", "tape", "episodes_path")}


def test_recorded_then_replayed_without_servers_in_processes_of_their_own(tmp_path):
    args = ("eval", ENV, "--episodes", "4", "-k", "stdio=true", "--json")
    found = {}
    for mode in ("record", "replay"):
        done = process(*args, f"--{mode}", str(tmp_path / "tape"), "--output", str(tmp_path / mode))
        servers = set()
        with waits.killed_after(done, 120):
            while done.poll() is None:
                with contextlib.suppress(psutil.NoSuchProcess):  # it ends just now
                    servers |= {command for command in commands_below(done.pid) if "small_toolchain" in command}
                time.sleep(0.05)
        assert done.returncode == 0, done.stderr.read()
        found[mode] = only_json(done.stdout.read())
        done.stdout.close(), done.stderr.close()
        assert bool(servers) is (mode == "record")
    assert numbers(found["record"]) == numbers(found["replay"]) and found["replay"]["success_rate"] == 1.0
    assert found["replay"]["tape"] == {"replay": str(tmp_path / "tape")}
    one, two = ([[s.reward for s in e.steps] for e in read_jsonl(tmp_path / m / "episodes.jsonl")] for m in found)
    assert sorted(one) == sorted(two)


def test_a_miss_is_said_and_ends_the_run(run, tmp_path):
    assert run("--episodes", 2, "--record", tmp_path / "t")[0] == 0
    code, found, err = run("--episodes", 2, "--replay", tmp_path / "t", "--policy", "random")
    assert code == 2 and found["error"]["type"] == "ReplayError"
    assert "Recorded here: small.echo" in err and "seed" in err


def test_a_run_that_is_resumed_goes_on_recording(run, tmp_path):
    place = ("--record", tmp_path / "t", "--output", tmp_path / "run")
    assert run("--episodes", 2, *place)[0] == 0
    code, found, _ = run("--episodes", 2, "--record", tmp_path / "t")
    assert code == 2 and "already has a tape" in found["error"]["message"]
    assert run("--episodes", 5, *place, "--resume")[0] == 0
    code, found, _ = run("--episodes", 5, "--replay", tmp_path / "t")
    assert code == 0 and found["valid"] == 5


def test_a_cache_fills(run, tmp_path):
    assert run("--episodes", 2, "--cache", tmp_path / "c")[0] == 0
    code, found, _ = run("--episodes", 2, "--cache", tmp_path / "c", "--output", tmp_path / "run")
    assert code == 0 and found["tape"] == {"cache": str(tmp_path / "c")}
    assert json.loads((tmp_path / "run/summary.json").read_text())["tape"] == {"cache": str(tmp_path / "c")}


def test_one_of_them_at_a_time(run, tmp_path):
    code, found, _ = run("--record", tmp_path / "a", "--replay", tmp_path / "b")
    assert code == 2 and "not several" in found["error"]["message"]
    code, found, _ = run("--replay", tmp_path / "b")
    assert code == 2 and "there is no tape at" in found["error"]["message"]
