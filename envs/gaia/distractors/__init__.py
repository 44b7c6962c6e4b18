"""Tools that no task needs: honest, working, and beside the point. ``gym.make(..., distractor_tools=8)`` offers some.

A model that is to pick the right tool has to see others. Each of these does what it says, from its arguments alone:
none reads a file, a page, a clock or a table of the world, so none can help to an answer or give one away.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from typing import Any

from aworld_gym.errors import ConfigError, did_you_mean
from envs.gaia.distractors import measures, numbers, texts
from envs.gaia.mcp_tools import Tool


@functools.cache
def tools() -> dict[str, Tool]:
    """All of them by name, in the order in which they are offered: mixed, and the same for ever."""
    found = [tool for module in (numbers, texts, measures) for tool in module.tools()]
    found.sort(key=lambda tool: hashlib.sha256(tool.name.encode()).digest())
    return {tool.name: tool for tool in found}


def chosen(count: int) -> list[str]:
    """The names of the first ``count``.

    Raises:
        ConfigError: there are not so many, or it is no number.
    """
    known = list(tools())
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= len(known):
        raise ConfigError(f"distractor_tools must be a number from 0 to {len(known)}, got {count!r}")
    return known[:count]


def make_server(context: Any, *, names: Sequence[str]) -> Any:
    """An MCP server with the tools of these names.

    Args:
        context: the episode, which they have nothing to do with.
        names: as :func:`chosen` gives them.

    Raises:
        ConfigError: one is unknown.
    """
    from aworld_gym.toolchain.compat import new_server

    known = _served()
    for name in names:
        if name not in known:
            raise ConfigError(f"unknown distractor tool {name!r}.{did_you_mean(name, known)}")
    return new_server("extras", tools=[known[name] for name in names])


@functools.cache
def _served() -> dict[str, Any]:
    from envs.gaia.mcp_tools import mcp_tool

    return {name: mcp_tool(tool, open_world=False) for name, tool in tools().items()}
