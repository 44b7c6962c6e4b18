"""This project on workload noop-4: ``rollout`` of a ToolEnv with an in-process MCP server.

    run_ours.py URL episode|shared|stdio [--no-llm]

``episode``: an MCP session in memory for each episode; ``shared``: one for all; ``stdio``: one for all with a server
process. Without the model, the actions are scripted.
"""

import sys

import measure
import noop_tool

from aworld_gym import Task
from aworld_gym.env import ToolEnv
from aworld_gym.policies import OpenAIPolicy, ScriptedPolicy, tool_call
from aworld_gym.rollout import arollout
from aworld_gym.toolchain import Toolchain, loop
from aworld_gym.toolchain.compat import new_server

ANSWER = {"role": "assistant", "content": "<answer>done</answer>"}


def make_server(context):
    """The server of one session."""
    server = new_server("noop")
    server.tool()(noop_tool.noop)
    return server


def call(x):
    """The action that calls the tool."""
    return {"role": "assistant", "content": None, "tool_calls": [tool_call(f"call_{x}", "noop", {"x": x})]}


async def main() -> None:
    """Serve orders."""
    url, way, *rest = sys.argv[1:]
    servers = {
        "episode": {"python": make_server, "scope": "episode"},
        "shared": {"python": make_server, "scope": "shared"},
        "stdio": {"command": sys.executable, "args": [noop_tool.__file__], "scope": "shared"},
    }
    toolchain = Toolchain({"mcpServers": {"noop": servers[way]}})  # shared sessions live as long as it does
    tasks = [Task(f"task-{k}", measure.PROMPT, "done") for k in range(64)]
    if "--no-llm" in rest:
        policy = ScriptedPolicy([*map(call, range(measure.TURNS)), ANSWER])
    else:
        policy = OpenAIPolicy("mock", base_url=url)

    async def batch(episodes, concurrency):
        made, score = 0, 0.0
        async for episode in arollout(
            lambda: ToolEnv(toolchain, tasks), policy, episodes=episodes, concurrency=concurrency
        ):
            made += sum(result.error is None for step in episode.steps for result in step.results)
            score += episode.total_reward
        if score != episodes:
            raise RuntimeError(f"{episodes} episodes, and a sum of rewards of {score}")
        return made

    try:
        await measure.serve(batch, ["aworld-gym", "openai", "mcp"])
    finally:
        await loop.call(toolchain.aclose())


if __name__ == "__main__":
    measure.run(main)
