"""Both clients that can speak streamable HTTP, for tests that must pass with either."""

from __future__ import annotations

import pytest

from aworld_gym.toolchain import compat, http


@pytest.fixture(params=["sdk", "lean"])
def each_http_client(request, monkeypatch):
    """Runs a test with each client as the default of all entries; its name."""
    if request.param == "lean":
        if not compat.api().v2:
            pytest.skip("the lean client needs mcp 2.x")
        pytest.importorskip("aiohttp")
    for kind in http.DEFAULT_CLIENTS:
        monkeypatch.setitem(http.DEFAULT_CLIENTS, kind, request.param)
    return request.param
