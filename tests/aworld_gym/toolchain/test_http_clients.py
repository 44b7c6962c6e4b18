"""What both HTTP clients do, message by message: redirects, streams, cancellation, credentials, proxies."""

from __future__ import annotations

import asyncio
import base64
import logging

import pytest
from http_clients import clients
from tool_servers import on_loop

web = pytest.importorskip("aiohttp.web")
from scripted_http import answer_of, event, opened, reply, result_of, scripted, stream  # noqa: E402

from aworld_gym.toolchain import compat, messages  # noqa: E402

each = pytest.mark.parametrize("client", clients())


async def call(session, progress=None) -> str:
    async with asyncio.timeout(20):
        result = await compat.call_tool(session, "it", {}, progress)
    return result["content"][0]["text"]


async def failure(session) -> tuple[str, str]:
    """How a call fails: the kind of the failure (the JSON-RPC code if it is none), and the text."""
    with pytest.raises(compat.api().Error) as caught:
        await call(session)
    code, text, data = compat.protocol_error(caught.value)
    known = messages.failure(data, "it")
    return (known.kind, known.args[0]) if known is not None else (str(code), text)


# -- what is sent ---------------------------------------------------------------------------------------------


@each
@on_loop
async def test_headers_of_a_session(client):
    async with scripted() as server:
        async with opened(server.url, client, headers={"Authorization": "Bearer x", "X-Env": "a b"}) as session:
            assert await call(session) == "done"
    by_method = dict(zip(server.methods(), server.seen, strict=True))
    assert list(by_method) == ["initialize", "notifications/initialized", "tools/call", "DELETE"]
    for method, seen in by_method.items():
        assert (seen.headers["authorization"], seen.headers["x-env"]) == ("Bearer x", "a b")
        if method != "initialize":
            assert seen.headers["mcp-session-id"] == "s1" and seen.headers["mcp-protocol-version"]
        if seen.method == "POST":
            assert seen.headers["content-type"] == "application/json"
            assert seen.headers["accept"] == "application/json, text/event-stream"


@each
@on_loop
async def test_a_name_and_password_in_the_url(client):
    async with scripted() as server:
        url = server.url.replace("://", "://user%40x:pass%2Fword@")
        async with opened(url, client) as session:
            assert await call(session) == "done"
    told = "Basic " + base64.b64encode(b"user@x:pass/word").decode()
    assert {seen.headers["authorization"] for seen in server.seen} == {told}


@each
@on_loop
async def test_cookies_stay_with_the_session(client):
    async def before(request, message):
        if message and message.get("method") == "initialize":
            response = reply(message, {"protocolVersion": "2025-06-18", "capabilities": {}} | NAMED)
            response.set_cookie("route", "r1")
            return response

    async with scripted(before=before) as server:
        async with opened(server.url, client) as session:
            assert await call(session) == "done"
    assert all(seen.headers.get("cookie") == "route=r1" for seen in server.seen[1:])


NAMED = {"serverInfo": {"name": "scripted", "version": "0"}}


# -- redirects ------------------------------------------------------------------------------------------------


@each
@on_loop
async def test_a_redirect_within_the_server_is_followed(client):
    async def before(request, message):
        if request.path == "/mcp":
            return web.Response(status=307, headers={"location": "/mcp/"})

    async with scripted(before=before) as server:
        async with opened(server.url, client, headers={"Authorization": "Bearer x"}) as session:
            assert await call(session) == "done"
    there = [seen for seen in server.seen if seen.path == "/mcp/"]
    assert [s.message["method"] for s in there[:3]] == ["initialize", "notifications/initialized", "tools/call"]
    assert {seen.headers["authorization"] for seen in there} == {"Bearer x"}


@each
@pytest.mark.parametrize("status", [302, 307])
@on_loop
async def test_a_redirect_elsewhere_is_not_followed(client, status):
    async with scripted() as other, scripted() as server:

        async def redirected(request, message):
            # one that changes the method would lose the message
            where = server.url.replace("/mcp", "/other") if status == 302 else other.url
            return web.Response(status=status, headers={"location": f"{where}?key=s3cret"})

        server.on_call = redirected
        async with opened(server.url, client) as session:
            _, text = await failure(session)
            assert "not followed" in text and "s3cret" not in text
            server.on_call = None
            assert await call(session) == "done"
    assert other.seen == []


# -- streams --------------------------------------------------------------------------------------------------


