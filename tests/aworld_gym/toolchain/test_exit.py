"""However a program ends, nothing of its tool servers is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
import waits
from tool_servers import REPOSITORY, SERVERS, gone, one, raw


@contextmanager
def program(how: str, config: dict, *call: str):
    """A running ``servers/program.py``; yields (process, what it printed first)."""
    command = [sys.executable, str(SERVERS / "program.py"), how, json.dumps(config), *call]
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
    try:
        line = waits.first_line(process)
        assert line, process.communicate(timeout=20)[1]
        yield process, json.loads(line)
    finally:
        process.kill()
        process.communicate(timeout=60)


@pytest.mark.parametrize(
    ("how", "modes"), [("return", ()), ("raise", ("stubborn",)), ("thread", ()), ("os_exit", ("stubborn",))]
)
def test_a_program_ends_by_itself(how, modes):
    with program(how, one(raw(*modes)), "children") as (process, said):
        children = json.loads(said["text"])
        assert len(said["pids"]) >= 3  # the supervisor, the server, its child
        process.wait(timeout=60)
        assert all(gone(pid) for pid in [*said["pids"], *children])


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_program_is_killed(number):
    with program("wait", one(raw("stubborn")), "children") as (process, said):
        process.send_signal(number)
        try:
            process.wait(timeout=25)
        except subprocess.TimeoutExpired:  # Python loses one that it raises in a destructor; people press again
            process.send_signal(number)
            process.wait(timeout=60)
        assert all(gone(pid) for pid in [*said["pids"], *json.loads(said["text"])])


def test_a_killed_program_leaves_its_workspace_to_the_next_one_to_delete():
    with program("wait", one(raw())) as (process, said):
        waits.kill(process)
        workspace = Path(said["workspace"])
        assert workspace.exists()
        with program("return", one(raw())) as (second, said):
            second.wait(timeout=60)
        assert not workspace.parents[1].exists()
        assert not Path(said["workspace"]).parents[1].exists()


def test_a_forked_child_does_not_keep_the_servers_alive():
    with program("fork", one(raw("stubborn")), "children") as (process, said):
        child = json.loads(waits.first_line(process))["child"]
        try:
            waits.kill(process)
            assert all(gone(pid) for pid in [*said["pids"], *json.loads(said["text"])])
            os.kill(child, 0)  # it lives, and the servers do not
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_killed_supervisor_takes_its_server_along():
    with program("wait", one(raw("stubborn")), "pid") as (_, said):
        server = int(said["text"])
        supervisor = min(pid for pid in said["pids"] if pid != server)
        os.kill(supervisor, signal.SIGKILL)
        assert gone(server)


def test_the_supervisor_starts_fast_and_passes_the_exit_status_on():
    script = REPOSITORY / "aworld_gym/toolchain/_spawn.py"
    lifeline, other = os.pipe()
    command = [sys.executable, "-I", "-S", str(script), str(lifeline), str(os.getpid()), "1"]

    def status(*server: str) -> int:
        return subprocess.run([*command, *server], pass_fds=(lifeline,), capture_output=True, timeout=20).returncode

    assert status("sh", "-c", "exit 5") == 5
    assert status("sh", "-c", "kill -9 $$") == 128 + signal.SIGKILL
    assert status("/no/such/program") == 127
    before = os.times()
    assert status("true") == 0
    after = os.times()
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    assert spent < 1.0  # of the processor: how long it takes is the machine's load too
    os.close(lifeline)
    os.close(other)
