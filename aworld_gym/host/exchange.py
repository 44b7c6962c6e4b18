"""One tool call over HTTP: what comes is passed on, and what the tool's server says comes back untouched.

A quick call is answered with JSON. One that reports progress, or takes long, is answered with a stream of events, so
that progress arrives as it happens and no proxy takes a silent connection for a dead one.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from starlette.types import Receive, Send

from aworld_gym.errors import InfraError, describe, did_you_mean
from aworld_gym.host.bodies import INVALID_PARAMS, dumped, gone, rpc_error
from aworld_gym.host.metrics import HostMetrics
from aworld_gym.host.sessions import MAX_CALLS, Session
from aworld_gym.toolchain import content, messages
from aworld_gym.toolchain.connection import CallTimeout

logger = logging.getLogger(__name__)

PATIENCE_S = 10.0
"""A call that takes longer is answered with a stream; and as long is the pause between its signs of life."""
MOST_EVENTS = 1000
"""Words of progress that wait for a client that reads slowly; more are dropped, as MCP allows."""
CANCELLED = -32800
"""The code of a call that its client gave up."""


class Exchange:
    """Answers one ``tools/call``.

    Args:
        session: whose tools.
        message: the JSON-RPC request, its ``params`` a mapping.
        offered: names of the servers whose tools may be called; None for all of the session's.
        metrics: where calls are counted.
    """

    def __init__(self, session: Session, message: dict[str, Any], offered: frozenset[str] | None, metrics: HostMetrics):
        self._session, self._number, self._offered, self._metrics = session, message["id"], offered, metrics
        params = message["params"]
        self._name, self._arguments = params.get("name"), params.get("arguments") or {}
        meta = params.get("_meta")
        token = meta.get("progressToken") if isinstance(meta, dict) else None
        self._token = token if isinstance(token, str | int) and not isinstance(token, bool) else None
        self._events: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()

    async def run(self, receive: Receive, send: Send, left: Callable[[], None]) -> None:
        """Call, and answer; ``left`` is called if the client leaves meanwhile, which ends no call."""
        key = call_key(self._number)
        if key in self._session.calls:
            await self._json(send, rpc_error(self._number, -32600, "a request of this id is under way already"))
            return
        if len(self._session.calls) >= MAX_CALLS:
            self._count("refused")
            text = f"{MAX_CALLS} calls of this session are under way, which is the most: wait for some of them"
            busy = InfraError("host_refused", text, delivered=False, retry_after_s=1.0)
            await self._json(send, messages.refusal(self._number, busy))
            return
        call = asyncio.create_task(self._call())
        self._session.calls[key] = call
        call.add_done_callback(lambda _: self._events.put_nowait(None))
        try:
            event = await self._next()
            if event is None and call.done():
                await self._json(send, self._outcome(call))
            else:
                watch = asyncio.create_task(gone(receive))  # of calls that take long: what a quick one is not worth
                watch.add_done_callback(lambda _: left())
                try:
                    await self._stream(send, call, event)
                finally:
                    watch.cancel()
        finally:
            del self._session.calls[key]
            call.cancel()

    async def _next(self) -> dict[str, Any] | None:
        """The next event; None when the call is done, or after a silent while."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await self._events.get()
        except TimeoutError:
            return None

    async def _json(self, send: Send, answer: dict[str, Any]) -> None:
        await self._start(send, b"application/json")
        await send({"type": "http.response.body", "body": dumped(answer)})

    async def _stream(self, send: Send, call: asyncio.Task[dict[str, Any]], event: dict[str, Any] | None) -> None:
        await self._start(send, b"text/event-stream", (b"cache-control", b"no-cache, no-transform"))
        while event is not None or not call.done():
            data = b": still at it\n\n" if event is None else _event(event)
            await send({"type": "http.response.body", "body": data, "more_body": True})
            event = await self._next()
        await send({"type": "http.response.body", "body": _event(self._outcome(call))})

    async def _start(self, send: Send, kind: bytes, *more: tuple[bytes, bytes]) -> None:
        headers = [(b"content-type", kind), (b"mcp-session-id", self._session.id.encode()), *more]
        await send({"type": "http.response.start", "status": 200, "headers": headers})

    async def _call(self) -> dict[str, Any]:
        """The JSON-RPC answer."""
        routes = self._session.tools.table.routes
        route = routes.get(self._name) if isinstance(self._name, str) else None
        if route is None or (self._offered is not None and route.server not in self._offered):
            self._count("unknown_tool")
            known = [name for name, one in routes.items() if self._offered is None or one.server in self._offered]
            said = repr(self._name)[:100]
            hint = did_you_mean(str(self._name)[:100], known)
            return rpc_error(self._number, INVALID_PARAMS, f"Unknown tool: {said}.{hint} There are {', '.join(known)}")
        if not isinstance(self._arguments, dict):
            self._count("bad_arguments")
            return rpc_error(self._number, INVALID_PARAMS, "the arguments of a tool call are an object")
        try:  # what cannot be sent on would end the server's whole connection
            arguments = content.sendable(self._arguments)
        except ValueError as error:
            self._count("bad_arguments")
            return rpc_error(self._number, INVALID_PARAMS, f"the arguments cannot be sent on: {error}")
        began = time.monotonic()
        try:
            progress = None if self._token is None else self._progress
            async with self._session.turns:
                result = await self._session.tools.forward(str(self._name), arguments, progress)
            self._count("tool_error" if result.get("isError") is True else "ok")
        except CallTimeout as timeout:
            self._count("timeout")
            result = {"content": [{"type": "text", "text": str(timeout)}], "isError": True}
        except InfraError as error:
            return self._failed(error)
        except asyncio.CancelledError:
            self._count("cancelled")
            raise
        except Exception as error:
            logger.exception("a call failed unexpectedly")
            return self._failed(InfraError("env_failed", f"the host failed: {describe(error)}"))
        finally:
            self._metrics.latency.labels(self._session.toolchain).observe(time.monotonic() - began)
        return {"jsonrpc": "2.0", "id": self._number, "result": result}

    def _failed(self, error: InfraError) -> dict[str, Any]:
        """The answer that tells our client what failed here; other clients read an error."""
        self._count("infra_failure")
        self._metrics.errors.labels(self._session.toolchain, error.kind).inc()
        logger.warning("a call failed: %s", error, extra={"session": self._session.id[:8]})
        where = f"[{error.server}] " if error.server else ""
        told = InfraError(error.kind, f"{where}{error.args[0]}", delivered=error.delivered)
        return messages.refusal(self._number, told)

    async def _progress(self, progress: float, total: float | None, text: str | None) -> None:
        if self._events.qsize() >= MOST_EVENTS:
            return
        params: dict[str, Any] = {"progressToken": self._token, "progress": progress}
        params |= {} if total is None else {"total": total}
        params |= {} if text is None else {"message": text}
        self._events.put_nowait({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})

    def _outcome(self, call: asyncio.Task[dict[str, Any]]) -> dict[str, Any]:
        if call.cancelled() and self._session.closing is not None:
            return messages.refusal(self._number, InfraError("session_lost", "the session ended during the call"))
        if call.cancelled():
            return rpc_error(self._number, CANCELLED, "the call was cancelled")
        return call.result()

    def _count(self, end: str) -> None:
        self._metrics.calls.labels(self._session.toolchain, end).inc()


def call_key(number: Any) -> Any:
    """A request's id as a key: ``7`` and ``"7"`` are two, and ``1`` is not ``True``."""
    return type(number).__name__, number


def _event(message: dict[str, Any]) -> bytes:
    return b"event: message\r\ndata: " + dumped(message) + b"\r\n\r\n"
