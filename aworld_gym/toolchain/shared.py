"""Sessions that all episodes of a process share, and that outlive their toolchains for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from aworld_gym.errors import InfraError
from aworld_gym.toolchain import loop
from aworld_gym.toolchain.config import ServerConfig
from aworld_gym.toolchain.connection import Connection
from aworld_gym.toolchain.stats import counters

LINGER_S = 30.0
"""Seconds that a shared session is kept when no toolchain is open on it any more: the next one often follows soon,
as the envs of one training step follow those of another."""


class Shared:
    """One server's session for all episodes of this process.

    A session that died, or that let a call time out, is not given to further episodes: the next :meth:`acquire`
    opens another, and the old one closes when the last episode that uses it has ended.
    """

    def __init__(self, config: ServerConfig):
        self.config = config
        self.holds = 0
        """Toolchains that are open on it."""
        self._current: Connection | None = None
        self._users: dict[Connection, int] = {}
        self._opening: asyncio.Task[Connection] | None = None
        self._waiting = 0  # for what is opening
        self._timer: asyncio.TimerHandle | None = None

    def hold(self) -> None:
        """One toolchain more."""
        self.holds += 1
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            counters.connections_idle -= 1

    async def acquire(self, timeout: float) -> Connection:
        """The session, opened if need be; give it back with :meth:`release`.

        All who ask while it opens get the same, or the same failure: a host that is down is waited for once.
        """
        connection = self._current
        if connection is None or not _good(connection):
            connection = await self._open(timeout)
        elif connection.stale:  # episodes that begin now get the tools there are now; the others keep theirs
            try:
                await connection.refresh(timeout)
            except InfraError as error:
                connection.lost(error)
                connection = await self._open(timeout)
        self._users[connection] = self._users.get(connection, 0) + 1
        return connection

    async def release(self, connection: Connection) -> None:
        """One user less."""
        self._users[connection] -= 1
        if self._users[connection] == 0:
            del self._users[connection]
            if connection is not self._current:
                await _close(connection)
        await self._rest()

    async def drop(self) -> None:
        """One toolchain less."""
        self.holds -= 1
        await self._rest()

    async def aclose_idle(self) -> None:
        """Close the session if nobody uses it and no toolchain is open on it."""
        if self.holds or self._users or self._waiting:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            counters.connections_idle -= 1
        if _shared.get(self.config.key) is self:
            del _shared[self.config.key]
        connection, self._current = self._current, None
        if connection is not None:
            await _close(connection)

    async def _rest(self) -> None:
        """Keep an unused session for a while if it is worth it."""
        if self.holds or self._users or self._waiting or self._timer is not None:
            return
        registered = _shared.get(self.config.key) is self
        if self._current is None or not _good(self._current) or not registered:
            await self.aclose_idle()
            return
        counters.connections_idle += 1
        self._timer = asyncio.get_running_loop().call_later(LINGER_S, self._expire)

    def _expire(self) -> None:
        _keep(self.aclose_idle())

    async def _open(self, timeout: float) -> Connection:
        """Wait for the session that is opening, or begin to open one."""
        if self._opening is None:
            self._opening = asyncio.create_task(self._replace(timeout))
        opening = self._opening
        self._waiting += 1
        try:
            connection = await asyncio.shield(opening)
        except BaseException:
            self._waiting -= 1
            await asyncio.shield(_keep(self._waited_in_vain(opening)))
            raise
        self._waiting -= 1
        return connection

    async def _waited_in_vain(self, opening: asyncio.Task[Connection]) -> None:
        """Break the opening off if nobody waits for it any more."""
        if self._waiting == 0 and self._opening is opening:
            self._opening = None  # who comes now begins anew
            opening.cancel()
            await asyncio.wait((opening,))
            if not opening.cancelled() and opening.exception() is None:  # it was just ready
                await _close(opening.result())
        await self._rest()

    async def _replace(self, timeout: float) -> Connection:
        """Open a session and make it the current one."""
        me = asyncio.current_task()
        try:
            old, self._current = self._current, None
            if old is not None and old not in self._users:
                await _close(old)
            connection = await Connection.open(self.config, None, timeout)
            if self._opening is me:
                self._current = connection
            return connection
        finally:
            if self._opening is me:
                self._opening = None


_shared: dict[str, Shared] = {}
_closing: set[asyncio.Task[None]] = set()


def shared(config: ServerConfig) -> Shared:
    """This process's :class:`Shared` for ``config``, with one hold more; let go with ``drop``."""
    found = _shared.setdefault(config.key, Shared(config))
    found.hold()
    return found


async def close_idle() -> None:
    """Close at once the shared sessions that no toolchain is open on, instead of some seconds later.

    Example:
        >>> from aworld_gym import toolchain
        >>> toolchain.loop.run(toolchain.close_idle())
    """
    await asyncio.gather(*(one.aclose_idle() for one in list(_shared.values())), *_closing)


def _keep(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    task = asyncio.create_task(work)
    _closing.add(task)
    task.add_done_callback(_closing.discard)
    return task


def _good(connection: Connection) -> bool:
    """Whether further episodes may have it."""
    return connection.dead is None and not connection.timed_out


async def _close(connection: Connection) -> None:
    await connection.aclose(kill=connection.dead is not None)


@loop.after_fork
def _forget() -> None:
    loop.keep_forever((dict(_shared), set(_closing)))
    _shared.clear()
    _closing.clear()


loop.at_shutdown(close_idle)
