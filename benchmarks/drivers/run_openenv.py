"""OpenEnv on workload noop-4: an MCPEnvironment with a FastMCP tool.

    run_openenv.py URL inprocess|websocket [--no-llm]

``inprocess``: ``reset`` and ``step_async`` in this process. ``websocket``: served by uvicorn, one client an episode.
"""

import os
import sys
from contextlib import nullcontext
from uuid import uuid4

os.environ.setdefault("OPENENV_CLIENT_MODE", "simulation")

import measure
import noop_tool
import run_bare
from fastmcp import FastMCP
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation
from openenv.core.env_server.types import Observation, State


class NoopEnv(MCPEnvironment):
    """The environment."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        server = FastMCP("noop")
        server.tool()(noop_tool.noop)
        super().__init__(server)
        self._state = State(episode_id=str(uuid4()), step_count=0)

    def reset(self, seed=None, episode_id=None, **more):
        """Begin an episode."""
        self._state = State(episode_id=episode_id or str(uuid4()), step_count=0)
        return Observation(done=False, reward=0.0)

    def _step_impl(self, action, timeout_s=None, **more):
        return Observation(done=False, reward=0.0)

    @property
    def state(self):
        """The episode's state."""
        return self._state


def serve(port: int) -> None:
    """Serve the environment."""
    import uvicorn
    from openenv.core.env_server.http_server import create_app

    app = create_app(NoopEnv, CallToolAction, CallToolObservation, env_name="noop", max_concurrent_envs=600)
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="error")


async def in_process(client) -> int:
    """One episode here."""
    env = NoopEnv()
    env.reset()
    try:
        async with env.mcp_session():

            async def call(name, arguments):
                seen = await env.step_async(CallToolAction(tool_name=name, arguments=arguments))
                if seen.error is not None:
                    raise RuntimeError(str(seen.error))
                return str(seen.result.data)

            return await run_bare.loop(client, call)
    finally:
        env.close()


async def over_websocket(client, port: int) -> int:
    """One episode on the server."""
    from openenv.core.mcp_client import MCPToolClient

    async with MCPToolClient(base_url=f"http://127.0.0.1:{port}") as env:
        await env.reset()

        async def call(name, arguments):
            seen = (await env.step(CallToolAction(tool_name=name, arguments=arguments))).observation
            if getattr(seen, "error", None) is not None:
                raise RuntimeError(str(seen.error))
            return str(getattr(seen, "result", ""))

        return await run_bare.loop(client, call)


async def main() -> None:
    """Serve orders."""
    url, way, *rest = sys.argv[1:]
    client = None if "--no-llm" in rest else run_bare.endpoint(url)
    with measure.server(__file__, "--serve") if way == "websocket" else nullcontext() as port:

        async def episode(number: int) -> int:
            return await (in_process(client) if port is None else over_websocket(client, port))

        await measure.serve(measure.each(episode), ["openenv", "fastmcp", "openai", "mcp"])


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        serve(int(sys.argv[2]))
    else:
        measure.run(main)
