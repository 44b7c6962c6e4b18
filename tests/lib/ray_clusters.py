"""What is left of a Ray cluster."""

from __future__ import annotations

import time

import psutil


def clusters_below(process: psutil.Process) -> set[int]:
    """The processes that make a cluster, among the children of one: its store and its nodes.

    Ray's agents are left out: they look for their node now and then, and end a minute after it.
    """
    return {p.pid for p in process.children(recursive=True) if p.name() in ("gcs_server", "raylet")}


def gone(pids: set[int], within_s: float) -> bool:
    """Whether none of the processes is left within that time."""
    deadline = time.monotonic() + within_s
    while any(map(_lives, pids)):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
