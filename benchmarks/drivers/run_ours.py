"""This project on workload noop-4: ``rollout`` of a ToolEnv with an in-process MCP server.

    run_ours.py URL episode|shared [--no-llm]

``episode``: an MCP session for each episode; ``shared``: one for all. Without the model, the actions are scripted.
"""

import time

BEGAN = time.perf_counter()

import sys  # noqa: E402

import measure  # noqa: E402
import noop_tool  # noqa: E402

from aworld_gym import Task  # noqa: E402
from aworld_gym.env import ToolEnv  # noqa: E402
from aworld_gym.policies import OpenAIPolicy, ScriptedPolicy, tool_call  # noqa: E402
from aworld_gym.rollout import arollout  # noqa: E402
from aworld_gym.toolchain.compat import new_server  # noqa: E402

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
    url, scope, *rest = sys.argv[1:]
    config = {"mcpServers": {"noop": {"python": make_server, "scope": scope}}}
    tasks = [Task(f"task-{k}", measure.PROMPT, "done") for k in range(64)]
    if "--no-llm" in rest:
        policy = ScriptedPolicy([*map(call, range(measure.TURNS)), ANSWER])
    else:
        policy = OpenAIPolicy("mock", base_url=url)

    async def batch(episodes, concurrency):
        made, score = 0, 0.0
        async for episode in arollout(
            lambda: ToolEnv(config, tasks), policy, episodes=episodes, concurrency=concurrency
        ):
            made += sum(result.error is None for step in episode.steps for result in step.results)
            score += episode.total_reward
        if score != episodes:
            raise RuntimeError(f"{episodes} episodes, and a sum of rewards of {score}")
        return made

    await measure.serve(batch, ["aworld-gym", "openai", "mcp"], BEGAN)


if __name__ == "__main__":
    measure.run(main)
