"""Tools as ``mcp`` serves them: closed schemas, annotations, and an answer to every call."""

from __future__ import annotations

import base64
import functools
import inspect
import logging
from collections.abc import Callable
from typing import Any

from mcp.types import CallToolResult, ToolAnnotations

from envs.gaia.tools.base import ImageBlock, Reply, ToolDef, ToolFault

_log = logging.getLogger(__name__)


def mcp_tool(tool: ToolDef, redact: Callable[[str], str] = str, *, open_world: bool) -> Any:
    """The tool as ``mcp`` holds it: closed schema, annotations, and an answer to every call, never an exception.

    Args:
        tool: its function may be a coroutine function.
        redact: takes secrets out of texts.
        open_world: whether it reaches out of this machine.
    """
    try:
        from mcp.server.mcpserver.tools import Tool
    except ImportError:  # mcp 1.x
        from mcp.server.fastmcp.tools import Tool  # type: ignore[no-redef]

    made = Tool.from_function(
        _answering(tool, redact),
        name=tool.name,
        description=tool.description,
        annotations=ToolAnnotations.model_validate(
            {
                "readOnlyHint": tool.read_only,
                "idempotentHint": tool.idempotent,
                "destructiveHint": False,
                "openWorldHint": open_world,
            }
        ),
        structured_output=False,
    )
    properties = made.parameters.get("properties", {})
    closed = {
        **{key: value for key, value in made.parameters.items() if key != "title"},
        "properties": {n: {k: v for k, v in inner.items() if k != "title"} for n, inner in properties.items()},
        "additionalProperties": False,
    }
    return made.model_copy(update={"parameters": closed})


def _answering(tool: ToolDef, redact: Callable[[str], str]) -> Callable[..., Any]:
    from aworld_gym.toolchain import threads

    async def call(**arguments: Any) -> Any:
        try:
            if inspect.iscoroutinefunction(tool.function):
                reply = await tool.function(**arguments)
            else:
                reply = await threads.tools.run(functools.partial(tool.function, **arguments))
        except ToolFault as fault:
            return result(redact(str(fault)), failed=True)
        except Exception as error:  # a bug of ours; its text could hold anything, so the type alone is told
            _log.error("the tool %s failed unexpectedly: %s", tool.name, redact(repr(error)))
            return result(f"{tool.name} failed unexpectedly ({type(error).__name__}); try another way", failed=True)
        return result([redact(b) if isinstance(b, str) else b for b in ([reply] if isinstance(reply, str) else reply)])

    signature = inspect.signature(tool.function, eval_str=True)
    call.__signature__ = signature.replace(return_annotation=CallToolResult)  # type: ignore[attr-defined]
    call.__name__ = tool.name
    call.__doc__ = tool.description
    return call


def result(reply: Reply, *, failed: bool = False) -> CallToolResult:
    """What a tool returned, in MCP's terms."""
    blocks = [reply] if isinstance(reply, str) else reply
    content = [
        {"type": "image", "data": base64.b64encode(block.data).decode("ascii"), "mimeType": block.mime}
        if isinstance(block, ImageBlock)
        else {"type": "text", "text": block.encode("utf-8", "replace").decode()}
        for block in blocks
    ]
    return CallToolResult.model_validate({"content": content, "isError": failed})
