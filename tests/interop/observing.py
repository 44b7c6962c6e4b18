"""What foreign MCP clients in Python do with a host, each in its own environment, and what they see.

Needs the standard library alone. A client's script gives an ``open`` that makes sessions (:class:`Session`); what was
seen is printed as one JSON object, for the test that started the script.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

TIMEOUT_S = 40.0
PATIENCE_S = 0.5
"""After which a call of a tool that sleeps is given up."""


class Session(Protocol):
    """A session, as a client's script wraps it."""

    async def tools(self) -> list[dict[str, Any]]:
        """The tools, as JSON."""

    async def call(self, name: str, arguments: dict[str, Any], progress: Any = None) -> dict[str, Any]:
        """A tool's result, as JSON; ``progress`` is an async function of three."""

    async def give_up(self, name: str, arguments: dict[str, Any], after: float) -> None:
        """Begin a call, and cancel it after so many seconds."""


Open = Callable[[str, str], AbstractAsyncContextManager[Session]]
"""Opens a session, given the URL and the token."""


async def observe(opened: Open, url: str, token: str) -> dict[str, Any]:
    """Use every feature once. Opens two sessions, the second at the same time as the first."""
    seen: dict[str, Any] = {}
    told: list[tuple[Any, ...]] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, total, message))

    async with opened(url, token) as session, opened(url, token) as other:
        seen["tools"] = await session.tools()
        seen["kept"] = await session.call("keep", {"key": "k", "value": "ü"})
        seen["apart"] = await other.call("seen", {})
        for name in ("boom", "picture", "shape"):
            seen[name] = await session.call(name, {})
        seen["unknown"] = await failure(session.call("pictur", {}))
        seen["counted"] = await session.call("count", {"to": 3}, note)
        seen["progress"] = told
        many = await asyncio.gather(*(session.call("keep", {"key": str(k), "value": str(k)}) for k in range(20)))
        seen["many"] = [result["content"][0]["text"] for result in many]
        await session.give_up("nap", {"seconds": 60.0}, PATIENCE_S)
        for _ in range(100):
            seen["after"] = await session.call("seen", {})
            if "woken" in seen["after"]["content"][0]["text"]:
                break
            await asyncio.sleep(0.05)
    seen["refused"] = await failure(enter(opened(url, "no.such.token")))
    return seen


async def enter(context: AbstractAsyncContextManager[Session]) -> None:
    """Open a session, list its tools, and close it."""
    async with context as session:
        await session.tools()


async def failure(work: Any) -> str:
    """The words of the exceptions that ``work`` raises; empty if it raises none."""
    try:
        await work
    except BaseException as error:
        return " | ".join(f"{type(leaf).__name__}: {leaf}" for leaf in leaves(error))
    return ""


def leaves(error: BaseException) -> list[BaseException]:
    """The exceptions in a group."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in leaves(inner)]
    return [error]


def main(opened: Open) -> None:
    """Observe the host of MCP_SERVER_URL with MCP_SERVER_TOKEN, and print what was seen."""

    async def bounded() -> dict[str, Any]:
        async with asyncio.timeout(TIMEOUT_S):
            return await observe(opened, os.environ["MCP_SERVER_URL"], os.environ["MCP_SERVER_TOKEN"])

    json.dump(asyncio.run(bounded()), sys.stdout)