@each
@on_loop
async def test_progress_comes_before_the_answer(client):
    async def tool(request, message):
        response = await stream(request)
        token = message["params"]["_meta"]["progressToken"]
        for done in (1, 2.5):
            params = {"progressToken": token, "progress": done, "total": 4, "message": f"at {done}"}
            await response.write(event({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}))
        await response.write(event(answer_of(message, "streamed")))
        return response

    told = []

    async def progress(*said):
        told.append(said)

    async with scripted(on_call=tool) as server, opened(server.url, client) as session:
        assert await call(session, progress) == "streamed"
        await asyncio.sleep(0.05)
    assert told == [(1.0, 4.0, "at 1"), (2.5, 4.0, "at 2.5")]


@each
@on_loop
async def test_the_server_asks_meanwhile(client):
    """A request of the server in the stream of a reply: a ping is answered, what this client lacks is refused."""

    async def tool(request, message):
        response = await stream(request)
        said = []
        for number, method in (("a", "ping"), (7, "roots/list")):
            server.answers[number] = asyncio.get_running_loop().create_future()
            await response.write(event({"jsonrpc": "2.0", "id": number, "method": method}))
            said.append(await asyncio.wait_for(server.answers[number], 5))
        text = f"{said[0].get('result')} {'error' in said[1]}"
        await response.write(event(answer_of(message, text)))
        return response

    async with scripted(on_call=tool) as server, opened(server.url, client) as session:
        assert await call(session) == "{} True"


@each
@pytest.mark.parametrize("resumed", [True, False])
@on_loop
async def test_a_stream_that_breaks_off_is_resumed(client, resumed):
    async def tool(request, message):
        calls.append(message)
        response = await stream(request)
        await response.write(b"retry: 50\n" + event(id="e1"))
        return response

    async def rest(request):
        if request.headers.get("last-event-id") is None:
            return web.Response(status=405)
        if not resumed:
            return web.Response(status=500)
        places.append(request.headers["last-event-id"])
        response = await stream(request)
        if len(places) < 4:  # and once more
            said = {"jsonrpc": "2.0", "method": "notifications/message", "params": LOG}
            await response.write(event(said, id=f"e{len(places) + 1}"))
        else:
            await response.write(event(answer_of(calls[0], "the rest")))
        return response

    calls: list = []
    places: list = []
    async with scripted(on_call=tool, on_get=rest) as server, opened(server.url, client) as session:
        if resumed:
            assert await call(session) == "the rest"
            assert places == ["e1", "e2", "e3", "e4"] and len(calls) == 1
        else:
            kind, text = await failure(session)
            assert kind in ("session_lost", str(compat.CONNECTION_CLOSED)), text
            assert server.methods().count("GET") == 2


LOG = {"level": "info", "data": "x"}


# -- giving up ------------------------------------------------------------------------------------------------


@each
@on_loop
async def test_the_server_is_told_of_a_call_that_is_given_up(client):
    async def tool(request, message):
        await asyncio.sleep(20)

    async with scripted(on_call=tool) as server, opened(server.url, client) as session:
        given_up = asyncio.create_task(call(session))
        number = (await server.wait_for("tools/call")).message["id"]
        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up
        told = await server.wait_for("notifications/cancelled")
        assert told.message["params"]["requestId"] == number
        server.on_call = None
        assert await call(session) == "done"  # the session goes on


@each
@on_loop
async def test_in_the_protocol_of_2026_the_end_of_the_stream_tells_it(client):
    if not compat.api().v2:
        pytest.skip("mcp 1.x does not speak it")
    ended = asyncio.Event()

    async def tool(request, message):
        try:
            await asyncio.sleep(20)
        finally:
            ended.set()

    async with scripted(on_call=tool, modern=True) as server, opened(server.url, client) as session:
        given_up = asyncio.create_task(call(session))
        await server.wait_for("tools/call")
        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up
        await asyncio.wait_for(ended.wait(), 5)
    assert "notifications/cancelled" not in server.methods() and "DELETE" not in server.methods()


@each
@on_loop
async def test_calls_under_way_end_with_the_session(client):
    async def tool(request, message):
        await asyncio.sleep(20)

    async with scripted(on_call=tool) as server:
        async with opened(server.url, client) as session:
            waiting = asyncio.create_task(failure(session))
            await server.wait_for("tools/call")
        code, text = await asyncio.wait_for(waiting, 5)
        assert (code, text) == (str(compat.CONNECTION_CLOSED), "Connection closed")


# -- replies --------------------------------------------------------------------------------------------------


