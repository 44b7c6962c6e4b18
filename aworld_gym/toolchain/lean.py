"""A lean streamable HTTP transport: a dispatcher for the SDK's own ``ClientSession``, over ``aiohttp``.

The SDK's transport takes every message through three tasks, two streams and two validations before it meets the
wire. Here a request is asked and answered in the task of its caller. The rest is as there: replies in JSON and in
events, sessions, resumption with ``Last-Event-ID``, progress, cancellation, and requests and notifications of the
server. What differs: OpenTelemetry spans are not made, and a stream of events lets its connection be used again.

Failures become the same JSON-RPC error answers as those that :mod:`aworld_gym.toolchain.http` makes of them. Needs
mcp 2.x, of which the dispatcher's interface is part.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeGuard

import anyio

from aworld_gym.errors import InfraError
from aworld_gym.toolchain import compat, messages, replies
from aworld_gym.toolchain.jsontext import deeper, mended
from aworld_gym.toolchain.leanhttp import Event, EventStream, LeanClient, load

logger = logging.getLogger(__name__)

RESUME_S = 1.0
"""Seconds before a stream that broke off is asked for again, where the server names none."""
RESUME_TRIES = 2
"""Times in a row that it is asked for without an event coming."""
_SHORTEST_RESUME_S = 0.01
_CANCEL_TIMEOUT_S = 5.0  # for telling the server that a request was given up
_CLOSE_TIMEOUT_S = 1.0  # for what runs in the background
_REQUEST_TIMEOUT, _METHOD_NOT_FOUND, _INVALID_PARAMS, _INTERNAL_ERROR = -32001, -32601, -32602, -32603
_STREAM, _JSON = "text/event-stream", "application/json"
_POST = {"accept": f"{_JSON}, {_STREAM}", "content-type": _JSON}
_GET = {"accept": _STREAM, "cache-control": "no-store"}


def unusable(config: Any) -> str | None:
    """Why the lean transport cannot be used for a server's configuration, or None if it can."""
    from aworld_gym.toolchain.leanhttp import proxy_of

    if not compat.api().v2:
        return f"it needs mcp 2.x, and mcp {compat.api().version} is installed"
    try:
        load()
    except ImportError as error:
        return str(error)
    for url in config.url.split():
        scheme = (proxy_of(url) or "http:").partition(":")[0].lower()
        if scheme not in ("http", "https"):
            return f"the environment names a {scheme} proxy, and it knows only HTTP proxies"
    return None


@asynccontextmanager
async def connect(
    config: Any, ssl: Any, greeting: Mapping[str, Any] | None = None, *, listen: bool = False
) -> AsyncIterator[LeanDispatcher]:
    """A dispatcher for one session with a streamable HTTP server; ends the session on the server when it is left.

    Args:
        config: the server's ``ServerConfig``.
        ssl: the context that checks servers' certificates.
        greeting: goes into the ``_meta`` of the request that opens the session.
        listen: keep a stream open for the server's own messages.
    """
    client = LeanClient(config, ssl)
    try:
        yield compat.tapped(LeanDispatcher)(client, greeting, listen=listen)
    finally:
        try:
            if client.session_id is not None:
                wrong = await client.delete()
                if wrong is not None:
                    logger.debug("the session with %s was not ended there: %s", client.origin, wrong)
        finally:
            await client.aclose()


@dataclass(slots=True)
class _Pending:
    """A request of ours that is under way."""

    scope: asyncio.Timeout
    on_progress: Any


@dataclass(slots=True, eq=False)
class _Inbound:
    """What the SDK's handlers are told with a message of the server (its ``DispatchContext``)."""

    transport: Any
    dispatcher: LeanDispatcher
    request_id: Any = None
    progress_token: Any = None
    message_metadata: Any = None
    task: asyncio.Task[None] | None = None
    closed: bool = False
    cancel_requested: anyio.Event = field(default_factory=anyio.Event)

    @property
    def can_send_request(self) -> bool:
        return not self.closed

    async def send_raw_request(self, method: str, params: Any, opts: Any = None) -> dict[str, Any]:
        if self.closed:
            raise compat.api().Error(code=_INTERNAL_ERROR, message=f"{method}: the request it belongs to has ended")
        return await self.dispatcher.send_raw_request(method, params, opts)

    async def notify(self, method: str, params: Any, opts: Any = None) -> None:
        if not self.closed:
            await self.dispatcher.notify(method, params, opts)

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        if self.progress_token is not None:
            values = {"progress": progress, "total": total, "message": message}
            told = {k: v for k, v in values.items() if v is not None}
            await self.notify("notifications/progress", {"progressToken": self.progress_token, **told})


