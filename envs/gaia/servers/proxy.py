"""A forward proxy on 127.0.0.1 that connects to public addresses only: what a browser reaches the world through.

A browser resolves names itself, follows redirects itself and runs strangers' scripts, so its requests are checked
where none can pass by: at the connection.
"""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

from envs.gaia.servers.addresses import Guard
from envs.gaia.tools.base import ToolFault

MAX_HEAD = 64 << 10
HEAD_S = 15.0
CONNECT_S = 15.0
_CHUNK = 1 << 16


class GuardedProxy:
    """HTTP requests and CONNECT tunnels, to what the guard allows.

    Args:
        guard: decides.
    """

    def __init__(self, guard: Guard):
        self._guard = guard
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> str:
        """Listen on a free port; the proxy's address."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=MAX_HEAD)
        port = self._server.sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{port}"

    async def aclose(self) -> None:
        """Stop listening, and end every connection."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._serve(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError, asyncio.CancelledError):
            pass  # one side has gone, or we are closing: the connection ends, and that is all
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(HEAD_S):
            head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head[:-4].split(b"\r\n")
        try:
            method, target, version = first.decode("ascii").split(" ")
            parts = urlsplit(f"//{target}" if method == "CONNECT" else target)
            host, port = parts.hostname, parts.port or (443 if method == "CONNECT" else 80)
            if not host or not (method == "CONNECT" or parts.scheme == "http"):
                raise ValueError
        except ValueError:
            return await _say(writer, 400, "Bad Request")
        try:
            async with asyncio.timeout(CONNECT_S):
                address = await self._guard.address(host, port)
                far_reader, far_writer = await asyncio.open_connection(address, port)
        except ToolFault:
            return await _say(writer, 403, "Forbidden")
        except (OSError, TimeoutError):
            return await _say(writer, 502, "Bad Gateway")
        try:
            if method == "CONNECT":
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
                kept = [line for line in lines if not line.lower().startswith((b"proxy-", b"connection:"))]
                start = f"{method} {path} {version}".encode()
                far_writer.write(b"\r\n".join([start, *kept, b"Connection: close"]) + b"\r\n\r\n")
            async with asyncio.TaskGroup() as group:
                group.create_task(_pump(reader, far_writer))
                group.create_task(_pump(far_reader, writer))
        except* (OSError, TimeoutError):
            pass  # as in _accept
        finally:
            far_writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


async def _say(writer: asyncio.StreamWriter, status: int, reason: str) -> None:
    writer.write(f"HTTP/1.1 {status} {reason}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
    await writer.drain()
