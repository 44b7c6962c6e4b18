"""Who may come in: the address that was asked for, the page that asks, the token; and the log of every request."""

from __future__ import annotations

import ipaddress
import logging
import time
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from aworld_gym.host import logs
from aworld_gym.host.bodies import REFUSED, reply, rpc_error
from aworld_gym.host.credentials import Refused, Verifier
from aworld_gym.host.metrics import HostMetrics
from aworld_gym.host.settings import HostSettings

logger = logging.getLogger(__name__)

OPEN_PATHS = ("/health", "/ready", "/metrics")
"""What orchestrators and monitors ask for without a token."""
MCP_PATH = "/mcp"
_KNOWN_PATHS = (*OPEN_PATHS, MCP_PATH)


class Guard:
    """Wraps the application.

    Args:
        app: what is inside.
        settings: the host's.
        secrets: those that tokens may be signed with.
        metrics: where requests are counted.
    """

    def __init__(self, app: ASGIApp, settings: HostSettings, secrets: Sequence[str], metrics: HostMetrics):
        self._app, self._verify, self._metrics = app, Verifier(secrets), metrics
        self._hosts = {name.lower() for name in ("localhost", settings.host, *settings.allowed_hosts)}
        self._loopback = settings.loopback
        self._origins = {origin.lower().rstrip("/") for origin in settings.allowed_origins}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or say why not."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        number = logs.id_for(headers.get("x-request-id"))
        token, began, status = logs.request_id.set(number), time.monotonic(), 499

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", number.encode())]
            await send(message)

        try:
            refusal = self._refusal(scope, headers)
            await (self._app if refusal is None else refusal)(scope, receive, noted)
        except Exception:
            status = 500
            logger.exception("a request failed")
            raise
        finally:
            path = _label(scope["path"])
            self._metrics.requests.labels(path, _method(scope["method"]), str(status)).inc()
            logger.log(
                logging.DEBUG if path in OPEN_PATHS else logging.INFO,
                "request",
                extra={
                    "method": _method(scope["method"]),
                    "path": path,
                    "status": status,
                    "ms": round((time.monotonic() - began) * 1000, 1),
                    "session": headers.get("mcp-session-id", "")[:8],
                },
            )
            logs.request_id.reset(token)

    def _refusal(self, scope: Scope, headers: Headers) -> Response | None:
        """The answer to a request that may not come in; None for one that may."""
        host, origin = headers.get("host", ""), headers.get("origin")
        if not self._addressed(host):
            self._metrics.refused.labels("host").inc()
            return _no(scope, 421, "host", "this host does not go by that name; allow it with --allowed-host")
        if origin is not None and not self._welcome(origin.lower().rstrip("/")):
            self._metrics.refused.labels("origin").inc()
            return _no(scope, 403, "origin", "scripts of that page may not call; allow it with --allowed-origin")
        if scope["path"] in OPEN_PATHS:
            return None
        try:
            scope["claims"] = self._verify(headers.get("authorization"))
        except Refused as refused:
            self._metrics.refused.labels("token").inc()
            challenge = {"www-authenticate": refused.challenge}
            return _no(scope, refused.status, refused.error or "no_token", str(refused), challenge)
        return None

    def _welcome(self, origin: str) -> bool:
        """Whether a page's scripts may call: those allowed, and this machine's own where only it reaches the host."""
        if origin in self._origins:
            return True
        try:
            name = urlsplit(origin).hostname
        except ValueError:
            return False
        return self._loopback and name in ("localhost", "127.0.0.1", "::1")

    def _addressed(self, header: str) -> bool:
        """Whether a ``Host`` header means this host.

        A page that rebinds its own name to this machine's address asks for that name: names must be known, while
        addresses cannot be rebound.
        """
        name = header.lower()
        name = name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]
        if name in self._hosts:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def _no(scope: Scope, status: int, error: str, reason: str, headers: Mapping[str, str] | None = None) -> Response:
    """A refusal. To MCP clients it is a JSON-RPC error too: of other bodies, most of them show their user nothing."""
    if scope["path"] == MCP_PATH:
        return reply(rpc_error(None, REFUSED, reason, {"error": error}), status, headers)
    return reply({"error": error, "reason": reason}, status, headers)


def _label(path: str) -> str:
    """A path as it may be logged and counted: clients must not make up labels."""
    if path in _KNOWN_PATHS:
        return path
    return "/workspace" if path.startswith("/workspace/") else "other"


def _method(method: str) -> str:
    return method if method in ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS") else "other"
