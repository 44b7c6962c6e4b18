"""A TCP proxy that spoils connections as told."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
import time


class BadNetwork:
    """Stands between clients and one port; runs on whatever loop it is started on.

    Args:
        port: where connections are passed on to, on 127.0.0.1.
        share: of the replies, how many are spoilt.
        delay_s: how long each reply is held back.
        seed: which.
    """

    def __init__(self, port: int, *, share: float = 0.0, delay_s: float = 0.0, seed: int = 0):
        self.share, self.delay_s, self.kind = share, delay_s, "drop"
        self.spoilt = 0
        self.accepted: list[float] = []
        """When connections came (``time.monotonic``)."""
        self.port, self._random = port, random.Random(seed)
        self._writers: set[asyncio.StreamWriter] = set()

    async def start(self) -> int:
        """Begin; the port to connect to."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=1024)
        return self._server.sockets[0].getsockname()[1]

    async def outage(self, seconds: float) -> None:
        """Break every connection, and refuse further ones for a while."""
        port = self._server.sockets[0].getsockname()[1]
        await self.stop()
        self.spoilt += 1
        await asyncio.sleep(seconds)
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port, backlog=1024)

    async def stop(self) -> None:
        """End, and every connection with it."""
        self._server.close()
        self.cut()
        await asyncio.sleep(0)

    def cut(self) -> None:
        """Break every connection."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted.append(time.monotonic())
        try:
            inner, outer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:  # nobody listens there: as it is for those who come without a proxy between
            writer.transport.abort()
            return
        self._writers |= {writer, outer}
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pass(reader, outer, spoil=False))
                group.create_task(self._pass(inner, writer, spoil=True))
        except* (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            for one in (writer, outer):
                self._writers.discard(one)
                one.transport.abort()

    async def _later(self, data: bytes, sink: asyncio.StreamWriter, before: list[asyncio.Task[None]]) -> None:
        """Pass something on when its time has come, and all that was before it."""
        await asyncio.sleep(self.delay_s)
        await asyncio.gather(*before)
        sink.write(data)

    async def _pass(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, spoil: bool) -> None:
        late: list[asyncio.Task[None]] = []
        while data := await source.read(65536):
            if spoil and self.delay_s:
                late.append(asyncio.create_task(self._later(data, sink, late[-1:])))
                continue
            if spoil and self._random.random() < self.share:
                self.spoilt += 1
                if self.kind == "drop":
                    continue
                raise_reset(sink, data[: len(data) // 2])
                raise ConnectionResetError
            sink.write(data)
            await sink.drain()
        await asyncio.gather(*late)
        with contextlib.suppress(OSError):
            sink.write_eof()


def raise_reset(sink: asyncio.StreamWriter, half: bytes) -> None:
    """Send half of something, and then a reset instead of the rest."""
    sink.write(half)
    sock = sink.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sink.transport.abort()
