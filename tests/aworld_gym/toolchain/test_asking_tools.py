"""A tool that asks the client for a user, a model or roots is told that there is none, which is the tool's error.

It must not be taken for a broken server: mcp 2.x answers such a call with "invalid request".
"""

from __future__ import annotations

import sys

import pytest
from tool_servers import SERVERS, on_loop, session_of

ENTRIES = {
    "stdio": {"command": sys.executable, "args": [str(SERVERS / "asking.py")]},
    "in process": {"python": "asking:make"},
}


@pytest.mark.parametrize("kind", ENTRIES)
@on_loop
async def test_what_asks_for_more_fails_as_a_tool(kind):
    async with session_of({"it": ENTRIES[kind]}) as session:
        for name in ("user", "model", "roots"):
            result = await session.call("1", name, {})
            assert result.error == "tool_error", result
            assert "not supported" in result.text or "no back-channel" in result.text
        assert (await session.call("2", "plain", {})).text == "plain"
