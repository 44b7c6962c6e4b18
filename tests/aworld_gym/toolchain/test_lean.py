"""The lean HTTP client alone: events in any pieces, limits, its choice, and what it keeps open.

What it shares with the SDK's is in ``test_http_clients.py`` and ``test_http.py``.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tool_servers import on_loop

from aworld_gym.errors import ConfigError
from aworld_gym.toolchain import Toolchain, compat, http, load_config, messages

web = pytest.importorskip("aiohttp.web")
if not compat.api().v2:
    pytest.skip("the lean client needs mcp 2.x", allow_module_level=True)
from scripted_http import answer_of, event, opened, result_of, scripted, stream  # noqa: E402

from aworld_gym.toolchain import lean  # noqa: E402
from aworld_gym.toolchain.lean import client, events, incoming, streams  # noqa: E402


async def call(session) -> str:
    async with asyncio.timeout(20):
        return (await compat.call_tool(session, "it", {}))["content"][0]["text"]


async def failure(session) -> str:
    """Of what kind a call's failure is, and what it says."""
    with pytest.raises(compat.api().Error) as caught:
        await call(session)
    known = messages.failure(compat.protocol_error(caught.value)[2], "it")
    return f"{known.kind}: {known.args[0]}"


# -- events ---------------------------------------------------------------------------------------------------

PLAIN = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0"), max_size=8)
IDS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=8)


@st.composite
def wires(draw):
    """Events, the bytes that they may be written as, and places to cut those."""
    end = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    text, expected = draw(st.sampled_from(["", "\ufeff"])), []
    for _ in range(draw(st.integers(0, 4))):
        data = draw(st.lists(PLAIN, max_size=3))
        number = draw(st.none() | IDS)
        name = draw(st.sampled_from(["", "message", "other"]))
        lines = draw(st.sampled_from([[], [": a comment"], ["unknown: field", "data2"]]))
        lines += [f"id: {number}"] if number is not None else []
        lines += [f"event: {name}"] if name else []
        lines += [f"data: {line}" for line in data] + draw(st.sampled_from([[], ["retry: 250"], ["retry: soon"]]))
        text += "".join(line + end for line in lines) + end
        retry = 0.25 if "retry: 250" in lines else None
        if data or number is not None or retry is not None:
            expected.append((name or "message", "\n".join(data).encode(), number, retry))
    wire = text.encode()
    return expected, wire, sorted(draw(st.lists(st.integers(0, len(wire)), max_size=6)))


@settings(deadline=None)
@given(wires())
def test_events_arrive_in_any_pieces(given_wire):
    expected, wire, cuts = given_wire
    parser, found = events.EventParser(), []
    for begin, end in zip([0, *cuts], [*cuts, len(wire)], strict=True):
        found += parser.feed(wire[begin:end])
    assert [(e.name, e.data, e.id, e.retry_s) for e in found] == expected


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_events_cut_anywhere(end):
    lines = ["id: 1", "data: a", "data: b", "", ": comment", "event: other", "retry: 10", "data", "", ""]
    wire = ("\ufeff" + end.join(lines)).encode()
    expected = [("message", b"a\nb", "1", None), ("other", b"", None, 0.01)]
    cuts = [[wire[:k], wire[k:]] for k in range(len(wire))] + [[wire[k : k + 1] for k in range(len(wire))]]
    for pieces in cuts:
        parser = events.EventParser()
        found = [event for piece in pieces for event in parser.feed(piece)]
        assert [(e.name, e.data, e.id, e.retry_s) for e in found] == expected, pieces


def test_an_event_without_an_end_is_none():
    assert events.EventParser().feed(b"id: 1\ndata: x\n") == []


def test_an_event_may_not_grow_for_ever():
    parser = events.EventParser(limit=1000)
    for _ in range(50):
        parser.feed(b"data: " + b"x" * 100 + b"\n\n")
    with pytest.raises(ValueError, match="1000 bytes"):
        for _ in range(50):
            parser.feed(b"data: " + b"x" * 100 + b"\n")


@pytest.mark.parametrize("odd", [b"a\x01b", b"a\0", b"\x7f"])
def test_an_id_that_fits_into_no_header_is_none(odd):
    (event,) = events.EventParser().feed(b"id: " + odd + b"\ndata: x\n\n")
    assert (event.data, event.id) == (b"x", None)


# -- hostile servers ------------------------------------------------------------------------------------------


@on_loop
async def test_answers_to_other_requests_are_passed_over():
    async def tool(request, message):
        response = await stream(request)
        for other in ({**message, "id": message["id"] + 1000}, {**message, "id": "x"}, message):
            await response.write(event(answer_of(other, f"for {other['id']}")))
        return response

    async with scripted(on_call=tool) as server, opened(server.url, "lean") as session:
        for _ in range(2):
            asked = call(session)
            assert await asked == f"for {server.seen[-1].message['id']}"


