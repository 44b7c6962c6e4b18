"""An HTTP client for the SDK's transports that always gets an answer.

The SDK's HTTP transports let a broken connection end the whole session, drop what a server said when it refused,
and (1.x) leave a caller waiting when a reply breaks off. Here every such failure becomes a JSON-RPC error *answer*
to the request that met it: the session stays alive, and the caller reads what happened, and whether the request can
have reached the server, from the error's data (``messages.failure``).
"""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aworld_gym.errors import ConfigError, InfraError, describe
from aworld_gym.toolchain import compat, messages, replies, schemes
from aworld_gym.toolchain.hosted import file_pieces
from aworld_gym.toolchain.jsontext import mended

logger = logging.getLogger(__name__)

DEFAULT_CLIENTS = {"http": "sdk", "host": "lean"}
"""``http_client`` of entries that name none, by kind: between our own host and client, only the cost counts."""
_CHANGED = b'"notifications/tools/list_changed"'  # which a host sends in one piece
_BLANK_LINES = (b"\n\n", b"\r\n\r\n", b"\r\r")  # what ends an event
_DELETE_TIMEOUT_S = 2.0  # for saying goodbye


def new_client(config: Any, report: Callable[[InfraError], None], greeting: Mapping[str, Any] | None = None) -> Any:
    """An ``httpx`` (or ``httpx2``) client for one session.

    Args:
        config: the server's ``ServerConfig``.
        report: told of failures that no answer can carry (the old SSE transport has none).
        greeting: goes into the ``_meta`` of the request that opens the session.
    """
    httpx = compat.api().httpx
    return _client_class()(
        headers=dict(config.headers),
        # a slow tool is not a broken pool: no limit on connections, no wait for one
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
        timeout=httpx.Timeout(config.timeout, read=config.sse_read_timeout, pool=None),
        verify=_ssl_context(),
        server=config.name,
        url=config.url,
        streamable=config.kind in ("http", "host"),
        report=report,
        greeting=greeting,
    )


@asynccontextmanager
async def connect(
    config: Any, report: Callable[[InfraError], None], greeting: Mapping[str, Any] | None = None
) -> AsyncIterator[tuple[Any, Any, Any]]:
    """The (read, write) pair of a session with an HTTP server, and its client; arguments as for :func:`new_client`.

    Replies may have any size, except over the old SSE transport with mcp 2.x, whose limit of 1 MiB is fixed.
    """
    mcp = compat.api()
    if config.kind in ("http", "host"):
        # one reply may be larger than the SDK's limit of 1 MiB for an event
        options = {"max_sse_event_size": None} if mcp.v2 else {}
        async with new_client(config, report, greeting) as client:
            async with mcp.streamable_http_client(config.url, http_client=client, **options) as (read, write, *_):
                yield read, write, client
    else:

        def factory(headers: Any = None, timeout: Any = None, auth: Any = None) -> Any:
            return new_client(config, report)

        async with mcp.sse_client(config.url, httpx_client_factory=factory) as (read, write):
            yield read, write, None


@asynccontextmanager
async def session(
    config: Any,
    report: Callable[[InfraError], None],
    greeting: Mapping[str, Any] | None = None,
    on_change: Callable[[], None] | None = None,
) -> AsyncIterator[tuple[Any, Any]]:
    """A client session with an HTTP server, and its client (which knows its id, and brings files).

    Args:
        config: as above, as are ``report`` and ``greeting``.
        report: see there.
        greeting: see there.
        on_change: called when the server says that its tools changed.

    Raises:
        ConfigError: the entry asks for the lean client, and it cannot be used.
    """
    if _is_lean(config):
        from aworld_gym.toolchain import lean

        # one for all episodes lives long: it is worth a connection to be told when the tools change
        listen = config.kind == "http" and config.scope == "shared"
        async with lean.connect(config, _ssl_context(), greeting, listen=listen) as dispatcher:
            async with compat.dispatched_session(dispatcher, on_change) as opened:
                yield opened, dispatcher
    else:
        async with connect(config, report, greeting) as (read, write, client):
            if client is not None:
                client.on_change = on_change
            async with compat.client_session(read, write, on_change) as opened:
                yield opened, client


