"""What passes through a host, with clients that nobody here wrote and with our own."""

import asyncio
import base64
import json
import os
import sys
from pathlib import Path

import httpx2
import pytest
from host_tools import PIXEL
from hosts import host_here, mint, session_at
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.types import ToolListChangedNotification
from tool_servers import on_loop

from aworld_gym.errors import InfraError
from aworld_gym.toolchain import Toolchain, loop
from aworld_gym.types import Limits

SHOWS = {"mcpServers": {"shows": {"python": "host_tools:make"}}}
PROCESS = {
    "mcpServers": {
        "shows": {
            "command": sys.executable,
            "args": [str(Path(__file__).parents[2] / "lib/host_tools.py")],
            "env": {"PYTHONPATH": str(Path(__file__).parents[3])},
        }
    }
}


@pytest.fixture(scope="module")
def running():
    with host_here({"shows": SHOWS}) as running:
        yield running


@pytest.fixture(scope="module")
def processes():
    with host_here({"shows": PROCESS}) as running:
        yield running


def raw(running, token=None, **headers):
    """An HTTP client of the host."""
    auth = {"authorization": f"Bearer {token or running.token}", "accept": "application/json, text/event-stream"}
    return httpx2.AsyncClient(base_url=running.address, headers=auth | headers, timeout=20)


def sdk(running, http, **options):
    """The SDK's own client."""
    return Client(streamable_http_client(running.url, http_client=http), **options)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@on_loop
async def test_results_come_back_as_they_are(running, mode):
    async with raw(running) as http, sdk(running, http, mode=mode) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert names[:2] == ["keep", "seen"] and len(names) == len(set(names)) == 14
        failed = await client.call_tool("boom", {})
        assert failed.is_error and "it went wrong" in failed.content[0].text
        (image,) = (await client.call_tool("picture", {})).content
        assert (image.mime_type, base64.b64decode(image.data)) == ("image/png", PIXEL)
        shaped = await client.call_tool("shape", {})
        assert shaped.structured_content == {"n": 2, "deep": [{"a": None}]} and shaped.content[0].text == "two"
        assert shaped.meta["of"] == "us"
        with pytest.raises(MCPError, match="Unknown tool: 'pictur'. Did you mean 'picture'"):
            await client.call_tool("pictur", {})


@on_loop
async def test_progress_arrives_as_it_happens(running):
    told = []

    async def note(progress, total, message):
        told.append((progress, total, message))

    async with raw(running) as http, sdk(running, http) as client:
        result = await client.call_tool("count", {"to": 3}, progress_callback=note)
        assert result.content[0].text == "counted"
        assert told == [(1.0, 3.0, "step 1"), (2.0, 3.0, "step 2"), (3.0, 3.0, "step 3")]


@on_loop
async def test_a_call_that_is_given_up_is_given_up_behind_the_host_too(running):
    async with session_at(running, call_timeout_s=0.3) as session:
        result = await session.call("1", "nap", {"seconds": 60.0})
        assert result.error == "tool_timeout"
        for _ in range(50):
            seen = await session.call("2", "seen", {})
            if "woken" in seen.text:
                break
            await asyncio.sleep(0.05)
        assert "'woken'" in seen.text


@on_loop
async def test_tools_are_listed_as_they_are_now(running):
    async with raw(running) as http, sdk(running, http) as client:
        before = [tool.name for tool in (await client.list_tools()).tools]
        await client.call_tool("grow", {})
        after = [tool.name for tool in (await client.list_tools(cache_mode="bypass")).tools]
        assert after == [*before, "grown"]
        assert (await client.call_tool("grown", {})).content[0].text == "grown"


@pytest.mark.parametrize("served", ["shows", "process"])
def test_a_client_is_told_that_the_tools_changed(running, processes, served):
    host = running if served == "shows" else processes
    told = asyncio.Event()

    async def note(message):
        if isinstance(message, ToolListChangedNotification):
            told.set()

    async def foreign():
        async with raw(host) as http, sdk(host, http, mode="legacy", message_handler=note) as client:
            assert client.session.server_capabilities.tools.list_changed is True
            await client.call_tool("grow", {})
            async with asyncio.timeout(10):
                await told.wait()
            assert "grown" in [tool.name for tool in (await client.list_tools(cache_mode="bypass")).tools]

    loop.run(foreign(), timeout=60)


