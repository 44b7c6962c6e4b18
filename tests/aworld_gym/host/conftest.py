"""Every test of the host also looks for leaks, by the same means as the toolchain's."""

from __future__ import annotations

import time

import psutil
import pytest

from aworld_gym.toolchain import close_idle, loop, stats


@pytest.fixture(autouse=True)
def no_leaks():
    """Every test leaves all sessions closed and no process behind."""
    loop.run(close_idle(), timeout=60)  # what earlier tests have left to linger is not this one's
    before = open_counts(), living_children()
    yield
    loop.run(close_idle(), timeout=60)
    for _ in range(200):  # a host closes what its clients left in the background
        if (open_counts(), living_children()) == before:
            return
        time.sleep(0.05)
    assert (open_counts(), living_children()) == before


def living_children() -> set[psutil.Process]:
    """The processes that descend from this one."""
    return {p for p in psutil.Process().children(recursive=True) if p.status() != psutil.STATUS_ZOMBIE}


def open_counts() -> dict[str, int]:
    """What is open, by the process's own counters."""
    now = stats()
    return {
        "sessions": now.opened - now.closed,
        "connections": now.connections_opened - now.connections_closed,
        "idle": now.connections_idle,
        "processes": now.processes_started - now.processes_ended,
    }
