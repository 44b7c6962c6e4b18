"""In-process servers made with the SDK's own classes, as other people write them."""

import time

from aworld_gym.toolchain import compat


def high_level(context):
    server = compat.api().Server("foreign")

    @server.tool()
    def block(seconds: float) -> str:
        """Blocks its thread."""
        time.sleep(seconds)
        return "blocked"

    @server.tool()
    def structured(n: int) -> dict[str, int]:
        """Gives structured content."""
        return {"n": n}

    return server


async def low_level(context, *, greeting):
    """A low-level server, from a factory that is a coroutine function."""
    types = compat.api().types
    tools = [types.Tool(**{"name": "greet", "inputSchema": {"type": "object"}})]
    content = [types.TextContent(type="text", text=f"{greeting}, {context.public.get('name')}")]
    if compat.api().v2:
        from mcp.server import Server

        async def on_list(ctx, params):
            return types.ListToolsResult(tools=tools)

        async def on_call(ctx, params):
            return types.CallToolResult(content=content)

        return Server("low", on_list_tools=on_list, on_call_tool=on_call)
    from mcp.server.lowlevel import Server

    server = Server("low")

    @server.list_tools()
    async def list_tools():
        return tools

    @server.call_tool()
    async def call_tool(name, arguments):
        return content

    return server


def raises(context):
    raise LookupError("no such corpus")