@pytest.mark.parametrize("client", ["sdk", "lean"])
def test_an_episode_keeps_the_tools_it_began_with(running, client, caplog):
    async def ours():
        async with session_at(running, entry=running.entry(http_client=client)) as session:
            before = session.tools
            await session.call("1", "grow", {})
            connection = session._grant.leases["it"].connection
            async with asyncio.timeout(10):
                while not connection.stale:
                    await asyncio.sleep(0.02)
            assert session.tools is before and session.check("grown", {})[0] == "call_unknown_tool"
            assert (await session.call("2", "keep", {"key": "a", "value": "b"})).text == "b"

    loop.run(ours(), timeout=60)
    assert "says that its tools changed" in caplog.text


@on_loop
async def test_a_shared_session_over_http_is_told_too(running):
    """With the lean client, a server that is not known to be a host."""
    auth = {"Authorization": f"Bearer {running.token}"}
    entry = {"type": "streamable-http", "url": running.url, "headers": auth, "http_client": "lean"}
    toolchain = Toolchain({"mcpServers": {"it": entry}}, Limits(call_timeout_s=10.0))
    try:
        one = await toolchain.open()
        await one.call("1", "grow", {})
        async with asyncio.timeout(10):
            while not one._grant.leases["it"].connection.stale:
                await asyncio.sleep(0.02)
        other = await toolchain.open()
        assert one.check("grown", {})[0] == "call_unknown_tool" and other.check("grown", {}) is None
        assert (await other.call("2", "grown", {})).text == "grown"
        await one.aclose()
        await other.aclose()
    finally:
        await toolchain.aclose()


@on_loop
async def test_two_sessions_see_nothing_of_each_other(running):
    async with session_at(running) as one, session_at(running) as other:
        await apart(one, other)
    async with session_at(running) as third:
        assert (await third.call("1", "seen", {})).text == "[] [] []"


def test_servers_run_in_processes_of_their_own(processes):
    async def play():
        running = processes
        async with session_at(running) as one, session_at(running) as other:
            await apart(one, other)
            assert (await one.call("5", "pid", {})).text != (await other.call("5", "pid", {})).text
            (other.workspace / "given").write_text("hello")
            await other.deliver()
            assert (await other.call("6", "read", {"path": "given"})).text == "hello"
            with pytest.raises(InfraError, match="exited with 3") as caught:
                await one.call("7", "die", {})
            assert caught.value.kind == "server_died"
            assert (await other.call("8", "keep", {"key": "k", "value": "v"})).text == "v"

    loop.run(play(), timeout=60)


async def apart(one, other):
    """Whatever one session does, the other does not see."""
    await one.call("1", "keep", {"key": "mine", "value": "x"})
    await one.call("2", "write", {"path": "notes.txt", "text": "mine"})
    mine, theirs = await one.call("3", "seen", {}), await other.call("3", "seen", {})
    assert "mine" in mine.text and "notes.txt" in mine.text
    assert theirs.text == "[] [] []"
    refused = await other.call("4", "read", {"path": "notes.txt"})
    assert refused.error == "tool_error"


@on_loop
async def test_files_and_facts_of_the_task_arrive(running):
    async with session_at(running, public={"corpus": {"seed": 3}}) as session:
        (session.workspace / "deep/er").mkdir(parents=True)
        (session.workspace / "deep/er/ä b%20.txt").write_text("hello")
        (session.workspace / "empty").write_bytes(b"")
        await session.deliver()
        assert (await session.call("1", "read", {"path": "deep/er/ä b%20.txt"})).text == "hello"
        assert (await session.call("2", "read", {"path": "empty"})).text in ("", "(no output)")
        assert (await session.call("3", "facts", {})).text == "[('corpus', {'seed': 3})]"
        async with raw(running) as http:
            number = session._grant.leases["it"].connection._link._client.session_id
            found = await http.get(
                "/workspace/deep/er/ä b%20.txt".replace("%", "%25"), headers={"mcp-session-id": number}
            )
            assert (found.status_code, found.text) == (200, "hello")


@on_loop
async def test_no_path_leads_out_of_the_workspace(running, tmp_path):
    (tmp_path / "outside").write_text("secret")
    async with session_at(running) as session, raw(running) as http:
        number = {"mcp-session-id": session._grant.leases["it"].connection._link._client.session_id}
        await session.call("1", "link", {"path": "door", "target": str(tmp_path)})
        await session.call("2", "link", {"path": "file", "target": str(tmp_path / "outside")})
        for path in (
            "door/outside",
            "file",
            "door/new",
            "..%2f..%2fx",
            "%2e%2e/x",
            "/x",
            "a//b",
            "",
            "a%00b",
            "x" * 300,
        ):
            put = await http.put(f"/workspace/{path}", content=b"overwritten", headers=number)
            got = await http.get(f"/workspace/{path}", headers=number)
            assert put.status_code in (400, 404, 405, 409), (path, put.status_code)
            assert got.status_code in (400, 404, 405) and "secret" not in got.text, path
    assert (tmp_path / "outside").read_text() == "secret" and not (tmp_path / "new").exists()


