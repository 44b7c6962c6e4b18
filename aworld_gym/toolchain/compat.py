"""Everything that differs between ``mcp`` 1.30 and 2.x, in one place.

The rest of the package sees plain dicts (the JSON of the protocol) and three exception-free facts: a client session
is made by :func:`client_session`, asked by :func:`request`, and fails with :func:`protocol_error`. ``mcp`` is
imported when the first session opens, because importing it costs most of a second.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any

from aworld_gym.errors import ConfigError, MissingDependencyError

TESTED = "1.30 and 2.3"

Progress = Callable[[float, float | None, str | None], Awaitable[None]]
"""Told of a call's progress: how far, of how much, in words."""
CONNECTION_CLOSED = -32000
"""What the SDK's client puts into an error that it made up itself."""
MAX_PAGES = 1000
"""Pages of a tool list at most."""
MAX_TOOLS = 2000
"""Tools of one server at most; a model could not be shown so many anyway."""


@functools.cache
def api() -> SimpleNamespace:
    """The names this package uses of the installed ``mcp``.

    Raises:
        MissingDependencyError: ``mcp`` is absent or too old.
    """
    from importlib import metadata

    try:
        version = metadata.version("mcp")
        import mcp
        import mcp.types as types
        from mcp.client.sse import sse_client
        from mcp.client.streamable_http import streamable_http_client
        from mcp.shared.message import SessionMessage
    except ImportError as error:
        raise MissingDependencyError(
            f"tool servers need `mcp` {TESTED} (pip install 'mcp>=1.30,<3'): {error}"
        ) from error
    names = SimpleNamespace(
        version=version,
        v2=int(version.split(".")[0]) >= 2,
        types=types,
        ClientSession=mcp.ClientSession,
        streamable_http_client=streamable_http_client,
        sse_client=sse_client,
        SessionMessage=SessionMessage,
    )
    if names.v2:
        import httpx2 as httpx
        from mcp import MCPError as Error
        from mcp.server.mcpserver import MCPServer as Server
        from mcp.server.mcpserver.exceptions import ToolError
    else:
        import httpx  # type: ignore[no-redef]
        from mcp import McpError as Error  # type: ignore[attr-defined, no-redef]
        from mcp.server.fastmcp import FastMCP as Server  # type: ignore[attr-defined, no-redef]
        from mcp.server.fastmcp.exceptions import ToolError  # type: ignore[no-redef]
    names.httpx, names.Error, names.Server, names.ToolError = httpx, Error, Server, ToolError
    _leave_logging_alone(sys.modules[Server.__module__])
    return names


_our_server: ContextVar[bool] = ContextVar("our_server", default=False)


@contextmanager
def making_servers() -> Iterator[None]:
    """While it is entered, servers made in this context do not set up the program's logging, as the SDK has them do."""
    token = _our_server.set(True)
    try:
        yield
    finally:
        _our_server.reset(token)


def _leave_logging_alone(module: Any) -> None:
    """Have the SDK set up the root logger only for servers that are not made for us: it does so for every one."""
    original = getattr(module, "configure_logging", None)
    if original is None:
        return

    @functools.wraps(original)
    def configure_logging(*args: Any, **kwargs: Any) -> None:
        if not _our_server.get():
            original(*args, **kwargs)

    module.configure_logging = configure_logging


async def ready() -> None:
    """Import what sessions need, off the loop.

    Raises:
        MissingDependencyError: as :func:`api`.
    """
    from aworld_gym.toolchain import threads

    if not _preload.cache_info().currsize:
        await threads.factories.run(_preload)


@functools.cache
def _preload() -> None:
    import jsonschema.validators  # noqa: F401
    import referencing  # noqa: F401

    if api().v2:
        import mcp.shared.jsonrpc_dispatcher  # noqa: F401


# -- client ---------------------------------------------------------------------------------------------------


