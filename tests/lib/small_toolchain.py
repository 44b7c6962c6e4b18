"""A small MCP server for tests: in process as ``small_toolchain:make_server``, over stdio as a script.

Its tools do one thing each that an env must cope with: answer, compute, fail, be slow, keep files, return images,
or (over stdio only) end their own process.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from aworld_gym.toolchain.compat import new_server
from aworld_gym.types import EpisodeContext

IN_PROCESS = {"mcpServers": {"small": {"python": "small_toolchain:make_server"}}}
STDIO = {"mcpServers": {"small": {"command": sys.executable, "args": [str(Path(__file__).resolve())]}}}


def make_server(context: EpisodeContext, *, name: str = "small", tools: list[str] | None = None):
    server = new_server(name)
    calls = {"count": 0}

    def tool(fn):
        if tools is None or fn.__name__ in tools:
            server.tool(name=fn.__name__, description=fn.__doc__)(fn)

    def echo(text: str) -> str:
        """Return the text."""
        return text

    def add(a: int, b: int = 1) -> str:
        """Add two integers."""
        return str(a + b)

    def fail(message: str) -> str:
        """Fail with the message."""
        raise RuntimeError(message)

    def wait(seconds: float) -> str:
        """Wait, blocking, and say so."""
        time.sleep(seconds)
        return f"waited {seconds}"

    def count() -> str:
        """How often this tool was called on this server."""
        calls["count"] += 1
        return str(calls["count"])

    def write(name: str, text: str) -> str:
        """Write a file into the workspace."""
        (context.workspace / name).write_text(text, encoding="utf-8")
        return "written"

    def list_files() -> str:
        """List the workspace."""
        return "\n".join(sorted(p.name for p in context.workspace.iterdir())) or "(empty)"

    def die() -> str:
        """End the server process."""
        os._exit(3)

    def submit_answer(answer: str) -> str:
        """Submit the final answer."""
        return "received"

    for fn in (echo, add, fail, wait, count, write, list_files, submit_answer):
        tool(fn)
    if name == "stdio":
        tool(die)
    return server


if __name__ == "__main__":
    make_server(EpisodeContext(Path(os.environ.get("AWORLD_WORKSPACE", "."))), name="stdio").run("stdio")
    sys.exit(0)
