"""A toolchain: a set of MCP servers whose tools one episode after another uses."""

from __future__ import annotations

import asyncio
import logging
import os
import weakref
from collections.abc import Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

from aworld_gym.errors import ConfigError, InfraError, did_you_mean
from aworld_gym.toolchain import loop
from aworld_gym.toolchain.arguments import Arguments
from aworld_gym.toolchain.config import ServerConfig, ToolchainConfig, load_config
from aworld_gym.toolchain.connection import Connection, same_tools
from aworld_gym.toolchain.pool import Bundle, Pool, close_all, open_all
from aworld_gym.toolchain.schema import aliases, openai_tool
from aworld_gym.toolchain.session import Grant, Lease, Route, ToolSession, ToolTable
from aworld_gym.toolchain.shared import shared
from aworld_gym.toolchain.stats import counters
from aworld_gym.toolchain.workspace import Episode
from aworld_gym.types import Limits

logger = logging.getLogger(__name__)


class Toolchain:
    """A set of MCP servers. Cheap to make, and starts nothing before :meth:`open`.

    It can be pickled, copied and forked: a copy, or a forked child, opens sessions of its own.

    Args:
        config: an ``mcpServers`` configuration: a path, a mapping, or what ``load_config`` gave.
        limits: deadlines and the length of results.
        tools: names, as the model sees them, of the tools to offer; None offers all.

    Raises:
        ConfigError: the configuration is broken.
    """

    def __init__(
        self,
        config: str | os.PathLike[str] | Mapping[str, Any] | ToolchainConfig,
        limits: Limits | Mapping[str, Any] | None = None,
        tools: Sequence[str] | None = None,
    ):
        if isinstance(tools, str) or (tools is not None and not tools):
            raise ConfigError(f"`tools` must be a list of at least one tool name, got {tools!r}")
        self.config = load_config(config)
        self.limits = Limits.of(limits)
        self.tools = None if tools is None else tuple(tools)
        self._runtime: _Runtime | None = None
        self._finalizer: weakref.finalize[Any, Toolchain] | None = None

    @property
    def opened(self) -> bool:
        """Whether it may hold sessions in this process, so that ``aclose`` has something to do."""
        return self._runtime is not None and self._runtime.pid == os.getpid()

    async def open(self, public: Mapping[str, Any] | None = None) -> ToolSession:
        """Open one episode's tool session, with an empty workspace. Runs on the background loop.

        Args:
            public: what tool servers may know of the episode's task (JSON).

        Raises:
            InfraError: a server does not start, answer, or offer any tool.
            ConfigError: the configuration cannot work (no such command, module or tool).
        """
        if not loop.on_loop():
            raise RuntimeError("Toolchain.open() runs on the background loop; use `await loop.call(toolchain.open())`")
        if not self.opened:
            self._runtime = _Runtime(self.config, self.limits, self.tools)
            self._finalizer = weakref.finalize(self, _abandon, self._runtime)
            self._finalizer.atexit = False  # at exit all runtimes are closed anyway
        assert self._runtime is not None
        grant = await self._runtime.grant(public or {})
        return ToolSession(grant, self.limits, owner=self)

    async def aclose(self) -> None:
        """Close every session, pooled ones included. It may be opened again.

        A shared session lingers for some seconds, for toolchains that are opened soon (see ``close_idle``).
        """
        runtime, self._runtime = self._runtime, None
        if runtime is not None:
            if self._finalizer is not None:
                self._finalizer.detach()
            await runtime.aclose()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_runtime": None, "_finalizer": None}