@on_loop
async def test_a_pipe_in_the_workspace_holds_nobody_up(running):
    async with session_at(running) as session, raw(running) as http:
        lease = session._grant.leases["it"]
        number = {"mcp-session-id": lease.connection._link._client.session_id}
        await session.call("1", "write", {"path": "mark", "text": "here"})
        (mine,) = [s for s in running.host.sessions._all if (s.tools.workspace / "mark").is_file()]
        os.mkfifo(mine.tools.workspace / "pipe")  # as a program that a model wrote could
        for listens in (False, True):
            reader = os.open(mine.tools.workspace / "pipe", os.O_RDONLY | os.O_NONBLOCK) if listens else None
            tries = [http.put("/workspace/pipe", content=b"x", headers=number, timeout=5) for _ in range(6)]
            assert {reply.status_code for reply in await asyncio.gather(*tries)} == {409}
            if reader is not None:
                os.close(reader)
        assert (await http.get("/workspace/pipe", headers=number)).status_code == 404
        assert (await http.put("/workspace/other", content=b"x", headers=number)).status_code == 204


@on_loop
async def test_odd_messages_get_an_answer(running):
    opening = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}}
    async with raw(running) as http:
        for body, status in (
            (b"{", 400),
            (b"[]", 400),
            (b'"x"', 400),
            (b"\xff\xfe", 400),
            (b"[" * 100_000, 400),
            (json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).encode(), 400),
            (json.dumps({"jsonrpc": "2.0", "method": "initialize", "params": opening}).encode(), 400),
            (json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": 3}).encode(), 400),
        ):
            reply = await http.post("/mcp", content=body, headers={"content-type": "application/json"})
            assert reply.status_code == status and reply.json()["error"]["message"], body[:40]
        assert (await http.get("/mcp")).status_code == 400
        assert (await http.put("/mcp")).status_code == 405
        assert (await http.delete("/mcp", headers={"mcp-session-id": "unknown"})).status_code == 404
        reply = await http.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": opening})
        number = {"mcp-session-id": reply.headers["mcp-session-id"]}

        async def ask(method, params=None, number_=2):
            message = {"jsonrpc": "2.0", "id": number_, "method": method, **({"params": params} if params else {})}
            return (await http.post("/mcp", json=message, headers=number)).json()

        assert (await ask("ping"))["result"] == {}
        assert (await ask("no/such"))["error"]["code"] == -32601
        assert "params" in (await ask("tools/call"))["error"]["message"]
        assert "object" in (await ask("tools/call", {"name": "seen", "arguments": [1]}))["error"]["message"]
        assert "Unknown tool" in (await ask("tools/call", {"name": 7}))["error"]["message"]
        deep = json.loads("[" * 300 + "]" * 300)
        for value, words in ((deep, "nested"), (float("nan"), "not JSON compliant")):  # and the session goes on
            content = json.dumps(
                {"jsonrpc": "2.0", "id": 2, "method": "tools/call"}
                | {"params": {"name": "keep", "arguments": {"key": "a", "value": value}}}
            )
            reply = await http.post("/mcp", content=content, headers=number)
            assert reply.json()["error"]["code"] == -32602 and words in reply.json()["error"]["message"], reply.text
            assert (await ask("tools/call", {"name": "seen"}))["result"]["content"][0]["text"] == "[] [] []"
        for odd in ([1], {"a": 1}, None):
            told = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": odd}}
            assert (await http.post("/mcp", json=told, headers=number)).status_code < 500
        assert (await http.delete("/mcp", headers=number)).status_code == 200
        assert (await http.post("/mcp", json={}, headers=number)).status_code == 404


@on_loop
async def test_the_session_of_one_subject_is_nobody_elses(running):
    theirs = mint("a secret of the tests that is long enough to sign with", ["*"], 60, "somebody else")
    async with session_at(running) as session, raw(running, token=theirs) as http:
        number = {"mcp-session-id": session._grant.leases["it"].connection._link._client.session_id}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        assert (await http.post("/mcp", json=message, headers=number)).status_code == 404
        assert (await http.put("/workspace/x", content=b"x", headers=number)).status_code == 404
        assert (await http.delete("/mcp", headers=number)).status_code == 404
        assert (await session.call("1", "seen", {})).text == "[] [] []"


def test_nothing_is_left_of_the_sessions(running):
    async def look():
        for _ in range(100):
            if not len(running.host.sessions):
                break
            await asyncio.sleep(0.05)
        return len(running.host.sessions), running.host.sessions._slots._value

    assert loop.run(look()) == (0, 64)
