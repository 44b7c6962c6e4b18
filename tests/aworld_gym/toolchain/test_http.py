"""Sessions over HTTP: faults of servers written without an SDK, and of real ones that go away and come back."""

from __future__ import annotations

import asyncio
import time

import pytest
from http_clients import each_http_client  # noqa: F401
from tool_servers import http_server, on_loop, session_of

from aworld_gym.errors import InfraError
from aworld_gym.toolchain import Toolchain, compat, http, loop, stats
from aworld_gym.types import Limits

pytestmark = pytest.mark.usefixtures("each_http_client")


def at(port: int, **more) -> dict:
    return {"it": {"type": "streamable-http", "url": f"http://127.0.0.1:{port}/mcp", **more}}


async def text_of(session, name, /, **arguments):
    result = await session.call("c", name, arguments)
    assert result.error is None, result
    return result.text


def open_fails(servers: dict, **limits) -> InfraError:
    async def attempt():
        async with session_of(servers, **limits):
            pass

    with pytest.raises(InfraError) as caught:
        loop.run(attempt())
    return caught.value


# -- opening --------------------------------------------------------------------------------------------------


def test_a_401_says_what_the_server_answered():
    with http_server("raw_http.py", "401") as (port, _):
        error = open_fails(at(port, headers={"Authorization": "Bearer wrong"}))
        assert error.kind == "host_refused"
        for words in ("401 Unauthorized", "The token has expired", 'Bearer realm="tools"', "`headers`"):
            assert words in str(error)
        assert "wrong" not in str(error)  # the credentials themselves are nobody's business

        async def right():
            async with session_of(at(port, headers={"Authorization": "Bearer right"})) as session:
                return await text_of(session, "look")

        assert loop.run(right()) == "seen"


@pytest.mark.parametrize(
    ("mode", "kind", "words"),
    [("html", "server_protocol", "text/html"), ("500", "server_protocol", "500.*the database is gone")],
)
def test_what_is_no_mcp_server_is_named(mode, kind, words):
    with http_server("raw_http.py", mode) as (port, _):
        error = open_fails(at(port), open_timeout_s=3.0)
        assert error.kind == kind
        import re

        assert re.search(words, str(error)), error


def test_an_unreachable_host_is_named():
    with http_server("raw_http.py") as (port, _):
        pass
    error = open_fails(at(port))
    assert error.kind == "host_unreachable" and error.delivered is False
    assert f"http://127.0.0.1:{port}/mcp" in str(error)


def test_a_server_that_accepts_and_says_nothing_times_out():
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        error = open_fails(at(silent.getsockname()[1]), open_timeout_s=0.5)
        assert error.kind == "session_timeout" and "0.5 s" in str(error)


# -- calls ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("style", ["json", "sse"])
@pytest.mark.parametrize("scope", ["shared", "episode"])
def test_ordinary_calls(style, scope):
    async def check(port):
        async with session_of(at(port, scope=scope), max_result_chars=5_000_000) as session:
            assert await text_of(session, "count") == "1"
            assert await text_of(session, "session") == "s1"
            assert await text_of(session, "half") == "Smile \ufffd, 😀"
            assert session.tools[-1]["function"]["description"] == "Half an emoji, \ufffd."
            # no connection is spent on a stream that nobody reads; that of a long session may tell of changed tools
            listens = scope == "shared" and http.DEFAULT_CLIENTS["http"] == "lean"
            assert await text_of(session, "gets") in (("0", "1") if listens else ("0",))
            assert len(await text_of(session, "huge", chars=3_000_000)) == 3_000_000  # over the SDK's 1 MiB

    with http_server("raw_http.py", style) as (port, _):
        loop.run(check(port))


@pytest.mark.parametrize(
    ("mode", "tool", "outcome"),
    [
        # refused before it was handled: called again, whatever the tool
        ("busy-once", "count", "1"),
        ("forget-once", "count", "1"),
        # lost on the way: called again only if that is harmless
        ("drop-once", "look", "seen"),
        ("drop-once", "count", "host_unreachable"),
        ("break-off-once", "look", "seen"),
        ("break-off-once", "count", "session_lost"),
        ("broken-json-once", "look", "seen"),
        ("broken-json-once", "count", "server_protocol"),
        ("accept-once", "count", "server_protocol"),
    ],
)
def test_a_call_is_repeated_only_where_that_is_harmless(mode, tool, outcome):
    async def check(port):
        async with session_of(at(port), call_timeout_s=5.0) as session:
            started = time.monotonic()
            if outcome in ("1", "seen"):
                assert await text_of(session, tool) == outcome
            else:
                with pytest.raises(InfraError) as caught:
                    await session.call("c", tool, {})
                assert caught.value.kind == outcome
                assert await text_of(session, "count") == "2"  # it had arrived, and the session still works
            assert time.monotonic() - started < 4.0

    with http_server("raw_http.py", mode) as (port, _):
        loop.run(check(port))


