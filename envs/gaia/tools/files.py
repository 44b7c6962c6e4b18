"""``list_files`` and ``submit_answer``: what there is, and the end."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from envs.gaia.tools.base import ToolContext, ToolDef, lines
from envs.gaia.tools.workspace import Entry

MAX_LISTED = 200


def tools(context: ToolContext) -> list[ToolDef]:
    """The listing and the submission."""

    def list_files(path: Annotated[str, Field(description="Directory.")] = ".") -> str:
        entries = [entry for entry in context.workspace.entries(path) if entry.kind != "directory"]
        if context.compact:
            return " ".join(entry.path for entry in entries) or "none"
        return lines(map(_line, entries), MAX_LISTED, noun="files") or "(no files)"

    def submit_answer(answer: Annotated[str, Field(description="The answer alone: no sentence, no working.")]) -> str:
        return "Answer submitted."

    return [
        ToolDef(list_files, "List the files of the workspace with their sizes.", terse="List files."),
        ToolDef(
            submit_answer,
            "Submit the final answer and end the task. Once only.",
            terse="Give the answer.",
            read_only=False,
            idempotent=False,
        ),
    ]


def _line(entry: Entry) -> str:
    path = entry.path if entry.path.isprintable() else ascii(entry.path)
    return f"{path} ({entry.size:,} bytes)" if entry.kind == "file" else f"{path} ({entry.kind}, cannot be read)"