@on_loop
async def test_a_flood_of_requests_opens_no_flood_of_connections(monkeypatch):
    open_now = most = taken = 0

    async def before(request, message):
        nonlocal open_now, most, taken
        if message and "method" not in message:
            open_now, taken = open_now + 1, taken + 1
            most = max(most, open_now)
            await asyncio.sleep(0.02)
            open_now -= 1
            return web.Response(status=202)

    async def tool(request, message):
        response = await stream(request)
        await response.write(b"".join(event({"jsonrpc": "2.0", "id": f"r{k}", "method": "ping"}) for k in range(300)))
        await response.write(event(answer_of(message, "done")))
        return response

    monkeypatch.setattr(incoming, "MOST_AT_ONCE", 8)
    async with scripted(on_call=tool, before=before) as server, opened(server.url, "lean") as session:
        assert await call(session) == "done"
        async with asyncio.timeout(10):
            while taken < 300:
                await asyncio.sleep(0.01)
    assert 1 < most <= 9


# -- limits ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("style", ["json", "events"])
@on_loop
async def test_a_reply_that_is_too_large(style, monkeypatch):
    async def tool(request, message):
        if style == "json":
            return "x" * 300_000
        response = await stream(request)
        await response.write(event(answer_of(message, "x" * 300_000)))
        return response

    monkeypatch.setattr(client, "MAX_REPLY_BYTES", 200_000)
    parser = events.EventParser
    monkeypatch.setattr(events, "EventParser", lambda: parser(200_000))
    async with scripted(on_call=tool) as server, opened(server.url, "lean") as session:
        said = await failure(session)
        assert said.startswith("server_protocol") and "more than 200000 bytes" in said
        server.on_call = None
        assert await call(session) == "done"


@pytest.mark.parametrize("style", ["json", "events"])
@on_loop
async def test_a_reply_that_is_nested_too_deep(style):
    async def tool(request, message):
        result = '{"structuredContent":' + "[" * 300 + "]" * 300 + "}"
        deep = f'{{"jsonrpc":"2.0","id":{json.dumps(message["id"])},"result":{result}}}'
        if style == "json":
            return web.Response(text=deep, content_type="application/json")
        response = await stream(request)
        await response.write(f"data: {deep}\n\n".encode())
        return response

    async with scripted(on_call=tool) as server, opened(server.url, "lean") as session:
        said = await failure(session)
        assert said.startswith("server_protocol") and "200 levels" in said


@on_loop
async def test_redirects_in_a_circle():
    async def before(request, message):
        if message and message.get("method") == "tools/call":
            return web.Response(status=307, headers={"location": "/mcp"})

    async with scripted(before=before) as server, opened(server.url, "lean") as session:
        assert "redirects more than 20 times" in await failure(session)


# -- connections ----------------------------------------------------------------------------------------------


@on_loop
async def test_a_connection_is_used_again_after_a_stream():
    async def tool(request, message):
        response = await stream(request)
        await response.write(event(answer_of(message, "streamed")))
        await asyncio.sleep(0.02)  # the answer is taken before the stream ends
        return response

    async with scripted(on_call=tool) as server, opened(server.url, "lean") as session:
        for _ in range(5):
            assert await call(session) == "streamed"
            await asyncio.sleep(0.1)
        assert len({seen.peer for seen in server.seen}) == 1


@on_loop
async def test_a_stream_that_stays_open_after_the_answer_is_let_go(monkeypatch):
    ended = asyncio.Event()

    async def tool(request, message):
        response = await stream(request)
        await response.write(event(answer_of(message, "streamed")))
        try:
            await asyncio.sleep(20)
        finally:
            ended.set()

    monkeypatch.setattr(client, "_LINGER_S", 0.1)
    async with scripted(on_call=tool) as server, opened(server.url, "lean") as session:
        assert await call(session) == "streamed"
        await asyncio.wait_for(ended.wait(), 5)


@pytest.mark.parametrize("style", ["json", "events", "slow events"])
@on_loop
async def test_calls_given_up_at_any_time_leave_nothing(style):
    async def tool(request, message):
        if style == "json":
            return "done"
        response = await stream(request)
        for part in (b": hello\n\n", event(answer_of(message, "done"))):
            await response.write(part)
            await asyncio.sleep(0.01 if style == "slow events" else 0)
        return response

    rng, given_up = random.Random(7), 0
    async with scripted(on_call=tool) as server:
        config = load_config({"mcpServers": {"it": {"url": server.url, "http_client": "lean"}}}).servers[0]
        before = asyncio.all_tasks()
        async with http.session(config, lambda error: None) as (session, dispatcher):
            for _ in range(10):
                calls = [asyncio.create_task(call(session)) for _ in range(12)]
                for task in calls:
                    if rng.random() < 0.7:
                        for _ in range(rng.randrange(12)):
                            await asyncio.sleep(0)
                        given_up += task.cancel()
                for result in await asyncio.gather(*calls, return_exceptions=True):
                    assert result == "done" or isinstance(result, asyncio.CancelledError)
            assert given_up > 10 and await call(session) == "done"
            assert not dispatcher._pending
        await asyncio.sleep(0.3)
        left = [t for t in asyncio.all_tasks() - before if "RequestHandler" not in repr(t.get_coro())]
        assert not left


