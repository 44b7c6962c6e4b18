"""skyrl-gym, without a model: an env with a tool group of one function; the actions are scripted text.

run_skyrl.py URL
"""

import asyncio
import json
import re

import measure
import skyrl_gym
from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput
from skyrl_gym.tools.core import ToolGroup, tool

_CALL = re.compile(r"<tool>(.*?)</tool>", re.DOTALL)


class Noop(ToolGroup):
    """One tool."""

    def __init__(self):
        super().__init__(name="Noop")

    @tool
    def noop(self, x: int) -> str:
        """Return x."""
        return str(x)


class NoopEnv(BaseTextEnv):
    """Calls are text in tags, as in its own envs."""

    def __init__(self, env_config=None, extras=None):
        super().__init__()
        self.max_turns = 10
        self.init_tool_groups([Noop()])
        self.called = 0

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """One action."""
        self.turns += 1
        found = _CALL.search(action)
        if found is None:
            return BaseTextEnvStepOutput(observations=[], reward=float("done" in action), done=True, metadata={})
        call = json.loads(found[1])
        text = self._execute_tool("Noop", call["name"], list(call["arguments"].values()))
        self.called += 1
        seen = [{"role": "user", "content": text}]
        return BaseTextEnvStepOutput(observations=seen, reward=0.0, done=False, metadata={})


async def main() -> None:
    """Serve orders."""
    skyrl_gym.register(id="noop", entry_point=NoopEnv)

    async def episode(number: int) -> int:
        env = skyrl_gym.make("noop")
        env.init([{"role": "user", "content": measure.PROMPT}])
        for x in range(measure.TURNS):
            env.step(f'<tool>{{"name": "noop", "arguments": {{"x": {x}}}}}</tool>')
            await asyncio.sleep(0)
        if env.step("<answer>done</answer>")["reward"] != 1.0:
            raise RuntimeError("the answer was to be right")
        return env.called

    await measure.serve(measure.each(episode), ["skyrl-gym"])


if __name__ == "__main__":
    measure.run(main)
