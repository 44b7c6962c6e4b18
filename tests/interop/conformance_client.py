"""Our client, as the client under test of ``@modelcontextprotocol/conformance``: does what a scenario asks for.

Started by the suite with the server's URL as its last argument, and MCP_CONFORMANCE_SCENARIO set. CONFORMANCE_ENTRY
holds what is added to the ``mcpServers`` entry, as JSON.
"""

from __future__ import annotations

import json
import os
import sys

from aworld_gym.errors import InfraError
from aworld_gym.toolchain import Toolchain, ToolSession, close_idle, loop
from aworld_gym.types import Limits

TIMEOUT_S = 30.0


async def play(scenario: str, url: str, options: dict) -> None:
    """Open a session with the server, do what the scenario asks for, and close it."""
    entry = {"type": "streamable-http", "url": url, **options}
    toolchain = Toolchain({"mcpServers": {"it": entry}}, Limits(call_timeout_s=20.0, open_timeout_s=20.0))
    try:
        session = await toolchain.open()
        try:
            for name, arguments in calls(scenario, session):
                result = await session.call("1", name, arguments)
                assert result.error is None, result
                print(result.text)
        finally:
            await session.aclose()
    except InfraError as error:
        # the server of this scenario has no tools; and an agent without tools is an error, on purpose
        if not (scenario == "initialize" and error.kind == "tools_unavailable"):
            raise
        print(error)
    finally:
        await toolchain.aclose()
        await close_idle()


def calls(scenario: str, session: ToolSession) -> list[tuple[str, dict]]:
    """The tools to call, and their arguments."""
    if scenario == "tools_call":
        return [("add_numbers", {"a": 5, "b": 3})]
    if scenario == "sse-retry":
        return [("test_reconnection", {})]
    if scenario == "json-schema-2020-12-preservation":
        listed = {tool["name"]: tool for tool in session.table.listed}
        return [("json_schema_echo", {"schema": listed["json_schema_2020_12_tool"]["inputSchema"]})]
    return []


if __name__ == "__main__":
    loop.run(
        play(os.environ["MCP_CONFORMANCE_SCENARIO"], sys.argv[-1], json.loads(os.environ["CONFORMANCE_ENTRY"])),
        timeout=TIMEOUT_S,
    )
