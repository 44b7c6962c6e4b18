"""A server whose tools show what has to pass through a host; in process by ``make``, over stdio as a script."""

from __future__ import annotations

import asyncio
import base64
import os
import sys
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import Context, Image
from mcp.types import CallToolResult, TextContent

from aworld_gym.toolchain.compat import new_server

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def make(context: Any = None, *, tag: str = "") -> Any:
    """The server."""
    server = new_server("shows")
    held: dict[str, str] = {}
    workspace = Path(os.environ["AWORLD_WORKSPACE"]) if context is None else context.workspace

    @server.tool()
    def keep(key: str, value: str) -> str:
        """Remember something, in memory and in the process's environment."""
        held[key] = value
        if context is None:
            os.environ["KEPT_" + key] = value
        return tag + value

    @server.tool()
    def seen() -> str:
        """All that this server can see: memory, environment, files, process."""
        files = sorted(p.relative_to(workspace).as_posix() for p in workspace.rglob("*") if p.is_file())
        kept = sorted(k for k in os.environ if k.startswith("KEPT_")) if context is None else []
        return f"{sorted(held.items())} {kept} {files}"

    @server.tool()
    def pid() -> str:
        """The process that answers."""
        return str(os.getpid())

    @server.tool()
    def facts() -> str:
        """What the server was told of the episode."""
        return "" if context is None else repr(sorted(context.public.items()))

    @server.tool()
    def write(path: str, text: str) -> str:
        """Write a file."""
        (workspace / path).write_text(text)
        return "written"

    @server.tool()
    def read(path: str) -> str:
        """Read a file."""
        return (workspace / path).read_text()

    @server.tool()
    def link(path: str, target: str) -> str:
        """Make a symbolic link, as a hostile program could."""
        (workspace / path).symlink_to(target)
        return "linked"

    @server.tool()
    async def count(to: int, ctx: Context) -> str:
        """Count, and report each step."""
        for k in range(to):
            await ctx.report_progress(k + 1, to, f"step {k + 1}")
            await asyncio.sleep(0.02)
        return "counted"

    @server.tool()
    async def nap(seconds: float) -> str:
        """Sleep; notes in the workspace when it was woken early."""
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            (workspace / "woken").write_text("early")
            raise
        return "slept"

    @server.tool()
    def boom() -> str:
        """Fail."""
        raise ValueError("it went wrong, as it should")

    @server.tool()
    def picture() -> Image:
        """An image."""
        return Image(data=PIXEL, format="png")

    @server.tool(structured_output=False)
    def shape() -> CallToolResult:
        """Structured content, and a text."""
        text = TextContent(type="text", text="two")
        return CallToolResult(content=[text], structured_content={"n": 2, "deep": [{"a": None}]}, _meta={"of": "us"})

    @server.tool()
    async def grow(ctx: Context) -> str:
        """Add a tool, and say so."""

        @server.tool()
        def grown() -> str:
            """It was not there before."""
            return "grown"

        await ctx.session.send_tool_list_changed()
        return "done"

    @server.tool()
    def die() -> str:
        """End the process."""
        os._exit(3)

    return server


if __name__ == "__main__":
    if "--slow" in sys.argv:
        import time

        time.sleep(1.0)
    make().run("stdio")
