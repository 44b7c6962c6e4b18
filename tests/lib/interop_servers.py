"""Configurations of the foreign MCP servers that ``tests/interop/install.sh`` installs."""

from __future__ import annotations

from pathlib import Path

INTEROP = Path(__file__).parents[2] / ".interop"
NODE, PYTHON = INTEROP / "node_modules/.bin", INTEROP / "venv/bin"

EVERYTHING = {"command": str(NODE / "mcp-server-everything")}
FILES = {
    "command": str(NODE / "mcp-server-filesystem"),
    "args": ["${AWORLD_WORKSPACE}"],
    "cwd": "${AWORLD_WORKSPACE}",
}
TIME = {"command": str(PYTHON / "mcp-server-time"), "args": ["--local-timezone", "UTC"]}


def config(**servers: dict) -> dict:
    """An ``mcpServers`` configuration of some of them."""
    return {"mcpServers": servers}
