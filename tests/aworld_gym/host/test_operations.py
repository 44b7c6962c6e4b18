"""Hosts as processes: the command line, monitors, logs, an end that loses nothing, and several hosts at once."""

import asyncio
import json
import signal
import socket

import gymnasium as gym
import httpx2
import pytest
import waits
from cli_process import only_json, process
from host_restarts import in_use, play, started_again
from hosts import BASIC, SECRET, host_here, host_process, quick_config, session_at

import aworld_gym  # noqa: F401
from aworld_gym import cli_host
from aworld_gym.errors import ConfigError, InfraError
from aworld_gym.host import HostSettings, credentials, mint
from aworld_gym.host.server import Host
from aworld_gym.toolchain import loop

TWO = {"mcpServers": {"left": {"python": "basic:make"}, "right": {"python": "host_tools:make", "kwargs": {"tag": "r"}}}}


def get(running, path, **headers):
    return httpx2.get(running.address + path, headers=headers, timeout=10)


def test_a_host_in_operation(tmp_path):
    log = tmp_path / "log"
    with host_process(
        "--mcp-config", str(quick_config(tmp_path)), "--port", "0", "--max-sessions", "3", log=log
    ) as one:
        assert get(one, "/health").json()["toolchains"] == ["mcp"]
        assert get(one, "/ready").json() == {"status": "ready", "sessions": 0, "max_sessions": 3}

        async def play():
            async with session_at(one) as session:
                await session.call("1", "add", {"a": 1})
                await session.call("2", "fail", {"text": "no"})
                return get(one, "/metrics").text

        text = loop.run(play())
        for line in (
            'aworld_host_sessions{toolchain="mcp"} 1.0',
            'aworld_host_calls_total{end="ok",toolchain="mcp"} 1.0',
            'aworld_host_calls_total{end="tool_error",toolchain="mcp"} 1.0',
            'aworld_host_call_seconds_count{toolchain="mcp"} 2.0',
            "aworld_host_session_slots 3.0",
            "aworld_host_queue 0.0",
            'aworld_host_http_requests_total{method="GET",path="/health",status="200"} 1.0',
        ):
            assert line in text.splitlines(), line
        assert "process_resident_memory_bytes" in text
        given = get(one, "/nothing", **{"x-request-id": "from-the-client.7", "authorization": "Bearer sesame-open-now"})
        made = get(one, "/nothing?key=in-the-query", **{"x-request-id": "no good\tone"})
        assert given.headers["x-request-id"] == "from-the-client.7" and len(made.headers["x-request-id"]) == 16
        one.process.send_signal(signal.SIGINT)
        assert one.process.wait(20) == 0
    lines = [json.loads(line) for line in one.logged().splitlines()]
    assert all({"time", "level", "logger", "message"} <= set(line) for line in lines)
    asked = [line for line in lines if line.get("request_id") == "from-the-client.7"]
    assert [(line["method"], line["path"], line["status"]) for line in asked] == [("GET", "other", 401)]
    assert {line["why"] for line in lines if line["message"] == "session closed"} == {"client"}
    for secret in (one.token, SECRET, "sesame", "in-the-query"):
        assert secret not in one.logged()


def test_sigterm_loses_no_call_and_takes_no_further_session(tmp_path):
    config = str(quick_config(tmp_path))
    with host_process("--mcp-config", config, "--port", "0", log=tmp_path / "log") as one:

        async def play():
            async with session_at(one) as session:
                call = asyncio.create_task(session.call("1", "sleep", {"seconds": 1.5}))
                await asyncio.sleep(0.3)
                one.process.terminate()
                async with asyncio.timeout(20):
                    while get(one, "/ready").status_code != 503:
                        await asyncio.sleep(0.02)
                with pytest.raises(InfraError, match="about to stop"):
                    async with session_at(one, open_timeout_s=0.5):
                        pass
                assert (await call).text == "slept"
                assert (await session.call("2", "add", {"a": 1})).text == "2"  # its episode goes on
                assert one.process.poll() is None

        loop.run(play(), timeout=60)
        assert one.process.wait(10) == 0