class _Runtime:
    """The live part of a toolchain, in one process."""

    def __init__(self, config: ToolchainConfig, limits: Limits, tools: tuple[str, ...] | None):
        self.pid = os.getpid()
        self._config, self._limits, self._tools = config, limits, tools
        self._shared = {c.name: shared(c) for c in config.servers if c.scope == "shared"}
        self._own = {c.name: c for c in config.servers if c.scope == "episode"}
        self._tells = any(c.kind == "stdio" for c in self._own.values())
        self._pool = Pool([c for c in self._own.values() if c.pool], limits.open_timeout_s)
        self._grants: set[Grant] = set()
        self._listed: dict[str, list[dict[str, Any]]] = {}
        self._table: ToolTable | None = None
        self._closing: asyncio.Task[None] | None = None
        _runtimes.add(self)

    async def grant(self, public: Mapping[str, Any]) -> Grant:
        """Sessions and a workspace for one episode."""
        bundle = self._pool.take()
        try:
            bundle.episode.begin(public, write=self._tells)
            opening = {n: self._open(n, bundle.episode) for n in self._own if n not in bundle.connections}
            opening |= {name: server.acquire(self._limits.open_timeout_s) for name, server in self._shared.items()}
            connections = bundle.connections | await open_all(opening, self._give_up)
        except BaseException:
            await self._pool.give_back(bundle)
            raise
        grant = Grant(bundle.episode, self._take_back, self._table_of)
        for name in (config.name for config in self._config.servers):  # in the order of the configuration
            reopen = partial(self._reopen, name, grant.episode)
            grant.leases[name] = Lease(connections[name], shared=name in self._shared, reopen=reopen)
        self._grants.add(grant)
        self._pool.fill()
        counters.opened += 1
        try:
            if self._closing is not None:
                raise InfraError("session_lost", "the toolchain was closed while the session opened", delivered=False)
            grant.table = self._table_of(grant.leases)
        except BaseException:
            await grant.release()
            raise
        return grant

    async def _take_back(self, grant: Grant) -> None:
        """End an episode: shared sessions stay, pooled ones are reset, the others close."""
        await asyncio.gather(*(lease.end() for lease in grant.leases.values()))
        own = {name: lease.connection for name, lease in grant.leases.items() if name in self._own}
        pooled = {name: connection for name, connection in own.items() if self._own[name].pool}
        try:
            await close_all(connection for name, connection in own.items() if name not in pooled)
            for name, server in self._shared.items():
                await server.release(grant.leases[name].connection)
        finally:
            await self._pool.give_back(Bundle(grant.episode, pooled))
            self._pool.fill()
            self._grants.discard(grant)
            counters.closed += 1

    async def aclose(self) -> None:
        """Close everything. Idempotent; goes on in the background if the caller is cancelled."""
        if self.pid != os.getpid():
            return
        if self._closing is None:
            _runtimes.discard(self)
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        await asyncio.gather(*(grant.release() for grant in self._grants))
        await self._pool.aclose()
        for server in self._shared.values():
            await server.drop()

    def _open(self, name: str, episode: Episode) -> Coroutine[Any, Any, Connection]:
        return Connection.open(self._own[name], episode, self._limits.open_timeout_s)

    async def _reopen(self, name: str, episode: Episode, lease: Lease) -> None:
        """Put another session with a server in the place of one that was lost."""
        lost = lease.connection
        if name in self._shared:
            lease.connection = await self._shared[name].acquire(self._limits.open_timeout_s)
            await self._shared[name].release(lost)
        else:
            await lost.aclose(kill=True)
            lease.connection = await self._open(name, episode)
            await lease.connection.deliver(episode.workspace)
        if not same_tools(lease.connection.tools, lost.tools):
            raise InfraError("tools_unavailable", "its tools changed while an episode used them", server=name)

    async def _give_up(self, name: str, connection: Connection) -> None:
        if name in self._shared:
            await self._shared[name].release(connection)
        else:
            await connection.aclose(kill=True)

    def _table_of(self, leases: Mapping[str, Lease]) -> ToolTable:
        """The tools as the model sees them; the same object as long as no server changes its list."""
        listed = {name: lease.connection.tools for name, lease in leases.items()}
        if self._table is None or listed != self._listed:
            self._table, self._listed = build_table(self._config.servers, listed, self._tools), listed
        return self._table


def build_table(
    servers: Sequence[ServerConfig], listed: Mapping[str, list[dict[str, Any]]], wanted: tuple[str, ...] | None
) -> ToolTable:
    """The tools of servers as the model sees them.

    Args:
        servers: their configurations, in the order in which the tools come.
        listed: what each lists, as JSON, by its name.
        wanted: names, as the model sees them, of the tools to offer; None offers all.

    Raises:
        ConfigError: the configuration names a tool that no server has.
    """
    offered = [(config.name, tool) for config in servers for tool in _offered(config, listed[config.name])]
    names = aliases([(server, tool["name"]) for server, tool in offered])
    if wanted is not None:
        for name in wanted:
            if name not in names:
                raise ConfigError(
                    f"`tools` asks for {name!r}, which no server offers; there are {names}.{did_you_mean(name, names)}"
                )
    schemas, routes, as_listed = [], {}, []
    for name, (server, tool) in zip(names, offered, strict=True):
        if wanted is not None and name not in wanted:
            continue
        schema = openai_tool(name, tool)
        schemas.append(schema)
        as_listed.append({**tool, "name": name})
        hints = tool.get("annotations")
        hints = hints if isinstance(hints, Mapping) else {}
        read_only = hints.get("readOnlyHint") is True
        routes[name] = Route(
            server=server,
            tool=tool["name"],
            arguments=Arguments(name, schema["function"]["parameters"]),
            read_only=read_only,
            repeatable=read_only or hints.get("idempotentHint") is True,
        )
    return ToolTable(tuple(schemas), routes, tuple(as_listed))


def _offered(config: ServerConfig, tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of a server's tools that the configuration lets through."""
    known = [tool["name"] for tool in tools]
    for name in (*(config.tools or ()), *((config.reset_tool,) if config.reset_tool else ())):
        if name not in known:
            raise ConfigError(
                f"server {config.name!r} has no tool {name!r}, which its configuration names; "
                f"it has {known}.{did_you_mean(name, known)}"
            )
    wanted = known if config.tools is None else config.tools
    return [tool for tool in tools if tool["name"] in wanted and tool["name"] != config.reset_tool]


_runtimes: set[_Runtime] = set()


def _abandon(runtime: _Runtime) -> None:
    """Close what a toolchain leaves that was forgotten without ``aclose``."""
    if runtime.pid == os.getpid() and runtime in _runtimes:
        try:
            loop.submit(runtime.aclose())
        except RuntimeError:
            pass  # the interpreter is exiting, which closes all runtimes anyway


async def _close_runtimes() -> None:
    await asyncio.gather(*(runtime.aclose() for runtime in list(_runtimes)))


@loop.after_fork
def _forget() -> None:
    loop.keep_forever(set(_runtimes))
    _runtimes.clear()


loop.at_shutdown(_close_runtimes)
