"""GEM, without a model: ToolEnvWrapper over an env of one question; the actions are scripted text.

    run_gem.py URL function|mcp

``function``: a tool that is a Python function. ``mcp``: its MCPTool with a server over HTTP, whose session it opens at
each call. (With a stdio server its second call is cancelled: the client outlives the event loop of the first.)
"""

import asyncio
import re
import sys
from pathlib import Path

import measure
from gem.core import Env
from gem.tools.base_tool import BaseTool
from gem.tools.tool_env_wrapper import ToolEnvWrapper

_CALL = re.compile(r"<noop>(\d+)</noop>")


class Question(Env):
    """Ends with the first text that is no call."""

    def reset(self, seed=None):
        """Begin."""
        super().reset(seed)
        return measure.PROMPT, {}

    def step(self, action):
        """End."""
        return "", float("done" in action), True, False, {}


class Noop(BaseTool):
    """A function as a tool."""

    tool_type = "noop"
    name = "noop"

    def instruction_string(self):
        """What the model is told."""
        return "<noop>x</noop> returns x."

    def execute_action(self, action):
        """Run it, if it is called."""
        found = _CALL.search(action)
        return (False, True, "", "") if found is None else (True, False, found[1], found[0])


async def main() -> None:
    """Serve orders."""
    if sys.argv[2] == "function":
        await serve(Noop(), "<noop>{}</noop>", ["gem-llm"])
        return
    from gem.tools.mcp_tool import MCPTool

    with measure.server(str(Path(__file__).parent / "noop_tool.py")) as port:
        call = '<tool_call><tool_name>noop</tool_name><arguments>{{"x": {}}}</arguments></tool_call>'
        tool = await asyncio.to_thread(MCPTool, f"http://127.0.0.1:{port}/mcp")
        await serve(tool, call, ["gem-llm", "fastmcp", "mcp"])


async def serve(tool, call: str, packages) -> None:
    """Serve orders with a tool, called by such a text."""

    def play() -> int:
        env = ToolEnvWrapper(Question(), [tool])
        env.reset(seed=0)
        for x in range(measure.TURNS):
            text, *_ = env.step(call.format(x))
            if str(x) not in text:
                raise RuntimeError(f"expected {x}, got {text!r}")
        if env.step("<answer>done</answer>")[1] != 1.0:
            raise RuntimeError("the answer was to be right")
        return env.tool_use_counter

    async def episode(number: int) -> int:
        return play() if isinstance(tool, Noop) else await asyncio.to_thread(play)

    await measure.serve(measure.each(episode), packages)


if __name__ == "__main__":
    measure.run(main)
