"""verifiers 0.1 on workload noop-4: its in-process ToolEnv with a function, no MCP.

run_verifiers_v0.py URL
"""

import logging
import os
import sys

import measure
import noop_tool
import verifiers as vf
from datasets import Dataset
from verifiers.clients import resolve_client
from verifiers.types import ClientConfig


async def done(completion) -> float:
    """Whether the last message is the answer."""
    last = completion[-1]
    return float("done" in (last.content if hasattr(last, "content") else last["content"]))


async def main() -> None:
    """Serve orders."""
    logging.getLogger("verifiers").setLevel(logging.ERROR)
    os.environ["NOOP_KEY"] = "none"
    tasks = Dataset.from_list([{"question": measure.PROMPT, "answer": ""}])
    env = vf.ToolEnv(tools=[noop_tool.noop], max_turns=10, rubric=vf.Rubric(funcs=[done]), dataset=tasks)
    client = resolve_client(ClientConfig(api_base_url=sys.argv[1], api_key_var="NOOP_KEY"))
    row = env.get_dataset()[0]

    async def episode(number: int) -> int:
        state = await env.run_rollout({**row, "example_id": number}, client, "mock", {}, state_columns=["trajectory"])
        if state.get("error") or state["reward"] != 1.0:
            raise RuntimeError(f"reward {state['reward']}, error {state.get('error')}")
        return int(state["metrics"]["total_tool_calls"])

    await measure.serve(measure.each(episode), ["verifiers", "openai"])


if __name__ == "__main__":
    measure.run(main)
