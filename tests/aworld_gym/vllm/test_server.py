"""A server process of our own: started, waited for, ended. The program is a stand-in that takes vLLM's arguments."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import vllm_stand_in

from aworld_gym.errors import ConfigError, MissingDependencyError
from aworld_gym.toolchain import loop
from aworld_gym.vllm import VllmServer
from aworld_gym.vllm.server import find_vllm

LIB = Path(vllm_stand_in.__file__).parent


@pytest.fixture
def program(tmp_path):
    """A ``vllm`` program in an environment whose metadata says that it is a CPU build."""
    home = tmp_path / "venv"
    (home / "lib/python3.11/site-packages/vllm-0.32.0+cpu.dist-info").mkdir(parents=True)
    (home / "bin").mkdir()
    path = home / "bin" / "vllm"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{vllm_stand_in.__file__}" "$@"\n')
    path.chmod(0o755)
    return str(path)


def engine_of(server):
    """The pid of the server's second process."""
    return int(server.log_file.read_text().partition("engine ")[2].split()[0])


def gone(*pids, within_s=10.0):
    deadline = time.monotonic() + within_s
    while any(os.path.exists(f"/proc/{pid}") and not zombie(pid) for pid in pids):
        assert time.monotonic() < deadline, f"still there: {pids}"
        time.sleep(0.05)


def zombie(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def get(url, key=None):
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {key}"} if key else {})
    with urllib.request.urlopen(request, timeout=5) as reply:
        return json.loads(reply.read())


def test_a_server_is_started_with_what_it_needs_and_ended_with_its_processes(folder, program, monkeypatch):
    monkeypatch.delenv("VLLM_CPU_KVCACHE_SPACE", raising=False)
    with VllmServer(str(folder), command=program, args="--max-num-seqs 8", max_context=512) as server:
        assert server.on_cpu and server.processed_logprobs
        log, engine, supervisor = server.log_file, engine_of(server), server._process.pid
        assert server.command()[:3] == [program, "serve", str(folder)]
        given = log.read_text().splitlines()[0]
        assert given == (
            "arguments: --logprobs-mode processed_logprobs --generation-config vllm --max-model-len 512 "
            "--dtype float32 --enforce-eager --no-enable-chunked-prefill --max-num-seqs 8"
        )
        assert server.environment()["VLLM_CPU_KVCACHE_SPACE"] == "4"
        assert server.environment()["VLLM_NO_USAGE_STATS"] == "1"
        assert get(server.base_url + "/models", server.api_key)["data"][0]["id"] == str(folder)
        with pytest.raises(urllib.error.HTTPError, match="401"):
            get(server.base_url + "/models")
    gone(engine, supervisor)
    assert not log.exists() and server.exit_status is None
    with server:  # again
        engine = engine_of(server)
    gone(engine)


def test_its_processes_may_clean_up_after_it(folder, program, tmp_path):
    with VllmServer(str(folder), command=program, log_file=tmp_path / "log") as server:
        engine = engine_of(server)
    gone(engine, within_s=0.1)
    assert "engine cleaned up" in (tmp_path / "log").read_text()


def test_memory_is_left_to_whoever_says_how_much(folder, program, monkeypatch):
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
    assert VllmServer(str(folder), command=program).environment()["VLLM_CPU_KVCACHE_SPACE"] == "1"
    monkeypatch.delenv("VLLM_CPU_KVCACHE_SPACE")
    sized = VllmServer(str(folder), command=program, args=["--gpu-memory-utilization=0.3"])
    assert "VLLM_CPU_KVCACHE_SPACE" not in sized.environment()
    assert VllmServer(str(folder), command=program, args="--logprobs-mode raw_logprobs").processed_logprobs is None


def test_a_server_that_ends_says_why(folder, program, monkeypatch):
    monkeypatch.setenv("STAND_IN", "broken")
    server = VllmServer(str(folder), command=program)
    with pytest.raises(ConfigError) as error, server:
        pass
    said = str(error.value)
    assert "did not start. It exited with 3." in said
    assert "first error: RuntimeError: this model cannot be served" in said  # far before the end
    assert str(server.log_file) in said and said.endswith("noise")
    assert server.log_file.exists()
    server.log_file.unlink()


def test_a_server_that_is_not_ready_in_time_is_ended(folder, program, monkeypatch, tmp_path):
    monkeypatch.setenv("STAND_IN", "slow")
    log = tmp_path / "log"
    server = VllmServer(str(folder), command=program, start_timeout_s=1.5, log_file=log)
    with pytest.raises(ConfigError, match="not ready within 1.5 s .*start_timeout_s"), server:
        pass
    gone(engine_of(server))
    assert log.exists()


def test_a_server_that_does_not_listen_to_signals_is_killed(folder, program, monkeypatch):
    monkeypatch.setenv("STAND_IN", "stubborn")
    monkeypatch.setattr("aworld_gym.vllm.server.EXIT_GRACE_S", 0.5)
    with VllmServer(str(folder), command=program) as server:
        engine = engine_of(server)
    gone(engine)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_server_ends_with_the_program_that_started_it_however_that_ends(folder, program, tmp_path, how):
    log = tmp_path / "log"
    code = (
        "import sys, time; from aworld_gym.vllm import VllmServer\n"
        "server = VllmServer(sys.argv[1], command=sys.argv[2], log_file=sys.argv[3]).__enter__()\n"
        "print('ready', server._process.pid, flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", code, str(folder), program, str(log)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        try:
            ready, supervisor = parent.stdout.readline().split()
            assert ready == "ready"
            engine = int(log.read_text().partition("engine ")[2].split()[0])
            assert not zombie(engine)
            os.kill(parent.pid, how)
            parent.wait(10)
        finally:
            parent.kill()
    gone(engine, int(supervisor))


def test_a_start_that_is_broken_off_leaves_nothing(folder, program, monkeypatch, tmp_path):
    monkeypatch.setenv("STAND_IN", "slow")
    log = tmp_path / "log"
    server = VllmServer(str(folder), command=program, log_file=log)

    async def broken_off():
        import asyncio

        task = asyncio.create_task(server.astart())
        while "engine " not in (log.read_text() if log.exists() else ""):
            await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.wait([task])

    loop.run(broken_off())
    gone(engine_of(server))


def test_what_cannot_be(folder, program, monkeypatch, tmp_path):
    with pytest.raises(ConfigError, match="no program 'no-such-vllm'"):
        VllmServer(str(folder), command="no-such-vllm")
    for args in ("--port 8000", "--host=0.0.0.0", ["--api-key", "x"]):
        with pytest.raises(ConfigError, match="--base-url"):
            VllmServer(str(folder), command=program, args=args)
    with pytest.raises(ConfigError, match="quotation"):
        VllmServer(str(folder), command=program, args="--x 'y")
    with pytest.raises(ConfigError, match="start_timeout_s"):
        VllmServer(str(folder), command=program, start_timeout_s=0)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(MissingDependencyError, match=r"aworld-gym\[vllm\]"):
        find_vllm()
    monkeypatch.setenv("PATH", str(Path(program).parent))
    assert find_vllm() == program
