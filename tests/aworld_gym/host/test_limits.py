"""What a host takes of one client: requests that arrive in time, and so many calls at once."""

import asyncio
import contextlib
import resource
import socket
import time

import httpx2
import psutil
import pytest
from hosts import host_here, session_at

from aworld_gym.host import bodies, connections, exchange
from aworld_gym.toolchain import loop, messages, workspace


def playing(test, **settings):
    """Run ``test(running)`` against a host with these settings."""
    with host_here(**settings) as running:
        return loop.run(test(running), timeout=60)


def head(running, *more, method="POST"):
    lines = (f"{method} /mcp HTTP/1.1", "host: 127.0.0.1", f"authorization: Bearer {running.token}", *more)
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


async def dripped(running, data, pause_s, *before, at_once=0):
    """Send ``before`` and read its answers, then ``data``, byte by byte after so many at once.

    Gives the last answer to ``before``, all that comes after it, and the seconds until the end. By a socket: a stream
    forgets what it has read when the connection is reset, as it is for who goes on sending.
    """
    now, got, answer = asyncio.get_running_loop(), b"", b""
    with socket.create_connection(("127.0.0.1", running.port)) as connection:
        connection.setblocking(False)
        async with asyncio.timeout(10):
            for request in before:
                await now.sock_sendall(connection, request)
                got = b""
                while b"\r\n\r\n" not in got:
                    more = await now.sock_recv(connection, 1)
                    assert more, "it ended before an answer"
                    got += more
                size = int(got.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
                while size:
                    more = await now.sock_recv(connection, size)
                    assert more, "it ended within an answer"
                    got, size = got + more, size - len(more)
        began = time.monotonic()

        async def drip():
            await now.sock_sendall(connection, data[:at_once])
            for byte in data[at_once:]:
                await now.sock_sendall(connection, bytes([byte]))
                await asyncio.sleep(pause_s)

        dripping = asyncio.create_task(drip())
        try:
            async with asyncio.timeout(10):
                with contextlib.suppress(ConnectionResetError):
                    while more := await now.sock_recv(connection, 4096):
                        answer += more
            return got, answer, time.monotonic() - began
        finally:
            dripping.cancel()
            await asyncio.gather(dripping, return_exceptions=True)


def test_a_request_whose_head_does_not_come_is_not_waited_for():
    async def test(running):
        known = head(running, "accept: application/json", "content-length: 2") + b"{}"
        for data, before in ((b"", ()), (known, ()), (known, (known,))):
            first, answer, took = await dripped(running, data, 0.05, *before)
            assert not before or first.startswith(b"HTTP/1.1 400")  # and the connection was kept
            assert answer.startswith(b"HTTP/1.1 408 ") and answer.endswith(b"no whole request within 0.5 s")
            assert 0.4 < took < 8.0
        async with session_at(running) as session:  # nothing else has a deadline of this kind
            assert (await session.call("1", "sleep", {"seconds": 1.2})).text == "slept"
            await asyncio.sleep(0.8)
            assert (await session.call("2", "add", {"a": 1})).text == "2"

    playing(test, head_timeout_s=0.5)


def test_a_request_without_end_of_its_head_is_not_kept():
    async def test(running):
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        line = b"x-long: " + b"x" * 8000 + b"\r\n"
        writer.write(head(running)[:-2])
        for _ in range(connections.MAX_HEAD_BYTES // len(line) + 2):
            writer.write(line)
        async with asyncio.timeout(10):
            assert (await reader.readline()).startswith(b"HTTP/1.1 431 ")
        writer.close()

    playing(test)


@pytest.mark.parametrize("path", ["/mcp", "/workspace/x"])
def test_a_body_that_drips_is_not_waited_for(path, monkeypatch):
    monkeypatch.setattr(bodies, "SLOWEST", 100)

    async def test(running):
        more = ["content-length: 1000", "content-type: application/json"]
        async with session_at(running) as session:
            number = session._grant.leases["it"].connection._link._client.session_id
            request = head(running, *more, f"mcp-session-id: {number}", method="POST" if path == "/mcp" else "PUT")
            request = request.replace(b"/mcp", path.encode(), 1)
            _, line, took = await dripped(running, request + b"x" * 199, 0.05, at_once=len(request))
            assert line.startswith(b"HTTP/1.1 408 ") and b"did not arrive within 0.5 s" in line
            assert b"connection: close" in line.lower() and 0.4 < took < 8.0
            assert (await session.call("1", "add", {"a": 1})).text == "2"

    playing(test, body_timeout_s=0.5)


def test_the_rest_of_a_request_that_was_refused_is_not_waited_for():
    async def test(running):
        refused = b"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 200\r\n\r\n"
        first, _, took = await dripped(running, b"x" * 199, 0.05, refused)
        assert first.startswith(b"HTTP/1.1 401 ") and 0.4 < took < 8.0
        again = refused + b"x" * 200  # the rest comes: the connection is kept, as long as others are
        first, answer, took = await dripped(running, b"", 0.05, again, again, refused)
        assert first.startswith(b"HTTP/1.1 401 ") and answer == b"" and 0.4 < took < 8.0

    playing(test, head_timeout_s=0.5)


def test_calls_of_one_session_wait_for_their_turn():
    async def test(running):
        async with session_at(running) as one, session_at(running) as other:
            began = time.monotonic()
            calls = [asyncio.create_task(one.call(str(k), "sleep", {"seconds": 0.5})) for k in range(12)]
            await asyncio.sleep(0.05)
            assert (await other.call("1", "add", {"a": 1})).text == "2"  # another session's do not wait for them
            assert not all(call.done() for call in calls)
            assert {result.text for result in await asyncio.gather(*calls)} == {"slept"}
            assert 1.5 <= time.monotonic() - began < 5.5  # four at a time; one after another: 6

    playing(test, max_calls=4)


def test_calls_beyond_all_measure_are_sent_away_for_a_while(monkeypatch):
    monkeypatch.setattr(exchange, "MAX_CALLS", 3)

    async def test(running):
        async with session_at(running) as session:
            results = await asyncio.gather(*(session.call(str(k), "sleep", {"seconds": 0.3}) for k in range(6)))
            assert {result.text for result in results} == {"slept"}
            count = running.host.metrics.registry.get_sample_value
            refused = count("aworld_host_calls_total", {"toolchain": "basic", "end": "refused"})
            assert refused and refused >= 3

    playing(test)


def test_connections_beyond_all_measure_are_sent_away_for_a_while(monkeypatch):
    monkeypatch.setattr("aworld_gym.host.server.most_connections", lambda: 8)

    async def test(running):
        opened = [await asyncio.open_connection("127.0.0.1", running.port) for _ in range(8)]
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        async with asyncio.timeout(10):
            answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 503 ") and b"retry-after: 2\r\n" in answer and b"more than 8" in answer
        for _, one in (*opened, (reader, writer)):
            one.close()
        async with session_at(running) as session:  # there is room again
            assert (await session.call("1", "add", {"a": 1})).text == "2"

    playing(test)


def test_a_host_takes_the_descriptors_that_it_may_have(monkeypatch):
    now = [(1024, 4096)]
    monkeypatch.setattr(resource, "getrlimit", lambda kind: now[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda kind, limits: now.append(limits))
    connections.more_descriptors()
    assert now[-1] == (4096, 4096) and connections.most_connections() == 2048
    now.append((1024, resource.RLIM_INFINITY))
    connections.more_descriptors()
    assert now[-1] == (connections.MOST_DESCRIPTORS, resource.RLIM_INFINITY)
    now.append((resource.RLIM_INFINITY,) * 2)
    connections.more_descriptors()
    assert now[-1] == (resource.RLIM_INFINITY,) * 2


def test_a_disk_without_room_is_an_infrastructure_failure(monkeypatch, tmp_path):
    (tmp_path / "file").touch()

    async def test(running):
        monkeypatch.setattr(workspace, "_process_root", lambda: tmp_path / "file")
        async with httpx2.AsyncClient(base_url=running.address, timeout=20) as client:
            opening = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}}
            message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": opening}
            headers = {"authorization": f"Bearer {running.token}", "accept": "application/json, text/event-stream"}
            reply = await client.post("/mcp", json=message, headers=headers)
        failure = messages.failure(reply.json()["error"]["data"], "it")
        assert reply.status_code == 200 and failure.kind == "env_failed" and "no workspace" in failure.args[0]
        monkeypatch.undo()
        async with session_at(running) as session:  # and its slot is free again
            assert (await session.call("1", "add", {"a": 1})).text == "2"

    playing(test, max_sessions=1)


def test_progress_that_nobody_reads_is_not_kept_for_ever(monkeypatch):
    monkeypatch.setattr(exchange, "MOST_EVENTS", 5)

    async def test(running):
        async with session_at(running):
            (session,) = running.host.sessions._all
            message = {"id": 1, "params": {"name": "add", "_meta": {"progressToken": "t"}}}
            answering = exchange.Exchange(session, message, None, running.host.metrics)
            for k in range(100):
                await answering._progress(float(k), None, None)
            assert answering._events.qsize() == 5

    playing(test)


def test_files_that_nobody_takes_do_not_fill_the_memory():
    size = 32 << 20

    async def test(running):
        async with session_at(running) as session:
            number = session._grant.leases["it"].connection._link._client.session_id
            headers = {"authorization": f"Bearer {running.token}", "mcp-session-id": number}
            (mine,) = running.host.sessions._all
            (mine.tools.workspace / "big").write_bytes(b"x" * size)
            before = psutil.Process().memory_info().rss
            asked = head(running, f"mcp-session-id: {number}", method="GET").replace(b"/mcp", b"/workspace/big", 1)
            opened = [await asyncio.open_connection("127.0.0.1", running.port, limit=1024) for _ in range(12)]
            for _, writer in opened:
                writer.write(asked)
            await asyncio.sleep(1.5)
            assert psutil.Process().memory_info().rss - before < 4 * size
            for _, writer in opened:
                writer.transport.abort()
            async with httpx2.AsyncClient(base_url=running.address, timeout=20, headers=headers) as client:
                assert len((await client.get("/workspace/big")).content) == size

    playing(test)
