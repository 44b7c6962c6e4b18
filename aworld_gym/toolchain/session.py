"""What one episode holds: its tools, its workspace, and a lease on a session with each server.

Here the rules of a call are applied: a model's mistake or a tool's refusal becomes a :class:`ToolResult`, an
infrastructure failure is retried where that is certainly harmless and raised as :class:`InfraError` where not.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import random
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aworld_gym.errors import AWorldGymError, InfraError, did_you_mean
from aworld_gym.toolchain import compat, content
from aworld_gym.toolchain.arguments import MAX_NAME_CHARS, Arguments, clip
from aworld_gym.toolchain.connection import CallTimeout, Connection
from aworld_gym.toolchain.stats import counters
from aworld_gym.toolchain.workspace import Episode
from aworld_gym.types import Limits, ToolResult

logger = logging.getLogger(__name__)

BACKOFF_S = (0.2, 1.0)
"""Pauses before the retries of a call."""
HOST_BACKOFF_S = (0.2, 1.0, 2.0, 4.0)
"""The same where an environment host cannot be reached: its sessions outlive a short outage, and hold an episode."""
_jitter = random.Random()  # of its own, seeded by the system: the calls of many episodes must not come back together
_MAX_NAMES = 100  # of the tools there are, named to a model that called another


@dataclass(frozen=True)
class Route:
    """Where a tool, under the name the model knows, is found."""

    server: str
    tool: str
    """Its name there."""
    arguments: Arguments
    read_only: bool
    """It says that it changes nothing (``readOnlyHint``)."""
    repeatable: bool
    """It says that it changes nothing, or nothing more when called again (``idempotentHint``)."""


@dataclass(frozen=True)
class ToolTable:
    """The tools of a toolchain, in order, as the model sees them."""

    schemas: tuple[dict[str, Any], ...]
    routes: Mapping[str, Route]
    listed: tuple[dict[str, Any], ...] = ()
    """The same tools as their servers list them, but for the name."""


class Lease:
    """An episode's hold on a session with one server, which it replaces when it is lost.

    Args:
        connection: the session, open.
        shared: it belongs to all episodes.
        reopen: puts another in its place (the same for all, if shared).
    """

    def __init__(self, connection: Connection, *, shared: bool, reopen: Callable[[Lease], Coroutine[Any, Any, None]]):
        self.connection, self.shared, self._reopen = connection, shared, reopen
        self._lock = asyncio.Lock()
        self._reopening: asyncio.Task[None] | None = None
        self._ended = False
        self._watcher: Callable[[], None] | None = None
        self.check: asyncio.Task[None] | None = None
        """Finds out whether the server still lives, after a call that was given up."""
        self.notice = ""
        """What the next result has to say besides."""

    async def get(self) -> Connection:
        """The session, opened again if it was lost and that changes nothing the model could notice.

        Raises:
            InfraError: it was lost with the episode's state, does not open again, or the episode is over.
        """
        if self.connection.dead is None:
            return self.connection
        async with self._lock:
            if self.connection.dead is not None and not self._ended:
                if not self.replaceable:
                    error = self.connection.dead
                    text = f"{error.args[0]} What it held for this episode is lost."
                    raise InfraError(error.kind, text, server=error.server, delivered=False)
                self._reopening = asyncio.create_task(self._reopen(self))
                try:
                    await self._reopening
                except asyncio.CancelledError:
                    if not self._ended or _cancelling():
                        raise
                finally:
                    self._reopening = None
                if self._watcher is not None:
                    self.connection.watchers.add(self._watcher)
            if self._ended:
                text = "the tool session was closed"
                raise InfraError("session_lost", text, server=self.connection.config.name, delivered=False)
        return self.connection

    def watch(self, watcher: Callable[[], None]) -> None:
        """Have ``watcher`` called whenever the server says that its tools changed."""
        self._watcher = watcher
        self.connection.watchers.add(watcher)

    async def end(self) -> None:
        """Open no further session; one that is opening is broken off. What is open is the caller's to close."""
        self._ended = True
        if self._watcher is not None:
            self.connection.watchers.discard(self._watcher)
        if self.check is not None:
            self.check.cancel()
            await asyncio.wait((self.check,))
        if self._reopening is not None:
            self._reopening.cancel()
            await asyncio.wait((self._reopening,))

    @property
    def replaceable(self) -> bool:
        """Whether a new session is as good: the server is stateless, or was not asked to change anything yet."""
        return self.shared or not self.connection.changes


