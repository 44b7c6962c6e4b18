"""The tool of workload noop-4, in the forms that systems take: a function, an MCP server, an OpenAI schema."""

from __future__ import annotations

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


def mcp_server() -> Any:
    """An MCP server with the one tool, of whichever line of ``mcp`` is installed."""
    try:
        from mcp.server.mcpserver import MCPServer as Server
    except ImportError:
        from mcp.server.fastmcp import FastMCP as Server
    server = Server("noop", log_level="ERROR")
    server.tool()(noop)
    return server
