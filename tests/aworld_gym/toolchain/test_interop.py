"""Servers that nobody here wrote: they are listed and called, their errors reach the model, and nothing is left.

They are installed by ``tests/interop/install.sh`` (``make .interop/.done``), in environments of their own.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys

import pytest
import waits
from tool_servers import REPOSITORY, SERVERS, gone, session_of

from aworld_gym.toolchain import Toolchain, loop
from aworld_gym.types import Limits

INTEROP = REPOSITORY / ".interop"
NODE, PYTHON = INTEROP / "node_modules/.bin", INTEROP / "venv/bin"
SERVERS_OF = {
    # through npx, as people write it: the server itself is a grandchild
    "everything": {"command": "npx", "args": ["--no-install", "mcp-server-everything"], "cwd": str(INTEROP)},
    "files": {"command": str(NODE / "mcp-server-filesystem"), "args": ["${AWORLD_WORKSPACE}"]},
    "git": {"command": str(PYTHON / "mcp-server-git")},
    "time": {"command": str(PYTHON / "mcp-server-time")},
}


@pytest.fixture(autouse=True, scope="module")
def installed():
    if not (INTEROP / ".done").exists():
        pytest.fail("the foreign servers are not installed: run tests/interop/install.sh", pytrace=False)


async def text_of(session, name, /, **arguments):
    result = await session.call("c", name, arguments)
    assert result.error is None, result
    return result.text


async def error_of(session, name, /, **arguments):
    result = await session.call("c", name, arguments)
    assert result.error is not None, result
    return result.error, result.text


def test_four_foreign_servers_at_once():
    async def check():
        async with session_of(SERVERS_OF, open_timeout_s=60.0, call_timeout_s=20.0) as session:
            names = [tool["function"]["name"] for tool in session.tools]
            assert len(names) == len(set(names)) >= 35
            await everything(session)
            await files(session)
            await git(session)
            await the_time(session)

    loop.run(check(), timeout=120)


async def everything(session):
    assert await text_of(session, "echo", message="hï") == "Echo: hï"
    assert await text_of(session, "get-sum", a=2, b=3.5) == "The sum of 2 and 3.5 is 5.5."
    kind, text = await error_of(session, "get-sum", a="2", b=3)
    assert kind == "call_bad_arguments" and text.endswith(
        '`a`: expected number, got "2". It takes (a: number, b: number).'
    )
    image = await session.call("c", "get-tiny-image", {})
    assert [part["type"] for part in image.content] == ["text", "image_url", "text"]
    assert image.content[1]["image_url"]["url"].startswith("data:image/png;base64,iVBORw0KGgo")
    weather = await session.call("c", "get-structured-content", {"location": "Chicago"})
    assert set(weather.structured) == {"temperature", "conditions", "humidity"}
    assert json.loads(weather.text) == weather.structured
    resource = await text_of(session, "get-resource-reference", resourceType="Text", resourceId=1)
    assert "[resource demo://resource/dynamic/text/1]\nResource 1: This is a plaintext resource" in resource
    assert "SECRET" not in await text_of(session, "get-env")
    side_by_side = await asyncio.gather(*(text_of(session, "echo", message=str(k)) for k in range(20)))
    assert side_by_side == [f"Echo: {k}" for k in range(20)]


async def files(session):
    path = str(session.workspace / "notes.txt")
    assert "Successfully wrote" in await text_of(session, "write_file", path=path, content="first\nsecond\n")
    assert (session.workspace / "notes.txt").read_text() == "first\nsecond\n"
    assert await text_of(session, "read_text_file", path=path, head=1) == "first"
    assert "[FILE] notes.txt" in await text_of(session, "list_directory", path=str(session.workspace))
    kind, text = await error_of(session, "read_text_file", path="/etc/hostname")
    assert kind == "tool_error" and "outside allowed directories" in text
    kind, text = await error_of(session, "edit_file", path=path, edits=[{"oldText": "first"}])
    assert kind == "call_bad_arguments" and "`edits[0]`: `newText` is required but missing" in text


async def git(session):
    repository = session.workspace / "repository"
    for command in (
        ["init", "-q", str(repository)],
        ["-C", str(repository), "-c", "user.name=A", "-c", "user.email=a@example.org", "commit", "-q", "--allow-empty"]
        + ["-m", "The beginning"],
    ):
        subprocess.run(["git", *command], check=True)
    (repository / "a.txt").write_text("new")
    assert "a.txt" in await text_of(session, "git_status", repo_path=str(repository))
    assert "The beginning" in await text_of(session, "git_log", repo_path=str(repository))
    kind, text = await error_of(session, "git_status", repo_path=str(session.workspace / "nowhere"))
    assert kind == "tool_error" and "nowhere" in text


async def the_time(session):
    assert '"timezone": "Europe/Paris"' in await text_of(session, "get_current_time", timezone="Europe/Paris")
    kind, text = await error_of(session, "get_current_time", timezone="Mars/Olympus")
    assert kind == "tool_error" and "Mars/Olympus" in text
    result = await text_of(session, "convert_time", source_timezone="UTC", time="12:00", target_timezone="Asia/Tokyo")
    assert "21:00" in result


def test_a_foreign_tool_that_is_too_slow():
    async def check():
        servers = {"everything": SERVERS_OF["everything"]}
        async with session_of(servers, open_timeout_s=60.0, call_timeout_s=1.0) as session:
            kind, text = await error_of(session, "trigger-long-running-operation", duration=30, steps=3)
            assert kind == "tool_timeout" and text.endswith("the call was given up.")
            assert await text_of(session, "echo", message="still here") == "Echo: still here"

    loop.run(check(), timeout=90)


def test_a_foreign_server_over_http():
    async def check(port):
        web = {"type": "streamable-http", "url": f"http://127.0.0.1:{port}/mcp"}
        toolchain = Toolchain({"mcpServers": {"web": web}}, Limits(call_timeout_s=20.0))
        sessions = [await toolchain.open() for _ in range(2)]
        texts = await asyncio.gather(*(text_of(s, "echo", message=str(k)) for s in sessions for k in range(10)))
        assert texts == [f"Echo: {k}" for k in range(10)] * 2
        for session in sessions:
            await session.aclose()
        await toolchain.aclose()

    import socket

    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [str(NODE / "mcp-server-everything"), "streamableHttp"]
    server = subprocess.Popen(command, env={**os.environ, "PORT": str(port)}, stderr=subprocess.PIPE, text=True)
    try:
        with waits.killed_after(server, 60):
            assert any("listening" in line.lower() for line in iter(server.stderr.readline, ""))
        loop.run(check(port), timeout=60)
    finally:
        server.kill()
        server.communicate(timeout=60)


@pytest.mark.parametrize("how", ["return", "raise", "killed"])
def test_nothing_is_left_of_foreign_servers(how):
    command = [sys.executable, str(SERVERS / "program.py"), "wait" if how == "killed" else how]
    servers = SERVERS_OF if how == "killed" else {name: SERVERS_OF[name] for name in ("everything", "time")}
    command += [json.dumps({"mcpServers": servers}), "echo", '{"message": "hi"}']
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
    try:
        line = waits.first_line(process)
        assert line, process.communicate(timeout=20)[1]
        said = json.loads(line)
        assert said["text"] == "Echo: hi"
        assert len(said["pids"]) > 2 * len(servers)  # supervisors, servers, and what npx started
        if how == "killed":
            process.send_signal(signal.SIGKILL)
        process.wait(timeout=30)
        assert all(gone(pid) for pid in said["pids"])
    finally:
        process.kill()
        process.communicate(timeout=60)