def _is_lean(config: Any) -> bool:
    """Whether the lean client is to be used: where the entry asks for it, or it is the default and can be used."""
    wanted = config.http_client or DEFAULT_CLIENTS.get(config.kind, "sdk")
    if wanted != "lean":
        return False
    from aworld_gym.toolchain import lean

    why = lean.unusable(config)
    if why is not None and config.http_client:
        raise ConfigError(f'server {config.name!r}: `http_client` is "lean": {why}')
    if why is not None:
        logger.debug("server %r: the SDK's HTTP client is used instead of the lean one: %s", config.name, why)
    return why is None


@functools.cache
def _ssl_context() -> Any:
    return compat.api().httpx.create_ssl_context()  # tens of milliseconds, so once


@functools.cache
def _client_class() -> Any:
    httpx: Any = compat.api().httpx

    class Ending(httpx.AsyncByteStream):
        """A stream of events that ends with an answer, even if it breaks off before the server's."""

        def __init__(self, inner: Any, answer: Callable[[str], bytes]):
            self._inner, self._answer = inner, answer

        async def __aiter__(self) -> AsyncIterator[bytes]:
            held = bytearray()  # the event that is not complete yet; of one that breaks off, nothing is passed on
            resumable, why = False, "the stream of the reply ended before the reply"
            try:
                async for chunk in self._inner:
                    seen = max(0, len(held) - 3)
                    held += chunk
                    end = max((at + len(b) for b in _BLANK_LINES if (at := held.rfind(b, seen)) >= 0), default=0)
                    if end:
                        events = bytes(held[:end])
                        del held[:end]
                        # events with an id can be asked for again, and the SDK does so
                        resumable = resumable or re.search(rb"(^|[\r\n])id:", events) is not None
                        yield mended(events)
            except httpx.TransportError as error:
                why = describe(error)
            if not resumable:  # the SDK stops reading at the first answer, so this one is seen only where none came
                yield b"event: message\ndata: " + self._answer(why) + b"\n\n"

        async def aclose(self) -> None:
            await self._inner.aclose()

    class Client(httpx.AsyncClient):
        def __init__(
            self,
            *,
            server: str,
            url: str,
            streamable: bool,
            report: Callable[[InfraError], None],
            greeting: Mapping[str, Any] | None,
            **kwargs: Any,
        ):
            super().__init__(**kwargs)
            self._server, self._streamable, self._report, self._greeting = server, streamable, report, greeting
            self._url = url
            self._met = False  # something came from there
            self.session_id: str | None = None
            self.on_change: Callable[[], None] | None = None

        async def put(self, url: str, content: bytes | Path) -> tuple[int, str]:
            """Bring ``content``, or that of a file, to ``url``; the status and body of the answer.

            Raises:
                InfraError: there was none.
            """
            headers = {"mcp-session-id": self.session_id}
            body: Any = content
            if isinstance(content, Path):
                headers["content-length"] = str(content.stat().st_size)
                body = file_pieces(content)
            request = self.build_request("PUT", url, headers=headers, content=body)
            try:
                response = await super().send(request)
            except httpx.TransportError as error:
                raise self._error("host_unreachable", describe(error)) from error
            return response.status_code, response.text

        async def hold(self) -> int:
            """Hold the session's stream of the server's own messages open until it ends; its status.

            Raises:
                InfraError: it broke.
            """
            headers = {"mcp-session-id": self.session_id, "accept": "text/event-stream"}
            try:
                response = await super().send(self.build_request("GET", self._url, headers=headers), stream=True)
                try:
                    async for chunk in response.aiter_raw():
                        if _CHANGED in chunk and self.on_change is not None:
                            self.on_change()
                finally:
                    await response.aclose()
            except httpx.TransportError as error:
                raise self._error("host_unreachable", describe(error)) from error
            status: int = response.status_code
            return status

        async def send(self, request: Any, **kwargs: Any) -> Any:
            await request.aread()  # what follows a redirect has its message as a stream
            if self._greeting is not None and self.session_id is None and request.method == "POST":
                request = _greeted(request, self._greeting)
            if self._streamable and request.method == "GET" and "last-event-id" not in request.headers:
                # the stream for the server's own messages, none of which this client takes: spare the connection
                return httpx.Response(405, request=request)
            try:
                async with asyncio.timeout(_DELETE_TIMEOUT_S if request.method == "DELETE" else None):
                    response = await super().send(request, **kwargs)
                    if response.status_code >= 400 or not _is(response, "text/event-stream"):
                        await response.aread()
            except (httpx.TransportError, TimeoutError) as error:
                never = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)
                delivered = False if isinstance(error, never) else None
                said = None
                if not self._met and not _proxied(request):
                    said = await schemes.wrong(str(request.url), error, connected=delivered is None)
                if said is not None:
                    refused = self._error("server_protocol", f"{_origin(request)} {said}", delivered=False)
                    return self._answer(request, refused)
                text = f"no answer from {_origin(request)}: {describe(error)}"
                return self._answer(request, self._error("host_unreachable", text, delivered))
            self._met = True
            if response.status_code >= 400:
                wait = replies.retry_after(response.status_code, response.headers.get("retry-after"))
                refused = self._error(*_refusal(request, response), wait)
                return self._answer(request, refused, replies.error_code(response.content))
            self.session_id = response.headers.get("mcp-session-id") or self.session_id
            if self._streamable and request.method == "POST" and response.status_code < 300:
                response = _mended(request, response)
                wrong = _wrong(request, response)
                if wrong is not None:
                    return self._answer(request, self._error("server_protocol", f"{_origin(request)} {wrong}"))
                if _is(response, "text/event-stream"):
                    response.stream = Ending(response.stream, functools.partial(self._broken, request))
            return response

        def _answer(self, request: Any, error: InfraError, code: int | None = None) -> Any:
            """The response that stands in for the one that did not come."""
            if request.method == "POST" and self._streamable:
                if _rpc_id(request) is None:  # a notification wants no answer
                    return httpx.Response(202, request=request)
                headers = {"content-type": "application/json"}
                return httpx.Response(200, headers=headers, content=_rpc_error(request, error, code), request=request)
            if request.method == "DELETE":  # nothing more is wanted of it; 405 is what the SDK takes in silence
                return httpx.Response(405, request=request)
            self._report(error)
            return httpx.Response(202 if request.method == "POST" else 503, request=request)

        def _broken(self, request: Any, why: str) -> bytes:
            return _rpc_error(request, self._error("session_lost", f"{_origin(request)}: {why}"), None)

        def _error(
            self, kind: str, text: str, delivered: bool | None = None, retry_after_s: float | None = None
        ) -> InfraError:
            return InfraError(kind, text, server=self._server, delivered=delivered, retry_after_s=retry_after_s)

    return Client


