"""A streamable HTTP server on the test's own loop, that answers as a test tells it to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from aworld_gym.toolchain import http
from aworld_gym.toolchain.config import load_config

OBJECT = {"type": "object", "properties": {}}


@dataclass
class Seen:
    """A request, as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    message: Any
    peer: Any


@dataclass
class Server:
    """What was seen, and how calls, streams and anything else are answered.

    Attributes:
        on_call: answers ``tools/call``: given the request and the message, a response or the text of a result.
        on_get: answers GET.
        before: may answer any request, before anything else is done.
    """

    port: int = 0
    on_call: Callable[..., Awaitable[Any]] | None = None
    on_get: Callable[..., Awaitable[Any]] | None = None
    before: Callable[..., Awaitable[Any]] | None = None
    modern: bool = False
    seen: list[Seen] = field(default_factory=list)
    answers: dict[Any, asyncio.Future[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.opened = asyncio.Event()

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}/mcp"

    def methods(self) -> list[str]:
        """HTTP methods, or those of JSON-RPC, in the order in which they came."""
        return [(s.message or {}).get("method") or s.method for s in self.seen]

    async def wait_for(self, method: str) -> Seen:
        """The first request with this method, once it has come."""
        async with asyncio.timeout(10):
            while method not in self.methods():
                await asyncio.sleep(0.01)
        return self.seen[self.methods().index(method)]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """One request."""
        body = await request.read()
        message = json.loads(body) if body and request.method == "POST" else None
        peer = request.transport.get_extra_info("peername") if request.transport else None
        headers = {k.lower(): v for k, v in request.headers.items()}
        self.seen.append(Seen(request.method, request.path_qs, headers, message, peer))
        if self.before is not None and (answer := await self.before(request, message)) is not None:
            return answer
        if request.method == "GET" and self.on_get is not None:
            return await self.on_get(request)
        if request.method != "POST":
            return web.Response(status=405 if request.method == "GET" else 200)
        if "method" not in message:
            self.answers.setdefault(message["id"], asyncio.get_running_loop().create_future()).set_result(message)
            return web.Response(status=202)
        if message.get("id") is None:
            return web.Response(status=202)
        return await self._answer(request, message)

    async def _answer(self, request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        method = message["method"]
        if method == "initialize" and self.modern:
            error = {"code": -32020, "message": "this server speaks the protocol of 2026"}
            return web.json_response({"jsonrpc": "2.0", "id": message["id"], "error": error}, status=400)
        if method == "initialize":
            result: dict[str, Any] = {
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "scripted", "version": "0"},
            }
            return reply(message, result, headers={"mcp-session-id": "s1"})
        if method == "server/discover":
            return reply(
                message,
                {
                    "supportedVersions": ["2026-07-28"],
                    "capabilities": {"tools": {}},
                    "resultType": "complete",
                    "ttlMs": 0,
                    "cacheScope": "public",
                },
            )
        if method == "tools/list":
            extra = {"ttlMs": 0, "cacheScope": "public"} if self.modern else {}
            return reply(message, {"tools": [{"name": "it", "inputSchema": OBJECT}], "resultType": "complete"} | extra)
        if method != "tools/call":
            return reply(message, {})
        answer = await self.on_call(request, message) if self.on_call is not None else "done"
        return reply(message, result_of(answer)) if isinstance(answer, str) else answer


def result_of(text: str) -> dict[str, Any]:
    """A tool's result."""
    return {"content": [{"type": "text", "text": text}], "resultType": "complete"}


def reply(message: dict[str, Any], result: Any, **options: Any) -> web.Response:
    """A reply in JSON."""
    return web.json_response({"jsonrpc": "2.0", "id": message["id"], "result": result}, **options)


async def stream(request: web.Request, **headers: str) -> web.StreamResponse:
    """A stream of events, begun."""
    response = web.StreamResponse(headers={"content-type": "text/event-stream", **headers})
    await response.prepare(request)
    return response


def event(message: Any = None, **fields: Any) -> bytes:
    """One event."""
    lines = [f"{name}: {value}" for name, value in fields.items()]
    return "\n".join([*lines, f"data: {'' if message is None else json.dumps(message)}", "", ""]).encode()


def answer_of(message: dict[str, Any], text: str) -> dict[str, Any]:
    """The JSON-RPC answer with a tool's result."""
    return {"jsonrpc": "2.0", "id": message["id"], "result": result_of(text)}


@asynccontextmanager
async def scripted(**script: Any) -> AsyncIterator[Server]:
    """A running :class:`Server`."""
    server = Server(**script)
    app = web.Application(client_max_size=1 << 24)
    app.router.add_route("*", "/{tail:.*}", server.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.2, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
    try:
        yield server
    finally:
        await runner.cleanup()


@asynccontextmanager
async def opened(url: str, client: str, *, kind: str = "streamable-http", **entry: Any) -> AsyncIterator[Any]:
    """A client session with a server, opened by ``client``: of one episode, for which no stream is held open."""
    scope = {"scope": "episode"} if kind == "streamable-http" else {}
    config = load_config({"mcpServers": {"it": {"type": kind, "url": url, "http_client": client, **scope, **entry}}})
    async with http.session(config.servers[0], lambda error: None) as (session, _):
        yield session
