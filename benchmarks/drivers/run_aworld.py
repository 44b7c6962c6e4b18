"""AWorld's Sandbox, without a model: four calls of the tool through one sandbox with a stdio server.

    run_aworld.py URL

Its own way to share: one sandbox, with ``reuse=True``, for all episodes.
"""

import os
import sys
import tempfile
from pathlib import Path

import measure

os.chdir(tempfile.mkdtemp(prefix="aworld-"))  # it writes its logs where it is imported

from aworld.sandbox import Sandbox  # noqa: E402


async def main() -> None:
    """Serve orders."""
    server = {"type": "stdio", "command": sys.executable, "args": [str(Path(__file__).parent / "noop_tool.py")]}
    sandbox = Sandbox(mcp_servers=["noop"], mcp_config={"mcpServers": {"noop": server}}, reuse=True)
    tools = await sandbox.mcpservers.list_tools()
    if not tools:
        raise RuntimeError("the sandbox lists no tools")

    async def episode(number: int) -> int:
        for x in range(measure.TURNS):
            call = {"tool_name": "noop", "action_name": "noop", "params": {"x": x}}
            (result,) = await sandbox.mcpservers.call_tool(action_list=[call])
            if str(x) not in str(result.content):
                raise RuntimeError(f"expected {x}, got {result.content!r}")
        return measure.TURNS

    try:
        await measure.serve(measure.each(episode), ["aworld", "mcp"])
    finally:
        await sandbox.cleanup()


if __name__ == "__main__":
    measure.run(main)
