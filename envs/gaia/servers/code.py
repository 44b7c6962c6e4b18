"""A writer of programs: a language model turns a description into Python that ``run_python`` can run."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field

from envs.gaia.mcp_tools import Tool
from envs.gaia.servers.llm import MAX_INPUT, Endpoint, helper
from envs.gaia.tools.base import ToolFault

SYSTEM = (
    "You write one Python 3 program for the task below. It runs without a network, in a folder with the task's files, "
    "and prints what was asked for. Use the standard library, and pandas or numpy only if told that they are there. "
    "Reply with one fenced code block and nothing else."
)
_BLOCK = re.compile(r"```[A-Za-z0-9]*[ \t]*\n(.*?)```", re.DOTALL)


def build(model: Endpoint) -> list[Tool]:
    """The one tool."""

    async def write_code(
        task: Annotated[
            str,
            Field(min_length=1, max_length=MAX_INPUT, description="Files, their format, what to compute and print."),
        ],
        error: Annotated[str, Field(max_length=4000, description="What an earlier program failed with.")] = "",
    ) -> str:
        asked = f"{task}\n\nAn earlier program failed with:\n{error}" if error else task
        answer = await model.ask(SYSTEM, asked)
        found = _BLOCK.search(answer)
        program = (found[1] if found else answer).strip()
        try:
            compile(program, "program", "exec", dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as problem:
            raise ToolFault(f"the model's program is not valid Python ({type(problem).__name__}); ask again") from None
        return program

    return [Tool(write_code, "Have a model write a Python program from a description. It is returned, not run.")]


SERVER = helper("code", "CODE", "A model that writes programs.", ("write_code",), build, "of the programming model")

if __name__ == "__main__":
    SERVER.run()
