"""A small env for training tests: "say WORD", answered by ``submit_answer``, with tools that can be made to fail.

In process, so that a test can decide how sessions behave through :data:`SESSIONS`.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import gymnasium as gym

from aworld_gym import Task
from aworld_gym.env import ToolEnv
from aworld_gym.toolchain import Stats, stats
from aworld_gym.toolchain.compat import new_server
from aworld_gym.types import EpisodeContext

WORDS = ("red", "blue", "green", "black", "white", "pink", "gold", "gray")
ENV_ID = "Test/Say-v0"


@dataclass
class Sessions:
    """How the servers of coming sessions behave; the number of a session counts from the last ``reset``."""

    broken: Callable[[int], bool] = lambda number: False
    """Sessions that cannot be started."""
    slow: Callable[[int], float] = lambda number: 0.0
    """Seconds that each ``echo`` of a session takes."""
    numbers: itertools.count = field(default_factory=itertools.count)
    started: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def reset(self, **behaviour: Callable) -> None:
        fresh = Sessions(**behaviour)
        self.broken, self.slow, self.numbers, self.started = fresh.broken, fresh.slow, fresh.numbers, 0


SESSIONS = Sessions()


def make_server(context: EpisodeContext):
    with SESSIONS.lock:
        number = next(SESSIONS.numbers)
        SESSIONS.started += 1
    if SESSIONS.broken(number):
        raise RuntimeError(f"session {number} is told to be broken")
    server = new_server("say")

    @server.tool()
    def echo(text: str) -> str:
        """Return the text."""
        time.sleep(SESSIONS.slow(number))
        return text

    @server.tool()
    def submit_answer(answer: str) -> str:
        """Submit the answer."""
        return "ok"

    return server


def all_closed(before: Stats, within_s: float = 5.0) -> int:
    """How many sessions were opened since ``before``; fails where one of them stays open.

    A close whose caller was cancelled goes on in the background, so it is waited for.
    """
    deadline = time.monotonic() + within_s
    while True:
        now = stats()
        sessions = now.opened - before.opened, now.closed - before.closed
        connections = (
            now.connections_opened - before.connections_opened,
            now.connections_closed - before.connections_closed,
        )
        # More closed than opened: what an earlier test had left to close in the background.
        if sessions[0] <= sessions[1] and connections[0] <= connections[1]:
            return sessions[0]
        assert time.monotonic() < deadline, f"opened and closed: sessions {sessions}, connections {connections}"
        time.sleep(0.01)


def make_env(**kwargs) -> ToolEnv:
    tasks = [Task(word, f"say {word}", word) for word in WORDS]
    return ToolEnv({"mcpServers": {"say": {"python": "say_env:make_server"}}}, tasks, **kwargs)


if ENV_ID not in gym.registry:
    gym.register(ENV_ID, entry_point="say_env:make_env")


def by_answer(obs, action, reward, info, *, scale: float) -> float:
    """A shaping function: the same message earns the same, different ones mostly differ."""
    calls = action.get("tool_calls") or ()
    return scale * sum(map(ord, "".join(call["function"]["arguments"] for call in calls))) / 1000


def make_stdio_env(**kwargs) -> ToolEnv:
    """The same over stdio, by a server that ends its own process at every ``echo``."""
    tasks = [Task(word, f"say {word}", word) for word in WORDS]
    server = {"command": sys.executable, "args": [str(Path(__file__).resolve())]}
    return ToolEnv({"mcpServers": {"say": server}}, tasks, **kwargs)


if "Test/SayStdio-v0" not in gym.registry:
    gym.register("Test/SayStdio-v0", entry_point="say_env:make_stdio_env")


if __name__ == "__main__":
    mortal = new_server("mortal")

    @mortal.tool()
    def echo(text: str) -> str:
        """Return the text."""
        os._exit(3)

    @mortal.tool()
    def submit_answer(answer: str) -> str:
        """Submit the answer."""
        return "ok"

    mortal.run("stdio")
