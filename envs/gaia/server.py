"""The GAIA tool server: one MCP server over a workspace, in process, over stdio or over HTTP on 127.0.0.1.

It knows an :class:`~aworld_gym.types.EpisodeContext` (workspace and public facts) and nothing else: no task, no
answer, no environment variable. Tool functions are synchronous and run in threads, so that none blocks a loop.

    python -m envs.gaia.server --workspace DIR [--episode FILE] [--http PORT]
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import inspect
import json
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio.to_thread
from mcp.types import CallToolResult, ToolAnnotations

from aworld_gym.errors import ConfigError, InfraError, did_you_mean
from aworld_gym.toolchain.compat import new_server
from aworld_gym.toolchain.messages import mark
from aworld_gym.types import EpisodeContext
from envs.gaia import sandbox as sandboxes
from envs.gaia.machine import machine_fault
from envs.gaia.mcp_tools import closed, result
from envs.gaia.overtime import Overtime, Watch
from envs.gaia.tools import NAMES, Reply, ToolContext, ToolDef, ToolFault, Workspace, build

_log = logging.getLogger(__name__)
_THREADS = 16
"""Calls of one session that run at once; more wait."""
CALL_CPU_S = 6.0
"""Seconds of processor time of one call; ``run_python``'s programs have limits of their own."""
_LONG = "it took too long. Read a part of the file with run_python, or ask for less"


def make_server(
    context: EpisodeContext, *, tools: Sequence[str] | None = None, sandbox: str = "auto", compact: bool = False
) -> Any:
    """An MCP server with the GAIA tools for one episode.

    Args:
        context: the episode's workspace and public facts.
        tools: names of the tools to offer; all by default.
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
    threads = _Threads()
    # Schemas are made once per process: making them costs ten times as much as the rest of a server.
    chosen = [tool for name, tool in known.items() if tools is None or name in tools]
    made = [_prototypes(compact)[tool.name].model_copy(update={"fn": _served(tool, threads)}) for tool in chosen]
    return new_server("gaia", tools=made)


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve one workspace until the client leaves."""
    parser = argparse.ArgumentParser(prog="python -m envs.gaia.server", description=__doc__.split("\n")[0])
    parser.add_argument("--workspace", type=Path, default=os.environ.get("AWORLD_WORKSPACE"), help="the directory")
    parser.add_argument(
        "--episode",
        type=Path,
        default=os.environ.get("AWORLD_EPISODE_FILE"),
        help='a JSON file {"public": {...}}, read when a call needs it: it may appear later',
    )
    parser.add_argument("--http", type=int, metavar="PORT", help="serve over HTTP on 127.0.0.1 instead of stdio")
    parser.add_argument("--tools", help="comma-separated names; all by default")
    parser.add_argument("--sandbox", choices=sandboxes.MODES, default="auto", help="how run_python is confined")
    parser.add_argument("--compact", action="store_true", help="terse descriptions and results")
    options = parser.parse_args(arguments)
    if options.workspace is None:
        parser.error("--workspace (or the environment variable AWORLD_WORKSPACE) is needed")
    try:
        server = make_server(
            EpisodeContext(Path(options.workspace), _EpisodeFile(options.episode)),
            tools=options.tools.split(",") if options.tools else None,
            sandbox=options.sandbox,
            compact=options.compact,
        )
    except ConfigError as error:
        parser.error(str(error))
    if options.http is None:
        server.run("stdio")
    else:
        import uvicorn

        uvicorn.run(server.streamable_http_app(), host="127.0.0.1", port=options.http, log_level="warning")


class _EpisodeFile(Mapping[str, Any]):
    """The public facts in an episode file, as they are now: a server may be started before its episode."""

    def __init__(self, path: str | Path | None):
        self._path = path

    def _facts(self) -> Mapping[str, Any]:
        if self._path is None or not os.path.exists(self._path):
            return {}
        facts: Mapping[str, Any] = json.loads(Path(self._path).read_text(encoding="utf-8")).get("public", {})
        return facts

    def __getitem__(self, key: str) -> Any:
        return self._facts()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._facts())

    def __len__(self) -> int:
        return len(self._facts())


class _Threads:
    """A session's limit on threads, made in the loop that first needs it."""

    def __init__(self) -> None:
        self._limiter: anyio.CapacityLimiter | None = None

    async def run(self, tool: ToolDef, function: Callable[[], Reply]) -> Reply:
        if self._limiter is None:
            self._limiter = anyio.CapacityLimiter(_THREADS)
        watch = Watch(None if tool.takes_cancel else CALL_CPU_S)
        watch.begin(asyncio.get_running_loop())

        def call() -> Reply:
            try:
                return watch.run(function)
            except Overtime:
                raise ToolFault(f"{tool.name} was stopped: {_LONG}") from None

        try:
            return await anyio.to_thread.run_sync(call, abandon_on_cancel=True, limiter=self._limiter)
        finally:
            watch.close()


@functools.cache
def _prototypes(compact: bool) -> Mapping[str, Any]:
    """The tools as ``mcp`` holds them, by name, over a workspace that is never touched."""
    try:
        from mcp.server.mcpserver.tools import Tool
    except ImportError:  # mcp 1.x
        from mcp.server.fastmcp.tools import Tool  # type: ignore[no-redef]

    made = {}
    for name, tool in build(ToolContext(Workspace(Path("/")), compact=compact)).items():
        prototype = Tool.from_function(
            _served(tool, _Threads()),
            name=name,
            description=(compact and tool.terse) or tool.description,
            annotations=_annotations(tool),
            structured_output=False,
        )
        parameters = closed(prototype.parameters, ("title", "description") if compact else ("title",))
        made[name] = prototype.model_copy(update={"parameters": parameters})
    return made


def _served(tool: ToolDef, threads: _Threads) -> Callable[..., Any]:
    """The tool as a coroutine function that never blocks, never raises, and answers in MCP's terms."""

    async def call(**arguments: Any) -> Any:
        cancelled = threading.Event()
        if tool.takes_cancel:
            arguments["_cancelled"] = cancelled
        try:
            reply = await threads.run(tool, functools.partial(tool.function, **arguments))
        except Exception as error:
            if (trouble := machine_fault(error)) is not None:
                _log.warning("the tool %s failed, and so does this machine: %s", tool.name, trouble)
                return _unusable(f"{tool.name} failed with its machine: {trouble}")
            if isinstance(error, ToolFault):
                return result(str(error), failed=True)
            # a bug of ours: the model is told, the log has the trace
            _log.exception("the tool %s failed", tool.name)
            return result(f"{tool.name} failed unexpectedly ({type(error).__name__}); try another way", failed=True)
        finally:
            cancelled.set()
        return result(reply)

    signature = inspect.signature(tool.function, eval_str=True)
    visible = [parameter for parameter in signature.parameters.values() if not parameter.name.startswith("_")]
    call.__signature__ = signature.replace(parameters=visible, return_annotation=CallToolResult)  # type: ignore[attr-defined]
    call.__name__ = tool.name
    call.__doc__ = tool.description
    return call


def _unusable(text: str) -> CallToolResult:
    """A result that ends the episode as an infrastructure failure."""
    meta = mark(InfraError("env_failed", text))
    return CallToolResult.model_validate({"content": [{"type": "text", "text": text}], "isError": True, "_meta": meta})


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
