"""In-process servers of either line of ``mcp``, made alike: what ``compat.new_server`` gives."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable
from typing import Any

from aworld_gym.errors import describe
from aworld_gym.toolchain import compat, threads

logger = logging.getLogger(__name__)

_prototypes: dict[Any, Any] = {}  # tools without their functions, by what their schemas are made from
_MAX_PROTOTYPES = 4096


@functools.cache
def server_class() -> Any:
    """The class of :func:`compat.new_server`'s servers."""

    class Server(compat.api().Server):  # type: ignore[misc]
        # Called when tools come and go. The SDK's own notice of it does not cross its in-memory link (mcp 2.3), unless
        # that is made to speak an older protocol, with which a call costs twice as much.
        on_change: Callable[[], None] | None = None

        def __init__(self, *args: Any, **kwargs: Any):
            with compat.making_servers():
                super().__init__(*args, **kwargs)

        def add_tool(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            if kwargs.get("structured_output") is None:
                kwargs["structured_output"] = False
            # Making a tool's models and schema takes about a millisecond, and a factory makes the same tools for
            # every episode: the functions differ, and what they are declared as does not.
            key = _declaration(fn, args, kwargs)
            prototype = _prototypes.get(key)
            tools = self._tool_manager._tools
            if prototype is not None and prototype.name not in tools:
                tools[prototype.name] = prototype.model_copy(update={"fn": guarded(fn)})
                self._changed()
                return None
            before = set(tools)
            super().add_tool(guarded(fn), *args, **kwargs)
            if key is not None and len(_prototypes) < _MAX_PROTOTYPES:
                for name in tools.keys() - before:
                    _prototypes[key] = tools[name].model_copy(update={"fn": _no_function})
            self._changed()
            return None

        def remove_tool(self, *args: Any, **kwargs: Any) -> Any:
            super().remove_tool(*args, **kwargs)
            self._changed()

        def _changed(self) -> None:
            if self.on_change is not None:
                self.on_change()

    return Server


def _declaration(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """All that a tool's name and schema depend on; None where that cannot be told."""
    try:
        key = (
            (fn.__module__, fn.__code__, fn.__name__, fn.__doc__, fn.__defaults__),
            tuple((fn.__kwdefaults__ or {}).items()),
            tuple(fn.__annotations__.items()),
            args,
            tuple((k, v.model_dump_json() if hasattr(v, "model_dump_json") else v) for k, v in kwargs.items()),
        )
        hash(key)
    except (AttributeError, TypeError):
        return None
    return key


def _no_function() -> None:
    raise AssertionError("a prototype was called")


def guarded(fn: Callable[..., Any]) -> Callable[..., Any]:
    """``fn`` as a coroutine function: threads for synchronous work, every failure a ``ToolError``."""
    mcp = compat.api()
    is_async = inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(type(fn).__call__)

    @functools.wraps(fn)
    async def tool(*args: Any, **kwargs: Any) -> Any:
        try:
            if is_async:
                return await fn(*args, **kwargs)
            return await threads.tools.run(fn, *args, **kwargs)
        except (mcp.ToolError, mcp.Error):
            raise
        except (ValueError, OSError) as error:  # what tools raise on purpose
            raise mcp.ToolError(str(error) or type(error).__name__) from error
        except Exception as error:
            # the model is told, and the episode goes on: for those who look for it
            logger.info("tool %s failed unexpectedly", getattr(fn, "__name__", fn), exc_info=True)
            raise mcp.ToolError(describe(error)) from error

    return tool


def offload(server: Any) -> None:
    """Make the synchronous tools of somebody's in-process high-level server run in our threads.

    Otherwise mcp 1.x blocks the event loop in them, and 2.x waits for their end even when a call is cancelled.
    """
    manager = getattr(server, "_tool_manager", None)
    if manager is None or isinstance(server, server_class()):
        return
    for tool in manager.list_tools():
        if not tool.is_async:
            tool.fn, tool.is_async = functools.partial(threads.tools.run, tool.fn), True