def _cancelling() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class Grant:
    """What an episode was given; taken back once.

    Args:
        episode: its workspace.
        take_back: gives everything back.
        table_of: the tools of its leases, as the model sees them.
    """

    def __init__(
        self,
        episode: Episode,
        take_back: Callable[[Grant], Coroutine[Any, Any, None]],
        table_of: Callable[[Mapping[str, Lease]], ToolTable],
    ):
        self.episode, self._take_back, self._table_of, self.pid = episode, take_back, table_of, os.getpid()
        self.leases: dict[str, Lease] = {}
        self.table = ToolTable((), {})
        self._release: asyncio.Task[None] | None = None

    @property
    def released(self) -> bool:
        """Whether it has been, or is being, taken back."""
        return self._release is not None

    async def refresh(self, timeout: float) -> None:
        """List the servers' tools anew."""
        leases = list(self.leases.values())
        for lease in leases:
            lease.connection.stale = False
        found = await asyncio.gather(*(lease.connection.listed(timeout) for lease in leases))
        if any(lease.connection.tools != tools for lease, tools in zip(leases, found, strict=True)):
            for lease, tools in zip(leases, found, strict=True):
                lease.connection.tools = tools
            self.table = self._table_of(self.leases)

    async def release(self) -> None:
        """Give everything back. Idempotent; goes on in the background if the caller is cancelled."""
        if self.pid != os.getpid():
            return  # inherited through a fork: it is the parent's to give back
        if self._release is None:
            self._release = asyncio.create_task(self._take_back(self))
        await asyncio.shield(self._release)


