"""A second mind for hard steps: sends a problem to a language model that reasons at length."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from envs.gaia.mcp_tools import Tool
from envs.gaia.servers.llm import MAX_INPUT, Endpoint, helper

SYSTEM = (
    "You solve one hard step of a larger task. You see only what is written here and have no tools. Reason carefully, "
    "check the result another way, and end with a line that begins with `Result:`. Say what you are unsure of. If "
    "something that is needed is missing, name it instead of guessing."
)


def build(model: Endpoint) -> list[Tool]:
    """The one tool."""

    async def think_hard(
        question: Annotated[
            str, Field(min_length=1, max_length=MAX_INPUT, description="All that is needed to solve it.")
        ],
        context: Annotated[str, Field(max_length=MAX_INPUT, description="Facts found so far.")] = "",
    ) -> str:
        return await model.ask(SYSTEM, f"{question}\n\nKnown so far:\n{context}" if context else question)

    return [
        Tool(
            think_hard,
            "Ask a reasoning model to solve a hard step (logic, mathematics, puzzles). It sees only what you send.",
        )
    ]


SERVER = helper("think", "THINK", "A reasoning model for hard steps.", ("think_hard",), build, "of the reasoning model")

if __name__ == "__main__":
    SERVER.run()
