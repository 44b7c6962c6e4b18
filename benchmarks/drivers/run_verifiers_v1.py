"""verifiers 0.4 on workload noop-4: SingleAgentEnv, the null harness in a subprocess, one shared toolset over MCP.

    run_verifiers_v1.py URL

That is its own local path, driven in process through ``Env.serving()`` and ``Env.run_slot``.
"""

import logging
import os
import sys
from pathlib import Path

os.environ["NOOP_KEY"] = "none"
os.environ["PYTHONPATH"] = str(Path(__file__).parent)  # for its tool server, a process that imports noop_taskset

import measure
import verifiers.v1 as vf
from verifiers.v1.utils.loaders import load_environment


async def main() -> None:
    """Serve orders."""
    logging.basicConfig(level=logging.ERROR)
    agent = {"harness": {"id": "null"}, "runtime": {"type": "subprocess"}}
    config = vf.SingleAgentEnvConfig.model_validate({"taskset": {"id": "noop_taskset"}, "agent": agent})
    env = load_environment(config)
    client = vf.EvalClientConfig(base_url=sys.argv[1], api_key_var="NOOP_KEY")
    context = vf.ModelContext(client=client, model="mock", sampling=vf.SamplingConfig())
    tasks = list(env.taskset)

    async with env.serving():

        async def episode(number: int) -> int:
            (slot,) = env.slots(tasks[number % len(tasks)], 1)
            ended = await env.run_slot(slot, context)
            if not ended.ok:
                raise RuntimeError(str((ended.errors or ended.traces[0].errors)[-1])[-400:])
            (trace,) = ended.traces
            if trace.reward != 1.0:
                raise RuntimeError(f"reward {trace.reward}: {trace.stop_condition}")
            return len(trace.tool_messages)

        await measure.serve(measure.each(episode), ["verifiers", "openai", "mcp"])


if __name__ == "__main__":
    measure.run(main)
