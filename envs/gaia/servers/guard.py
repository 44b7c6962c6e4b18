"""A reviewer of reasoning: a language model looks for what is wrong or unsupported before an answer is given."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from envs.gaia.mcp_tools import Tool
from envs.gaia.servers.llm import MAX_INPUT, Endpoint, helper

SYSTEM = (
    "You review somebody's work on a question before they answer. Check: is each step supported by what was found; "
    "does it answer exactly what was asked (unit, rounding, format, date, scope); is there an arithmetic or logical "
    "slip; was something assumed rather than looked up? Do not solve the question yourself. Reply with a line "
    "`Verdict: sound` or `Verdict: check`, then at most five points, the most serious first, each with what to do."
)


def build(model: Endpoint) -> list[Tool]:
    """The one tool."""

    async def review_reasoning(
        question: Annotated[str, Field(min_length=1, max_length=MAX_INPUT)],
        reasoning: Annotated[
            str, Field(min_length=1, max_length=MAX_INPUT, description="Steps, findings, conclusion.")
        ],
    ) -> str:
        return await model.ask(SYSTEM, f"The question:\n{question}\n\nThe work so far:\n{reasoning}")

    return [
        Tool(
            review_reasoning, "Have another model look for mistakes in your reasoning. It does not solve the question."
        )
    ]


SERVER = helper(
    "guard", "GUARD", "A model that reviews reasoning.", ("review_reasoning",), build, "of the reviewing model"
)

if __name__ == "__main__":
    SERVER.run()
