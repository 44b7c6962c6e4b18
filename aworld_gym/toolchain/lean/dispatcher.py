"""JSON-RPC over streamable HTTP: requests and notifications, and what becomes of them."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from aworld_gym.errors import InfraError
from aworld_gym.toolchain import compat, messages, replies
from aworld_gym.toolchain.jsontext import mended
from aworld_gym.toolchain.lean.client import Client, proxy_of
from aworld_gym.toolchain.lean.events import aiohttp
from aworld_gym.toolchain.lean.incoming import Incoming, key_of
from aworld_gym.toolchain.lean.streams import Resumable, Streams, check_depth, is_kind

logger = logging.getLogger(__name__)

_CANCEL_TIMEOUT_S = 5.0  # for telling the server that a request was given up
_REQUEST_TIMEOUT = -32001
_STREAM, _JSON = "text/event-stream", "application/json"
_encode = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode
_POST = {"accept": f"{_JSON}, {_STREAM}", "content-type": _JSON}


def unusable(config: Any) -> str | None:
    """Why the lean transport cannot be used for a server's configuration, or None if it can."""
    if not compat.api().v2:
        return f"it needs mcp 2.x, and mcp {compat.api().version} is installed"
    try:
        aiohttp()
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
) -> AsyncIterator[Dispatcher]:
    """A dispatcher for one session with a streamable HTTP server; ends the session on the server when it is left.

    Args:
        config: the server's ``ServerConfig``.
        ssl: the context that checks servers' certificates.
        greeting: goes into the ``_meta`` of the request that opens the session.
        listen: keep a stream open for the server's own messages.
    """
    client = Client(config, ssl)
    try:
        yield compat.tapped(Dispatcher)(client, greeting, listen=listen)
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


class Dispatcher:
    """JSON-RPC of one session with a server over streamable HTTP (``mcp.shared.dispatcher.Dispatcher``).

    Args:
        client: the session's own; closed by whoever made it.
        greeting: goes into the ``_meta`` of the request that opens the session.
        listen: keep a stream open for the server's own messages.
    """

    def __init__(self, client: Client, greeting: Mapping[str, Any] | None = None, *, listen: bool = False):
        self._client, self._greeting, self._listens = client, greeting, listen
        self._last = 0  # the number of the last request
        self._pending: dict[Any, _Pending] = {}
        self._running = self._closed = False
        self._incoming = Incoming(self, functools.partial(self._tell, headers=_POST), self._progress_of)
        self._streams = Streams(client, self._incoming)

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
        incoming = self._incoming
        incoming.on_request, incoming.on_notify, incoming.intercept = on_request, on_notify, on_notify_intercept
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
            await incoming.aclose()

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
        body = _encode(message).encode()
        # what can be asked for again goes on at the server
        resumes = opts.get("resumption_token") or opts.get("on_resumption_token")
        tells = opts.get("cancel_on_abandon", True) and not resumes
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
                self._incoming.spawn(self._cancel(number, f"timed out after {opts.get('timeout')} s"))
            raise error(code=_REQUEST_TIMEOUT, message=f"Request {method!r} timed out") from None
        except asyncio.CancelledError:
            if tells and not self._closed:
                self._incoming.spawn(self._cancel(number, "given up by the caller"))
            raise
        finally:
            self._pending.pop(key, None)

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: Any = None) -> None:
        """Send a notification. Nobody waits for its fate, so a failure is only logged."""
        if self._closed or (method == "notifications/cancelled" and self._modern()):
            return  # in the protocol of 2026, the end of a response's stream is the word to cancel
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        if params:
            message["params"] = params
        headers = self._headers(opts or {})
        try:
            await self._tell(message, headers)
        except InfraError as failure:
            logger.debug("%s was not taken: %s", method, failure)
        if method == "notifications/initialized" and self._listens and self.session_id is not None:
            self._incoming.spawn(self._streams.listen())

    # -- what an environment host's link calls ----------------------------------------------------------------

    async def put(self, url: str, content: bytes | Path) -> tuple[int, str]:
        """Bring ``content``, or that of a file, to ``url``; the status and body of the answer.

        Raises:
            InfraError: there was none.
        """
        return await self._client.put(url, content)

    async def hold(self) -> int:
        """Hold the stream of the server's own messages open until it ends; its status.

        Raises:
            InfraError: it broke.
        """
        return await self._streams.hold()

    # -- requests ---------------------------------------------------------------------------------------------

    def _number(self, wanted: Any) -> tuple[Any, Any]:
        """A request's id, and what it is known by here ("7" and 7 are one)."""
        if wanted is not None:
            key = key_of(wanted)
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

    def _progress_of(self, key: Any) -> Any:
        pending = self._pending.get(key)
        return pending.on_progress if pending is not None else None

    def _modern(self) -> bool:
        return (self._client.version or "") >= "2026"

    async def _asked(self, number: Any, method: str, headers: dict[str, str], body: bytes, opts: Any) -> dict[str, Any]:
        on_token = opts.get("on_resumption_token")
        if opts.get("resumption_token"):
            place = Resumable(opts["resumption_token"])
            return self._result(await self._streams.resumed(number, place, on_token, first_s=0.0))
        response = await self._client.request("POST", headers, body)
        if response.status >= 300:
            await self._refused(response)
        if method == "initialize":
            self._client.session_id = response.headers.get("mcp-session-id")
        if is_kind(response, _STREAM) and response.status != 202:
            return self._result(await self._streams.answer(response, number, on_token))
        content = mended(await self._client.read(response))
        try:
            answer = replies.answer(number, response.status, response.headers.get("content-type", ""), content)
            check_depth(answer, content)
        except ValueError as error:
            raise self._wrong(str(error)) from None
        return self._result(answer)

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
        body = _encode(message).encode()
        response = await self._client.request("POST", headers, body)
        if response.status < 300 and not is_kind(response, _STREAM):
            await self._client.read(response)  # so that its connection can be used again
            return
        response.close()
        if response.status >= 300:
            raise self._wrong(f"answered {response.status} {response.reason}")

    def _wrong(self, text: str) -> InfraError:
        return InfraError("server_protocol", f"{self._client.origin} {text}", server=self._client.server)


def _as_answer(number: Any, failure: InfraError, code: int | None = None) -> Exception:
    """The error answer that stands for a failure."""
    details = messages.refusal(number, failure, code)["error"]
    error: Exception = compat.api().Error(**details)
    return error
