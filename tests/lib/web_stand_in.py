"""HTTP stand-ins on 127.0.0.1 for the GAIA servers' tests, and sessions with those servers.

A stand-in is a function of a :class:`Request` that gives an :class:`Answer`; it can be slow, broken, huge or endless.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from gaia_tools import Session

from aworld_gym.toolchain import compat
from aworld_gym.types import EpisodeContext
from envs.gaia.servers.settings import Settings


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    """Without the query."""
    query: dict[str, str]
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Answer:
    body: Any = b""
    """Bytes and text are sent as they are, anything else as JSON."""
    status: int = 200
    kind: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    drip_s: float = 0.0
    """Seconds between two bytes."""
    endless: bool = False
    """The body is repeated until the client has had enough."""

    def bytes(self) -> tuple[bytes, str]:
        if isinstance(self.body, bytes):
            return self.body, self.kind or "application/octet-stream"
        if isinstance(self.body, str):
            return self.body.encode(), self.kind or "text/html; charset=utf-8"
        return json.dumps(self.body).encode(), self.kind or "application/json"


class StandIn:
    """The server; a context manager. ``requests`` keeps what came."""

    def __init__(self, answer: Callable[[Request], Answer]):
        self.requests: list[Request] = []
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one(self) -> None:
                parts = urlsplit(self.path)
                request = Request(
                    self.command,
                    parts.path,
                    dict(parse_qsl(parts.query, keep_blank_values=True)),
                    {name.lower(): value for name, value in self.headers.items()},
                    self.rfile.read(int(self.headers.get("Content-Length") or 0)),
                )
                stand_in.requests.append(request)
                self.close_connection = True
                try:
                    self.send(answer(request))
                except (BrokenPipeError, ConnectionResetError):
                    pass  # the client has had enough, which some tests are about

            do_GET = do_POST = do_DELETE = handle_one

            def send(self, reply: Answer) -> None:
                time.sleep(reply.delay_s)
                body, kind = reply.bytes()
                self.send_response(reply.status)
                self.send_header("Content-Type", kind)
                self.send_header("Connection", "close")
                if not reply.endless:
                    self.send_header("Content-Length", str(len(body)))
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                for _ in range(20000 if reply.endless else 1):
                    if reply.drip_s:
                        for i in range(len(body)):
                            self.wfile.write(body[i : i + 1])
                            time.sleep(reply.drip_s)
                    else:
                        self.wfile.write(body)

            def log_message(self, *args: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 64

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        self.host = f"127.0.0.1:{self.port}"
        self.url = f"http://{self.host}"

    def __enter__(self) -> StandIn:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()


@asynccontextmanager
async def session_with(server: Any, workspace: Path, **settings: str) -> AsyncIterator[Session]:
    """A session with a server of the package in this process, configured by these settings alone."""
    made = server.make_server(EpisodeContext(workspace, {}), settings=Settings(settings))
    async with compat.in_process(made) as client:
        yield Session(client)