@on_loop
async def test_a_failure_that_stays_is_raised_after_the_retries():
    with http_server("raw_http.py", "drop") as (port, _):
        async with session_of(at(port)) as session:
            before = stats()
            with pytest.raises(InfraError):
                await session.call("c", "look", {})
            assert stats().retries == before.retries + 2


@on_loop
async def test_one_hundred_and_fifty_slow_calls_at_once():
    with http_server("raw_http.py") as (port, _):
        async with session_of(at(port), call_timeout_s=30.0) as session:
            results = await asyncio.gather(*(session.call(str(i), "slow", {"seconds": 1.0}) for i in range(150)))
            assert {(r.error, r.text) for r in results} == {(None, "late")}


@on_loop
async def test_after_a_timeout_new_episodes_get_a_new_session():
    with http_server("raw_http.py") as (port, _):
        config = {"mcpServers": at(port)}
        toolchain = Toolchain(config, Limits(call_timeout_s=0.3))
        first = await toolchain.open()
        assert (await first.call("c", "slow", {"seconds": 1.0})).error == "tool_timeout"
        assert await text_of(first, "session") == "s1"  # it still answers, so this episode goes on with it
        second = await toolchain.open()
        assert await text_of(second, "session") == "s2"
        await first.aclose()
        await second.aclose()
        await toolchain.aclose()


@on_loop
async def test_a_shared_session_that_hangs_is_replaced_for_all():
    with http_server("raw_http.py", "no-ping") as (port, _):
        async with session_of(at(port), call_timeout_s=0.3) as session:
            assert (await session.call("c", "slow", {"seconds": 3.0})).error == "tool_timeout"
            assert await text_of(session, "session") == "s2"


@on_loop
async def test_closing_does_not_wait_for_a_slow_goodbye():
    with http_server("raw_http.py", "slow-delete") as (port, _):
        async with session_of(at(port)) as session:
            assert await text_of(session, "look") == "seen"
            started = time.monotonic()
        assert time.monotonic() - started < 4.0


@on_loop
async def test_a_server_of_the_sessionless_protocol():
    if not compat.api().v2:
        pytest.skip("mcp 1.x does not speak it")
    with http_server("raw_http.py", "modern") as (port, _):
        async with session_of(at(port)) as session:
            assert await text_of(session, "look") == "seen"
            assert await text_of(session, "session") == "None"


# -- real servers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["json", "events"])
def test_a_real_server_dies_in_a_call_and_comes_back(kind):
    async def check():
        with http_server("basic.py", kind) as (port, process):
            toolchain = Toolchain({"mcpServers": at(port)}, Limits(call_timeout_s=20.0))
            session = await toolchain.open()
            assert await text_of(session, "echo", text="a") == "a"
            call = asyncio.create_task(session.call("c", "sleep", {"seconds": 20}))
            await asyncio.sleep(0.5)
            process.kill()
            with pytest.raises(InfraError) as caught:
                await asyncio.wait_for(call, 5)
            assert caught.value.kind in ("host_unreachable", "session_lost") and caught.value.delivered is not False
            await asyncio.sleep(0.3)  # until its idle connections are known to be gone too
            with pytest.raises(InfraError) as caught:  # while it is down
                await session.call("c", "echo", {"text": "b"})
            assert (caught.value.kind, caught.value.delivered) == ("host_unreachable", False)
        with http_server("basic.py", kind, port=port):
            assert await text_of(session, "echo", text="c") == "c"  # it does not know our session: opened again
            await session.aclose()
            await toolchain.aclose()

    loop.run(check(), timeout=60)


@on_loop
async def test_the_old_event_stream_transport():
    with http_server("basic.py", "old-sse") as (port, process):
        config = {"it": {"type": "sse", "url": f"http://127.0.0.1:{port}/sse"}}
        async with session_of(config, call_timeout_s=5.0) as session:
            assert await text_of(session, "echo", text="a") == "a"
            call = asyncio.create_task(session.call("c", "sleep", {"seconds": 20}))
            await asyncio.sleep(0.5)
            process.kill()
            with pytest.raises(InfraError):
                await call


def test_the_old_event_stream_transport_refused():
    with http_server("raw_http.py") as (port, _):
        error = open_fails({"it": {"type": "sse", "url": f"http://127.0.0.1:{port}/sse"}})
        assert error.kind == "server_protocol" and "405" in str(error)
