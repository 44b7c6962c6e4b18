"""Connections on which a request has to arrive in time: one that is sent byte by byte would hold a socket for ever."""

from __future__ import annotations

import asyncio
import functools
from typing import Any

MAX_HEAD_BYTES = 64 * 1024
"""Of a request's line and headers."""
_NO = "HTTP/1.1 {} \r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{}"


@functools.cache
def protocol(head_timeout_s: float) -> type[asyncio.Protocol]:
    """HTTP as uvicorn speaks it, with a deadline and a limit for the head of every request.

    The deadline runs from the connection's beginning, or from the first byte of a further request; how long a
    connection may rest between requests is uvicorn's own setting. It is built upon what httptools calls.

    Args:
        head_timeout_s: seconds.
    """
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    class Punctual(HttpToolsProtocol):
        _deadline: asyncio.TimerHandle | None = None
        _head_bytes = 0

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._expect_head()

        def connection_lost(self, exc: Exception | None) -> None:
            self._head_is_here()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            if self._deadline is not None:
                self._head_bytes += len(data)
            super().data_received(data)
            if self._deadline is not None and self._head_bytes > MAX_HEAD_BYTES:
                self._refuse("431 Request Header Fields Too Large", f"more than {MAX_HEAD_BYTES} bytes of headers")

        def on_message_begin(self) -> None:
            super().on_message_begin()
            if self._deadline is None:
                self._expect_head()

        def on_headers_complete(self) -> None:
            self._head_is_here()
            super().on_headers_complete()

        def _expect_head(self) -> None:
            self._head_bytes = 0
            self._deadline = asyncio.get_running_loop().call_later(head_timeout_s, self._too_late)

        def _head_is_here(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

        def _too_late(self) -> None:
            self._refuse("408 Request Timeout", f"no whole request within {head_timeout_s:g} s")

        def _refuse(self, status: str, why: str) -> None:
            self._head_is_here()
            if not self.transport.is_closing():
                self.transport.write(_NO.format(status, len(why), why).encode())
                self.transport.close()

    return Punctual
