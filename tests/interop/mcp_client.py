"""The client of the ``mcp`` package over streamable HTTP: ``Client`` of 2.x, ``ClientSession`` of 1.30."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import metadata
from typing import Any

from mcp import types
from mcp.client.streamable_http import streamable_http_client
from observing import main

V2 = not metadata.version("mcp").startswith("1.")
if V2:
    from httpx2 import AsyncClient
    from mcp import Client
else:
    from httpx import AsyncClient
    from mcp import ClientSession


class Session:
    """A session."""

    def __init__(self, session: Any):
        self.session = session

    async def tools(self) -> list[dict[str, Any]]:
        return [plain(tool) for tool in (await self.session.list_tools()).tools]

    async def call(self, name: str, arguments: dict[str, Any], progress: Any = None) -> dict[str, Any]:
        return plain(await self.session.call_tool(name, arguments, progress_callback=progress))

    async def give_up(self, name: str, arguments: dict[str, Any], after: float) -> None:
        number = None if V2 else self.session._request_id  # the one that the next request gets
        task = asyncio.create_task(self.session.call_tool(name, arguments))
        await asyncio.sleep(after)
        if not V2:  # 1.x tells the server nothing of a call that its caller gives up; its user has to
            params = types.CancelledNotificationParams(requestId=number, reason="too slow")
            await self.session.send_notification(types.ClientNotification(types.CancelledNotification(params=params)))
        task.cancel()
        await asyncio.wait((task,))


def plain(value: Any) -> dict[str, Any]:
    """A model of the protocol, as JSON."""
    return value.model_dump(mode="json", by_alias=True, exclude_none=True)


@asynccontextmanager
async def opened(url: str, token: str) -> AsyncIterator[Session]:
    """A session, initialized."""
    async with AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=20) as http:
        transport = streamable_http_client(url, http_client=http)
        if V2:
            async with Client(transport) as client:
                yield Session(client)
            return
        async with transport as (read, write, *_), ClientSession(read, write) as session:
            await session.initialize()
            yield Session(session)


if __name__ == "__main__":
    main(opened)
