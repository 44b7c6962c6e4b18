"""One MCP session, opened, kept and closed by one task of its own.

An MCP session must be left by the task that entered it, while its calls may come from any task: so each
:class:`Connection` has an owner task, and nothing that happens to a caller (cancellation, a deadline) touches the
session. Everything that goes wrong comes out as :class:`InfraError` or :class:`CallTimeout`; what a tool or server
answers to a call comes out as the JSON of an MCP tool result.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aworld_gym.errors import AWorldGymError, InfraError, describe
from aworld_gym.toolchain import compat, failures, hosted, http, loop, messages
from aworld_gym.toolchain.config import ServerConfig, fill
from aworld_gym.toolchain.inprocess import make_server
from aworld_gym.toolchain.process import ServerProcess, streams
from aworld_gym.toolchain.stats import counters
from aworld_gym.toolchain.workspace import Episode

logger = logging.getLogger(__name__)

CLOSE_TIMEOUT_S = 20.0
"""Seconds a session may take to close before it is abandoned, loudly."""
PING_TIMEOUT_S = 2.0
"""Seconds in which a server that let a call time out must show that it still lives."""
HOST_PING_TIMEOUT_S = 8.0
"""The same for a host, which may be far away."""

_start_slots: asyncio.Semaphore | None = None


def _starting() -> asyncio.Semaphore:
    """Slots for server processes that start: a few for each core, or all would be late where many start at once."""
    global _start_slots
    if _start_slots is None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        _start_slots = asyncio.Semaphore(4 * cores)
    return _start_slots


@loop.after_fork
def _forget_slots() -> None:
    global _start_slots
    _start_slots = None


class CallTimeout(Exception):
    """A tool call got no answer within its deadline. Its text, if any, says what came instead."""


class Connection:
    """One MCP session with one server. Made by :meth:`open`; lives on the background loop.

    Attributes:
        tools: the server's tool list, as JSON, never empty.
        dead: why the session cannot be used any more, or None.
        clean: no call of it timed out or was given up, so nothing can still be running in it.
        timed_out: a call of it timed out.
        changes: calls sent that may have changed something (counted by its user).
        stale: the server said that its tools are others now than ``tools``.
        watchers: called when it says so.
    """

    def __init__(self, config: ServerConfig, episode: Episode | None):
        self.config = config
        self._own_episode = Episode() if episode is None and config.kind == "python" else None
        self._episode = episode or self._own_episode
        self.tools: list[dict[str, Any]] = []
        self.dead: InfraError | None = None
        self.clean, self.timed_out, self.changes, self.stale = True, False, 0, False
        self.watchers: set[Callable[[], None]] = set()
        self._kill = False
        self._process: ServerProcess | None = None
        self._session: Any = None
        self._link: hosted.Link | None = None
        self._calls: set[asyncio.Task[Any]] = set()
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._stop = asyncio.Event()
        self._owner = asyncio.create_task(self._own(), name=f"mcp-session-{config.name}")

    @classmethod
    async def open(cls, config: ServerConfig, episode: Episode | None, timeout: float) -> Connection:
        """Start or reach the server, open a session, and read its tools.

        Raises:
            InfraError: it does not start, does not answer in time, or has no tools.
            ConfigError: it can never work as configured.
        """
        await compat.ready()  # importing `mcp` takes seconds on a busy machine, none of them the server's
        if config.kind == "host":
            return await hosted.open_somewhere(config, timeout, lambda one, left: cls._open(one, episode, left))
        if config.kind != "stdio":
            return await cls._open(config, episode, timeout)
        async with _starting():  # waiting for others to start does not count
            return await cls._open(config, episode, timeout)

    @classmethod
    async def _open(cls, config: ServerConfig, episode: Episode | None, timeout: float) -> Connection:
        self = cls(config, episode)
        try:
            done, _ = await asyncio.wait((self._opened,), timeout=timeout)
            if not done:
                raise self._failed(
                    "session_timeout" if config.kind in ("http", "sse", "host") else "server_start_failed",
                    f"no MCP session within {timeout:g} s.",
                )
            self._opened.result()
        except BaseException:
            await self.aclose(kill=True)
            raise
        return self

    async def call(
        self, name: str, arguments: dict[str, Any], timeout: float, progress: compat.Progress | None = None
    ) -> dict[str, Any]:
        """Call a tool; the result as JSON (``content``, ``structuredContent``, ``isError``).

        Args:
            name: the tool's, as the server has it.
            arguments: as they are sent.
            timeout: seconds.
            progress: told of the progress that the server reports.

        Raises:
            CallTimeout: no answer in time. The call was given up, and the server told so.
            InfraError: anything else that is not an answer.
        """
        if self.dead is not None:
            raise InfraError(self.dead.kind, self.dead.args[0], server=self.config.name, delivered=False)
        counters.calls += 1
        noise = self._process.noise_lines if self._process is not None else 0
        # A task of its own: whatever cancels it is seen here, and one that cannot be stopped can be left behind.
        task = asyncio.create_task(compat.call_tool(self._session, name, arguments, progress))
        self._calls.add(task)
        task.add_done_callback(self._call_done)
        try:
            done, _ = await asyncio.wait((task,), timeout=timeout)
        except asyncio.CancelledError:
            self.clean = False
            task.cancel()
            raise
        if not done:
            self.clean, self.timed_out = False, True
            task.cancel()
            counters.timeouts += 1
            noisy = self._process is not None and self._process.noise_lines > noise
            raise CallTimeout(self._process.noise_words() if self._process is not None and noisy else "")
        if not task.cancelled() and task.exception() is None:
            result = task.result()
            known = messages.failure(result.get("_meta"), self.config.name) if isinstance(result, dict) else None
            if known is not None:  # the server itself says that it is its machine that failed
                raise known
            return failures.result(result)
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        assert error is not None
        return await self._call_failed(error)

    async def alive(self) -> bool:
        """Whether the server still answers. In-process servers share our loop, so they do."""
        if self.dead is not None or self._session is None:
            return False
        if self.config.kind == "python":
            return True
        ping = asyncio.create_task(self._session.send_ping())
        ping.add_done_callback(_seen)
        timeout = HOST_PING_TIMEOUT_S if self.config.kind == "host" else PING_TIMEOUT_S
        done, _ = await asyncio.wait((ping,), timeout=timeout)
        if not done:
            ping.cancel()
            return False
        error = None if ping.cancelled() else ping.exception()
        # that it does not know `ping` is an answer too
        return not ping.cancelled() and (error is None or failures.meaning(error, self.config.name) is None)

    async def deliver(self, workspace: Path) -> None:
        """Bring the files of a workspace to where the server has its own: nothing to do, but for a host's.

        Raises:
            InfraError: the host did not take one.
        """
        if self._link is not None:
            await self._link.upload(workspace)

    async def listed(self, timeout: float) -> list[dict[str, Any]]:
        """The tools that the server lists now.

        Raises:
            InfraError: it does not list them in time.
        """
        if self.dead is not None:
            raise InfraError(self.dead.kind, self.dead.args[0], server=self.config.name, delivered=False)
        try:
            async with asyncio.timeout(timeout):
                return await self._list(self._session)
        except TimeoutError:
            text = f"it did not list its tools within {timeout:g} s"
            raise InfraError("session_timeout", text, server=self.config.name) from None

    async def refresh(self, timeout: float) -> None:
        """Take the tools that the server lists now.

        Raises:
            InfraError: it does not list them in time.
        """
        self.stale = False
        self.tools = await self.listed(timeout)

    async def unchanged(self, timeout: float) -> bool:
        """Whether the server still lists, in time, the tools it listed at first."""
        try:
            async with asyncio.timeout(timeout):
                return same_tools(await compat.list_tools(self._session), self.tools)
        except Exception as error:
            logger.info("server %r did not list its tools again: %s", self.config.name, describe(error))
            return False

    def lost(self, error: InfraError) -> None:
        """Mark the session unusable; the first reason stays. Calls under way may still get their answers."""
        if self.dead is None:
            self.dead = error

    def broken(self, error: InfraError) -> None:
        """Mark the session unusable, and end the calls under way: no answer will come."""
        self.lost(error)
        for task in self._calls:
            task.cancel()

    async def aclose(self, *, kill: bool = False) -> None:
        """Close the session and end its server. Idempotent; goes on if the caller is cancelled.

        Args:
            kill: the server gets no time to end by itself.
        """
        self._kill = self._kill or kill
        self.broken(InfraError("session_lost", "the session is closed", server=self.config.name))
        self._stop.set()
        if not self._opened.done():
            self._owner.cancel()
        done, _ = await asyncio.wait((self._owner,), timeout=CLOSE_TIMEOUT_S)
        if not done:
            logger.warning("server %r: the session did not close in %g s; abandoned", self.config.name, CLOSE_TIMEOUT_S)
            self._owner.cancel()

    # -- the owner task ---------------------------------------------------------------------------------------

    async def _own(self) -> None:
        counted = False
        try:
            async with self._connect() as session:
                self.tools = await self._list(session)
                self._session = session
                counters.connections_opened += 1
                counted = True
                self._opened.set_result(None)
                await self._stop.wait()
        except asyncio.CancelledError as error:
            if not self._opened.done() and not self._stop.is_set():  # the SDK cancels its user when a transport breaks
                self._opened.set_exception(self._open_failed(error))
        except BaseException as error:
            if not self._opened.done():
                self._opened.set_exception(self._open_failed(error))
            elif not self._stop.is_set():
                self.lost(self._failed("session_lost", describe(error)))
            else:  # it was to be closed anyway
                logger.debug("server %r: closing its session raised", self.config.name, exc_info=error)
        finally:
            self.broken(self.dead or self._failed("session_lost", "the session ended"))
            counters.connections_closed += counted
            if self._opened.done() and not self._opened.cancelled():
                self._opened.exception()  # seen, even where nobody waits any more
            else:
                self._opened.cancel()
            self._session = None
            if self._own_episode is not None:
                await self._own_episode.remove()

    async def _list(self, session: Any) -> list[dict[str, Any]]:
        """The tools of a session that opens."""
        try:
            tools = await compat.list_tools(session)
        except Exception as error:
            if not isinstance(error, ValueError) and failures.meaning(error, self.config.name) is not None:
                raise
            text = f"it did not list its tools: {describe(error)}"
            raise InfraError("tools_unavailable", text, server=self.config.name) from error
        for tool in tools:
            if not isinstance(tool, dict) or not isinstance(tool.get("name"), str) or not tool["name"]:
                text = f"it lists a tool without a name: {tool!r:.200}"
                raise InfraError("server_protocol", text, server=self.config.name)
        if not tools:
            raise InfraError("tools_unavailable", "its tool list is empty", server=self.config.name)
        return tools

    @asynccontextmanager
    async def _connect(self) -> AsyncIterator[Any]:
        config = self.config
        if config.kind == "stdio":
            values = self._episode.variables if self._episode is not None else {}
            env = {key: fill(value, values) for key, value in config.env.items()} | values
            args = [fill(arg, values) for arg in config.args]
            cwd = fill(config.cwd, values) if config.cwd is not None else None
            self._process = process = ServerProcess(config.name, fill(config.command, values), args, env, cwd)
            try:
                async with streams(process, self._stream_ended) as (read, write):
                    async with compat.client_session(read, write, self._changed) as session:
                        yield session
            finally:
                await self._end(process)
        elif config.kind == "python":
            assert self._episode is not None
            server = await make_server(config, self._episode.context)
            async with compat.in_process(server, self._changed) as session:
                yield session
        elif config.kind == "host":
            greeting = hosted.greeting(self._episode.public if self._episode is not None else {})
            async with http.session(config, self.broken, greeting, self._changed) as (session, client):
                async with hosted.Link(config, client).held(self.lost) as self._link:
                    yield session
        else:
            async with http.session(config, self.broken, on_change=self._changed) as (session, _):
                yield session

    async def _end(self, process: ServerProcess) -> None:
        """End the server, however often this task is cancelled meanwhile."""
        ending = asyncio.create_task(process.aclose(kill=self._kill))
        cancelled: asyncio.CancelledError | None = None
        while not ending.done():
            try:
                await asyncio.shield(ending)
            except asyncio.CancelledError as error:
                cancelled = error
                if self._kill:
                    process.kill()
        if cancelled is not None:
            raise cancelled

    # -- what failures mean -----------------------------------------------------------------------------------

    def _failed(self, kind: str, text: str, *, delivered: bool | None = None) -> InfraError:
        if self._process is not None:
            text = f"{text} {self._process.last_words()}"
        return InfraError(kind, text, server=self.config.name, delivered=delivered)

    def _open_failed(self, error: BaseException) -> AWorldGymError:
        """What an exception means that ended the opening."""
        known = failures.known(error, self.config.name)
        if known is not None:
            return known
        if self.dead is not None and self.config.kind != "stdio":
            return self.dead
        if self.config.kind == "stdio":
            return self._failed("server_start_failed", f"it did not open an MCP session ({describe(error)}).")
        return self._failed("server_protocol", f"it did not open an MCP session: {describe(error)}")

    def _changed(self) -> None:
        """The server says that its tools changed."""
        if not self.stale:
            text = "server %r says that its tools changed; who uses it keeps the list there was until it asks again"
            logger.warning(text, self.config.name)
        self.stale = True
        for watcher in list(self.watchers):
            watcher()

    def _stream_ended(self) -> None:
        self.lost(InfraError("server_died", "its output has ended", server=self.config.name))

    async def _call_failed(self, error: BaseException) -> dict[str, Any]:
        failure = failures.meaning(error, self.config.name, of_call=True)
        if failure is None:
            return failures.refusal(error)
        if failure.kind != "session_lost":  # a refusal, or a host that cannot be reached: the session may still be good
            raise failure from error
        self.clean = False
        if self._process is not None and self.dead is not None and self.dead.kind == "server_died":
            await self._process.settle()  # for its exit status and last words
            self.dead = failure = self._failed("server_died", "its output ended during a call.")
        elif self.dead is not None and isinstance(error, asyncio.CancelledError):
            failure = InfraError(self.dead.kind, self.dead.args[0], server=self.config.name)  # ended by `broken`
        self.lost(failure)
        raise failure from error

    def _call_done(self, task: asyncio.Task[Any]) -> None:
        self._calls.discard(task)
        _seen(task)


def same_tools(some: list[dict[str, Any]], others: list[dict[str, Any]]) -> bool:
    """Whether two tool lists offer the same calls; a description may hold a date or a path."""
    return [(t.get("name"), t.get("inputSchema")) for t in some] == [(t["name"], t.get("inputSchema")) for t in others]


def _seen(task: asyncio.Task[Any]) -> None:
    """Take note of an abandoned task's exception, so that asyncio does not complain of it."""
    if not task.cancelled():
        task.exception()
