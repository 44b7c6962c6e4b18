"""The GAIA tool server: one MCP server over a workspace, in process, over stdio or over HTTP on 127.0.0.1.

It knows an :class:`~aworld_gym.types.EpisodeContext` (workspace and public facts) and nothing else: no task, no
answer, no environment variable. Tool functions are synchronous and run in threads, so that none blocks a loop.

    python -m envs.gaia.server --workspace DIR [--episode FILE] [--http PORT]
"""

from __future__ import annotations

import argparse
import base64
import functools
import inspect
import json
import logging
import os
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
from mcp.types import CallToolResult, ToolAnnotations

from aworld_gym.errors import ConfigError, did_you_mean
from aworld_gym.toolchain.compat import new_server
from aworld_gym.types import EpisodeContext
from envs.gaia import sandbox as sandboxes
from envs.gaia.tools import NAMES, ImageBlock, Reply, ToolContext, ToolDef, ToolFault, Workspace, build

_log = logging.getLogger(__name__)
_THREADS = 16
"""Calls of one session that run at once; more wait."""


def make_server(
    context: EpisodeContext, *, tools: Sequence[str] | None = None, sandbox: str = "auto", compact: bool = False
) -> Any:
    """An MCP server with the GAIA tools for one episode.

    Args:
        context: the episode's workspace and public facts.
        tools: names of the tools to offer, in this order of preference; all by default.
        sandbox: ``"auto"`` confines ``run_python`` or refuses; ``"none"`` runs it unconfined.
        compact: terse descriptions and results, for small models.

    Returns:
        The MCP server object of the installed ``mcp`` line.

    Raises:
        ConfigError: an unknown tool name or sandbox mode, or a workspace that is not a directory.
    """
    if sandbox not in sandboxes.MODES:
        raise ConfigError(f"sandbox must be one of {sandboxes.MODES}, got {sandbox!r}")
    if not Path(context.workspace).is_dir():
        raise ConfigError(f"the workspace must be an existing directory, got {str(context.workspace)!r}")
    for name in tools or ():
        if name not in NAMES:
            raise ConfigError(f"unknown tool {name!r}; there are {', '.join(NAMES)}.{did_you_mean(name, NAMES)}")
    known = build(ToolContext(Workspace(context.workspace), context.public, sandbox, compact))
    server = new_server("gaia")
    limiter = _Limiter()
    for name, tool in known.items():
        if tools is None or name in tools:
            server.tool(
                name=name,
                description=(compact and tool.terse) or tool.description,
                annotations=_annotations(tool),
                structured_output=False,
            )(_served(tool, limiter))
    return server


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve one workspace until the client leaves."""
    parser = argparse.ArgumentParser(prog="python -m envs.gaia.server", description=__doc__.split("\n")[0])
    parser.add_argument("--workspace", type=Path, default=os.environ.get("AWORLD_WORKSPACE"), help="the directory")
    parser.add_argument(
        "--episode",
        type=Path,
        default=os.environ.get("AWORLD_EPISODE_FILE"),
        help='a JSON file {"public": {...}}, read at the first call that needs it',
    )
    parser.add_argument("--http", type=int, metavar="PORT", help="serve over HTTP on 127.0.0.1 instead of stdio")
    parser.add_argument("--tools", help="comma-separated names; all by default")
    parser.add_argument("--sandbox", choices=sandboxes.MODES, default="auto", help="how run_python is confined")
    parser.add_argument("--compact", action="store_true", help="terse descriptions and results")
    options = parser.parse_args(arguments)
    if options.workspace is None:
        parser.error("--workspace (or the environment variable AWORLD_WORKSPACE) is needed")
    public = json.loads(options.episode.read_text()).get("public", {}) if options.episode else {}
    try:
        server = make_server(
            EpisodeContext(options.workspace, public),
            tools=options.tools.split(",") if options.tools else None,
            sandbox=options.sandbox,
            compact=options.compact,
        )
    except ConfigError as error:
        parser.error(str(error))
    server.run("stdio")


class _Limiter:
    """A limit on threads, made in the loop that first needs it."""

    def __init__(self) -> None:
        self._limiter: anyio.CapacityLimiter | None = None

    def get(self) -> anyio.CapacityLimiter:
        if self._limiter is None:
            self._limiter = anyio.CapacityLimiter(_THREADS)
        return self._limiter


def _served(tool: ToolDef, limiter: _Limiter) -> Callable[..., Any]:
    """The tool as a coroutine function that never blocks, never raises, and answers in MCP's terms."""

    async def call(**arguments: Any) -> Any:
        cancelled = threading.Event()
        if tool.takes_cancel:
            arguments["_cancelled"] = cancelled
        try:
            reply = await anyio.to_thread.run_sync(
                functools.partial(tool.function, **arguments), abandon_on_cancel=True, limiter=limiter.get()
            )
        except ToolFault as fault:
            return _result(str(fault), failed=True)
        except Exception as error:  # a bug of ours: the model is told, the log has the trace
            _log.exception("the tool %s failed", tool.name)
            return _result(f"{tool.name} failed unexpectedly ({type(error).__name__}); try another way", failed=True)
        finally:
            cancelled.set()
        return _result(reply)

    signature = inspect.signature(tool.function, eval_str=True)
    visible = [parameter for parameter in signature.parameters.values() if not parameter.name.startswith("_")]
    call.__signature__ = signature.replace(parameters=visible, return_annotation=CallToolResult)  # type: ignore[attr-defined]
    call.__name__ = tool.name
    call.__doc__ = tool.description
    return call


def _result(reply: Reply, *, failed: bool = False) -> CallToolResult:
    blocks = [reply] if isinstance(reply, str) else reply
    content = [
        {"type": "image", "data": base64.b64encode(block.data).decode("ascii"), "mimeType": block.mime}
        if isinstance(block, ImageBlock)
        else {"type": "text", "text": block}
        for block in blocks
    ]
    return CallToolResult.model_validate({"content": content, "isError": failed})


def _annotations(tool: ToolDef) -> ToolAnnotations:
    return ToolAnnotations.model_validate(
        {
            "readOnlyHint": tool.read_only,
            "idempotentHint": tool.idempotent,
            "destructiveHint": not tool.read_only and tool.name == "run_python",
            "openWorldHint": False,
        }
    )


if __name__ == "__main__":
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    main()
