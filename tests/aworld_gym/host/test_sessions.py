"""Slots, the queue for them, and how sessions end: by their client, without it, and with the host."""

import asyncio
import contextlib
import os
import random
import subprocess
import sys
import time
from types import SimpleNamespace

import httpx2
import psutil
import pytest
import waits
from hosts import host_here, host_process, quick_config, session_at
from tool_servers import on_loop

from aworld_gym.errors import InfraError
from aworld_gym.host import HostSettings, exchange
from aworld_gym.host import sessions as host_sessions
from aworld_gym.host.metrics import HostMetrics
from aworld_gym.host.sessions import TICK_S, Sessions
from aworld_gym.toolchain import hosted, load_config, loop

ID = "mcp-session-id"
OPENING = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}},
}


def raw(running):
    """An HTTP client that does what it is told and no more."""
    headers = {"authorization": f"Bearer {running.token}", "accept": "application/json, text/event-stream"}
    return httpx2.AsyncClient(base_url=running.address, headers=headers, timeout=20)


async def opened(client):
    """A session of a client that holds no stream; its headers."""
    reply = await client.post("/mcp", json=OPENING)
    assert reply.status_code == 200, reply.text
    headers = {"mcp-session-id": reply.headers["mcp-session-id"]}
    ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert (await client.post("/mcp", json=ready, headers=headers)).status_code == 202
    return headers


async def ping(client, headers):
    return (await client.post("/mcp", json={"jsonrpc": "2.0", "id": 2, "method": "ping"}, headers=headers)).status_code


async def until(condition, seconds=10.0):
    """Wait for something; the seconds that it took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds, "it did not happen in time"
        await asyncio.sleep(0.02)
    return time.monotonic() - began


def playing(test, **settings):
    """Run ``test(running)`` against a host with these settings."""
    with host_here(**settings) as running:
        return loop.run(test(running), timeout=60)


def number(running, name, **labels):
    return running.host.metrics.registry.get_sample_value(f"aworld_host_{name}", labels) or 0.0


def test_who_comes_when_all_is_taken_waits_and_then_is_sent_away():
    async def test(running):
        async with raw(running) as client:
            one, _ = await opened(client), await opened(client)
            third = asyncio.create_task(opened(client))
            await until(lambda: number(running, "queue") == 1)
            fourth = await client.post("/mcp", json=OPENING)
            assert (fourth.status_code, fourth.headers["retry-after"]) == (503, "2")
            assert "the queue is full" in fourth.json()["error"]["message"]
            assert (await client.delete("/mcp", headers=one)).status_code == 200
            assert await ping(client, await third) == 200  # it has the slot that became free
            fifth = await client.post("/mcp", json=OPENING)
            assert fifth.status_code == 503 and "none became free" in fifth.json()["error"]["message"]
            assert number(running, "sessions", toolchain="basic") == 2
            assert [number(running, "refused_total", why=w) for w in ("queue_full", "queue_timeout")] == [1, 1]

    playing(test, max_sessions=2, queue=1, queue_wait_s=0.7)


def test_our_client_comes_again_until_there_is_room():
    async def test(running):
        async with session_at(running) as first:
            assert (await first.call("1", "add", {"a": 1})).text == "2"
            second = asyncio.create_task(later(running))
            await until(lambda: number(running, "refused_total", why="queue_full") >= 1)
            assert not second.done()
        assert await second == "3"
        with pytest.raises(InfraError, match="sessions are taken") as caught:
            async with session_at(running), session_at(running, open_timeout_s=1.0):
                pass
        assert caught.value.kind == "host_refused" and "tried for 1 s" in caught.value.__notes__

    async def later(running):
        async with session_at(running, open_timeout_s=30.0) as session:
            return (await session.call("1", "add", {"a": 2})).text

    playing(test, max_sessions=1, queue=0)


def test_who_leaves_the_queue_leaves_no_trace():
    async def test(running):
        async with raw(running) as client:
            one = await opened(client)
            for _ in range(3):
                waiting = asyncio.create_task(client.post("/mcp", json=OPENING))
                await until(lambda: number(running, "queue") == 1)
                waiting.cancel()
                await until(lambda: number(running, "queue") == 0)
            await client.delete("/mcp", headers=one)
            await until(lambda: not len(running.host.sessions))
            assert await ping(client, await opened(client)) == 200

    playing(test, max_sessions=1, queue=1)


def test_sessions_end_when_they_are_not_used():
    async def test(running):
        async with raw(running) as client:
            silent = await client.post("/mcp", json=OPENING)  # and nothing more
            idle, busy = await opened(client), await opened(client)
            for _ in range(12):
                await asyncio.sleep(0.2)
                assert await ping(client, busy) == 200
            assert await ping(client, idle) == 404
            assert await ping(client, {"mcp-session-id": silent.headers["mcp-session-id"]}) == 404
            assert number(running, "sessions_closed_total", toolchain="basic", why="idle") == 1
            assert number(running, "sessions_closed_total", toolchain="basic", why="handshake") == 1

    playing(test, idle_s=1.0, handshake_s=0.5)


def test_every_session_ends_at_last():
    async def test(running):
        async with session_at(running) as session:
            with pytest.raises(InfraError, match="ended during the call") as caught:
                await session.call("1", "sleep", {"seconds": 30.0})
            assert caught.value.kind == "session_lost"
            with pytest.raises(InfraError, match="What it held for this episode is lost"):
                await session.call("2", "add", {"a": 2})
        async with session_at(running) as session:
            (session.workspace / "given").write_text("hello")
            await session.deliver()
            await until(lambda: not len(running.host.sessions))
            # nothing was done in it, so another takes its place, with the task's files
            assert (await session.call("3", "add", {"a": 2})).text == "3"
            (again,) = running.host.sessions._all
            assert (again.tools.workspace / "given").read_text() == "hello"

    playing(test, max_age_s=1.0)


CLIENT = """
import asyncio, sys
sys.path[:0] = {path!r}
from hosts import Running, session_at
from aworld_gym.toolchain import hosted, load_config, loop
async def stay():
    async with session_at(Running({url!r}, {token!r})) as session:
        print((await session.call("1", "add", {{"a": 1}})).text, flush=True)
        await session.call("2", "sleep", {{"seconds": 100.0}})
