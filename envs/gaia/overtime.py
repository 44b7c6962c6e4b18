"""Ending a call in a thread that has used up its processor time.

Readers of hostile files run in threads of the env's process, in libraries that know no limits of time. Each tool
bounds what it reads; this is for what such bounds miss. A :class:`Watch` is made by the event loop, runs the call in
a worker thread, and is looked at by the loop until the call has ended; where the thread has used too much, Python
raises :class:`Overtime` in it at its next instruction.

Processor time counts, not the clock on the wall: a busy machine makes no call fail. A call inside a C function is
ended once that returns, so what goes to C functions must be bounded by size.

A call is never ended while it imports a module (some, numpy among them, cannot be imported again once that was broken
off) or is in code of :data:`_UNBROKEN`, which may hold a lock that others need. It is looked at again instead.
"""

from __future__ import annotations

import asyncio
import ctypes
import sys
import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

LOOK_S = 0.25
"""Seconds between two looks."""
_AGAIN_S = 1.0
"""Seconds for a call to clean up after itself, before it is ended once more."""
_UNBROKEN = frozenset({"concurrent", "importlib", "logging", "queue", "tempfile", "threading"})
"""Packages of the standard library with locks that the process shares and that are taken by ``lock.acquire()``: ended
on its return, a call would keep the lock for good. ``with lock`` alone has no such moment."""


class Overtime(BaseException):
    """Raised from outside in a thread; no ``Exception``, or the parsers that go on after any would go on."""


class Watch:
    """One call, in one thread, for at most ``seconds`` of processor time.

    Args:
        seconds: the time; None for no bound.
    """

    def __init__(self, seconds: float | None):
        self._seconds = seconds
        self._lock = threading.Lock()
        self._thread: int | None = None
        """The thread that runs the call, while it does."""
        self._clock: int | None = None
        self._began = 0.0
        self._given_up = False
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let the loop look at the call from now on, until it has ended; on the loop."""
        if self._seconds is not None:
            self._timer = loop.call_later(LOOK_S, self._look, loop)

    def close(self) -> None:
        """The loop waits for the call no more. Where it still runs it is ended, if it is a bounded one; on the loop."""
        self._given_up = True
        if not self._end() and self._timer is not None:
            self._timer.cancel()

    def run(self, function: Callable[[], T]) -> T:
        """Run the call; in the worker thread.

        Raises:
            Overtime: it took too long, or was given up.
        """
        try:
            try:
                self._enter()
                return function()
            finally:
                self._leave()
        except Overtime:
            # It may have come on the way into _leave, which then did nothing, and would strike whatever this thread
            # does next. The one after it is at least a look away.
            self._leave()
            raise

    def _enter(self) -> None:
        ident = threading.get_ident()
        clock_of = getattr(time, "pthread_getcpuclockid", None)  # not on every system
        with self._lock:
            self._clock = clock_of(ident) if clock_of else time.CLOCK_MONOTONIC
            self._began = time.clock_gettime(self._clock)
            self._thread = ident
        if self._given_up and self._seconds is not None:
            raise Overtime

    def _leave(self) -> None:
        while True:
            try:
                with self._lock:
                    self._thread = None  # none is sent from here on
                for _ in range(3):  # one that was sent strikes here, and not in whatever this thread does next
                    pass
                return
            except Overtime:
                continue  # it came just here; the next round makes sure that it was the last

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            begun, running = self._clock is not None, self._thread is not None
            spent = time.clock_gettime(self._clock) - self._began if self._clock is not None and running else 0.0
        assert self._seconds is not None
        if running and (spent > self._seconds or self._given_up):
            self._end()
        if running or not (begun or self._given_up):
            self._timer = loop.call_later(LOOK_S, self._look, loop)

    def _end(self) -> bool:
        """End the call where it runs, unless it must not be broken off now; whether it ran."""
        with self._lock:
            if self._thread is not None and self._seconds is not None and not _unbroken(self._thread):
                _raise_in(self._thread, Overtime)
                self._seconds += _AGAIN_S
            return self._thread is not None


def _unbroken(ident: int) -> bool:
    """Whether the call that a thread runs is somewhere that :data:`_UNBROKEN` names."""
    frame = sys._current_frames().get(ident)
    while frame is not None and frame.f_code is not Watch.run.__code__:
        if frame.f_globals.get("__name__", "").partition(".")[0] in _UNBROKEN:
            return True
        frame = frame.f_back
    return False


def _raise_in(ident: int, kind: type[BaseException]) -> None:
    """Have Python raise an exception in a thread, at the next jump back or call that it makes.

    There is no taking back: PyThreadState_SetAsyncExc with NULL leaves Python's flag for such exceptions up for good.
    Every thread then looks for one at each jump and call, and on Python 3.11 the next function that is traced (by a
    debugger, by coverage) never ends: DO_TRACING in its ceval.c begins again as long as that flag is up.
    """
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(kind))
