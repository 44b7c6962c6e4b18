"""The MCP endpoint: sessions come and go here, tool lists and calls are answered here, the rest is the SDK's.

The SDK's session manager does the handshake, pings, the streams that clients hold open, and its own bookkeeping; it
is used through its public interface alone (it is an ASGI application).
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope, Send

from aworld_gym import __version__
from aworld_gym.errors import AWorldGymError, ConfigError, InfraError, MissingDependencyError, describe
from aworld_gym.host.bodies import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    TooLarge,
    TooSlow,
    either,
    read,
    replayed,
    reply,
    rpc_error,
)
from aworld_gym.host.catalogue import Catalogue
from aworld_gym.host.connections import RETRY_AFTER_S
from aworld_gym.host.credentials import Claims, Refused
from aworld_gym.host.exchange import Exchange, call_key
from aworld_gym.host.metrics import HostMetrics
from aworld_gym.host.news import telling
from aworld_gym.host.sessions import Busy, Session, Sessions
from aworld_gym.host.settings import HostSettings
from aworld_gym.toolchain import messages
from aworld_gym.toolchain.hosted import EPISODE_META

logger = logging.getLogger(__name__)

SESSION_HEADER = "mcp-session-id"
UNSUPPORTED_VERSION = -32022
"""What tells a client of the protocol without sessions (2026-07-28) to shake hands instead."""


class Endpoint:
    """``/mcp`` as an ASGI application. Runs on the background loop; enter :meth:`running` first.

    Args:
        settings: the host's.
        catalogue: what is served.
        sessions: where sessions live.
        metrics: where requests are counted.

    Raises:
        MissingDependencyError: the installed ``mcp`` is of the 1.x line.
    """

    def __init__(self, settings: HostSettings, catalogue: Catalogue, sessions: Sessions, metrics: HostMetrics):
        self._settings, self._catalogue, self._sessions, self._metrics = settings, catalogue, sessions, metrics
        self._versions, self._manager = _session_manager(settings)
        sessions.forget = self._forget

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """The manager's own life."""
        async with self._manager.run():
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request. ``scope["claims"]`` is the guard's."""
        headers, claims = Headers(scope=scope), scope["claims"]
        number = headers.get(SESSION_HEADER)
        session = None if number is None else self._sessions.find(number, claims.subject)
        if number is not None and session is None:
            await self._refuse(scope, receive, send, 404, "Session not found: it has ended, or is another client's")
        elif scope["method"] == "POST":
            await self._post(session, claims, headers, scope, receive, send)
        elif scope["method"] not in ("GET", "DELETE"):
            await self._refuse(scope, receive, send, 405, "use POST, GET or DELETE")
        elif session is None:
            await self._refuse(scope, receive, send, 400, f"the header {SESSION_HEADER} is missing")
        elif scope["method"] == "GET":
            with session.watched():
                async with telling(session.news, send) as both:
                    await self._manager.handle_request(scope, receive, both)
        else:
            await reply({}, 200)(scope, receive, send)
            self._sessions.close(session, "client")

    async def _post(
        self, session: Session | None, claims: Claims, headers: Headers, scope: Scope, receive: Receive, send: Send
    ) -> None:
        try:
            body = await read(receive, headers, self._settings.max_request_bytes, self._settings.body_timeout_s)
        except TooLarge:
            limit = self._settings.max_request_bytes
            await self._refuse(scope, receive, send, 413, f"a message may have {limit} bytes at most")
            return
        except TooSlow as late:
            await self._refuse(scope, receive, send, 408, str(late), headers={"connection": "close"})
            return
        if body is None:
            return
        try:
            message = json.loads(body)
        except (ValueError, RecursionError):
            await self._refuse(scope, receive, send, 400, "the body is not JSON", code=-32700)
            return
        if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
            await self._refuse(scope, receive, send, 400, "the body is not one JSON-RPC 2.0 message")
            return
        if session is None:
            await self._open(message, body, claims, headers, scope, receive, send)
            return
        with session.used() as left:
            await self._pass(session, left, message, body, headers, scope, receive, send)

    # -- within a session ------------------------------------------------------------------------------------

    async def _pass(
        self,
        session: Session,
        left: Callable[[], None],
        message: dict[str, Any],
        body: bytes,
        headers: Headers,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        """One message of an open session."""
        method, number, params = message.get("method"), message.get("id"), message.get("params")
        if method == "notifications/cancelled" and isinstance(params, dict) and _is_id(params.get("requestId")):
            call = session.calls.get(call_key(params["requestId"]))
            if call is not None:
                call.cancel()
                await reply(None, 202)(scope, receive, send)
                return
        if method not in ("tools/list", "tools/call") or not _is_id(number):
            await self._manager.handle_request(scope, replayed(body, receive), send)
            return
        try:
            servers = _filter(headers)
            offered = self._catalogue.check_servers(session.toolchain, servers)
        except ConfigError as error:
            await reply(rpc_error(number, INVALID_PARAMS, str(error)))(scope, receive, send)
            return
        if method == "tools/list":
            await reply(await self._list(session, number, offered))(scope, receive, send)
        elif not isinstance(params, dict):
            await reply(rpc_error(number, INVALID_PARAMS, "tools/call needs params"))(scope, receive, send)
        else:
            await Exchange(session, message, offered, self._metrics).run(receive, send, left)

    async def _list(self, session: Session, number: Any, offered: frozenset[str] | None) -> dict[str, Any]:
        """The tools that the servers have now."""
        try:
            await session.tools.refresh()
        except AWorldGymError as error:
            known = error if isinstance(error, InfraError) else InfraError("tools_unavailable", describe(error))
            self._metrics.errors.labels(session.toolchain, known.kind).inc()
            return messages.refusal(number, known)
        table = session.tools.table
        tools = [tool for tool in table.listed if offered is None or table.routes[tool["name"]].server in offered]
        return {"jsonrpc": "2.0", "id": number, "result": {"tools": tools}}

    # -- a session's beginning and end -----------------------------------------------------------------------

    async def _open(
        self,
        message: dict[str, Any],
        body: bytes,
        claims: Claims,
        headers: Headers,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        """The request that opens a session."""
        number, params = message.get("id"), message.get("params")
        asked = headers.get("mcp-protocol-version")
        if message.get("method") == "server/discover" or (asked is not None and asked not in self._versions):
            data = {"supported": list(self._versions), "requested": asked or ""}
            text = "this host has sessions: begin with initialize"
            await reply(rpc_error(number, UNSUPPORTED_VERSION, text, data), 400)(scope, receive, send)
            return
        if message.get("method") != "initialize" or not isinstance(params, dict) or not _is_id(number):
            await self._refuse(
                scope, receive, send, 400, f"begin with initialize, then send {SESSION_HEADER}", number=number
            )
            return
        try:
            toolchain = self._catalogue.choose(_header(headers, "env-code"))
            claims.check_scope(toolchain)
            servers = self._catalogue.check_servers(toolchain, _filter(headers))
            public, present = _episode(params)
        except ConfigError as error:
            await self._refuse(scope, receive, send, 400, str(error), code=INVALID_PARAMS, number=number)
            return
        except Refused as refused:
            self._metrics.refused.labels("scope").inc()
            where = {"www-authenticate": refused.challenge}
            await self._refuse(scope, receive, send, refused.status, str(refused), number=number, headers=where)
            return
        opening = asyncio.create_task(self._sessions.open(toolchain, servers, public, claims.subject, present))
        if not await either(opening, receive):
            if not opening.cancelled() and opening.exception() is None:  # it was just ready
                self._sessions.close(opening.result(), "left")
            return
        try:
            session = opening.result()
        except Busy as busy:
            self._metrics.refused.labels(busy.why).inc()
            wait = {"retry-after": str(RETRY_AFTER_S)}
            await self._refuse(scope, receive, send, 503, str(busy), code=-32000, number=number, headers=wait)
            return
        except AWorldGymError as error:
            logger.warning("no session of %s: %s", toolchain, describe(error))
            known = error if isinstance(error, InfraError) else InfraError("server_start_failed", str(error))
            self._metrics.errors.labels(toolchain, known.kind).inc()
            await reply(messages.refusal(number, known))(scope, receive, send)
            return
        await self._shake_hands(session, body, scope, receive, send)

    async def _shake_hands(self, session: Session, body: bytes, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the SDK answer the opening request, and learn the session's id from its answer."""

        async def watched(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] < 400:
                number = Headers(raw=message["headers"]).get(SESSION_HEADER)
                if number is not None:
                    self._sessions.register(session, number)
                    logger.info("session opened", extra={"session": number[:8], "toolchain": session.toolchain})
            await send(message)

        try:
            await self._manager.handle_request(scope, replayed(body, receive), watched)
        finally:
            if not session.id:
                self._sessions.close(session, "handshake")
            elif session.closing is not None:  # before the SDK's session could be forgotten with it
                await self._forget(session)

    async def _forget(self, session: Session) -> None:
        """Have the SDK forget a session, with the streams that its client holds open."""
        if not session.id:
            return
        headers = [(SESSION_HEADER.encode(), session.id.encode()), (b"accept", b"application/json, text/event-stream")]
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": "DELETE",
            "path": "/mcp",
            "raw_path": b"/mcp",
            "query_string": b"",
            "root_path": "",
            "scheme": "http",
            "headers": headers,
            "client": None,
            "server": None,
        }

        async def nothing_more() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def to_nobody(message: Message) -> None:
            """The answer, which nobody waits for."""

        await self._manager.handle_request(scope, nothing_more, to_nobody)

    async def _refuse(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        status: int,
        text: str,
        *,
        code: int = INVALID_REQUEST,
        number: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        code = METHOD_NOT_FOUND if status == 405 else code
        number = number if _is_id(number) else None
        await reply(rpc_error(number, code, text), status, headers)(scope, receive, send)


def _session_manager(settings: HostSettings) -> tuple[tuple[str, ...], Any]:
    """The versions of the protocol that have sessions, and the SDK's manager."""
    try:
        from mcp.server.lowlevel.server import NotificationOptions, Server
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
        from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
    except ImportError as error:
        raise MissingDependencyError("an environment host needs mcp 2.x: pip install 'aworld-gym[host]'") from error

    async def answered_before(context: Any, params: Any) -> Any:
        raise AssertionError("tools are listed and called by the endpoint itself")

    class Live(Server[Any]):
        """It says that it tells of changes, which :func:`telling` does."""

        def create_initialization_options(self, notification_options: Any = None, *args: Any, **kwargs: Any) -> Any:
            told = notification_options or NotificationOptions(tools_changed=True)
            return super().create_initialization_options(told, *args, **kwargs)

    server: Any = Live("aworld-gym", version=__version__, on_list_tools=answered_before, on_call_tool=answered_before)
    manager = StreamableHTTPSessionManager(
        server,
        json_response=True,
        session_idle_timeout=None,  # when a session ends is for Sessions to say
        max_sessions=None,
        max_request_body_size=settings.max_request_bytes,
    )
    return tuple(HANDSHAKE_PROTOCOL_VERSIONS), manager


def _is_id(number: Any) -> bool:
    return isinstance(number, str | int) and not isinstance(number, bool)


def _header(headers: Headers, name: str) -> str | None:
    """A header in its hyphen form, or with underscores, which many proxies drop."""
    return headers.get(name) or headers.get(name.replace("-", "_")) or None


def _filter(headers: Headers) -> list[str] | None:
    """The servers that ``MCP_SERVERS`` names; None where it names none."""
    text = _header(headers, "mcp-servers")
    names = [name.strip() for name in text.split(",") if name.strip()] if text else []
    return names or None


def _episode(params: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """The episode's public facts, and whether the client promises to be present.

    Raises:
        ConfigError: they are not of the form that is expected.
    """
    meta = params.get("_meta")
    told = meta.get(EPISODE_META) if isinstance(meta, dict) else None
    if told is None:
        return {}, False
    public = told.get("public") if isinstance(told, dict) else None
    if not isinstance(public, dict):
        raise ConfigError(f'_meta["{EPISODE_META}"] must be {{"public": {{...}}}}')
    return public, True
