"""What all drivers share: episodes on order, and the CPU seconds that they took. The standard library alone.

A driver runs in the environment of the system that it drives. It says that it is ready, then reads orders from its
standard input, one a line, and answers each with one line of JSON::

    {"ready": {"openai": "3.57.0"}, "start_s": 0.6}
    <- {"episodes": 128, "concurrency": 32}
    {"episodes": 128, "cpu_s": 4.1, "wall_s": 5.0, "rss_mb": 140.2}

So the systems of one table stand ready side by side, and take turns.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

TURNS = 4
"""Tool calls of an episode, one a turn; the turn after them has none."""
PROMPT = "Call noop until you are told to stop."
Batch = Callable[[int, int], Awaitable[int]]
"""Plays (episodes, so many at once); how many tool calls were made."""
START_S = 120.0
"""Seconds in which a server has to listen."""
_TICK = os.sysconf("SC_CLK_TCK")
_UTIME, _STIME, _CUTIME, _CSTIME = 11, 12, 13, 14  # in /proc/<pid>/stat after the name


def _stat(pid: str) -> list[str] | None:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # it has just ended
        return None


def cpu_s() -> float:
    """CPU seconds of this process, of all that it started and waited for, and of what it started that still runs."""
    reaped = resource.getrusage(resource.RUSAGE_CHILDREN)
    total = time.process_time() + reaped.ru_utime + reaped.ru_stime
    stats = {pid: found for pid in os.listdir("/proc") if pid.isdigit() and (found := _stat(pid)) is not None}
    family, grown = {str(os.getpid())}, True
    while grown:
        children = {pid for pid, found in stats.items() if found[1] in family and pid not in family}
        family |= children
        grown = bool(children)
    for pid in family - {str(os.getpid())}:
        total += sum(int(stats[pid][k]) for k in (_UTIME, _STIME, _CUTIME, _CSTIME)) / _TICK
    return total


def each(episode: Callable[[int], Awaitable[int]]) -> Batch:
    """A batch of one coroutine an episode, so many at once."""

    async def batch(episodes: int, concurrency: int) -> int:
        gate = asyncio.Semaphore(concurrency)

        async def one(number: int) -> int:
            async with gate:
                return await episode(number)

        return sum(await asyncio.gather(*(one(number) for number in range(episodes))))

    return batch


async def serve(batch: Batch, packages: list[str], *, calls: int = TURNS) -> None:
    """Take orders until standard input ends.

    Args:
        batch: plays episodes.
        packages: whose versions are told.
        calls: tool calls that every episode makes; another number is a failure.
    """
    start_s = cpu_s()  # nearly all of it imports
    await batch(1, 1)  # connections, caches
    _say({"ready": {name: version(name) for name in packages}, "start_s": start_s})
    while line := await asyncio.to_thread(sys.stdin.readline):
        order = json.loads(line)
        episodes, cpu, wall = order["episodes"], cpu_s(), time.perf_counter()
        made = await batch(episodes, order["concurrency"])
        wall, cpu = time.perf_counter() - wall, cpu_s() - cpu
        if made != calls * episodes:
            raise RuntimeError(f"expected {calls} tool calls in each of {episodes} episodes, got {made} in all")
        rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        _say({"episodes": episodes, "cpu_s": cpu, "wall_s": wall, "rss_mb": rss})


def _say(answer: dict) -> None:
    # What libraries print goes to standard error (see ``main``), so this is all there is on standard output.
    os.write(_OUT, json.dumps(answer).encode() + b"\n")


@contextmanager
def server(*arguments: str) -> Iterator[int]:
    """A server in a process of its own, listening on the port that it is given as its last argument."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    process = subprocess.Popen([sys.executable, *arguments, str(port)])
    try:
        end = time.monotonic() + START_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > end:
                    raise RuntimeError(f"{arguments} did not begin to listen") from None
                time.sleep(0.1)
        yield port
    finally:
        process.terminate()
        process.wait()


def run(main: Callable[[], Awaitable[None]]) -> None:
    """Run a driver. Its standard output is kept for answers: whatever else prints does so to standard error."""
    global _OUT
    _OUT = os.dup(1)
    os.dup2(2, 1)
    asyncio.run(main())


_OUT = 1
