"""Server-sent events, as they arrive.

``httpx`` and ``aiohttp`` know none, and a parser is shorter than what it would take to bring theirs together.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from typing import Any

from aworld_gym.errors import MissingDependencyError, describe

_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
MAX_REPLY_BYTES = 1 << 28
"""Of one reply, or of one event of a stream, unpacked."""


def aiohttp() -> Any:
    """``aiohttp``.

    Raises:
        MissingDependencyError: it is absent.
    """
    try:
        import aiohttp
    except ImportError as error:
        raise MissingDependencyError(
            f'the lean HTTP client needs `aiohttp` (pip install "aworld-gym[lean]"): {error}'
        ) from error
    return aiohttp


@dataclass(slots=True)
class Event:
    """One server-sent event."""

    name: str
    data: bytes
    id: str | None
    retry_s: float | None


class EventParser:
    """Server-sent events, from bytes as they arrive (WHATWG HTML, "Server-sent events"). Lines may end in any way.

    Args:
        limit: bytes of one event at most.
    """

    def __init__(self, limit: int = MAX_REPLY_BYTES):
        self._limit = limit
        self._rest: list[bytes] = []  # of a line whose end has not arrived
        self._size = 0
        self._begun = self._after_cr = False
        self._fresh()

    def _fresh(self) -> None:
        self._name = ""
        self._id: str | None = None
        self._retry_s: float | None = None
        self._data: list[bytes] = []
        self._size = sum(map(len, self._rest))

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that are complete with ``chunk``. One without data counts if it has an id or a time to wait.

        Raises:
            ValueError: an event is larger than the limit.
        """
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        self._after_cr = chunk.endswith(b"\r") or (self._after_cr and not chunk)
        self._size += len(chunk)
        found = []
        lines = chunk.splitlines(keepends=True)
        for line in lines:
            if line[-1:] not in (b"\n", b"\r"):
                self._rest.append(line)
                break
            line = line.rstrip(b"\r\n") if not self._rest else b"".join([*self._rest, line]).rstrip(b"\r\n")
            self._rest = []
            if not self._begun:
                self._begun, line = True, line.removeprefix(b"\xef\xbb\xbf")
            if line:
                self._field(line)
            else:
                if self._data or self._id is not None or self._retry_s is not None:
                    data = b"\n".join(self._data)
                    found.append(Event(self._name or "message", data, self._id, self._retry_s))
                self._fresh()
        if self._size > self._limit:
            raise ValueError(f"an event of more than {self._limit} bytes")
        return found

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._name = value.decode(errors="replace")
        elif name == b"id" and _CONTROL.search(value) is None:  # it has to fit into a header
            self._id = value.decode(errors="replace")
        elif name == b"retry" and value.isdigit():
            self._retry_s = int(value[:9]) / 1000.0


class EventStream:
    """The events of a response.

    Attributes:
        why: after the end, why it came.
        too_large: an event was, so that nothing more can be read.
    """

    def __init__(self, response: Any):
        self._content, self._parser = response.content, EventParser()
        self._ready: deque[Event] = deque()
        self.why, self.too_large = "it ended", False

    async def next(self) -> Event | None:
        """The next event; None at the end, however it came.

        Raises:
            ValueError: an event is too large.
        """
        while not self._ready:
            try:
                chunk = await self._content.readany()
            except (aiohttp().ClientError, OSError) as error:
                self.why = describe(error)
                return None
            if not chunk and self._content.at_eof():
                return None
            try:
                self._ready.extend(self._parser.feed(chunk))
            except ValueError:
                self.too_large = True
                raise
        return self._ready.popleft()
