"""A well-behaved server with ordinary tools; in process by `make`, over stdio or HTTP as a script."""

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

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
    def given(result: dict[str, Any]) -> str:
        """Give the argument back as JSON."""
        return json.dumps(result)

    @server.tool()
    def whoami() -> str:
        """Say what the server knows of the episode."""
        if context is not None:
            return f"{context.workspace} {sorted(context.public.items())}"
        return f"{os.environ.get('AWORLD_WORKSPACE')} {Path(os.environ['AWORLD_EPISODE_FILE']).read_text()}"

    return server


def serve_http(port, kind):
    """Serve over HTTP on the loopback interface; prints the port when it listens."""
    import socket

    import uvicorn

    from aworld_gym.toolchain import compat

    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("127.0.0.1", port))
    sock.listen(512)
    server = make()
    if kind == "old-sse":
        app = server.sse_app()
    elif compat.api().v2:
        app = server.streamable_http_app(json_response=kind == "json")
    else:
        server.settings.json_response = kind == "json"
        app = server.streamable_http_app()
    print(sock.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1)).run(sockets=[sock])


if __name__ == "__main__":
    if "--port" in sys.argv:
        serve_http(int(sys.argv[-1]), sys.argv[1])
    else:
        make().run("stdio")
