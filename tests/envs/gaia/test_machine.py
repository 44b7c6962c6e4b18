"""A machine that fails ends the episode as an infrastructure failure; nothing that a model does passes for one."""

import asyncio
import errno
import os
import signal
import sqlite3
import subprocess
import time

import gymnasium as gym
import psutil
import pytest
from gaia_tools import served
from tool_messages import call

import aworld_gym  # noqa: F401
from envs.gaia.machine import MachineFault, machine_fault
from envs.gaia.tools import databases

SLOW = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"


def broken(number):
    def fails(*args, **kwargs):
        raise OSError(number, os.strerror(number))

    return fails


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE, errno.EROFS, errno.EIO, errno.EAGAIN])
def test_an_errno_of_the_machine_is_found_wherever_it_hides(number):
    try:
        try:
            broken(number)()
        except OSError:
            raise ValueError("a reader's own words") from None
    except ValueError as error:
        assert machine_fault(error) == f"{type(OSError(number, '')).__name__}: {os.strerror(number)}"


@pytest.mark.parametrize("number", [errno.ENOENT, errno.EACCES, errno.ELOOP, errno.EINVAL, errno.ENAMETOOLONG, None])
def test_other_errors_are_of_the_call(number):
    assert machine_fault(OSError(number, "no") if number else ValueError("no")) is None


@pytest.mark.parametrize(
    ("where", "name", "arguments"),
    [
        ("scandir", "list_files", {}),
        ("open", "read_document", {"path": "a.txt"}),
        ("open", "read_table", {"path": "a.csv"}),
        ("open", "query_sqlite", {"path": "a.sqlite"}),
        ("mkdir", "unpack_archive", {"path": "a.eml"}),
    ],
)
def test_an_episode_on_a_failing_machine_is_no_measurement(where, name, arguments, monkeypatch):
    env = gym.make("AWorld/Gaia-v0", split="train", level=1).unwrapped
    try:
        env.reset(seed=0)
        mail = b"From: a\nContent-Type: text/plain\nContent-Disposition: attachment; filename=x.txt\n\nx"
        for file in ("a.txt", "a.csv", "a.sqlite", "a.eml"):
            (env.workspace / file).write_bytes(mail)
        with monkeypatch.context() as patch:
            patch.setattr(f"envs.gaia.tools.workspace.os.{where}", broken(errno.ENOSPC))
            _, reward, terminated, truncated, info = env.step(call(name, **arguments))
        assert (terminated or truncated, info["outcome"], info["valid"]) == (True, "infra_failure", False)
        assert reward == 0.0
    finally:
        env.close()


async def test_a_query_that_is_killed_from_outside_is_not_called_slow(tmp_path, monkeypatch):
    """kill -9 (the kernel's, where memory is short) in the middle of a query."""
    sqlite3.connect(tmp_path / "a.sqlite").execute("CREATE TABLE t (x)").connection.close()
    monkeypatch.setattr(databases, "MAX_OPS", 10**12)
    started = []

    class Seen(subprocess.Popen):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            started.append(self.pid)

    monkeypatch.setattr(databases.subprocess, "Popen", Seen)
    async with served(tmp_path) as session:
        query = asyncio.create_task(session("query_sqlite", path="a.sqlite", sql=SLOW))
        until = time.monotonic() + 20
        while not (started and psutil.Process(started[0]).cpu_times().user > 0.2) and time.monotonic() < until:
            await asyncio.sleep(0.01)
        os.kill(started[0], signal.SIGKILL)
        result = await query
    assert result.failed
    assert "killed from outside" in result.text
    assert "takes too long" not in result.text


async def test_a_query_over_its_own_time_is_the_model_s(tmp_path, monkeypatch):
    sqlite3.connect(tmp_path / "a.sqlite").execute("CREATE TABLE t (x)").connection.close()
    monkeypatch.setattr(databases, "MAX_OPS", 10**12)
    monkeypatch.setattr(databases, "_LIMITS", databases._LIMITS | {"RLIMIT_CPU": 1})
    async with served(tmp_path) as session:
        assert "takes too long" in await session.refused("query_sqlite", path="a.sqlite", sql=SLOW)


def test_what_was_killed_is_said():
    assert machine_fault(MachineFault("killed")) == "killed"
