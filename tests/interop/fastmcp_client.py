"""fastmcp's client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport
from observing import main


class Session:
    """A session."""

    def __init__(self, client: Client):
        self.client = client

    async def tools(self) -> list[dict[str, Any]]:
        return [plain(tool) for tool in await self.client.list_tools()]

    async def call(self, name: str, arguments: dict[str, Any], progress: Any = None) -> dict[str, Any]:
        return plain(await self.client.call_tool_mcp(name, arguments, progress_handler=progress))

    async def give_up(self, name: str, arguments: dict[str, Any], after: float) -> None:
        task = asyncio.create_task(self.client.call_tool(name, arguments))
        await asyncio.sleep(after)
        task.cancel()
        await asyncio.wait((task,))


def plain(value: Any) -> dict[str, Any]:
    """A model of the protocol, as JSON."""
    return value.model_dump(mode="json", by_alias=True, exclude_none=True)


@asynccontextmanager
async def opened(url: str, token: str) -> AsyncIterator[Session]:
    """A session, initialized."""
    async with Client(StreamableHttpTransport(url, auth=token)) as client:
        yield Session(client)


if __name__ == "__main__":
    main(opened)
