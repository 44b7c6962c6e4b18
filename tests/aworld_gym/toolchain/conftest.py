"""Every test of the toolchain also looks for leaks."""

import pytest
from leaks import nothing_left
from tool_servers import SERVERS


@pytest.fixture(autouse=True)
def no_leaks(monkeypatch):
    """Every test leaves all sessions closed and no process behind."""
    monkeypatch.syspath_prepend(str(SERVERS))
    with nothing_left():
        yield
