"""Reading requests and sending replies at the ASGI level, with a limit on what is read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response
from starlette.types import Message, Receive

SLOWEST = 64 * 1024
"""Bytes of a body that have to come in a second."""
INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS = -32600, -32601, -32602
REFUSED = -32003
"""The code of a request that may not come in; from the range that JSON-RPC leaves to implementations."""


class TooLarge(Exception):
    """A request's body is larger than is taken."""


class TooSlow(Exception):
    """A request's body did not arrive in time."""


class Gone(Exception):
    """A request's sender left before its body was whole."""


class Body:
    """A request's body, as it comes.

    Args:
        receive: of the request.
        headers: of the request.
        limit: bytes.
        patience_s: seconds that are waited for all of it, beside what its bytes take at :data:`SLOWEST`.

    Raises:
        TooLarge: it is said to be longer than ``limit``.
    """

    def __init__(self, receive: Receive, headers: Mapping[str, str], limit: int, patience_s: float):
        declared = headers.get("content-length", "")
        if declared.isdigit() and int(declared) > limit:
            raise TooLarge
        self._receive, self._room, self._patience_s, self._left_s = receive, limit, patience_s, patience_s
        self._over = False

    async def piece(self) -> bytes:
        """What came since the last piece; empty at the end.

        Raises:
            TooLarge: it is longer than was allowed.
            TooSlow: it did not come in time. What its taker does between two pieces does not count.
            Gone: its sender left.
        """
        while not self._over:
            began = asyncio.get_running_loop().time()
            try:
                async with asyncio.timeout(self._left_s):
                    message = await self._receive()
            except TimeoutError:
                text = (
                    f"the body did not arrive within {self._patience_s:g} s, and at {SLOWEST} bytes a second at least"
                )
                raise TooSlow(text) from None
            if message["type"] != "http.request":
                raise Gone
            piece: bytes = message.get("body", b"")
            self._over = not message.get("more_body", False)
            self._room -= len(piece)
            if self._room < 0:
                raise TooLarge
            self._left_s += len(piece) / SLOWEST - (asyncio.get_running_loop().time() - began)
            if piece:
                return piece
        return b""


async def read(receive: Receive, headers: Mapping[str, str], limit: int, patience_s: float) -> bytes | None:
    """A request's whole body; None if its sender left before its end. Arguments as for :class:`Body`.

    Raises:
        TooLarge: it is longer than ``limit`` bytes; no more than that was kept.
        TooSlow: it did not come in time.
    """
    body, parts = Body(receive, headers, limit, patience_s), []
    try:
        while piece := await body.piece():
            parts.append(piece)
    except Gone:
        return None
    return b"".join(parts)


async def gone(receive: Receive) -> None:
    """Return when the sender of a request, whose body was read, is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


def replayed(body: bytes, receive: Receive) -> Receive:
    """A ``receive`` that gives a body again that was read."""
    pending = [body]

    async def again() -> Message:
        if pending:
            return {"type": "http.request", "body": pending.pop(), "more_body": False}
        return await receive()

    return again


def dumped(value: Any) -> bytes:
    """JSON in UTF-8, whatever halves of surrogate pairs a server sent."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()


def reply(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON reply."""
    return Response(dumped(value), status, media_type="application/json", headers=dict(headers or {}))


def rpc_error(number: Any, code: int, text: str, data: Any = None) -> dict[str, Any]:
    """A JSON-RPC error."""
    error = {"code": code, "message": text} | ({} if data is None else {"data": data})
    return {"jsonrpc": "2.0", "id": number, "error": error}


async def either(work: asyncio.Task[Any], receive: Receive) -> bool:
    """Wait for ``work``, or for the sender of the request to go; False, and ``work`` cancelled, where that came first.

    ``work`` has ended when this returns.
    """
    watch = asyncio.create_task(gone(receive))
    try:
        await asyncio.wait((work, watch), return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            return True
        work.cancel()
        await asyncio.wait((work,))
        return False
    except asyncio.CancelledError:
        work.cancel()
        await asyncio.wait((work,))
        raise
    finally:
        watch.cancel()