loop.run(stay())
"""


def test_a_client_that_is_killed_frees_its_slot_within_seconds():
    def start(running):
        code = CLIENT.format(path=sys.path, url=running.url, token=running.token)
        client = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        assert waits.first_line(client) == "2\n"
        return client

    async def freed(running):
        took = await until(lambda: not len(running.host.sessions))
        assert number(running, "sessions_closed_total", toolchain="basic", why="absent") == 1
        return took

    with host_here(absence_s=1.0, max_sessions=1) as running:
        client = start(running)
        waits.kill(client)
        client.stdout.close()
        assert loop.run(freed(running)) < 4.0  # a call was under way


def test_other_clients_need_not_hold_a_stream():
    async def test(running):
        async with raw(running) as client:
            headers = await opened(client)
            async with client.stream("GET", "/mcp", headers=headers | {"accept": "text/event-stream"}) as reply:
                assert reply.status_code == 200
            await asyncio.sleep(1.5)
            assert await ping(client, headers) == 200

    playing(test, absence_s=0.2)


def test_a_client_that_sends_its_next_request_while_it_holds_a_stream_is_missed_too():
    async def test(running):
        async with raw(running) as client:
            headers = await opened(client)
        lines = ("host: 127.0.0.1", f"authorization: Bearer {running.token}", f"mcp-session-id: {headers[ID]}")
        lines = (*lines, "accept: application/json, text/event-stream", "", "")
        _, writer = await asyncio.open_connection("127.0.0.1", running.port)
        for path in ("/mcp", "/ready"):
            writer.write("\r\n".join((f"GET {path} HTTP/1.1", *lines)).encode())
        (session,) = running.host.sessions._all
        await until(lambda: session.streams)
        writer.close()
        await until(lambda: not len(running.host.sessions), 5)

    playing(test, foreign_absence_s=0.5)


@pytest.mark.parametrize("token", [None, "t"], ids=["silent", "with progress"])
def test_a_call_that_its_client_does_not_wait_for_holds_no_session(monkeypatch, token):
    monkeypatch.setattr(exchange, "PATIENCE_S", 0.3)
    meta = {} if token is None else {"_meta": {"progressToken": token}}
    call = {"name": "sleep", "arguments": {"seconds": 30}, **meta}
    call = {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": call}

    async def test(running):
        async with raw(running) as client:
            headers = await opened(client)
            async with client.stream("GET", "/mcp", headers=headers | {"accept": "text/event-stream"}):
                calling = asyncio.create_task(client.post("/mcp", json=call, headers=headers))
                await until(lambda: any(session.calls for session in running.host.sessions._all))
            await asyncio.sleep(1.5)
            assert len(running.host.sessions) == 1  # its stream broke, but it waits for the answer
            calling.cancel()
            await until(lambda: not len(running.host.sessions), 5)
        assert number(running, "sessions_closed_total", toolchain="basic", why="absent") == 1
        assert running.host.sessions._slots._value == 64

    playing(test, foreign_absence_s=0.5)


def test_sessions_that_are_dropped_leave_nothing_behind():
    async def test(running):
        process, open_before = await settled(running)
        async with raw(running) as client:
            for _ in range(4):
                await asyncio.gather(*(opened(client) for _ in range(50)))
                await until(lambda: not len(running.host.sessions), 20)
        assert running.host.sessions._slots._value == 64
        now = await settled(running)
        assert now[1] <= open_before + 2, "descriptors are left"
        assert now[0] < process + 30, "memory is left (MiB)"

    async def settled(running):
        import gc

        for _ in range(3):
            async with session_at(running) as session:
                await session.call("1", "add", {"a": 1})
        await until(lambda: not len(running.host.sessions))
        gc.collect()
        me = psutil.Process()
        return me.memory_info().rss / 2**20, me.num_fds()

    playing(test, idle_s=0.3)


def test_a_served_host_gives_back_the_memory_of_sessions_that_are_dropped(tmp_path):
    """A host of its own, whose collector of garbage hardly ever runs by itself, and nobody else calls."""

    async def crowd(running):
        async with raw(running) as client:
            await asyncio.gather(*(opened(client) for _ in range(80)))
            deadline = time.monotonic() + 30
            while (await client.get("/ready")).json()["sessions"]:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.1)
            await asyncio.sleep(3 * TICK_S)
        return psutil.Process(running.process.pid).memory_info().rss / 2**20

    args = ("--mcp-config", str(quick_config(tmp_path)), "--port", "0", "--max-sessions", "80", "--idle", "1")
    with host_process(*args, log=tmp_path / "log") as running:
        for _ in range(2):
            before = loop.run(crowd(running), timeout=60)
        for _ in range(5):
            after = loop.run(crowd(running), timeout=60)
    assert after < before + 6, "MiB: at least 33 KiB of each of 400 sessions are left"


class Collector:
    """Python's garbage collector, as far as a host uses it, on a clock of the test's."""

    def __init__(self, frozen, now):
        self.frozen, self.now, self.pass_s, self.did = frozen, now, 0.0, []

    def get_freeze_count(self):
        return self.frozen

    def collect(self):
        self.now += self.pass_s
        self.did.append("collect")

    def freeze(self):
        self.did.append("freeze")

    def unfreeze(self):
        self.did.append("unfreeze")

    def since(self, sessions, ended=0, live=0):
        """What it did when so many sessions have ended, and so many live."""
        sessions._ended += ended
        sessions._all = set(range(live))
        self.did = []
        sessions.collect()
        return self.did


@on_loop
async def test_what_outlives_all_sessions_is_looked_at_by_the_collector_once(monkeypatch):
    def begin(frozen):
        sessions = Sessions(HostSettings(), None, HostMetrics())
        found = Collector(frozen, now=1000.0)
        monkeypatch.setattr(host_sessions, "gc", found)
        clock = SimpleNamespace(monotonic=lambda: found.now, thread_time=lambda: found.now)
        monkeypatch.setattr(host_sessions, "time", clock)
        sessions._thorough_at = found.now
        return sessions, found

    sessions, found = begin(frozen=100)
    assert found.since(sessions) == [] and found.since(sessions, ended=15, live=3) == []
    assert found.since(sessions, ended=1, live=3) == ["collect"]  # it was short: nothing to gain
    assert found.since(sessions, ended=24, live=100) == []
    assert found.since(sessions, ended=1, live=100) == ["collect"]
    found.pass_s = 0.2
    assert found.since(sessions, ended=25, live=100) == ["collect", "freeze"]
    assert found.since(sessions, ended=25, live=100) == ["collect"]  # what lived then is garbage that waits: once
    assert found.since(sessions, ended=1) == ["collect", "freeze"] and found.since(sessions) == []
    assert found.since(sessions, ended=25, live=100) == ["collect"]
    found.now += host_sessions.THOROUGH_S
    assert found.since(sessions, ended=25, live=100) == ["collect"]
    assert found.since(sessions, ended=1) == ["unfreeze", "collect", "freeze"]
    assert found.since(sessions, ended=1) == ["collect", "freeze"]
    assert found.since(sessions, ended=25, live=100) == ["collect", "freeze"]

    sessions, found = begin(frozen=0)  # a process that is not a host's alone: what lives in it is none of its business
    found.pass_s = 0.2
    for live in (0, 100, 0):
        found.now += 2 * host_sessions.THOROUGH_S
        assert found.since(sessions, ended=25, live=live) == ["collect"]


@on_loop
async def test_which_host_of_several_takes_a_session():
    entry = {"type": "aworld-host", "url": "http://a/mcp, http://b/mcp  http://c/mcp", "token": "t"}
    (config,) = load_config({"mcpServers": {"it": entry}}).servers
    asked = []

    async def attempt(one, left):
        asked.append(one.url)
        if len(asked) < 5:
            busy = len(asked) % 2
            raise InfraError("host_refused" if busy else "host_unreachable", "no", retry_after_s=0.0 if busy else None)
        return one.url

    assert await hosted.open_somewhere(config, 10.0, attempt) == asked[4]
    assert sorted(asked[:3]) == ["http://a/mcp", "http://b/mcp", "http://c/mcp"] and asked[3:] == asked[:2]
    first = []
    for _ in range(3):
        with contextlib.suppress(InfraError):
            asked[:] = []
            await hosted.open_somewhere(config, 0.05, attempt)
        first.append(asked[0])
    assert sorted(first) == ["http://a/mcp", "http://b/mcp", "http://c/mcp"]  # in turn

    async def refused(one, left):
        asked.append(one.url)
        raise InfraError("host_refused", "401")

    asked[:] = []
    with pytest.raises(InfraError, match="401"):
        await hosted.open_somewhere(config, 10.0, refused)
    assert len(asked) == 1


@pytest.mark.parametrize("asked_to_wait", [None, 2.0])
def test_clients_come_back_spread_and_ever_more_rarely(monkeypatch, asked_to_wait):
    """A thousand clients, on a clock of the test's, of a host that lets nobody in for twenty seconds."""
    clients, back, now = 1000, 20.0, 0.0
    asked = []

    async def sleep(seconds):
        nonlocal now
        now += seconds

    async def attempt(config, left):
        asked.append(now)
        if now < back:
            kind = "host_unreachable" if asked_to_wait is None else "host_refused"
            raise InfraError(kind, "no", retry_after_s=asked_to_wait)

    monkeypatch.setattr(hosted, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(hosted, "asyncio", SimpleNamespace(sleep=sleep))
    monkeypatch.setattr(hosted, "_jitter", random.Random(0))
    (config,) = load_config({"mcpServers": {"it": {"type": "aworld-host", "url": "http://a/mcp"}}}).servers
    for _ in range(clients):
        now = 0.0
        asyncio.run(hosted.open_somewhere(config, 60.0, attempt))
    again = sorted(at for at in asked if at > 0)
    pause = asked_to_wait or 0.0
    assert again[0] >= pause + 0.1  # nobody comes before the time
    crowd = max(sum(k / 4 <= at < (k + 1) / 4 for at in again) for k in range(200))
    assert crowd < 0.6 * clients
    assert sum(at < 5 for at in again) < 6 * clients  # in the first five seconds
    assert sum(15 <= at < back for at in again) < 1.7 * clients  # in the last five
    after = [at for at in again if at >= back]
    assert len(after) == clients and max(after) < back + pause + 8.1
    assert max(sum(back + k / 4 <= at < back + (k + 1) / 4 for at in after) for k in range(40)) < 0.1 * clients


def test_pooled_servers_are_started_ahead():
    script = os.path.join(os.path.dirname(__file__), "../../lib/host_tools.py")
    server = {"command": sys.executable, "args": [script, "--slow"], "env": {"PYTHONPATH": os.getcwd()}}

    async def pid(running):
        async with session_at(running, open_timeout_s=30.0) as session:
            return (await session.call("1", "pid", {})).text

    async def test(running):
        pool = running.host.catalogue.toolchain("slow", None)._runtime._pool
        await until(lambda: pool._ready, 30)
        began = time.monotonic()
        first = await pid(running)
        took = time.monotonic() - began
        await until(lambda: pool._ready, 30)
        assert await pid(running) != first
        return took

    with host_here({"slow": {"mcpServers": {"shows": server}}}, pool=1) as running:
        assert loop.run(test(running), timeout=100) < 1.0  # it takes that long, and much more, to start
