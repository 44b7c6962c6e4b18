"""Both clients that can speak streamable HTTP, for tests that must pass with either."""

from __future__ import annotations

import importlib.util
from importlib import metadata
from typing import Any

import pytest

from aworld_gym.toolchain import http


def clients() -> list[Any]:
    """The names of both, as parameters; what cannot be used here is skipped."""
    lacks = "mcp 2.x" if metadata.version("mcp") < "2" else None
    lacks = lacks or (None if importlib.util.find_spec("aiohttp") else "aiohttp")
    skip = pytest.mark.skipif(lacks is not None, reason=f"the lean client needs {lacks}")
    return ["sdk", pytest.param("lean", marks=skip)]


@pytest.fixture(params=clients())
def each_http_client(request, monkeypatch):
    """Runs a test with each client as the default of all entries; its name."""
    for kind in http.DEFAULT_CLIENTS:
        monkeypatch.setitem(http.DEFAULT_CLIENTS, kind, request.param)
    return request.param
