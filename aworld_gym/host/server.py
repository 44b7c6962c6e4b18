"""The host as a server: one socket, one application, and an end that loses nothing."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from aworld_gym import __version__
from aworld_gym.errors import ConfigError
from aworld_gym.host.bodies import reply
from aworld_gym.host.catalogue import Catalogue
from aworld_gym.host.connections import most_connections, protocol
from aworld_gym.host.endpoint import Endpoint
from aworld_gym.host.files import Files
from aworld_gym.host.guard import Guard
from aworld_gym.host.metrics import CONTENT_TYPE, HostMetrics
from aworld_gym.host.sessions import Sessions
from aworld_gym.host.settings import HostSettings
from aworld_gym.toolchain import ToolchainConfig, compat
from aworld_gym.types import Limits

logger = logging.getLogger(__name__)

KEEP_ALIVE_S = 75
"""Longer than clients keep unused connections, so that it is they who close them."""
_LAST_WORDS_S = 5  # for replies that are being written when everything has ended
_NEVER_CUT = 2**62


class Host:
    """A host. Every method runs on the background loop.

    Args:
        served: toolchains by name.
        settings: the host's.
        secrets: those that tokens may be signed with.
        pool: sessions kept started ahead for stdio servers.

    Raises:
        ConfigError: it cannot work. MissingDependencyError: the extra ``host`` is not installed.
    """

    def __init__(
        self, served: Mapping[str, ToolchainConfig], settings: HostSettings, secrets: Sequence[str], pool: int = 0
    ):
        self.settings, self._secrets = settings, secrets
        self.metrics = HostMetrics()
        limits = Limits(
            call_timeout_s=settings.call_timeout_s,
            open_timeout_s=settings.open_timeout_s,
            max_result_chars=_NEVER_CUT,
        )
        self.catalogue = Catalogue(served, limits, pool)
        for name in self.catalogue.names:  # 0 is a number too: an autoscaler cannot tell none from unknown
            self.metrics.sessions.labels(name)
        self._stop = asyncio.Event()
        self._patience_s = settings.drain_s
        self._ready = False
        self._life: asyncio.Task[None] | None = None

    async def start(self) -> tuple[str, int]:
        """Begin to serve; the address and port. Returns when the first session could be opened.

        Raises:
            ConfigError: the address cannot be bound, or a toolchain cannot work.
            InfraError: a server does not start.
        """
        await compat.ready()
        listener = _listen(self.settings)
        try:
            await self.catalogue.warm()
        except BaseException:
            listener.close()
            await self.catalogue.aclose()
            raise
        address, port, *_ = listener.getsockname()
        started = asyncio.Event()
        self._life = asyncio.create_task(self._serve(listener, started))
        waiting = asyncio.create_task(started.wait())
        await asyncio.wait((self._life, waiting), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self._life.done():
            self._life.result()
            raise ConfigError("the HTTP server ended as soon as it began; its log says why")
        self._ready = True
        return address, port

    async def stop(self, patience_s: float) -> None:
        """Take no further sessions, wait for those there are, at most so long, and end."""
        self._patience_s = patience_s
        self._stop.set()
        if self._life is not None:
            await self._life

    async def _serve(self, listener: socket.socket, started: asyncio.Event) -> None:
        """The host's life: all of it in one task, as the SDK's manager asks."""
        import uvicorn

        self.sessions = Sessions(self.settings, self.catalogue, self.metrics)
        endpoint = Endpoint(self.settings, self.catalogue, self.sessions, self.metrics)
        config = uvicorn.Config(
            self._app(endpoint),
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            lifespan="off",
            http=protocol(self.settings.head_timeout_s, most_connections()),
            ws="none",
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=_LAST_WORDS_S,
            ssl_certfile=self.settings.ssl_certfile,
            ssl_keyfile=None if self.settings.ssl_keyfile is None else str(self.settings.ssl_keyfile),
        )
        server = uvicorn.Server(config)
        try:
            async with endpoint.running():
                serving = asyncio.create_task(server.serve(sockets=[listener]))
                reaping = asyncio.create_task(self.sessions.run())
                while not server.started and not serving.done():
                    await asyncio.sleep(0.01)
                started.set()
                stopping = asyncio.create_task(self._stop.wait())
                await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
                self._ready = False
                await self.sessions.drain(self._patience_s)
                server.should_exit = True
                await asyncio.wait((serving,))
                reaping.cancel()
                stopping.cancel()
                serving.result()
        finally:
            listener.close()
            await self.catalogue.aclose()

    def hurry(self) -> None:
        """End what still goes on, while :meth:`stop` waits for it."""
        self.sessions.hurry()

    def _app(self, endpoint: Endpoint) -> Guard:
        files = Files(self.settings, self.sessions, self.metrics)
        routes = [
            Route("/mcp", endpoint),
            Route("/workspace/{path:path}", files),
            Route("/health", self._health, methods=["GET"]),
            Route("/ready", self._is_ready, methods=["GET"]),
            Route("/metrics", self._metrics, methods=["GET"]),
        ]
        return Guard(Starlette(routes=routes), self.settings, self._secrets, self.metrics)

    async def _health(self, request: Request) -> Response:
        return reply({"status": "ok", "version": __version__, "toolchains": self.catalogue.names})

    async def _is_ready(self, request: Request) -> Response:
        if not self._ready:
            return reply({"status": "draining"}, 503)
        return reply({"status": "ready", "sessions": len(self.sessions), "max_sessions": self.settings.max_sessions})

    async def _metrics(self, request: Request) -> Response:
        return Response(self.metrics.text(), headers={"content-type": CONTENT_TYPE})


def _listen(settings: HostSettings) -> socket.socket:
    """The listening socket, whose connections notice within half a minute that the other machine is gone."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, proto)
    except OSError as error:
        raise ConfigError(f"cannot listen on {settings.host!r}: {error}") from error
    options: list[tuple[int, str, Any]] = [
        (socket.SOL_SOCKET, "SO_REUSEADDR", 1),
        (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
        (socket.IPPROTO_TCP, "TCP_KEEPIDLE", 10),
        (socket.IPPROTO_TCP, "TCP_KEEPINTVL", 5),
        (socket.IPPROTO_TCP, "TCP_KEEPCNT", 3),
        (socket.IPPROTO_TCP, "TCP_USER_TIMEOUT", 25_000),
    ]
    for level, name, value in options:  # connections inherit them; some systems lack some
        if hasattr(socket, name):
            listener.setsockopt(level, getattr(socket, name), value)
    try:
        listener.bind(address)
        listener.listen(2048)
    except OSError as error:
        listener.close()
        raise ConfigError(f"cannot listen on {settings.host}:{settings.port}: {error.strerror}") from error
    listener.setblocking(False)
    return listener
