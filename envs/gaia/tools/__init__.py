"""The GAIA tools: plain functions, grouped by what they read. :mod:`envs.gaia.server` serves them over MCP."""

from __future__ import annotations

from envs.gaia.tools import archives, audio, calculator, databases, documents, files, images, python, search, tables
from envs.gaia.tools.base import ImageBlock, Reply, ToolContext, ToolDef, ToolFault
from envs.gaia.tools.workspace import Workspace

NAMES = (
    "search",
    "open_page",
    "find_in_page",
    "list_files",
    "read_document",
    "read_table",
    "query_sqlite",
    "view_image",
    "describe_image",
    "read_qr",
    "decode_audio",
    "unpack_archive",
    "run_python",
    "calculate",
    "submit_answer",
)
"""Every tool, in the order in which a server lists them."""


def build(context: ToolContext) -> dict[str, ToolDef]:
    """All tools over one context, by name, in the order of :data:`NAMES`."""
    modules = (search, files, documents, tables, databases, images, audio, archives, python, calculator)
    found = {tool.name: tool for module in modules for tool in module.tools(context)}
    return {name: found[name] for name in NAMES}
