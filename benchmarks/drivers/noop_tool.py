"""The tool of workload noop-4, in the forms that systems take: a function, an MCP server, an OpenAI schema."""

from __future__ import annotations

import sys
from typing import Any

SCHEMA: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "noop",
        "description": "Return x.",
        "parameters": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]},
    },
}


async def noop(x: int) -> str:
    """Return x.

    Args:
        x: any integer
    """
    return str(x)


def mcp_server(**settings: Any) -> Any:
    """An MCP server with the one tool, of whichever line of ``mcp`` is installed, which must know the settings."""
    try:
        from mcp.server.mcpserver import MCPServer as Server
    except ImportError:
        from mcp.server.fastmcp import FastMCP as Server
    server = Server("noop", log_level="ERROR", **settings)
    server.tool()(noop)
    return server


if __name__ == "__main__":
    if sys.argv[1:]:  # a port, which only mcp 1.x takes here
        mcp_server(port=int(sys.argv[1])).run("streamable-http")
    else:
        mcp_server().run("stdio")