def test_a_host_that_drains_for_too_long_is_ended_by_a_second_signal(tmp_path):
    config = str(quick_config(tmp_path))
    with host_process("--mcp-config", config, "--port", "0", log=tmp_path / "log") as one:

        async def play():
            async with session_at(one) as session:
                call = asyncio.create_task(session.call("1", "sleep", {"seconds": 60.0}))
                await asyncio.sleep(0.3)
                one.process.terminate()
                await asyncio.sleep(0.5)
                one.process.terminate()
                with pytest.raises(InfraError) as caught:
                    await call
                assert caught.value.kind in ("session_lost", "host_unreachable")

        loop.run(play(), timeout=60)
        assert one.process.wait(10) == 0


@pytest.mark.slow
def test_a_rolling_restart_costs_no_episode(tmp_path):
    config, logs = str(quick_config(tmp_path)), [tmp_path / "one", tmp_path / "two"]
    with (
        host_process("--mcp-config", config, "--port", "0", log=logs[0]) as one,
        host_process("--mcp-config", config, "--port", "0", log=logs[1]) as two,
    ):

        def restart():
            in_use(one, 2)
            one.process.terminate()
            assert one.process.wait(20) == 0
            one.made["again"] = started_again(config, one.port, logs[0])
            two.process.terminate()

        try:
            episodes = play([one.url, two.url], restart, episodes=24, concurrency=6)
        finally:
            if "again" in one.made:
                waits.end(one.made["again"])
        assert [(e.score, e.attempt) for e in episodes] == [(1.0, 0)] * 24
        opened = [text.read_text().count('"session opened"') for text in logs]
        assert sum(opened) >= 24 and all(opened)


def test_what_is_asked_for_by_header_is_what_is_shown_and_can_be_called():
    async def listed(running, **more):
        async with session_at(running, entry=running.entry(**more)) as session:
            names = [tool["function"]["name"] for tool in session.tools]
            return names, len(running.host.sessions._all), session.check("keep", {"key": "a", "value": "b"})

    async def test(running):
        names, _, _ = await listed(running, toolchain="two")
        assert {"left__write", "right__write", "echo", "keep"} <= set(names)
        names, _, problem = await listed(running, toolchain="two", servers=["left"])
        assert "write" in names and "keep" not in names and problem[0] == "call_unknown_tool"
        names, _, _ = await listed(running, toolchain="two", servers=["left", "right"])
        assert {"left__write", "keep"} <= set(names)
        for more, words in (
            ({}, "several toolchains are served: name one of one, two"),
            ({"toolchain": "tow"}, "Did you mean 'two'"),
            ({"toolchain": "two", "servers": ["lift"]}, "Did you mean 'left'"),
        ):
            with pytest.raises(InfraError, match=words):
                await listed(running, **more)

    async def in_both_forms(running):
        """A client that changes its mind between requests, with each spelling of the headers."""
        auth = {"authorization": f"Bearer {running.token}", "accept": "application/json, text/event-stream"}
        params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}}
        async with httpx2.AsyncClient(base_url=running.address, headers=auth) as client:
            for code, servers in (("ENV_CODE", "MCP_SERVERS"), ("Env-Code", "Mcp-Servers")):
                opening = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
                reply = await client.post("/mcp", json=opening, headers={code: "two"})
                number = {"mcp-session-id": reply.headers["mcp-session-id"]}

                async def ask(method, params, of, number=number, servers=servers):
                    message = {"jsonrpc": "2.0", "id": 2, "method": method, "params": params}
                    return (await client.post("/mcp", json=message, headers=number | {servers: of})).json()

                names = [tool["name"] for tool in (await ask("tools/list", {}, "left"))["result"]["tools"]]
                assert "left__write" in names and "right__write" not in names and "keep" not in names
                call = {"name": "keep", "arguments": {"key": "a", "value": "b"}}
                assert "Unknown tool" in (await ask("tools/call", call, "left"))["error"]["message"]
                assert (await ask("tools/call", call, "right , left"))["result"]["content"][0]["text"] == "rb"
                assert "no server" in (await ask("tools/list", {}, "nope"))["error"]["message"]
                await client.delete("/mcp", headers=number)

    with host_here({"one": BASIC, "two": TWO}) as running:
        loop.run(test(running), timeout=60)
        loop.run(in_both_forms(running), timeout=60)
        scoped = running.entry(token=mint(SECRET, ["one"], 60))
        running.token = scoped["token"]
        assert loop.run(listed(running, toolchain="one"))[0][0] == "echo"
        with pytest.raises(InfraError, match="not for this toolchain"):
            loop.run(listed(running, toolchain="two"))


