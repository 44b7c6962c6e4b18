"""Tools as ``mcp`` serves them: closed schemas, annotations, and an answer to every call.

For the servers beside the embedded one. A tool here is a function or a coroutine function, and needs no thread of its
own to be ended in; :mod:`envs.gaia.server` does more for tools that read hostile files.
"""

from __future__ import annotations

import base64
import functools
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from envs.gaia.tools.base import ImageBlock, Reply, ToolFault

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Tool:
    """One tool."""

    function: Callable[..., Reply | Awaitable[Reply]]
    """Named and annotated as the model will see it; refuses by raising ToolFault."""
    description: str
    read_only: bool = True
    """Repeating the call is harmless and changes nothing."""

    @property
    def name(self) -> str:
        """The tool's name."""
        return self.function.__name__


def mcp_tool(tool: Tool, redact: Callable[[str], str] = str, *, open_world: bool) -> Any:
    """The tool as ``mcp`` holds it.

    Args:
        tool: the tool.
        redact: takes secrets out of texts.
        open_world: whether it reaches out of this machine.
    """
    from mcp.types import ToolAnnotations

    try:
        from mcp.server.mcpserver.tools import Tool as Served
    except ImportError:  # mcp 1.x
        from mcp.server.fastmcp.tools import Tool as Served  # type: ignore[no-redef]

    made = Served.from_function(
        _answering(tool, redact),
        name=tool.name,
        description=tool.description,
        annotations=ToolAnnotations.model_validate(
            {
                "readOnlyHint": tool.read_only,
                "idempotentHint": tool.read_only,
                "destructiveHint": False,
                "openWorldHint": open_world,
            }
        ),
        structured_output=False,
    )
    return made.model_copy(update={"parameters": closed(made.parameters)})


def closed(schema: Mapping[str, Any], left_out: Sequence[str] = ("title",)) -> dict[str, Any]:
    """A schema of arguments without titles, which only repeat names, and closed: a misspelt argument is an error.

    Args:
        schema: of all arguments together.
        left_out: what is not said of each argument.
    """
    properties = {
        name: {key: value for key, value in inner.items() if key not in left_out}
        for name, inner in schema.get("properties", {}).items()
    }
    return {
        **{key: value for key, value in schema.items() if key != "title"},
        "properties": properties,
        "additionalProperties": False,
    }


def _answering(tool: Tool, redact: Callable[[str], str]) -> Callable[..., Any]:
    from mcp.types import CallToolResult

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


def result(reply: Reply, *, failed: bool = False) -> Any:
    """What a tool returned, in MCP's terms."""
    from mcp.types import CallToolResult

    blocks = [reply] if isinstance(reply, str) else reply
    content = [
        {"type": "image", "data": base64.b64encode(block.data).decode("ascii"), "mimeType": block.mime}
        if isinstance(block, ImageBlock)
        else {"type": "text", "text": block.encode("utf-8", "replace").decode()}  # lone surrogates are no JSON
        for block in blocks
    ]
    return CallToolResult.model_validate({"content": content, "isError": failed})