def _greeted(request: Any, greeting: Mapping[str, Any]) -> Any:
    """The request that opens a session, with what the server is told at that time; any other as it is."""
    body = json.loads(request.content)
    if not isinstance(body, dict) or body.get("method") != "initialize":
        return request
    params = body.setdefault("params", {})
    params["_meta"] = {**(params.get("_meta") or {}), **greeting}
    headers = {k: v for k, v in request.headers.items() if k != "content-length"}
    httpx = compat.api().httpx
    return httpx.Request(
        "POST", request.url, headers=headers, content=json.dumps(body).encode(), extensions=request.extensions
    )


def _is(response: Any, kind: str) -> bool:
    return bool(response.headers.get("content-type", "").lower().startswith(kind))


def _mended(request: Any, response: Any) -> Any:
    """The response, with its JSON mended where that is needed."""
    if not _is(response, "application/json") or (content := mended(response.content)) is response.content:
        return response
    stale = ("content-length", "content-encoding", "transfer-encoding")
    kept = {k: v for k, v in response.headers.items() if k not in stale}
    return compat.api().httpx.Response(response.status_code, headers=kept, content=content, request=request)


def _wrong(request: Any, response: Any) -> str | None:
    """Why a reply is none to its request, or None if it may be; with the SDK, some of these would hang."""
    number = _rpc_id(request)
    if number is None or _is(response, "text/event-stream"):
        return None
    try:
        replies.answer(number, response.status_code, response.headers.get("content-type", ""), response.content)
    except ValueError as error:
        return str(error)
    return None


def _proxied(request: Any) -> bool:
    from aworld_gym.toolchain.lean.client import proxy_of

    return proxy_of(str(request.url)) is not None


def _origin(request: Any) -> str:
    return replies.origin(str(request.url))


def _rpc_id(request: Any) -> Any:
    try:
        return json.loads(request.content).get("id")
    except (ValueError, AttributeError):
        return None


def _rpc_error(request: Any, error: InfraError, code: int | None) -> bytes:
    return json.dumps(messages.refusal(_rpc_id(request), error, code)).encode()


def _refusal(request: Any, response: Any) -> tuple[str, str, bool | None]:
    return replies.refusal(
        _origin(request),
        response.status_code,
        response.reason_phrase,
        response.text,
        challenge=response.headers.get("www-authenticate"),
        in_session="mcp-session-id" in request.headers,
    )