def protocol_error(error: BaseException) -> tuple[int, str, Any] | None:
    """``(code, message, data)`` if ``error`` is a JSON-RPC error, else None."""
    if not isinstance(error, api().Error):
        return None
    details = error.error
    return details.code, details.message, details.data


class _Raw(Exception):
    """Carries a raw result past the checks of ``ClientSession``."""

    def __init__(self, result: dict[str, Any]):
        self.result = result


class _Raws:
    """A result type for mcp 1.x that takes what came as it is."""

    @staticmethod
    def model_validate(value: Any) -> Any:
        return value


@functools.cache
def tapped(dispatcher: type[Any]) -> Any:
    """A class of dispatchers (mcp 2.x) that give tool lists and tool results out raw: one odd tool must not cost all.

    Args:
        dispatcher: the class of which it is made.
    """

    class Tapped(dispatcher):
        tap = True

        async def send_raw_request(self, method: str, params: Any, opts: Any = None, **kwargs: Any) -> Any:
            raw = await super().send_raw_request(method, params, opts, **kwargs)
            if self.tap and method in ("tools/list", "tools/call"):
                raise _Raw(raw)
            return raw

    return Tapped


def _hearing(on_change: Callable[[], None] | None) -> dict[str, Any]:
    """What makes a client session call ``on_change`` when its server says that its tools changed."""
    if on_change is None:
        return {}
    changed = api().types.ToolListChangedNotification

    async def heard(message: Any) -> None:
        if isinstance(getattr(message, "root", message), changed):
            on_change()

    return {"message_handler": heard}


@asynccontextmanager
async def client_session(read: Any, write: Any, on_change: Callable[[], None] | None = None) -> AsyncIterator[Any]:
    """A client session over a transport's streams, initialised.

    It speaks the handshake (which every server knows), and the sessionless protocol of 2026 to servers that refuse
    the handshake.

    Args:
        read: messages of the server.
        write: messages to it.
        on_change: called when the server says that its tools changed.
    """
    mcp = api()
    if not mcp.v2:
        async with mcp.ClientSession(read, write, **_hearing(on_change)) as session:
            await session.initialize()
            yield session
        return
    from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher

    async with dispatched_session(tapped(JSONRPCDispatcher)(read, write), on_change) as session:
        yield session


@asynccontextmanager
async def dispatched_session(dispatcher: Any, on_change: Callable[[], None] | None = None) -> AsyncIterator[Any]:
    """The same over a dispatcher of a :func:`tapped` class (mcp 2.x)."""
    mcp = api()
    async with mcp.ClientSession(dispatcher=dispatcher, **_hearing(on_change)) as session:
        try:
            await session.initialize()
        except mcp.Error as refusal:
            try:
                await session.discover()
            except mcp.Error:
                raise refusal from None
            # it mirrors some arguments into HTTP headers, which the SDK learns of from a listing of its own
            dispatcher.tap = False
            await session.list_tools()
            dispatcher.tap = True
        yield session


@asynccontextmanager
async def in_process(server: Any, on_change: Callable[[], None] | None = None) -> AsyncIterator[Any]:
    """A client session with a server object of this process (high or low level, of either line).

    Raises:
        ConfigError: it is something else.
    """
    from mcp.server import Server

    made = server
    for attribute in ("_lowlevel_server", "_mcp_server"):  # of MCPServer, and of FastMCP
        server = getattr(server, attribute, server)
    if not isinstance(server, Server):
        raise ConfigError(f"expected an MCP server object (see compat.new_server), got {made!r:.200}")
    if hasattr(made, "on_change"):  # made by `new_server`
        made.on_change = on_change
    if api().v2:
        from mcp import Client

        async with Client(server, **_hearing(on_change)) as client:
            yield client.session
    else:
        from mcp.shared.memory import create_connected_server_and_client_session  # type: ignore[attr-defined]

        async with create_connected_server_and_client_session(server, **_hearing(on_change)) as session:
            yield session


