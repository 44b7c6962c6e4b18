"""``python -m envs.gaia``: serving here, and what is said to Docker where it serves in a container.

No test here runs a container. Those with ``docker`` have a stand-in for its command line (tests/lib/fake_docker.py).
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import fake_docker
import httpx
import pytest
from deploy_files import DOCKER
from hosts import SECRET, quick_config
from tool_servers import SERVERS

from aworld_gym.cli_host import Signals
from aworld_gym.errors import InfraError
from aworld_gym.host import credentials
from envs.gaia import __main__ as serving
from envs.gaia import containers, sandbox

PYTHONPATH = os.pathsep.join([str(SERVERS), os.environ.get("PYTHONPATH", "")])


@pytest.fixture
def docker(tmp_path):
    """The stand-in's folder; its command is all that PATH has."""
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin/docker"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {fake_docker.__file__} "$@"\n')
    command.chmod(0o755)
    quick_config(tmp_path)
    yield tmp_path
    fake_docker.send(tmp_path, signal.SIGKILL)


@pytest.fixture
def start(tmp_path):
    """Start ``python -m envs.gaia``; it is ended with the test."""
    started = []

    def run(*arguments, path=None, **more):
        environ = {name: value for name, value in os.environ.items() if not name.startswith(("AWORLD_", "MCP_SERVER"))}
        environ |= {"PYTHONPATH": PYTHONPATH, "FAKE_DOCKER": str(tmp_path), "TMPDIR": str(tmp_path), **more}
        environ["PATH"] = path or str(tmp_path / "bin")
        process = subprocess.Popen(
            [sys.executable, "-m", "envs.gaia", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environ,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        if process.poll() is None:
            process.kill()
            process.communicate()


def calls(folder, what=None):
    path = folder / "calls.jsonl"
    found = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [one for one in found if what in (None, one["what"])]


def ready(process):
    """What it prints first."""
    line = process.stdout.readline()
    assert line, process.stderr.read()
    return json.loads(line)


@pytest.fixture
def refused(tmp_path, monkeypatch, capfd):
    """Run the command in this process; what it says when it fails."""

    def run(*arguments, code=2, path=None, **more):
        for name, value in {"PATH": path or str(tmp_path / "bin"), "FAKE_DOCKER": str(tmp_path), **more}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("PYTHONPATH", PYTHONPATH)
        with pytest.raises(SystemExit) as ended:
            serving.app(list(arguments), prog_name="python -m envs.gaia")
        out, err = capfd.readouterr()
        assert ended.value.code == code, err
        (line,) = out.splitlines()
        return json.loads(line)["error"]["message"]

    return run


def wait_for(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def opened(told):
    """A session of the host that was told of."""
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize"}
    message["params"] = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    }
    headers = {"authorization": f"Bearer {told['token']}", "accept": "application/json, text/event-stream"}
    url = f"http://{told['ip']}:{told['port']}/mcp"
    reply = httpx.post(url, json=message, headers=headers, timeout=20)
    assert reply.status_code == 200, reply.text
    session = headers | {"mcp-session-id": reply.headers["mcp-session-id"]}
    httpx.post(url, json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=session, timeout=20)
    return reply


# ---- with the stand-in for Docker -----------------------------------------------------------------------------------


def test_it_prints_what_serve_prints_and_takes_the_container_with_it(docker, start):
    process = start("--docker_dir", str(DOCKER), "--port", "8123", "--max-sessions", "7", "--drain", "12.5")
    told = ready(process)
    assert set(told) == {"ip", "port", "token"} and told["ip"] == "127.0.0.1"
    opened(told)
    wait_for(lambda: calls(docker, "logs"))
    (docker / "slow-logs").touch()  # what copies the log is behind: the last words are waited for
    process.send_signal(signal.SIGINT)
    wait_for(lambda: calls(docker, "stop"))
    process.send_signal(signal.SIGTERM)  # the session is still open: do not wait for it
    out, err = process.communicate(timeout=30)
    assert process.returncode == 0 and out == "", "one line, and that alone"
    assert "building" in err and err.count("the container's log") == 2, (
        "before it was told to stop, and while it drained"
    )
    assert not fake_docker.alive(docker)
    said = calls(docker)
    asked = [one["what"] for one in said if one["what"] not in ("kill", "logs")]
    assert asked == ["ps", "build", "up", "port", "stop", "down"]
    assert calls(docker, "kill")[0]["rest"] == ["--signal", "SIGTERM", "gaia"]
    assert calls(docker, "stop")[0]["rest"] == ["--timeout", "42"]
    for one in said:
        assert one["name"] == "aworld-gaia-8123" and one["file"] == str(DOCKER / "compose.yaml")
        assert one["env"]["AWORLD_PORT"] == "8123" and one["env"]["AWORLD_BIND"] == "127.0.0.1"
        assert one["env"]["AWORLD_MAX_SESSIONS"] == "7" and one["env"]["AWORLD_DRAIN_S"] == "12.5"
        assert one["env"]["AWORLD_STOP_GRACE"] == "42s" and one["env"]["AWORLD_HOST_SECRET"] is None
        assert not Path(one["env"]["AWORLD_HOST_SECRET_FILE"]).exists(), "the secret is gone with the container"
    assert told["token"] not in err + (docker / "calls.jsonl").read_text() + (docker / "log").read_text()


def test_the_secret_is_the_environments_and_the_token_lasts_as_told(docker, start):
    process = start("--docker-dir", str(DOCKER), "--port", "0", "--token-ttl", "2h", AWORLD_HOST_SECRET=SECRET)
    claims = credentials.verify([SECRET], f"Bearer {ready(process)['token']}")
    assert claims.scopes == {credentials.ALL} and 7000 < claims.expires - time.time() < 7300
    process.terminate()
    _, err = process.communicate(timeout=30)
    assert process.returncode == 0 and SECRET not in err + (docker / "calls.jsonl").read_text()
    assert (
        calls(docker, "up")[0]["name"].startswith("aworld-gaia-") and calls(docker, "up")[0]["env"]["AWORLD_PORT"] == ""
    )


@pytest.mark.parametrize(
    ("what", "said"), [("build", "build failed"), ("up", "the last words of the container"), ("port", "no port 8000")]
)
def test_a_container_that_does_not_start_is_removed(docker, refused, what, said):
    (docker / f"fail-{what}").touch()
    assert said in refused("--docker_dir", str(DOCKER), code=1)
    assert calls(docker)[-1]["what"] == "down" and not fake_docker.alive(docker)


@pytest.mark.parametrize("what", ["ps", "port"])
def test_an_engine_that_does_not_answer_is_said_to_be_so(docker, refused, monkeypatch, what):
    monkeypatch.setattr(containers, "_QUICK_S", 3)
    (docker / f"hang-{what}").touch()
    said = refused("--docker_dir", str(DOCKER), code=1)
    assert f"docker compose {what} did not answer within 3 s" in said
    assert calls(docker)[-1]["what"] == ("down" if what == "port" else "ps")


def test_a_container_that_is_there_is_left_alone(docker, refused):
    (docker / "taken").touch()
    said = refused("--docker_dir", str(DOCKER), "--port", "8200")
    assert "aworld-gaia-8200" in said and "another --port" in said
    assert [one["what"] for one in calls(docker)] == ["ps"]


def test_an_interrupt_while_it_starts_leaves_nothing(docker, start):
    (docker / "mcp.json").write_text(json.dumps({"mcpServers": {"slow": {"command": "/bin/sleep", "args": ["60"]}}}))
    process = start("--docker_dir", str(DOCKER))
    wait_for(lambda: (docker / "pid").exists())
    process.terminate()
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 143 and "error" in json.loads(out)
    assert calls(docker)[-1]["what"] == "down" and not fake_docker.alive(docker)


def test_a_container_that_ends_by_itself_is_said_to_have_ended(docker, monkeypatch):
    monkeypatch.setenv("FAKE_DOCKER", str(docker))
    monkeypatch.setenv("PATH", str(docker / "bin"))
    monkeypatch.setattr(containers, "_RESTART_S", 0.5)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        container = containers.Container(DOCKER / "compose.yaml", "aworld-gaia-1", {}, 1)
        with pytest.raises(InfraError, match="ended by itself"):
            container.follow(Signals())
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def test_without_docker_it_says_what_to_do(start, tmp_path):
    """In a process of its own: one JSON object is all that stands on stdout."""
    (tmp_path / "bin").mkdir()
    process = start("--docker_dir", str(DOCKER))
    out, err = process.communicate(timeout=60)
    said = json.loads(out)["error"]["message"]
    assert process.returncode == 2 and said in err
    assert "no docker on PATH" in said and "install Docker Engine" in said and "python -m envs.gaia" in said


@pytest.mark.parametrize(
    ("missing", "said"), [("compose", "docker-compose-plugin"), ("version", "engine does not answer")]
)
def test_docker_in_part_is_said_too(docker, refused, missing, said):
    (docker / f"no-{missing}").write_text("what docker says")
    told = refused("--docker_dir", str(DOCKER))
    assert said in told and "what docker says" in told and not calls(docker)


@pytest.mark.skipif(shutil.which("docker") is None, reason="there is no docker client")
def test_the_real_client_is_asked_in_a_language_that_it_knows(refused):
    """It is pointed at an engine that there is not, and its own words are passed on."""
    said = refused("--docker_dir", str(DOCKER), path=os.environ["PATH"], DOCKER_HOST="unix:///nowhere/docker.sock")
    assert "docker has no Compose" in said or "engine does not answer" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--docker_dir", str(DOCKER), "--pool", "3"], "--pool goes into the compose file's command"),
        (["--docker_dir", str(DOCKER.parent)], "no compose.yaml"),
        (["--docker_dir", str(DOCKER), "--port", "99999"], "port must be"),
        (["--docker_dir", str(DOCKER), "--token-ttl", "soon"], "such as 12h"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_starts(docker, refused, arguments, said):
    assert said in refused(*arguments)
    assert not calls(docker)


def test_options_that_there_are_not_are_told(capfd):
    with pytest.raises(SystemExit) as ended:
        serving.app(["--docker_dir", str(DOCKER), "--pol", "3"])
    assert ended.value.code == 2 and "--pol" in capfd.readouterr().err


# ---- without a container --------------------------------------------------------------------------------------------


def test_it_serves_gaia_here_and_prints_no_token_where_none_is_wanted(start, tmp_path):
    path = tmp_path / "secret"
    path.write_text(SECRET)
    process = start("--port", "0", "--no-token", path=os.environ["PATH"], AWORLD_HOST_SECRET_FILE=str(path))
    told = ready(process)
    assert set(told) == {"ip", "port", "token"} and told["token"] is None
    assert httpx.get(f"http://127.0.0.1:{told['port']}/health").json()["toolchains"] == ["gaia"]
    opened({**told, "token": credentials.mint(SECRET, ["gaia"], 60)})
    process.terminate()
    wait_for(lambda: httpx.get(f"http://127.0.0.1:{told['port']}/ready").status_code == 503)
    process.terminate()  # the session is still open
    out, err = process.communicate(timeout=30)
    assert out == "" and process.returncode == 0 and SECRET not in err


def test_a_token_that_nobody_could_make_is_not_left_out(refused):
    assert "AWORLD_HOST_SECRET_FILE" in refused("--no-token", "--port", "0", path=os.environ["PATH"])


def test_where_nothing_is_confined_it_warns_or_does_not_start(refused, monkeypatch, caplog):
    nothing = sandbox.Isolation("none", "nothing confines here")
    monkeypatch.setattr(sandbox, "isolation", lambda: nothing)
    said = refused("--port", "0", "--require-sandbox")
    assert said == "run_python will refuse to run on this host: nothing confines here"
    with caplog.at_level("WARNING"):
        refused("--no-token")  # which fails later, and for another reason
    assert said in caplog.text
