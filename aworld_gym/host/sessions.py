"""The sessions of a host: slots and the queue for them, who owns each, and when each ends.

A session is one episode's tools. It ends when its client says so, when its client is gone (a stream that it held open
broke and did not come back), when it was idle or open for too long, or when the host drains. Its slot is free again
only when everything that it had is closed, so that ``max_sessions`` bounds the processes too.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from aworld_gym.errors import AWorldGymError, describe
from aworld_gym.host.catalogue import Catalogue
from aworld_gym.host.metrics import HostMetrics
from aworld_gym.host.settings import HostSettings
from aworld_gym.toolchain import ToolSession

logger = logging.getLogger(__name__)

TICK_S = 0.5
"""How often the host looks for sessions that have to end."""

COLLECT_AFTER = 16
"""Sessions that end, or a quarter of those there are, before the garbage collector runs: see
:meth:`Sessions.collect`."""
LONG_PAUSE_S = 0.05
"""A pass of it that takes longer has looked at too much that no session left."""
THOROUGH_S = 600.0
"""How often a host without sessions looks through everything."""

MAX_CALLS = 512
"""Calls of one session that may be under way, those that wait for their turn included."""


class Busy(Exception):
    """There is no session to be had now; ``why`` is a label, the text is for the client."""

    def __init__(self, why: str, text: str):
        super().__init__(text)
        self.why = why


@dataclass(eq=False)
class Session:
    """One client's session."""

    toolchain: str
    owner: str
    """Subject of the token that opened it."""
    tools: ToolSession
    present: bool
    """Its client promised to hold a stream open."""
    opened_at: float = field(default_factory=time.monotonic)
    used_at: float = field(default_factory=time.monotonic)
    id: str = ""
    """MCP's; empty until the first reply has gone out."""
    settled: bool = False
    """The client went on after the first reply."""
    busy: int = 0
    """Requests under way whose senders wait for the answer."""
    streams: int = 0
    """Streams that the client holds open."""
    left_at: float | None = None
    """When the last of them broke."""
    uploaded: int = 0
    """Bytes of files taken, those that are just coming included."""
    uploads: set[asyncio.Task[Any]] = field(default_factory=set)
    """Files that are just coming."""
    turns: asyncio.Semaphore = field(default_factory=asyncio.Semaphore)
    """For calls that may run now."""
    calls: dict[Any, asyncio.Task[Any]] = field(default_factory=dict)
    """Tool calls under way, waiting ones included, by the number of their request."""
    news: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when its tools changed, until its client is told."""
    closing: asyncio.Task[None] | None = None

    @contextmanager
    def used(self) -> Iterator[Callable[[], None]]:
        """While it is entered, a request is under way; what it gives is to be called if its sender leaves before."""
        self.busy += 1
        self.used_at, self.settled = time.monotonic(), True
        waited_for = True

        def left() -> None:
            nonlocal waited_for
            if waited_for:
                waited_for = False
                self.busy -= 1
                self.used_at = time.monotonic()

        try:
            yield left
        finally:
            left()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """While it is entered, the client holds a stream open."""
        self.streams += 1
        self.settled, self.left_at = True, None
        try:
            yield
        finally:
            self.streams -= 1
            if not self.streams:
                self.left_at = self.used_at = time.monotonic()

    def over(self, settings: HostSettings, now: float) -> str | None:
        """Why it has to end now, if it has to."""
        if now - self.opened_at > settings.max_age_s:
            return "age"
        if not self.settled:
            return "handshake" if now - self.opened_at > settings.handshake_s else None
        if self.streams:
            return None
        if self.left_at is not None:
            if self.present:
                last, patience = max(self.left_at, self.used_at), settings.absence_s
            else:
                last, patience = now if self.busy else max(self.left_at, self.used_at), settings.foreign_absence_s
            if now - last > patience:
                return "absent"
        return "idle" if not self.busy and now - self.used_at > settings.idle_s else None


class Sessions:
    """All sessions of a host. Runs on the background loop.

    Args:
        settings: the host's.
        catalogue: what is served.
        metrics: where sessions are counted.
    """

    def __init__(self, settings: HostSettings, catalogue: Catalogue, metrics: HostMetrics):
        self._settings, self._catalogue, self._metrics = settings, catalogue, metrics
        self._slots = asyncio.Semaphore(settings.max_sessions)
        self._waiting = 0
        self._by_id: dict[str, Session] = {}
        self._all: set[Session] = set()
        self._opening = 0
        self._ended = 0
        """Sessions that ended since the garbage collector ran."""
        self._thorough_at, self._frozen_amid = time.monotonic(), False
        self._empty = asyncio.Event()
        self._empty.set()
        self.draining = False
        self.forget: Callable[[Session], Awaitable[None]] = _nothing
        """Ends what the protocol layer holds for a session."""
        metrics.slots.set(settings.max_sessions)

    def __len__(self) -> int:
        return len(self._all)

    async def open(
        self,
        toolchain: str,
        servers: frozenset[str] | None,
        public: Mapping[str, Any],
        owner: str,
        present: bool = False,
    ) -> Session:
        """A session, as soon as there is a slot.

        Args:
            toolchain: checked by the catalogue, as are ``servers``.
            servers: those to open; None for all.
            public: the episode's public facts.
            owner: subject of the token.
            present: the client will hold a stream open.

        Raises:
            Busy: no slot in time, or the host drains.
            AWorldGymError: the tools do not open.
        """
        began = time.monotonic()
        await self._take_slot()
        self._opening += 1
        self._empty.clear()
        try:
            if self.draining:
                raise Busy("draining", "this host is about to stop")
            tools = await self._catalogue.toolchain(toolchain, servers).open(public)
            turns = asyncio.Semaphore(self._settings.max_calls)
            session = Session(toolchain, owner, tools, present, turns=turns)
            tools.watch(session.news.set)
            self._all.add(session)
        except BaseException:
            self._slots.release()
            raise
        finally:
            self._opening -= 1
            self._check_empty()
        self._metrics.opened.labels(toolchain).inc()
        self._metrics.sessions.labels(toolchain).inc()
        self._metrics.opening.labels(toolchain).observe(time.monotonic() - began)
        return session

    def register(self, session: Session, number: str) -> None:
        """Make a session findable under the id that MCP gave it."""
        session.id = number
        if session.closing is None:
            self._by_id[number] = session

    def find(self, number: str, owner: str) -> Session | None:
        """The session of that id, if it is that owner's and not about to end."""
        session = self._by_id.get(number)
        return session if session is not None and session.owner == owner and session.closing is None else None

    def close(self, session: Session, why: str) -> asyncio.Task[None]:
        """Begin to end a session; the task ends when nothing of it is left. The first reason counts."""
        if session.closing is None:
            session.closing = asyncio.create_task(self._close(session, why))
        return session.closing

    async def run(self) -> None:
        """End what has to end, for ever."""
        while True:
            await asyncio.sleep(TICK_S)
            now = time.monotonic()
            for session in list(self._all):
                why = session.over(self._settings, now)
                if why is not None and session.closing is None:
                    self.close(session, why)
            self.collect()

    def collect(self) -> None:
        """Run the garbage collector, once enough sessions have ended to be worth it, or the last one has.

        What the protocol layer leaves of a session, about 230 objects in 35 KiB (of one of GAIA's, whose servers are
        in process: 950), refers to itself. Python collects such garbage when there is much of it beside what else
        lives, which on a host, whose thresholds are high (:func:`aworld_gym.cli_host.serve`), is hardly ever. A pass
        costs by what lives, and nothing else runs meanwhile; so

        * waiting for as many ended sessions as a share of the live ones keeps the cost per session constant;
        * what tools have loaded for all sessions (modules, worlds: hundreds of thousands of objects) is frozen, where
          the process has frozen what it began with. That is best done while there is no session. On a host that is
          never without, it is done once, when a pass was long: some megabytes of what lived then have to wait for the
          next thorough pass.
        """
        alone = not self._all and not self._opening
        if not self._ended or not (alone or self._ended >= max(COLLECT_AFTER, len(self._all) // 4)):
            return
        self._ended = 0
        ours = gc.get_freeze_count() > 0
        if ours and alone and time.monotonic() - self._thorough_at > THOROUGH_S:
            self._thorough_at, self._frozen_amid = time.monotonic(), False
            gc.unfreeze()
        began = time.thread_time()
        gc.collect()
        long = time.thread_time() - began > LONG_PAUSE_S
        if ours and (alone or (long and not self._frozen_amid)):
            self._frozen_amid = self._frozen_amid or not alone
            gc.freeze()

    async def drain(self, patience_s: float) -> None:
        """Take no further sessions, and wait for those there are; end what is left after ``patience_s``."""
        self.draining = True
        self._metrics.draining.set(1)
        try:
            async with asyncio.timeout(patience_s):
                await self._empty.wait()
        except TimeoutError:
            logger.warning("%d sessions did not end in %g s and are closed", len(self._all), patience_s)
        self.hurry()
        await asyncio.gather(*(self.close(session, "drained") for session in list(self._all)))

    def hurry(self) -> None:
        """Begin to end every session."""
        for session in list(self._all):
            self.close(session, "drained")

    async def _take_slot(self) -> None:
        if self.draining:
            raise Busy("draining", "this host is about to stop")
        if not self._slots.locked():
            await self._slots.acquire()
            return
        if self._waiting >= self._settings.queue:
            raise Busy("queue_full", f"all {self._settings.max_sessions} sessions are taken, and the queue is full")
        self._waiting += 1
        self._metrics.queue.set(self._waiting)
        try:
            async with asyncio.timeout(self._settings.queue_wait_s):
                await self._slots.acquire()
        except TimeoutError:
            text = f"all {self._settings.max_sessions} sessions are taken, and none became free in time"
            raise Busy("queue_timeout", text) from None
        finally:
            self._waiting -= 1
            self._metrics.queue.set(self._waiting)

    async def _close(self, session: Session, why: str) -> None:
        logger.info("session closed", extra={"session": session.id[:8], "toolchain": session.toolchain, "why": why})
        self._by_id.pop(session.id, None)
        for call in session.calls.values():
            call.cancel()
        try:
            await self.forget(session)
        finally:
            try:
                if session.uploads:  # nothing of this session may get into a workspace that another has next
                    for upload in session.uploads:
                        upload.cancel()
                    await asyncio.wait(list(session.uploads))
                await session.tools.aclose()
            except AWorldGymError as error:
                logger.warning("a session did not close well: %s", describe(error))
            finally:
                self._all.discard(session)
                self._ended += 1
                self._slots.release()
                self._metrics.sessions.labels(session.toolchain).dec()
                self._metrics.closed.labels(session.toolchain, why).inc()
                self._check_empty()

    def _check_empty(self) -> None:
        if not self._all and not self._opening:
            self._empty.set()
        else:
            self._empty.clear()


async def _nothing(session: Session) -> None:
    """Nothing to end."""
