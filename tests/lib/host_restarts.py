"""Hosts that end and start again while episodes use them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx2
import waits
from hosts import SECRET, Running, host_process, quick_config

from aworld_gym.env import ToolEnv
from aworld_gym.host import mint
from aworld_gym.rollout import rollout
from aworld_gym.types import Episode, Task

CALLS = 10


def play(
    urls: Sequence[str],
    beside: Callable[[], None],
    *,
    episodes: int,
    concurrency: int,
    on_episode: Callable[[Episode], None] | None = None,
) -> list[Episode]:
    """Episodes with the hosts at ``urls``, of ten calls each, every other of which the host must remember."""

    def act(messages: list[dict[str, Any]], tools: Any) -> dict[str, Any]:
        done = sum(message["role"] == "tool" for message in messages)
        if done >= CALLS:
            return {"role": "assistant", "content": "<answer>7</answer>"}
        name, arguments = ("note", {"text": "x"}) if done % 2 else ("sleep", {"seconds": 0.1})
        call = {"name": name, "arguments": json.dumps(arguments)}
        return {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": str(done), "type": "function", "function": call}],
        }

    def make() -> ToolEnv:
        entry = {"type": "aworld-host", "url": " ".join(urls), "token": mint(SECRET, ["mcp"], 300)}
        tasks = [Task(f"t{k}", "What?", answer="7") for k in range(episodes)]
        return ToolEnv({"mcpServers": {"it": entry}}, tasks, limits={"open_timeout_s": 40.0}, submit_tool=None)

    with waits.meanwhile(beside):
        return rollout(make, act, episodes=episodes, concurrency=concurrency, retries=3, on_episode=on_episode)


def in_use(running: Running, sessions: int) -> None:
    """Wait until a host has so many sessions, and a moment more."""

    def there() -> bool:
        return httpx2.get(running.address + "/ready", timeout=10).json()["sessions"] >= sessions

    waits.until(there, what=f"{sessions} sessions")
    time.sleep(0.2)


def started_again(config: str, port: int, log: Path) -> subprocess.Popen:
    """A host on the port of one that has ended; as soon as it is ready."""
    environ = os.environ | {"AWORLD_HOST_SECRET": SECRET, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "aworld_gym", "serve", "--mcp-config", config, "--port", str(port)]
    with log.open("a") as err:
        process = subprocess.Popen(command, env=environ, stderr=err, stdout=subprocess.PIPE)
    assert waits.first_line(process)
    return process


def play_killed_host(folder: Path, *, episodes: int = 64) -> tuple[list[Episode], float, float]:
    """A host that is killed (-9) while episodes run, and started again on its port.

    Returns:
        Every attempt's record; the seconds that the whole run took; and those from the host's being ready again to the
        end of the next valid episode.
    """
    config = str(quick_config(folder))
    again: list[subprocess.Popen] = []
    ended: list[tuple[float, bool]] = []
    ready = float("inf")

    def kill() -> None:
        nonlocal ready
        in_use(one, episodes // 2)
        waits.kill(one.process)
        again.append(started_again(config, one.port, folder / "two"))
        ready = time.monotonic()

    with host_process("--mcp-config", config, "--port", "0", log=folder / "one") as one:
        began = time.monotonic()
        try:
            records = play(
                [one.url],
                kill,
                episodes=episodes,
                concurrency=episodes,
                on_episode=lambda episode: ended.append((time.monotonic(), episode.valid)),
            )
        finally:
            for process in again:
                waits.end(process)
    over = time.monotonic()
    return records, over - began, min(at for at, valid in ended if valid and at > ready) - ready
