"""Sessions that are started ahead of the episodes that will use them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aworld_gym.errors import AWorldGymError, InfraError
from aworld_gym.toolchain.config import ServerConfig
from aworld_gym.toolchain.connection import CallTimeout, Connection
from aworld_gym.toolchain.workspace import Episode

logger = logging.getLogger(__name__)


@dataclass
class Bundle:
    """A workspace, and sessions that were started in it."""

    episode: Episode
    connections: dict[str, Connection] = field(default_factory=dict)

    async def aclose(self) -> None:
        """Close the sessions and delete the workspace."""
        try:
            await close_all(self.connections.values())
        finally:
            await self.episode.remove()


class Pool:
    """Keeps bundles of a toolchain's pooled servers started ahead.

    Where every pooled server can be reset, bundles go round: so many are kept, lent ones included. Elsewhere an
    episode uses its bundle up, and so many stand ready for the next ones.

    Args:
        configs: the servers with ``pool`` of 1 or more; the largest number says how many bundles are kept.
        timeout: seconds in which their sessions have to open.
    """

    def __init__(self, configs: Sequence[ServerConfig], timeout: float):
        self._configs = {config.name: config for config in configs}
        self._depth = max((config.pool for config in configs), default=0)
        self._go_round = all(config.reset_tool for config in configs)
        self._timeout = timeout
        self._ready: list[Bundle] = []
        self._lent = 0
        self._resetting = 0
        self._starting: set[asyncio.Task[None]] = set()
        self._ending: set[asyncio.Task[None]] = set()  # never cancelled: they hold what must be closed
        self._closed = False

    def take(self) -> Bundle:
        """A bundle: one that is ready, or an empty one. Give it back with :meth:`give_back`."""
        taken = None
        while self._ready and taken is None:
            bundle = self._ready.pop(0)
            if any(connection.dead is not None or connection.stale for connection in bundle.connections.values()):
                _keep(self._ending, bundle.aclose())
            else:
                taken = bundle
        taken = taken or Bundle(Episode())
        self._lent += 1
        return taken

    async def give_back(self, bundle: Bundle) -> None:
        """Take a bundle back: reset, in the background, and kept if it proves clean; closed if it cannot be."""
        self._lent -= 1
        connections = [bundle.connections.get(name) for name in self._configs]
        good = all(c is not None and c.config.reset_tool and c.clean and c.dead is None for c in connections)
        if connections and good and not self._closed:
            self._resetting += 1
            _keep(self._ending, self._recycle(bundle))
            return
        await bundle.aclose()

    def fill(self) -> None:
        """Begin to start what is missing."""
        lent = self._lent + self._resetting if self._go_round else 0
        while not self._closed and len(self._ready) + len(self._starting) + lent < self._depth:
            _keep(self._starting, self._start())

    async def aclose(self) -> None:
        """Close all bundles."""
        self._closed = True
        for task in self._starting:
            task.cancel()
        await asyncio.gather(*self._starting, *self._ending, return_exceptions=True)
        ready, self._ready = self._ready, []
        await asyncio.gather(*(bundle.aclose() for bundle in ready))

    async def _start(self) -> None:
        """Start a bundle, and keep it."""
        try:
            bundle = Bundle(Episode())
        except InfraError as error:
            logger.warning("a session could not be started ahead: %s", error)
            return
        kept = False
        try:
            opening = {n: Connection.open(c, bundle.episode, self._timeout) for n, c in self._configs.items()}
            bundle.connections |= await open_all(opening)
            kept = not self._closed
        except AWorldGymError as error:  # the next episode will try, and say so
            logger.warning("a session could not be started ahead: %s", error)
        finally:
            if kept:
                self._ready.append(bundle)
            else:
                await bundle.aclose()

    async def _recycle(self, bundle: Bundle) -> None:
        """Reset a used bundle, and keep it if all its sessions prove clean and it is wanted."""
        kept = False
        try:
            await bundle.episode.clear()
            clean = [await _reset(connection, self._timeout) for connection in bundle.connections.values()]
            kept = all(clean) and not self._closed and len(self._ready) < self._depth
        finally:
            self._resetting -= 1
            if kept:
                self._ready.append(bundle)
            else:
                await bundle.aclose()
        self.fill()


def _keep(tasks: set[asyncio.Task[None]], work: Coroutine[Any, Any, None]) -> None:
    task = asyncio.create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)


async def _reset(connection: Connection, timeout: float) -> bool:
    """Bring a used session back to its first state; whether it proved clean."""
    assert connection.config.reset_tool is not None
    try:
        result = await connection.call(connection.config.reset_tool, {}, timeout)
        if result.get("isError") is True or not await connection.unchanged(timeout):
            raise ValueError(f"the reset gave {str(result)[:200]}")
    except (AWorldGymError, CallTimeout, ValueError) as error:
        logger.warning("server %r: not reused: %s", connection.config.name, error or "its reset timed out")
        return False
    connection.changes = 0
    return True


async def open_all(
    opening: Mapping[str, Coroutine[Any, Any, Connection]],
    undo: Callable[[str, Connection], Coroutine[Any, Any, None]] | None = None,
) -> dict[str, Connection]:
    """Open sessions side by side: all of them, or none.

    Args:
        opening: what opens each, by server name.
        undo: gives back one that did open, where another did not; by default it is closed.
    """
    tasks = {name: asyncio.create_task(work) for name, work in opening.items()}
    try:
        if tasks:
            await asyncio.wait(tasks.values(), return_when=asyncio.FIRST_EXCEPTION)
        for task in tasks.values():
            if task.done():
                task.result()
        return {name: task.result() for name, task in tasks.items()}
    except BaseException:
        for task in tasks.values():
            task.cancel()
        outcomes = await asyncio.gather(*tasks.values(), return_exceptions=True)
        for name, outcome in zip(tasks, outcomes, strict=True):
            if isinstance(outcome, Connection):
                await (undo(name, outcome) if undo is not None else outcome.aclose(kill=True))
        raise


async def close_all(connections: Iterable[Connection]) -> None:
    """Close sessions side by side."""
    await asyncio.gather(*(c.aclose(kill=c.dead is not None) for c in connections))
