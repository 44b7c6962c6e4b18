"""What is open, so that tests can look whether anything is left."""

from __future__ import annotations

import contextlib
import gc
import time

import psutil

from aworld_gym.toolchain import close_idle, loop, stats


@contextlib.contextmanager
def nothing_left(patience_s: float = 0.0):
    """What was open when it is entered is open when it is left, and no more.

    Args:
        patience_s: how long to wait for it; a host closes in the background what its clients left.
    """
    gc.collect()  # what earlier tests have dropped, or left to linger, is not this one's
    loop.run(close_idle(), timeout=60)
    before = open_counts(), living_children()
    yield
    loop.run(close_idle(), timeout=60)
    end = time.monotonic() + patience_s
    while (open_counts(), living_children()) != before and time.monotonic() < end:
        time.sleep(0.05)
    assert (open_counts(), living_children()) == before


def living_children(of: int | None = None) -> set[psutil.Process]:
    """The processes that descend from one; by default from this one."""
    found = set()
    for process in psutil.Process(of).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended meanwhile
            if process.status() != psutil.STATUS_ZOMBIE:
                found.add(process)
    return found


def commands_below(of: int | None = None) -> list[str]:
    """The command lines of those processes."""
    found = []
    for process in living_children(of):
        with contextlib.suppress(psutil.NoSuchProcess):
            found.append(" ".join(process.cmdline()))
    return found


def open_counts() -> dict[str, int]:
    """What is open, by the process's own counters."""
    now = stats()
    return {
        "sessions": now.opened - now.closed,
        "connections": now.connections_opened - now.connections_closed,
        "idle": now.connections_idle,
        "processes": now.processes_started - now.processes_ended,
    }
