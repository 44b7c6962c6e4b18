"""``aworld-gym serve`` for clients that nobody here wrote, and what it counted of them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from hosts import Running, host_process, quick_config
from interop_programs import REPOSITORY
from prometheus_client.parser import text_string_to_metric_families

SOON_S = 10.0
"""In which a host has closed what its client ended; a client that only went away is given much longer."""


@contextmanager
def foreign_host(config: Any, folder: Path, name: str) -> Iterator[Running]:
    """A host process that serves ``config`` as ``name``; its log is ``folder/log``."""
    served = f"{name}={quick_config(folder, config)}"
    path = f"{REPOSITORY / 'tests/lib'}:{REPOSITORY}"
    options = ("--mcp-config", served, "--port", "0", "--drain", "1")
    with host_process(*options, log=folder / "log", PYTHONPATH=path) as running:
        yield running


def counted(running: Running, family: str, **labels: str) -> float:
    """The sum of a host's numbers of a family whose labels are those."""
    text = httpx.get(f"{running.address}/metrics", timeout=20).text
    return sum(
        sample.value
        for one in text_string_to_metric_families(text)
        for sample in one.samples
        if sample.name == family and labels.items() <= sample.labels.items()
    )


@contextmanager
def sessions_deleted(running: Running, opened: int) -> Iterator[None]:
    """While it is entered, a client opens sessions (``opened`` of them); it has ended each by DELETE soon after."""

    def numbers() -> tuple[float, float]:
        ended = counted(running, "aworld_host_sessions_closed_total", why="client")
        return counted(running, "aworld_host_sessions_opened_total"), ended

    opened_before, ended_before = numbers()
    yield
    end = time.monotonic() + SOON_S
    while True:
        now, ended = numbers()
        now, ended = now - opened_before, ended - ended_before
        if now == ended or time.monotonic() > end:
            break
        time.sleep(0.05)
    assert now == ended == opened, f"{now} sessions opened, {ended} ended by their client, {opened} expected"
