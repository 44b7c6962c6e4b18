"""GAIA tool sessions for tests: a real MCP session with the server, in this process or in one of its own."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import waits

from aworld_gym.toolchain import compat
from aworld_gym.types import EpisodeContext
from envs.gaia import sandbox
from envs.gaia.server import make_server

REPOSITORY = Path(__file__).parents[2]

needs_sandbox = pytest.mark.skipif(not sandbox.isolation().confined, reason="no sandbox on this machine")


@dataclass(frozen=True)
class Result:
    text: str
    failed: bool
    images: tuple[bytes, ...] = ()


class Session:
    """Calls tools by name: ``await session("read_table", path="a.csv")``."""

    def __init__(self, client: Any):
        self.client = client

    async def __call__(self, name: str, /, **arguments: Any) -> Result:
        raw = await compat.call_tool(self.client, name, arguments)
        texts = [block["text"] for block in raw["content"] if block["type"] == "text"]
        images = [base64.b64decode(block["data"]) for block in raw["content"] if block["type"] == "image"]
        return Result("\n".join(texts), bool(raw.get("isError")), tuple(images))

    async def ok(self, name: str, /, **arguments: Any) -> str:
        result = await self(name, **arguments)
        assert not result.failed, result.text
        return result.text

    async def refused(self, name: str, /, **arguments: Any) -> str:
        result = await self(name, **arguments)
        assert result.failed, result.text
        assert "unexpectedly" not in result.text, result.text
        return result.text

    async def tools(self) -> dict[str, dict]:
        return {tool["name"]: tool for tool in await compat.list_tools(self.client)}


@asynccontextmanager
async def served(workspace: Path, *, public: dict | None = None, **options: Any) -> AsyncIterator[Session]:
    """A session with a server in this process."""
    server = make_server(EpisodeContext(workspace, public or {}), **options)
    async with compat.in_process(server) as client:
        yield Session(client)


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "envs.gaia.server", *arguments]


@contextmanager
def http_server(workspace: Path, *arguments: str) -> Iterator[str]:
    """The address of a server process on a free port of this machine."""
    port = waits.free_port()
    process = subprocess.Popen(command("--workspace", str(workspace), "--http", str(port), *arguments), cwd=REPOSITORY)
    try:
        waits.for_port(port, process)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        waits.end(process)


def openai_schemas(tools: dict[str, dict]) -> list[dict]:
    return [
        {
            "type": "function",
            "function": {"name": t["name"], "description": t["description"], "parameters": t["inputSchema"]},
        }
        for t in tools.values()
    ]


def everything_below(folder: Path) -> dict[str, bytes]:
    """Every regular file's content, links not followed."""
    found = {}
    for top, _, names in os.walk(folder):
        for name in names:
            path = Path(top) / name
            if path.is_file() and not path.is_symlink():
                found[str(path.relative_to(folder))] = path.read_bytes()
    return found


SEEN: list[EpisodeContext] = []


def spying(context: EpisodeContext, **options: Any) -> Any:
    """A server factory that notes what it was told."""
    SEEN.append(context)
    return make_server(context, **options)
