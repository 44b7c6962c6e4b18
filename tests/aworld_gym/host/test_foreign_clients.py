"""A host works with clients that nobody here wrote, each in its own environment, against ``aworld-gym serve``."""

from __future__ import annotations

import base64
import json
import re
import sys
import time
from pathlib import Path
from typing import Any

import host_tools
import pytest
from foreign_hosts import SOON_S, counted, foreign_host, sessions_deleted
from host_tools import PIXEL
from hosts import host_here, host_process
from interop_programs import NPM, REPOSITORY, SCRIPTS, need_installed, node, run
from interop_servers import EVERYTHING, INTEROP

from aworld_gym.toolchain.compat import new_server

SHOWS = {"mcpServers": {"shows": {"python": "host_tools:make"}}}
TOOLS = 14
PYTHON_CLIENTS = {
    # name: its environment, its script, and what it says of a token that is none
    "mcp 1.30": (REPOSITORY / ".venv-mcp1", "mcp_client.py", "401 Unauthorized"),
    "mcp 2": (Path(sys.prefix), "mcp_client.py", "the token is not a JSON Web Token"),
    "fastmcp": (INTEROP / "fastmcp", "fastmcp_client.py", "the token is not a JSON Web Token"),
}


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with foreign_host(SHOWS, tmp_path_factory.mktemp("host"), "shows") as running:
        yield running


def text(result):
    (part,) = result["content"]
    return part["text"]


@pytest.mark.parametrize("client", PYTHON_CLIENTS)
def test_client_in_python(running, client):
    assert len(observed(running, client)["tools"]) == TOOLS


def observed(running, client):
    """Have a client use a host; what it saw, checked but for the list of tools."""
    venv, script, refused = PYTHON_CLIENTS[client]
    if venv != Path(sys.prefix):
        need_installed(venv)
    cancelled = counted(running, "aworld_host_calls_total", end="cancelled")
    with sessions_deleted(running, opened=2):
        ended = run([venv / "bin/python", SCRIPTS / script], MCP_SERVER_URL=running.url, MCP_SERVER_TOKEN=running.token)
        assert ended.returncode == 0, ended.stderr
    seen = json.loads(ended.stdout)
    assert seen["tools"][0]["name"] == "keep" and seen["tools"][0]["inputSchema"]["required"] == ["key", "value"]
    assert text(seen["kept"]) == "ü" and not seen["kept"]["isError"]
    assert text(seen["apart"]) == "[] [] []"
    assert seen["boom"]["isError"] and text(seen["boom"]).endswith("it went wrong, as it should")
    (image,) = seen["picture"]["content"]
    assert (image["type"], image["mimeType"], base64.b64decode(image["data"])) == ("image", "image/png", PIXEL)
    assert seen["shape"]["structuredContent"] == {"n": 2, "deep": [{"a": None}]} and text(seen["shape"]) == "two"
    assert "Unknown tool: 'pictur'. Did you mean 'picture'" in seen["unknown"]
    assert text(seen["counted"]) == "counted"
    assert seen["progress"] == [[float(k), 3.0, f"step {k}"] for k in (1, 2, 3)]
    assert seen["many"] == [str(k) for k in range(20)]
    assert "woken" in text(seen["after"])  # the tool itself was cancelled
    assert counted(running, "aworld_host_calls_total", end="cancelled") == cancelled + 1
    assert refused in seen["refused"]
    return seen


class Inspector:
    """``npx @modelcontextprotocol/inspector --cli``: one process, and one session, for each request."""

    def __init__(self, url, token, home):
        self.url, self.token, self.home = url, token, home

    def __call__(self, *options, token=None):
        script = NPM / "@modelcontextprotocol/inspector/clients/launcher/build/index.js"
        header = f"Authorization: Bearer {token or self.token}"
        ended = run(
            [node(), script, "--cli", self.url, "--transport", "http", "--header", header]
            + ["--stored-auth-only", "--format", "json", *options],
            HOME=str(self.home),
        )
        said, notes = {}, []
        for line in filter(None, (ended.stdout + ended.stderr).splitlines()):
            if line.startswith("{"):
                said |= json.loads(line)  # {"result": ...}, {"error": ...}
            else:
                notes.append(line)
        assert said, ended
        return ended.returncode, said | ({"notes": notes} if notes else {})

    def call(self, tool, *options):
        return self("--method", "tools/call", "--tool-name", tool, *options)


