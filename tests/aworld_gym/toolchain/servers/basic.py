"""A well-behaved server with ordinary tools; in process by `make`, over stdio or HTTP as a script."""

import asyncio
import os
import sys
import time
from pathlib import Path

from aworld_gym.toolchain.compat import new_server


def make(context=None, *, name="basic"):
    """The server."""
    server = new_server(name)
    notes = []

    @server.tool()
    async def echo(text: str) -> str:
        """Give the text back."""
        return text

    @server.tool()
    def add(a: int, b: int = 1) -> str:
        """Add two numbers."""
        return str(a + b)

    @server.tool()
    async def sleep(seconds: float) -> str:
        """Sleep without blocking."""
        await asyncio.sleep(seconds)
        return "slept"

    @server.tool()
    def block(seconds: float) -> str:
        """Sleep and block the thread."""
        time.sleep(seconds)
        return "blocked"

    @server.tool()
    def fail(text: str) -> str:
        """Fail with a message."""
        raise ValueError(text)

    @server.tool()
    def note(text: str) -> str:
        """Remember a note; says how many there are."""
        notes.append(text)
        return str(len(notes))

    @server.tool()
    def write(name: str, text: str) -> str:
        """Write a file into the workspace."""
        (context.workspace / name).write_text(text)
        return "written"

    @server.tool()
    def whoami() -> str:
        """Say what the server knows of the episode."""
        if context is not None:
            return f"{context.workspace} {sorted(context.public.items())}"
        return f"{os.environ.get('AWORLD_WORKSPACE')} {Path(os.environ['AWORLD_EPISODE_FILE']).read_text()}"

    return server


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] == "http":
        print("unused", file=sys.stderr)
    make().run("stdio")