@pytest.mark.parametrize(
    ("envs", "files", "words"),
    [
        ([], [], "say what to serve"),
        (["giaa"], [], "Did you mean 'gaia'"),
        (["No/Such-v0"], [], "Namespace No not found"),
        ([], ["no-such.json"], "cannot read"),
        ([], ["mcp.json", "mcp.json"], "two toolchains are called"),
        ([], ["a b=mcp.json"], "letters, digits"),
    ],
)
def test_what_cannot_be_served_is_said(tmp_path, monkeypatch, envs, files, words):
    monkeypatch.chdir(quick_config(tmp_path).parent)
    with pytest.raises(ConfigError, match=words):
        cli_host._served(envs, files, None)


def test_a_host_does_not_serve_what_is_on_another(monkeypatch):
    monkeypatch.setenv("MCP_SERVER_URL", "http://127.0.0.1:1/mcp")
    monkeypatch.setenv("MCP_SERVER_TOKEN", "x")
    served = cli_host._served(["gaia"], [], None)
    with pytest.raises(ConfigError, match="is MCP_SERVER_URL set"):
        Host(served, HostSettings(), [SECRET])


def test_durations():
    assert [cli_host.seconds(text) for text in ("90", "45m", "12h", "0.5d")] == [90, 2700, 43200, 43200]
    for text in ("never", "1y", "-1h", "0s", ""):
        with pytest.raises(ConfigError, match="such as 12h"):
            cli_host.seconds(text)


def test_what_cannot_start_is_said_in_one_line(tmp_path):
    (tmp_path / "broken.json").write_text(json.dumps({"mcpServers": {"x": {"command": "no-such-program"}}}))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        runs = {
            "Address already in use": process("serve", "--mcp-config", "broken.json", "--port", port, cwd=tmp_path),
            "no-such-program": process("serve", "--mcp-config", "broken.json", "--port", "0", cwd=tmp_path),
        }
        for words, run in runs.items():
            out, err = run.communicate(timeout=60)
            assert run.returncode == 2 and words in err
            assert words in only_json(out)["error"]["message"]


def test_a_token_of_the_command_line(tmp_path, monkeypatch):
    monkeypatch.setenv("AWORLD_HOST_SECRET", SECRET)
    out, err = process("token", "--scope", "gaia", "--scope", "b", "--ttl", "2h", "--subject", "me").communicate(
        timeout=60
    )
    assert err == ""
    claims = credentials.verify([SECRET], f"Bearer {out.strip()}")
    assert (claims.subject, claims.scopes) == ("me", {"gaia", "b"})
    monkeypatch.delenv("AWORLD_HOST_SECRET")
    run = process("token", "--scope", "gaia")
    out, err = run.communicate(timeout=60)
    assert (run.returncode, out) == (2, "") and "AWORLD_HOST_SECRET is not set" in err


def test_an_env_with_servers_of_a_host_asks_for_those(monkeypatch):
    monkeypatch.setenv("MCP_SERVER_URL", "http://127.0.0.1:1/mcp,http://127.0.0.1:2/mcp")
    monkeypatch.setenv("MCP_SERVER_TOKEN", "x")
    env = gym.make("AWorld/Gaia-v0", servers=["wikipedia"], distractor_tools=2)
    here, beside = env.unwrapped.toolchain.config.servers
    env.close()
    assert (here.kind, here.url) == ("host", "http://127.0.0.1:1/mcp http://127.0.0.1:2/mcp")
    assert (here.headers["Mcp-Servers"], here.headers["Env-Code"]) == ("gaia,wikipedia", "gaia")
    assert beside.kind == "python"