def test_the_inspector(running, tmp_path):
    node()  # skips where there is none
    inspect = Inspector(running.url, running.token, tmp_path)
    for era in ("legacy", "auto"):  # `auto` tries the protocol without sessions first
        status, said = inspect("--method", "tools/list", "--protocol-era", era)
        assert status == 0 and len(said["result"]["tools"]) == TOOLS
    status, said = inspect.call("keep", "--tool-arg", "key=k", "--tool-arg", "value=ü")
    assert status == 0 and text(said["result"]) == "ü"
    status, said = inspect.call("boom")
    assert status == 5 and said["error"]["code"] == "tool_is_error" and said["result"]["isError"]
    assert text(said["result"]).endswith("it went wrong, as it should")
    status, said = inspect.call("picture")
    assert status == 0 and base64.b64decode(said["result"]["content"][0]["data"]) == PIXEL
    status, said = inspect.call("shape")
    assert status == 0 and said["result"]["structuredContent"] == {"n": 2, "deep": [{"a": None}]}
    status, said = inspect.call("count", "--tool-arg", "to=3")
    assert status == 0 and text(said["result"]) == "counted"
    status, said = inspect("--method", "tools/list", "--protocol-era", "modern")
    assert status == 1 and said["error"]["message"] == "this host has sessions: begin with initialize"
    status, said = inspect("--method", "tools/list", token="no.such.token")
    assert status == 3 and said["error"]["code"] == "auth_required"
    assert "the token is not a JSON Web Token" in said["error"]["message"]


def test_the_inspector_calls_as_fast_as_it_can(running, tmp_path):
    node()
    inspect = Inspector(running.url, running.token, tmp_path)
    load = ["--load", "--load-concurrency", "16", "--load-requests", "300"]
    status, said = inspect.call("keep", "--tool-arg", "key=k", "--tool-arg", "value=v", *load)
    assert status == 0 and (said["result"]["ok"], said["result"]["errors"]) == (300, 0)


def test_servers_in_processes_of_their_own(tmp_path):
    """Clients and servers of others, with nothing of ours between them but the host."""
    script = {"command": sys.executable, "args": [host_tools.__file__], "env": {"PYTHONPATH": str(REPOSITORY)}}
    node()
    with foreign_host({"mcpServers": {"shows": script, "everything": EVERYTHING}}, tmp_path, "both") as running:
        seen = observed(running, "mcp 2")
        names = [tool["name"] for tool in seen["tools"]]
        assert len(names) == len(set(names)) >= TOOLS + 12 and "get-structured-content" in names
        inspect = Inspector(running.url, running.token, tmp_path)
        status, said = inspect.call("get-structured-content", "--tool-arg", "location=Chicago")
        assert status == 0 and set(said["result"]["structuredContent"]) == {"temperature", "conditions", "humidity"}
        status, said = inspect("--method", "tools/list", "--header", "MCP_SERVERS: everything")
        assert status == 0 and len(said["result"]["tools"]) == len(names) - TOOLS


def test_the_inspector_finds_nothing_wrong_with_gaia(tmp_path):
    """``--strict`` looks for parts of tools' schemas that some clients or models cannot take."""
    node()
    with host_process("gaia", "--port", "0", "--drain", "1", log=tmp_path / "log") as running:
        inspect = Inspector(running.url, running.token, tmp_path)
        status, said = inspect("--method", "tools/list", "--strict")
        assert (status, said.keys()) == (0, {"result"}), said
        assert {"search", "read_table", "calculate"} <= {tool["name"] for tool in said["result"]["tools"]}
        status, said = inspect.call("calculate", "--tool-arg", "expression=6*7")
        assert status == 0 and text(said["result"]) == "42"


def odd(context):
    server = new_server("odd")

    @server.tool()
    def take(anything: Any) -> str:
        """Take anything."""
        return repr(anything)

    return server


def test_the_inspector_would_find_something(tmp_path):
    node()
    with host_here({"odd": {"mcpServers": {"odd": {"python": odd}}}}) as running:
        _, said = Inspector(running.url, running.token, tmp_path)("--method", "tools/list", "--strict")
        assert "accepts any value" in str(said.get("notes")), said


def test_a_client_that_leaves_its_session_behind(tmp_path):
    """The inspector ends no session; its slot is free again when it was absent for a while."""
    node()
    with host_here({"shows": SHOWS}, foreign_absence_s=1.0) as running:
        status, said = Inspector(running.url, running.token, tmp_path)("--method", "tools/list")
        assert status == 0, said
        end = time.monotonic() + SOON_S
        while counted(running, "aworld_host_sessions") and time.monotonic() < end:
            time.sleep(0.05)
        assert counted(running, "aworld_host_sessions_closed_total", why="absent") == 1


def test_the_page_names_the_versions():
    page = (REPOSITORY / "docs/deploy.md").read_text()
    pinned = json.loads((SCRIPTS / "package.json").read_text())["dependencies"]
    named = [f"`{name}` {pinned[f'@modelcontextprotocol/{name}']}" for name in ("inspector", "conformance")]
    (fastmcp,) = re.findall(r"^fastmcp==(.+)$", (SCRIPTS / "requirements-fastmcp.txt").read_text(), re.M)
    for words in (*named, f"`fastmcp` {fastmcp}"):
        assert words in page, words
