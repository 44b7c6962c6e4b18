"""Every test of the toolchain also looks for leaks."""

from __future__ import annotations

import psutil
import pytest
from tool_servers import SERVERS

from aworld_gym.toolchain import close_idle, loop, stats


@pytest.fixture(autouse=True)
def no_leaks(monkeypatch):
    """Every test leaves all sessions closed and no process behind."""
    monkeypatch.syspath_prepend(str(SERVERS))
    loop.run(close_idle(), timeout=60)  # what earlier tests have left to linger is not this one's
    before = open_counts(), living_children()
    yield
    loop.run(close_idle(), timeout=60)
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
