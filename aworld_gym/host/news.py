"""What a host tells its clients unasked: that the tools of a session changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.types import Message, Send

from aworld_gym.host.bodies import dumped

_CHANGED = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
EVENT = b"event: message\r\ndata: " + dumped(_CHANGED) + b"\r\n\r\n"


@asynccontextmanager
async def telling(news: asyncio.Event, send: Send) -> AsyncIterator[Send]:
    """A ``send`` for the stream that a client holds open, in which it is also told of ``news``.

    The stream itself is the SDK's, which knows nothing of the servers behind; every message of it is one whole event,
    so that ours can stand between two of them.

    Args:
        news: set when there is something to tell; cleared here. What came while no stream was open is told in the next.
        send: of the request that opened the stream.
    """
    turn = asyncio.Lock()
    begun = asyncio.Event()
    over = False

    async def passed(message: Message) -> None:
        nonlocal over
        async with turn:
            if message["type"] == "http.response.body":
                over = over or not message.get("more_body", False)
            await send(message)
        if message["type"] == "http.response.start" and message["status"] == 200:
            begun.set()

    async def tell() -> None:
        await begun.wait()
        while True:
            await news.wait()
            async with turn:
                if over:
                    return
                news.clear()
                await send({"type": "http.response.body", "body": EVENT, "more_body": True})

    task = asyncio.create_task(tell())
    try:
        yield passed
    finally:
        task.cancel()
        await asyncio.wait((task,))
        if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, OSError):
            raise error