class ToolSession:
    """One episode's tools. Made by ``Toolchain.open``; all methods run on the background loop."""

    def __init__(self, grant: Grant, limits: Limits, owner: object):
        self._grant, self._limits = grant, limits
        self._owner = owner  # a toolchain that is forgotten closes its sessions: not while one is held

    @property
    def tools(self) -> tuple[dict[str, Any], ...]:
        """OpenAI tool schemas, in order. Shared with other sessions: read-only."""
        return self._grant.table.schemas

    @property
    def workspace(self) -> Path:
        """The episode's own directory."""
        return self._grant.episode.workspace

    def check(self, name: str, arguments: Any) -> tuple[str, str] | None:
        """What is wrong with a call, without calling: ``(kind, text)``, or None."""
        routes = self._grant.table.routes
        route = routes.get(name) if isinstance(name, str) else None
        if route is None:
            said = repr(clip(name)) if isinstance(name, str) else clip(repr(name))
            hint = did_you_mean(str(name)[:MAX_NAME_CHARS], routes)
            more = f" and {len(routes) - _MAX_NAMES} more" if len(routes) > _MAX_NAMES else ""
            names = ", ".join(itertools.islice(routes, _MAX_NAMES)) + more
            return "call_unknown_tool", f"there is no tool {said}.{hint} The tools are: {names}"
        if not isinstance(arguments, Mapping):
            return (
                "call_bad_arguments",
                f"the arguments of {name!r} must be a JSON object, got {type(arguments).__name__}",
            )
        try:
            problem = route.arguments.problem(content.sendable(arguments))
        except ValueError as error:
            problem = f"the arguments of {name!r} are not JSON that can be sent: {error}"
        return ("call_bad_arguments", problem) if problem else None

    async def call(self, call_id: str, name: str, arguments: Any) -> ToolResult:
        """Call a tool. What the model or the tool did wrong is in the result's ``error``.

        Raises:
            InfraError: the server failed, and calling again was not certainly harmless or failed too.
        """
        started = time.perf_counter()
        limit = self._limits.max_result_chars
        problem = self.check(name, arguments)
        if problem is not None:
            return content.error_result(*problem, call_id=call_id, name=str(name), max_chars=limit)
        try:
            raw = await self._send(self._grant.table.routes[name], content.sendable(arguments))
        except CallTimeout as timeout:
            spent = time.perf_counter() - started
            return content.error_result(
                "tool_timeout", str(timeout), call_id=call_id, name=name, max_chars=limit, duration_s=spent
            )
        except InfraError:
            counters.infra_errors += 1
            raise
        spent = time.perf_counter() - started
        return content.tool_result(raw, call_id=call_id, name=name, max_chars=limit, duration_s=spent)

    async def deliver(self) -> None:
        """Bring the workspace's files to tools that run elsewhere, on an environment host.

        Raises:
            InfraError: the host did not take one.
        """
        await asyncio.gather(*(lease.connection.deliver(self.workspace) for lease in self._grant.leases.values()))

    @property
    def table(self) -> ToolTable:
        """The tools, with where each is found. Shared with other sessions: read-only."""
        return self._grant.table

    async def refresh(self) -> None:
        """Ask the servers anew which tools they have.

        Raises:
            InfraError: one does not say.
        """
        await self._grant.refresh(self._limits.open_timeout_s)

    def watch(self, watcher: Callable[[], None]) -> None:
        """Have ``watcher`` called, on the loop, whenever a server says that its tools changed; see :meth:`refresh`."""
        for lease in self._grant.leases.values():
            lease.watch(watcher)

    async def forward(
        self, name: str, arguments: dict[str, Any], progress: compat.Progress | None = None
    ) -> dict[str, Any]:
        """Call a tool on behalf of another client: arguments and result pass as they are.

        A caller that is cancelled gave the call up, as :meth:`call` does after its time; if the server hangs then, it
        is replaced, and the next result begins with a line that says so.

        Raises:
            KeyError: there is no such tool.
            CallTimeout: no answer in time.
            InfraError: as :meth:`call`.
        """
        route = self._grant.table.routes[name]
        lease = self._grant.leases[route.server]
        if lease.check is not None:
            await asyncio.shield(lease.check)
        try:
            result = await self._send(route, arguments, progress)
        except asyncio.CancelledError:
            if lease.check is None and not self._grant.released:
                lease.check = asyncio.create_task(self._after_cancel(lease))
            raise
        if lease.notice and isinstance(result.get("content"), list):
            result = {**result, "content": [content.text_part(lease.notice), *result["content"]]}
            lease.notice = ""
        return result

    async def _after_cancel(self, lease: Lease) -> None:
        """Have a server replaced that does not answer any more, if that is why a call was given up."""
        try:
            await self._replace_if_hung(lease)
        finally:
            lease.check = None

    async def _replace_if_hung(self, lease: Lease) -> None:
        connection = lease.connection
        if await connection.alive() or connection.dead is not None:
            return
        connection.broken(InfraError("session_timeout", "it stopped answering", server=connection.config.name))
        connection.changes = 0  # whoever gave the call up is told with the next, and so a new session may do
        if not lease.shared:
            lease.notice = (
                "[After a call that was given up the server was restarted: files are kept, anything it held in memory "
                "is lost.]"
            )
        try:
            await lease.get()  # now, while the model thinks, and not within the time of its next call
        except AWorldGymError as error:
            logger.info("server %r is not back yet, and the next call will say so: %s", connection.config.name, error)

    async def aclose(self) -> None:
        """Close: idempotent, and goes on in the background if the caller is cancelled."""
        await self._grant.release()

    async def _send(
        self, route: Route, arguments: dict[str, Any], progress: compat.Progress | None = None
    ) -> dict[str, Any]:
        """Call, and call again where that is certainly harmless, within the one deadline of a call."""
        if self._grant.released:
            raise InfraError("session_lost", "the tool session is closed", server=route.server, delivered=False)
        if self._grant.pid != os.getpid():
            text = "the tool session belongs to the process that opened it, and this one was forked from it"
            raise InfraError("session_lost", text, server=route.server, delivered=False)
        lease = self._grant.leases[route.server]
        changes = 0 if route.read_only else 1
        left = self._limits.call_timeout_s
        pauses = HOST_BACKOFF_S if lease.connection.config.kind == "host" else BACKOFF_S
        for pause in (*pauses, None):
            connection = await lease.get()
            started = time.monotonic()
            connection.changes += changes  # sent, until the opposite is certain
            try:
                return await connection.call(route.tool, arguments, left, progress)
            except CallTimeout as timeout:
                text = await self._after_timeout(route, lease, connection)
                raise CallTimeout(f"{text} {timeout}".strip()) from None
            except InfraError as error:
                harmless = route.repeatable and (lease.shared or connection.changes == changes)
                if error.delivered is False or harmless:
                    connection.changes -= changes
                if pause is not None:
                    pause = max(pause, error.retry_after_s or 0.0) * _jitter.uniform(0.5, 1.5)
                left -= time.monotonic() - started + (pause or 0.0)
                over = not (error.delivered is False or harmless) or pause is None or left <= 0
                if connection.config.kind == "host" and error.kind == "host_unreachable" and error.delivered is False:
                    if over or lease.replaceable:  # nobody listens there: where nothing is held, another one will do
                        connection.lost(error)
                if over:
                    raise
                assert pause is not None
                logger.info("calling %r of server %r again: %s", route.tool, route.server, error)
                counters.retries += 1
                await asyncio.sleep(pause)
        raise AssertionError("unreachable")

    async def _after_timeout(self, route: Route, lease: Lease, connection: Connection) -> str:
        """Find out whether the server still lives; what to tell the model."""
        text = f"{route.tool!r} gave no answer within {self._limits.call_timeout_s:g} s; the call was given up"
        if await connection.alive():
            return text + "."
        hung = InfraError("session_timeout", "it stopped answering", server=route.server)
        connection.broken(hung)
        if connection.config.kind == "host":
            return text + "."  # a new session there has a new workspace: none may take its place if anything was done
        connection.changes = 0  # the model is told, so a new session may take its place
        if lease.shared:
            return text + "."
        return text + ", and its server restarted: files are kept, anything it held in memory is lost."
