"""Every test of the toolchain also looks for leaks."""

from __future__ import annotations

import psutil
import pytest
from tool_servers import SERVERS

from aworld_gym.toolchain import stats


@pytest.fixture(autouse=True)
def no_leaks(monkeypatch):
    """Every test leaves all sessions closed and no process behind."""
    monkeypatch.syspath_prepend(str(SERVERS))
    yield
    now = stats()
    assert (now.opened, now.connections_opened) == (now.closed, now.connections_closed)
    assert now.processes_started == now.processes_ended
    left = [p for p in psutil.Process().children(recursive=True) if p.status() != psutil.STATUS_ZOMBIE]
    assert not left, left