@each
@on_loop
async def test_a_packed_reply(client):
    async def tool(request, message):
        response = reply(message, result_of("x" * 100_000))
        response.enable_compression(web.ContentCoding.gzip)
        return response

    async with scripted(on_call=tool) as server, opened(server.url, client) as session:
        assert await call(session) == "x" * 100_000
        assert "gzip" in server.seen[-1].headers["accept-encoding"]


@each
@pytest.mark.parametrize(
    ("after", "seconds"),
    [
        ("7", 7.0),
        ("Fri, 31 Dec 1999 23:59:59 GMT", 1.0),
        (None, 1.0),
        ("nan", 1.0),
        ("-3", 0.0),
        ("1e999", 60.0),
    ],
)
@on_loop
async def test_a_busy_server_says_when_to_come_back(client, after, seconds):
    async def tool(request, message):
        return web.Response(status=503, text="full", headers={} if after is None else {"retry-after": after})

    async with scripted(on_call=tool) as server, opened(server.url, client) as session:
        with pytest.raises(compat.api().Error) as caught:
            await call(session)
    known = messages.failure(compat.protocol_error(caught.value)[2], "it")
    assert (known.kind, known.retry_after_s, known.delivered) == ("host_refused", seconds, False)


@each
@pytest.mark.parametrize("style", ["json", "sse"])
@pytest.mark.parametrize("answer", [{"result": 7}, {"result": None}, {"error": "no"}, {"error": {"code": "x"}}])
@on_loop
async def test_an_answer_of_a_wrong_form(client, style, answer):
    async def tool(request, message):
        value = {"jsonrpc": "2.0", "id": message["id"], **answer}
        if style == "json":
            return web.json_response(value)
        response = await stream(request)
        await response.write(event(value))
        return response

    async with scripted(on_call=tool) as server, opened(server.url, client) as session:
        kind, text = await failure(session)
        assert kind in ("server_protocol", "-32700"), text
        server.on_call = None
        assert await call(session) == "done"


# -- proxies and secrets --------------------------------------------------------------------------------------


@each
@on_loop
async def test_a_proxy_that_the_environment_names(client, monkeypatch):
    async with scripted() as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.port}")
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        async with opened("http://tools.invalid/mcp", client) as session:
            assert await call(session) == "done"
        assert {seen.headers["host"] for seen in proxy.seen} == {"tools.invalid"}
        seen = len(proxy.seen)
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.setenv(name, "127.0.0.1,.example.org")
        async with scripted() as server, opened(server.url, client) as session:
            assert await call(session) == "done"
        assert len(proxy.seen) == seen


@each
@pytest.mark.parametrize("fault", ["hang up", "no HTTP", "redirect", "refuse", "html"])
@on_loop
async def test_no_secret_is_told(client, fault, caplog):
    async def tool(request, message):
        if fault == "redirect":
            return web.Response(status=307, headers={"location": "http://127.0.0.1:1/?key=s3cret"})
        if fault == "refuse":
            return web.Response(status=401, text="no")
        if fault == "html":
            return web.Response(text="<html>", content_type="text/html", headers={"set-cookie": "a=s3cret"})
        if fault == "no HTTP":
            request.transport.write(b"what?\r\n\r\n")
        request.transport.close()
        await asyncio.sleep(0)
        return web.Response()

    if client == "sdk":  # httpx logs the query of a URL that it asks; ours do not
        caplog.set_level(logging.DEBUG, "aworld_gym")
    else:
        caplog.set_level(logging.DEBUG)
    async with scripted(on_call=tool) as server:
        entry = {"headers": {"Authorization": "Bearer s3cret"}}
        query = "?key=s3cret" if client == "lean" else ""
        async with opened(server.url + query, client, **entry) as session:
            with pytest.raises(compat.api().Error) as caught:
                await call(session)
            texts = [str(caught.value), str(compat.protocol_error(caught.value))]
            error = caught.value
            while error is not None:
                texts.append(f"{error}{error!r}")
                error = error.__cause__
    own = [r.getMessage() for r in caplog.records if not r.name.startswith(("aiohttp.server", "aiohttp.access"))]
    assert "s3cret" not in "\n".join(texts + own)


@pytest.mark.parametrize("wait", [float("nan"), float("inf"), -1.0, 10**400, "7", None])
def test_a_wait_that_cannot_be_is_none(wait):
    known = messages.failure({"aworld_gym": {"kind": "host_refused", "message": "full", "retry_after_s": wait}}, "it")
    assert known is not None and known.retry_after_s is None
