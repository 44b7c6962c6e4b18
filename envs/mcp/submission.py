"""A server of one tool, ``submit_answer``, for toolchains that have none: agents can end an episode by a call."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from aworld_gym.toolchain.compat import new_server
from aworld_gym.types import EpisodeContext

TOOL = "submit_answer"


def make_server(context: EpisodeContext) -> Any:
    """An MCP server that takes the answer and does nothing with it: the env reads it from the call."""
    server = new_server("submission")

    @server.tool(description="Submit the final answer and end the task. Once only.")
    def submit_answer(answer: Annotated[str, Field(description="The answer alone: no sentence, no working.")]) -> str:
        return "Answer submitted."

    return server
