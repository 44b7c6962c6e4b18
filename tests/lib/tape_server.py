"""An MCP server whose calls a test can count: in process as ``tape_server:make_server``, over stdio as a script.

Its tools are those that a tape must get right: deterministic and not, pictures, failures, slow ones, state, reads.
"""

from __future__ import annotations

import base64
import itertools
import os
import sys
import time
from collections import Counter
from pathlib import Path

from aworld_gym import Task
from aworld_gym.env import ToolEnv
from aworld_gym.toolchain import compat
from aworld_gym.types import EpisodeContext, PlanStep

CALLS: Counter[str] = Counter()
"""Calls of each tool in this process."""
_numbers = itertools.count(1)
PIXEL = base64.b64encode(b"\x89PNG not really").decode()


def make_server(context: EpisodeContext, *, token: str = "", number: int = 0):
    """The server; ``token`` is a secret that the tool ``leak`` gives away."""
    server = compat.new_server("tape")
    types = compat.api().types
    notes: list[str] = []

    def tool(reads: bool = False):
        def offered(fn):
            hints = types.ToolAnnotations(readOnlyHint=True) if reads else None
            server.tool(name=fn.__name__, description=fn.__doc__, annotations=hints)(fn)

        return offered

    @tool()
    def roll(sides: int = 6) -> str:
        """Another number at every call of this process."""
        CALLS["roll"] += 1
        return str(next(_numbers))

    @tool()
    def note(text: str) -> str:
        """Keep a note."""
        CALLS["note"] += 1
        notes.append(text)
        return f"{len(notes)} notes"

    @tool(reads=True)
    def notes_so_far() -> str:
        """Read the notes."""
        CALLS["notes_so_far"] += 1
        return ", ".join(notes) or "none"

    @tool(reads=True)
    def look(name: str) -> str:
        """Look something up."""
        CALLS["look"] += 1
        if name == "nothing":
            raise ValueError("there is nothing")
        return f"{name}: {len(name)}"

    @tool()
    def picture() -> list:
        """A picture and a word."""
        CALLS["picture"] += 1
        return [
            types.TextContent(type="text", text="a pixel"),
            types.ImageContent(type="image", data=PIXEL, mimeType="image/png"),
        ]

    @tool()
    def fail(message: str) -> str:
        """Fail."""
        CALLS["fail"] += 1
        raise RuntimeError(message)

    @tool()
    def wait(seconds: float) -> str:
        """Wait."""
        CALLS["wait"] += 1
        time.sleep(seconds)
        return "waited"

    @tool()
    def leak(prefix: str = "") -> str:
        """Give the token away."""
        CALLS["leak"] += 1
        return f"{prefix}the token is {token}!"

    @tool()
    def die() -> str:
        """End the server process."""
        os._exit(3)

    @tool()
    def submit_answer(answer: str) -> str:
        """Submit the final answer."""
        CALLS["submit_answer"] += 1
        return "received"

    return server


CONFIG = {"mcpServers": {"it": {"python": "tape_server:make_server"}}}
STDIO = {"mcpServers": {"it": {"command": sys.executable, "args": [__file__]}}}
PLAN = (
    PlanStep("roll", {}),
    PlanStep("picture", {}),
    PlanStep("fail", {"message": "told to"}),
    PlanStep("look", {"name": "alpha"}),
    PlanStep("submit_answer", {"answer": "42"}),
)
TASKS = [
    Task(name, f"Question {name}?", "42", public={"corpus": name}, level=k % 3 + 1, plan=PLAN)
    for k, name in enumerate("abcdef")
]


def make_env(config=CONFIG, tasks=TASKS, **kwargs):
    """An env over the server."""
    return ToolEnv(config, tasks, **kwargs)


if __name__ == "__main__":
    make_server(EpisodeContext(Path(os.environ.get("AWORLD_WORKSPACE", "."))), token=os.environ.get("TOKEN", "")).run(
        "stdio"
    )
