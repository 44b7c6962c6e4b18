"""A server, as others write one, whose tools ask the client for what a program has not: a user, a model, roots."""

from __future__ import annotations

from mcp.types import SamplingMessage, TextContent
from pydantic import BaseModel

try:
    from mcp.server.mcpserver import Context, MCPServer
except ImportError:
    from mcp.server.fastmcp import Context
    from mcp.server.fastmcp import FastMCP as MCPServer


class Form(BaseModel):
    """What a user is asked for."""

    answer: str


def make(context: object = None) -> MCPServer:
    """The server."""
    server = MCPServer("asking")

    @server.tool()
    async def user(ctx: Context) -> str:
        """Ask a user."""
        return str(await ctx.elicit(message="Which one?", schema=Form))

    @server.tool()
    async def model(ctx: Context) -> str:
        """Ask a model."""
        asked = SamplingMessage(role="user", content=TextContent(type="text", text="Which one?"))
        return str(await ctx.session.create_message(messages=[asked], max_tokens=10))

    @server.tool()
    async def roots(ctx: Context) -> str:
        """Ask for roots."""
        return str(await ctx.session.list_roots())

    @server.tool()
    def plain() -> str:
        """Ask for nothing."""
        return "plain"

    return server


if __name__ == "__main__":
    make().run("stdio")