@on_loop
async def test_a_large_file_is_brought_without_a_warning():
    taken = []

    async def before(request, message):
        if request.method == "PUT":
            taken.append((request.path, len(await request.read()), request.headers["mcp-session-id"]))
            return web.Response(status=201, text="taken")

    async with scripted(before=before) as server:
        server.on_call = None
        config = load_config({"mcpServers": {"it": {"url": server.url, "http_client": "lean"}}}).servers[0]
        async with http.session(config, lambda error: None) as (_, link):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                said = await link.put(server.url.replace("/mcp", "/workspace/a%20b"), b"x" * 3_000_000)
    assert said == (201, "taken")
    assert taken == [("/workspace/a b", 3_000_000, "s1")]


# -- the server's own messages --------------------------------------------------------------------------------


@on_loop
async def test_the_stream_of_the_servers_own_messages(monkeypatch):
    """Notifications come to the session's handler; the stream goes on after its end; a request is answered."""
    monkeypatch.setattr(streams, "RESUME_S", 0.05)
    places: list = []

    async def listened(request):
        places.append(request.headers.get("last-event-id"))
        response = await stream(request)
        if len(places) == 1:
            await response.write(event({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}, id="e1"))
        elif len(places) == 2:
            server.answers["q"] = asyncio.get_running_loop().create_future()
            await response.write(b"data: no JSON\n\n" + event({"jsonrpc": "2.0", "id": "q", "method": "ping"}))
            await asyncio.sleep(20)
        return response

    changed = asyncio.Event()

    async def handle(message):
        if type(getattr(message, "root", message)).__name__ == "ToolListChangedNotification":
            changed.set()

    async with scripted(on_get=listened) as server:
        config = load_config({"mcpServers": {"it": {"url": server.url}}}).servers[0]
        async with lean.connect(config, None, listen=True) as dispatcher:
            async with compat.api().ClientSession(dispatcher=dispatcher, message_handler=handle) as session:
                await session.initialize()
                await asyncio.wait_for(changed.wait(), 5)
                async with asyncio.timeout(5):
                    while "q" not in server.answers:
                        await asyncio.sleep(0.01)
                    assert (await server.answers["q"])["result"] == {}
    assert places == [None, "e1"]


# -- the choice -----------------------------------------------------------------------------------------------


def test_who_asks_for_it_and_cannot_have_it_is_told_why(monkeypatch):
    async def opening(config):
        toolchain = Toolchain(config)
        try:
            await (await toolchain.open()).aclose()
        finally:
            await toolchain.aclose()

    entry = {"url": "http://tools.invalid/mcp", "http_client": "lean"}
    for name in ("NO_PROXY", "no_proxy", "HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:1")
    from aworld_gym.toolchain import loop

    with pytest.raises(ConfigError, match='`http_client` is "lean": .*socks5 proxy'):
        loop.run(opening({"mcpServers": {"it": entry}}), timeout=30)
    config = load_config({"mcpServers": {"it": entry}}).servers[0]
    monkeypatch.delenv("ALL_PROXY")
    assert lean.unusable(config) is None
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    assert "aworld-gym[lean]" in lean.unusable(config)


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"url": "http://x/mcp", "http_client": "leen"}, r"must be one of \['sdk', 'lean'\].*Did you mean 'lean'"),
        ({"url": "http://x/sse", "type": "sse", "http_client": "lean"}, "streamable HTTP"),
        ({"command": "x", "http_client": "lean"}, "unknown key 'http_client'"),
    ],
)
def test_a_choice_that_cannot_be(entry, words):
    with pytest.raises(ConfigError, match=words):
        load_config({"mcpServers": {"it": entry}})


@pytest.mark.parametrize(("kind", "name"), [("aworld-host", "lean"), ("streamable-http", "sdk")])
def test_the_default(kind, name, monkeypatch):
    config = load_config({"mcpServers": {"it": {"type": kind, "url": "http://127.0.0.1:1/mcp"}}}).servers[0]
    assert http._is_lean(config) is (name == "lean")
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    assert http._is_lean(config) is False  # nobody asked for it


def test_nothing_of_it_is_imported_before_it_is_used():
    code = "import sys, aworld_gym.toolchain; print([m for m in ('aiohttp', 'anyio', 'yarl') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_the_scripted_result_is_what_the_sdk_takes():
    """Guards the tests above: their server speaks MCP."""
    compat.api().types.CallToolResult.model_validate(result_of("x"), by_name=False)