class LeanDispatcher:
    """JSON-RPC of one session with a server over streamable HTTP (``mcp.shared.dispatcher.Dispatcher``).

    Args:
        client: the session's own; closed by whoever made it.
        greeting: goes into the ``_meta`` of the request that opens the session.
        listen: keep a stream open for the server's own messages.
    """

    def __init__(self, client: LeanClient, greeting: Mapping[str, Any] | None = None, *, listen: bool = False):
        self._client, self._greeting, self._listens = client, greeting, listen
        self._last = 0  # the number of the last request
        self._pending: dict[Any, _Pending] = {}
        self._inbound: dict[Any, _Inbound] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._running = self._closed = False
        self._handlers: tuple[Any, Any, Any] = (None, None, None)

    @property
    def session_id(self) -> str | None:
        """The session's, as the server named it."""
        return self._client.session_id

    # -- what the SDK's session calls -------------------------------------------------------------------------

    async def run(
        self,
        on_request: Callable[[Any, str, Any], Awaitable[dict[str, Any]]],
        on_notify: Callable[[Any, str, Any], Awaitable[None]],
        on_notify_intercept: Callable[[str, Any], bool] | None = None,
        *,
        task_status: Any = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Be usable until cancelled; then answer what is under way with "Connection closed"."""
        self._handlers = on_request, on_notify, on_notify_intercept
        self._running = True
        task_status.started()
        try:
            await anyio.sleep_forever()
        finally:
            self._running, self._closed = False, True
            now = asyncio.get_running_loop().time()
            for pending in self._pending.values():
                if not pending.scope.expired():
                    pending.scope.reschedule(now)
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                with anyio.CancelScope(shield=True):
                    await asyncio.wait(list(self._tasks), timeout=_CLOSE_TIMEOUT_S)

    async def send_raw_request(self, method: str, params: Mapping[str, Any] | None, opts: Any = None) -> dict[str, Any]:
        """The result of a request.

        Raises:
            MCPError: the server's error, or what stands in for an answer that did not come.
            RuntimeError: it does not run yet.
            ValueError: the arguments are no JSON, or the caller's request id is in use.
        """
        error = compat.api().Error
        if self._closed:
            raise error(code=compat.CONNECTION_CLOSED, message="Connection closed")
        if not self._running:
            raise RuntimeError("the dispatcher does not run yet")
        opts = opts or {}
        number, key = self._number(opts.get("request_id"))
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": number, "method": method}
        told: dict[str, Any] = {} if opts.get("on_progress") is None else {"progressToken": number}
        if method == "initialize":
            self._client.version = None
            told |= self._greeting or {}
        if told:
            params = {**(params or {}), "_meta": {**((params or {}).get("_meta") or {}), **told}}
        if params:
            message["params"] = params
        headers = self._headers(opts)
        body = json.dumps(message, allow_nan=False, separators=(",", ":")).encode()
        # a request that can be asked for again goes on at the server; and of the protocol of 2026, the end of the
        # response's stream is the word to cancel
        tells = opts.get("cancel_on_abandon", True) and not self._modern()
        tells = tells and not (opts.get("resumption_token") or opts.get("on_resumption_token"))
        try:
            async with asyncio.timeout(opts.get("timeout")) as scope:
                self._pending[key] = _Pending(scope, opts.get("on_progress"))
                return await self._asked(number, method, headers, body, opts)
        except InfraError as failure:
            raise _as_answer(number, failure) from failure
        except TimeoutError:
            if self._closed:
                raise error(code=compat.CONNECTION_CLOSED, message="Connection closed") from None
            if tells:
                self._spawn(self._cancel(number, f"timed out after {opts.get('timeout')} s"))
            raise error(code=_REQUEST_TIMEOUT, message=f"Request {method!r} timed out") from None
        except asyncio.CancelledError:
            if tells and not self._closed:
                self._spawn(self._cancel(number, "given up by the caller"))
            raise
        finally:
            self._pending.pop(key, None)

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: Any = None) -> None:
        """Send a notification. Nobody waits for its fate, so a failure is only logged."""
        if self._closed or (method == "notifications/cancelled" and self._modern()):
            return
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        if params:
            message["params"] = params
        headers = self._headers(opts or {})
        try:
            await self._tell(message, headers)
        except InfraError as failure:
            logger.debug("%s was not taken: %s", method, failure)
        if method == "notifications/initialized" and self._listens and self.session_id is not None:
            self._spawn(self._listen())

    # -- what an environment host's link calls ----------------------------------------------------------------

    async def put(self, url: str, content: bytes) -> tuple[int, str]:
        """Bring ``content`` to ``url``; the status and body of the answer.

        Raises:
            InfraError: there was none.
        """
        return await self._client.put(url, content)

    async def hold(self) -> int:
        """Hold the stream of the server's own messages open until it ends; its status.

        Raises:
            InfraError: it broke.
        """
        response = await self._client.request("GET", _GET)
        try:
            if response.status < 300 and _is(response, _STREAM):
                await self._heard(EventStream(response), None)
        finally:
            response.close()
        status: int = response.status
        return status

    # -- requests ---------------------------------------------------------------------------------------------

    def _number(self, wanted: Any) -> tuple[Any, Any]:
        """A request's id, and what it is known by here ("7" and 7 are one)."""
        if wanted is not None:
            key = _key(wanted)
            if key in self._pending:
                raise ValueError(f"request id {wanted!r} is already in flight")
            return wanted, key
        self._last += 1
        while self._last in self._pending:
            self._last += 1
        return self._last, self._last

    def _headers(self, opts: Any) -> dict[str, str]:
        headers = {name.lower(): value for name, value in (opts.get("headers") or {}).items()}
        version = headers.pop("mcp-protocol-version", None)
        if version is not None:
            self._client.version = version
        return {**_POST, **headers}

    def _modern(self) -> bool:
        return (self._client.version or "") >= "2026"

    async def _asked(self, number: Any, method: str, headers: dict[str, str], body: bytes, opts: Any) -> dict[str, Any]:
        token = opts.get("resumption_token")
        if token:
            stream = _Resumable(token)
            return self._result(await self._resumed(number, stream, "the reply is to be resumed", opts))
        response = await self._client.request("POST", headers, body)
        try:
            if response.status >= 300:
                await self._refused(response)
            if method == "initialize":
                self._client.session_id = response.headers.get("mcp-session-id")
            if _is(response, _STREAM) and response.status != 202:
                stream = _Resumable()
                answer = await self._answered(response, number, stream, opts)
                if answer is not None:
                    self._client.release(response)
                    return self._result(answer)
            else:
                content = mended(await self._client.read(response))
                kind = response.headers.get("content-type", "")
                try:
                    answer = replies.answer(number, response.status, kind, content)
                    _check_depth(answer, content)
                    return self._result(answer)
                except ValueError as error:
                    raise self._wrong(str(error)) from None
        except BaseException:
            response.close()
            raise
        response.close()
        return self._result(await self._resumed(number, stream, stream.why, opts))

    async def _answered(self, response: Any, number: Any, stream: _Resumable, opts: Any) -> dict[str, Any] | None:
        """The answer in a stream of events; None if it ends before."""
        events = EventStream(response)
        answer = await self._heard(events, number, stream, opts.get("on_resumption_token"))
        stream.why = f"the stream of the reply ended before the reply ({events.why})"
        return answer

    async def _resumed(self, number: Any, stream: _Resumable, why: str, opts: Any) -> dict[str, Any]:
        """The answer, from the streams that go on where one broke off."""
        if stream.last_id is None:
            raise InfraError("session_lost", f"{self._client.origin}: {why}", server=self._client.server)
        for wait in stream.waits(first=0.0 if opts.get("resumption_token") else None):
            await asyncio.sleep(wait)
            try:
                response = await self._client.request("GET", {**_GET, "last-event-id": stream.last_id})
            except InfraError as failure:
                why = failure.args[0]
                continue
            try:
                if response.status == 404:
                    await self._refused(response)
                if response.status >= 300 or not _is(response, _STREAM):
                    why = f"asked for the rest of a stream, it answered {response.status} {response.reason}"
                    continue
                answer = await self._answered(response, number, stream, opts)
                if answer is not None:
                    return answer
                why = stream.why
            finally:
                response.close()
        raise InfraError(
            "session_lost", f"{self._client.origin}: {why}; and it could not be resumed", server=self._client.server
        )

    def _result(self, answer: dict[str, Any]) -> dict[str, Any]:
        """The result in an answer.

        Raises:
            MCPError: it is an error.
            InfraError: it is not JSON-RPC.
        """
        if "error" in answer:
            found = answer["error"]
            code, text = (found.get("code"), found.get("message")) if isinstance(found, dict) else (None, None)
            if not isinstance(code, int) or not isinstance(text, str):
                raise self._wrong(f"answered with an error that is not JSON-RPC's: {replies.excerpt(str(found))}")
            raise compat.api().Error(code=code, message=text, data=found.get("data"))
        result = answer["result"]
        if not isinstance(result, dict):
            raise self._wrong(f"answered with a result that is no object: {replies.excerpt(str(result))}")
        return result

    async def _refused(self, response: Any) -> None:
        """Raise what a status of 300 or more stands for."""
        body = await self._client.read(response)
        status, headers = response.status, response.headers
        if status < 400:
            raise self._wrong(f"answered {status} {response.reason}")
        kind, text, delivered = replies.refusal(
            self._client.origin,
            status,
            response.reason or "",
            body.decode(errors="replace"),
            challenge=headers.get("www-authenticate"),
            in_session=self.session_id is not None,
        )
        wait = replies.retry_after(status, headers.get("retry-after"))
        error = InfraError(kind, text, server=self._client.server, delivered=delivered, retry_after_s=wait)
        raise _as_answer(None, error, replies.error_code(body))

    async def _cancel(self, number: Any, reason: str) -> None:
        params = {"requestId": number, "reason": reason}
        try:
            async with asyncio.timeout(_CANCEL_TIMEOUT_S):
                await self.notify("notifications/cancelled", params)
        except TimeoutError:
            logger.debug("%s could not be told in time that request %r was given up", self._client.origin, number)

    async def _tell(self, message: dict[str, Any], headers: Mapping[str, str]) -> None:
        """Send a message that has no answer."""
        body = json.dumps(message, allow_nan=False, separators=(",", ":")).encode()
        response = await self._client.request("POST", headers, body)
        if response.status < 300 and not _is(response, _STREAM):
            await self._client.read(response)  # so that its connection can be used again
            return
        response.close()
        if response.status >= 300:
            raise self._wrong(f"answered {response.status} {response.reason}")

    def _wrong(self, text: str) -> InfraError:
        return InfraError("server_protocol", f"{self._client.origin} {text}", server=self._client.server)

    # -- what the server says by itself -----------------------------------------------------------------------

    async def _listen(self) -> None:
        """Keep the stream of the server's own messages open, and go on where it broke off."""
        stream = _Resumable()
        for wait in stream.waits(first=0.0):
            await asyncio.sleep(wait)
            more = {} if stream.last_id is None else {"last-event-id": stream.last_id}
            try:
                response = await self._client.request("GET", {**_GET, **more})
            except InfraError as failure:
                logger.debug("the stream of %s's own messages: %s", self._client.origin, failure)
                continue
            try:
                if response.status in (404, 405):
                    return
                if response.status < 300 and _is(response, _STREAM):
                    stream.tries = 0
                    await self._heard(EventStream(response), None, stream)
            finally:
                response.close()

    async def _heard(
        self, events: EventStream, number: Any, stream: _Resumable | None = None, on_token: Any = None
    ) -> dict[str, Any] | None:
        """Take note of a stream's messages up to the answer to request ``number`` (None: to none), which is returned.

        Returns None at the stream's end.
        """
        while True:
            try:
                event = await events.next()
                if event is None:
                    return None
                if stream is not None:
                    stream.note(event)
                answer = await self._message(event, number) if event.name == "message" and event.data else None
            except (ValueError, RecursionError) as error:
                if number is None:
                    logger.debug("what %s said is no message: %s", self._client.origin, error)
                    continue
                raise self._wrong(f"answered with an event that is no JSON-RPC: {error}") from None
            if on_token is not None and event.id is not None:
                await on_token(event.id)
            if answer is not None:
                return answer

    async def _message(self, event: Event, number: Any) -> dict[str, Any] | None:
        data = mended(event.data)
        message = json.loads(data)
        if not isinstance(message, dict):
            raise ValueError(f"it is no object: {replies.excerpt(str(message))}")
        method, params = message.get("method"), message.get("params")
        if method is None:
            if number is None or not ({"result", "error"} & message.keys()):
                raise ValueError(f"it answers nothing that was asked: {replies.excerpt(str(message))}")
            _check_depth(message, data)
            return message
        if not isinstance(method, str) or not (params is None or isinstance(params, dict)):
            raise ValueError(f"it has a method or params of a wrong type: {replies.excerpt(str(message))}")
        if message.get("id") is not None:
            self._requested(message["id"], method, params)
        else:
            self._notified(method, params)
        return None

    def _notified(self, method: str, params: dict[str, Any] | None) -> None:
        _, on_notify, intercept = self._handlers
        told = params or {}
        if method == "notifications/cancelled":
            inbound = self._inbound.get(_key(told.get("requestId")))
            if inbound is not None:
                inbound.cancel_requested.set()
                if inbound.task is not None:
                    inbound.task.cancel()
        elif method == "notifications/progress":
            pending = self._pending.get(_key(told.get("progressToken")))
            progress, total, text = told.get("progress"), told.get("total"), told.get("message")
            if pending is not None and pending.on_progress is not None and _is_number(progress):
                said = (float(total) if _is_number(total) else None, text if isinstance(text, str) else None)
                self._spawn(self._contained(pending.on_progress(float(progress), *said), method))
        try:
            if intercept is not None and intercept(method, params):
                return
        except Exception:
            logger.exception("an intercept of %s failed", method)
        self._spawn(self._contained(on_notify(self._context(), method, params), method))

    def _requested(self, number: Any, method: str, params: dict[str, Any] | None) -> None:
        token = ((params or {}).get("_meta") or {}).get("progressToken")
        inbound = self._context(number, token)
        self._inbound[_key(number)] = inbound
        inbound.task = self._spawn(self._handle(inbound, method, params))

    def _context(self, number: Any = None, token: Any = None) -> _Inbound:
        from mcp.shared.transport_context import TransportContext

        return _Inbound(TransportContext(kind="streamable-http", can_send_request=True), self, number, token)

    async def _handle(self, inbound: _Inbound, method: str, params: Any) -> None:
        """Answer a request of the server, unless it takes the request back."""
        key = _key(inbound.request_id)
        answer: dict[str, Any]
        try:
            answer = {"result": await self._handlers[0](inbound, method, params)}
        except Exception as error:
            known = compat.protocol_error(error)
            if known is not None:
                answer = {"error": {"code": known[0], "message": known[1]}}
                if known[2] is not None:
                    answer["error"]["data"] = known[2]
            elif isinstance(error, ValueError):  # the request does not have the form that its method asks for
                answer = {"error": {"code": _INVALID_PARAMS, "message": "Invalid request parameters"}}
            else:
                logger.exception("the handler of %s failed", method)
                answer = {"error": {"code": _INTERNAL_ERROR, "message": "the client's handler failed"}}
        finally:
            inbound.closed = True
            if self._inbound.get(key) is inbound:
                del self._inbound[key]
        message = {"jsonrpc": "2.0", "id": inbound.request_id, **answer}
        try:
            await self._tell(message, _POST)
        except InfraError as failure:
            logger.debug("the answer to %s was not taken: %s", method, failure)

    async def _contained(self, handling: Awaitable[None], method: str) -> None:
        try:
            await handling
        except Exception:
            logger.exception("the handler of %s failed", method)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


class _Resumable:
    """Where a stream of events can go on.

    Attributes:
        last_id: of the last event that had one.
        tries: how often in a row it was asked for, and nothing came.
        why: it ended.
    """

    def __init__(self, last_id: str | None = None):
        self.last_id, self.tries, self.why = last_id, 0, ""
        self._wait_s = RESUME_S

    def note(self, event: Event) -> None:
        """An event came."""
        self.tries = 0
        self.last_id = event.id or self.last_id
        self._wait_s = self._wait_s if event.retry_s is None else max(event.retry_s, _SHORTEST_RESUME_S)

    def waits(self, first: float | None = None) -> Any:
        """Seconds before each attempt to go on, as long as one is worth while."""
        while self.tries < RESUME_TRIES:
            self.tries += 1
            yield self._wait_s if first is None else first
            first = None


def _is(response: Any, kind: str) -> bool:
    found: str = response.headers.get("content-type", "")
    return found.lower().startswith(kind)


def _check_depth(answer: dict[str, Any], content: bytes) -> None:
    """Refuse what is nested deeper than the SDK takes; but a list of tools is wanted even if one schema is absurd."""
    if content.count(b"{") + content.count(b"[") <= messages.MAX_DEPTH or not deeper(answer, messages.MAX_DEPTH):
        return
    result = answer.get("result")
    if not (isinstance(result, dict) and isinstance(result.get("tools"), list)):
        raise ValueError(f"answered with JSON nested more than {messages.MAX_DEPTH} levels deep")


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _key(number: Any) -> Any:
    """What an id is known by: both lines of the SDK take "7" for 7."""
    try:
        return int(number) if isinstance(number, str) else number if isinstance(number, int) else None
    except ValueError:
        return number


def _as_answer(number: Any, failure: InfraError, code: int | None = None) -> Exception:
    """The error answer that stands for a failure."""
    details = messages.refusal(number, failure, code)["error"]
    error: Exception = compat.api().Error(**details)
    return error
