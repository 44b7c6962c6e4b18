"""Connections, of which there may be so many, and on which a request has to arrive in time.

One that is sent byte by byte would hold a socket for ever; and when a process has no descriptors left, it can start no
tool server, and asyncio logs thousands of lines a second.
"""

from __future__ import annotations

import asyncio
import functools
from typing import Any

RETRY_AFTER_S = 2
"""What a client that is sent away is asked to wait."""
MAX_HEAD_BYTES = 64 * 1024
"""Of a request's line and headers."""
MOST_DESCRIPTORS = 65536
"""What :func:`more_descriptors` asks for: there are programs that walk through all that they may have."""
_NO = "HTTP/1.1 {} \r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {}\r\n{}connection: close\r\n\r\n{}"


def more_descriptors() -> None:
    """Let this process, and the tool servers that it starts, have as many descriptors as the system allows.

    A session of a few stdio servers has dozens, and a shell mostly gives 1024.
    """
    try:
        import resource
    except ImportError:  # not POSIX
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def most_connections() -> int:
    """How many connections may be open at once: half of the descriptors that this process may have."""
    try:
        import resource
    except ImportError:
        return MOST_DESCRIPTORS // 2
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_DESCRIPTORS // 2 if soft == resource.RLIM_INFINITY else soft // 2


@functools.cache
def protocol(head_timeout_s: float, most: int) -> type[asyncio.Protocol]:
    """HTTP as uvicorn speaks it, with a deadline and a limit for the head of every request.

    The deadline runs from the connection's beginning, or from the first byte of a further request; how long a
    connection may rest between requests is uvicorn's own setting. What is left of a body when its request has been
    answered, refused most likely, has as long to come: nobody reads it, and so nobody else looks at the time. It is
    built upon what httptools calls.

    Args:
        head_timeout_s: seconds.
        most: connections at once; those beyond are sent away for a while.
    """
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    class Punctual(HttpToolsProtocol):
        _deadline: asyncio.TimerHandle | None = None
        _head_bytes = 0
        _body_is_here = True
        _rest: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            self._answering: list[Any] = []
            super().connection_made(transport)
            self._expect_head()
            if len(self.connections) > most:
                self._refuse("503 Service Unavailable", f"more than {most} connections are open")

        def connection_lost(self, exc: Exception | None) -> None:
            self._head_is_here()
            self._rest_is_here()
            super().connection_lost(exc)
            for cycle in self._answering:  # uvicorn tells only the last of several requests that came at once
                cycle.disconnected = True
                cycle.message_event.set()

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
            self._body_is_here = False
            self._answering = [cycle for cycle in self._answering if not cycle.response_complete]
            super().on_headers_complete()
            if self.cycle is not None:
                self._answering.append(self.cycle)

        def on_message_complete(self) -> None:
            self._body_is_here = True
            self._rest_is_here()
            super().on_message_complete()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            answered = self.cycle is not None and self.cycle.response_complete  # not only one that came before
            if answered and not self._body_is_here and not self.transport.is_closing():
                self._rest = asyncio.get_running_loop().call_later(head_timeout_s, self.transport.close)

        def _expect_head(self) -> None:
            self._head_bytes = 0
            self._deadline = asyncio.get_running_loop().call_later(head_timeout_s, self._too_late)

        def _head_is_here(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

        def _rest_is_here(self) -> None:
            if self._rest is not None:
                self._rest.cancel()
                self._rest = None

        def _too_late(self) -> None:
            self._refuse("408 Request Timeout", f"no whole request within {head_timeout_s:g} s")

        def _refuse(self, status: str, why: str) -> None:
            self._head_is_here()
            if not self.transport.is_closing():
                wait = f"retry-after: {RETRY_AFTER_S}\r\n" if status.startswith("503") else ""
                self.transport.write(_NO.format(status, len(why), wait, why).encode())
                self.transport.close()

    return Punctual
