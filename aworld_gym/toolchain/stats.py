"""Process-wide counters, so that a test (or ``doctor``) can tell whether anything leaks."""

from __future__ import annotations

from dataclasses import dataclass, replace

from aworld_gym.toolchain import loop


@dataclass
class Stats:
    """Counts since the process began. In a forked child they begin at zero."""

    opened: int = 0
    """Tool sessions handed to episodes."""
    closed: int = 0
    """Of those, the ones that are closed again."""
    connections_opened: int = 0
    """MCP sessions opened, shared and pooled ones included."""
    connections_closed: int = 0
    connections_idle: int = 0
    """Of those that are open, the shared ones that no toolchain uses now; ``close_idle`` closes them at once."""
    processes_started: int = 0
    """Server processes (stdio)."""
    processes_ended: int = 0
    calls: int = 0
    """Tool calls that were sent to a server."""
    retries: int = 0
    timeouts: int = 0
    infra_errors: int = 0
    """Infrastructure failures raised to the caller, retries exhausted."""


counters = Stats()


def stats() -> Stats:
    """A copy of the counters as they stand."""
    return replace(counters)


@loop.after_fork
def _reset() -> None:
    for name, value in vars(Stats()).items():
        setattr(counters, name, value)