async def list_tools(session: Any) -> list[dict[str, Any]]:
    """All pages of the session's tool list, as the JSON the server sent."""
    mcp = api()
    tools: list[dict[str, Any]] = []
    cursor = None
    for _ in range(MAX_PAGES):
        params = mcp.types.PaginatedRequestParams(cursor=cursor) if cursor else None
        page = await request(session, mcp.types.ListToolsRequest(params=params))
        tools += page.get("tools") or []
        if len(tools) > MAX_TOOLS:
            raise ValueError(f"it has {len(tools)} tools or more, and {MAX_TOOLS} are the most that are taken")
        cursor = page.get("nextCursor")
        if not cursor:
            return tools
    raise ValueError(f"the tool list goes on after {MAX_PAGES} pages")


async def call_tool(
    session: Any, name: str, arguments: dict[str, Any], progress: Progress | None = None
) -> dict[str, Any]:
    """The result of one tool call, as the JSON the server sent; ``progress`` is told of what it reports meanwhile."""
    types = api().types
    message = types.CallToolRequest(params=types.CallToolRequestParams(name=name, arguments=arguments))
    return await request(session, message, progress)


async def request(session: Any, message: Any, progress: Progress | None = None) -> dict[str, Any]:
    """The raw result of ``message``."""
    options = {} if progress is None else {"progress_callback": progress}
    if not api().v2:
        return await session.send_request(api().types.ClientRequest(message), _Raws, **options)
    try:
        return await session.send_request(message, _any_dict(), **options)
    except _Raw as raw:
        return raw.result


@functools.cache
def _any_dict() -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(dict[str, Any])


def parse_message(line: bytes) -> Any:
    """A line of a stdio server as a session message.

    Raises:
        ValueError: it is not JSON-RPC.
    """
    mcp = api()
    if mcp.v2:
        return mcp.SessionMessage(mcp.types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    return mcp.SessionMessage(mcp.types.JSONRPCMessage.model_validate_json(line))


def make_message(value: dict[str, Any]) -> Any:
    """JSON as a session message.

    Raises:
        ValueError: it is not JSON-RPC.
    """
    mcp = api()
    if mcp.v2:
        return mcp.SessionMessage(mcp.types.jsonrpc_message_adapter.validate_python(value, by_name=False))
    return mcp.SessionMessage(mcp.types.JSONRPCMessage.model_validate(value))


def parts(message: Any) -> tuple[str | None, Any, Any]:
    """The method (None: it is an answer), id and params of a session message."""
    inner = getattr(message.message, "root", message.message)
    return getattr(inner, "method", None), getattr(inner, "id", None), getattr(inner, "params", None)


def dump_message(message: Any) -> bytes:
    """A session message as a line for a stdio server."""
    options = {"exclude_unset": True} if api().v2 else {"exclude_none": True}
    text: str = message.message.model_dump_json(by_alias=True, **options)
    return text.encode() + b"\n"


# -- servers --------------------------------------------------------------------------------------------------


def new_server(name: str, instructions: str | None = None, **kwargs: Any) -> Any:
    """An MCP server to add tools to: ``MCPServer`` (mcp 2.x) or ``FastMCP`` (1.x), made alike.

    On either line, synchronous tools run in threads (1.x would block the event loop), whatever a tool raises is
    told to the model as the tool's error (2.x would hide it), and results are not doubled as structured content
    unless asked for (``structured_output=True``).

    Example:
        >>> server = new_server("demo")
        >>> @server.tool()
        ... def add(a: int, b: int) -> str:
        ...     return str(a + b)
    """
    from aworld_gym.toolchain.serving import server_class

    return server_class()(name, instructions=instructions, **kwargs)


def __getattr__(name: str) -> Any:
    if name == "ToolError":  # mcp's own, for tools that want to fail with a plain message
        return api().ToolError
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
