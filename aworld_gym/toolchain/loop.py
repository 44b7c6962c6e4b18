"""The package's one background event loop.

MCP sessions live on one event loop, which runs in one daemon thread of this process, started when it is first
needed. Everything asynchronous goes through here, so a synchronous ``step()`` works from any thread, inside
somebody else's running loop (``asyncio.run`` would raise there), and in a forked child (which inherits the
parent's loop object but not its thread: the child gets a new one, and the parent's sessions stay the parent's).

At interpreter exit, or at the end of a worker of :mod:`multiprocessing`, the callbacks given to :func:`at_shutdown` run
on the loop, newest first and with a deadline; then the thread ends. This module knows nothing of MCP.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import logging
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T")

SHUTDOWN_TIMEOUT_S = 15.0
"""Seconds the shutdown callbacks may take together."""
SETTLE_S = 10.0
"""Seconds that a cancelled call waits for what it cancelled to end."""
_POLL_S = 5.0  # how often a waiting thread looks whether the loop thread still lives


class _Loop:
    """A running loop and its thread."""

    def __init__(self) -> None:
        # A plain selector loop, whatever policy a trainer has installed: its subprocess and fork behaviour is known.
        self.loop = asyncio.SelectorEventLoop()
        self.pid = os.getpid()
        started = threading.Event()
        self.thread = threading.Thread(target=self._run, args=(started,), name="aworld-gym-loop", daemon=True)
        self.thread.start()
        started.wait()

    def _run(self, started: threading.Event) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.call_soon(started.set)
        self.loop.run_forever()

    @property
    def alive(self) -> bool:
        return self.pid == os.getpid() and self.thread.is_alive() and not self.loop.is_closed()


_current: _Loop | None = None
_lock = threading.RLock()  # a finaliser may come here in the middle of anything
_closing = False
_callbacks: list[Callable[[], Awaitable[None]]] = []
_fork_callbacks: list[Callable[[], None]] = []
_graveyard: list[Any] = []  # what a forked child inherited: never finalised, because it is the parent's to close


def on_loop() -> bool:
    """True if the calling thread is the loop's own."""
    here = _current
    return here is not None and here.pid == os.getpid() and threading.get_ident() == here.thread.ident


class Job(concurrent.futures.Future[T]):
    """A coroutine on the background loop. It is done only when the coroutine has ended, cancelled ones included.

    ``concurrent.futures.Future`` alone counts as done the moment it is cancelled, while the coroutine still runs
    its clean-up; whoever went on then would meet it half-way.
    """

    def __init__(self, coro: Coroutine[Any, Any, T], on: asyncio.AbstractEventLoop):
        super().__init__()
        self._coro, self._on = coro, on
        self._task: asyncio.Task[T] | None = None
        on.call_soon_threadsafe(self._begin)

    def cancel(self) -> bool:
        """Ask the coroutine to end; wait for the job to know that it has."""
        if super().cancel():  # it had not begun
            return True
        if self.done():
            return False
        self._on.call_soon_threadsafe(self._stop)  # there the task exists, whatever this thread saw
        return True

    def _begin(self) -> None:
        if not self.set_running_or_notify_cancel():
            self._coro.close()
            return
        self._task = self._on.create_task(self._coro)
        self._task.add_done_callback(self._ended)

    def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _ended(self, task: asyncio.Task[T]) -> None:
        if task.cancelled():
            self.set_exception(concurrent.futures.CancelledError())
        elif (error := task.exception()) is not None:
            self.set_exception(error)
        else:
            self.set_result(task.result())


def submit(coro: Coroutine[Any, Any, T]) -> Job[T]:
    """Start ``coro`` on the background loop, from any thread.

    Cancelling the returned future cancels the task.

    Raises:
        RuntimeError: the interpreter is shutting down.
    """
    try:
        return Job(coro, _running().loop)
    except BaseException:
        coro.close()
        raise


def run(coro: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
    """Run ``coro`` on the background loop and wait for its result.

    Args:
        coro: what to run.
        timeout: seconds to wait; None waits for as long as the loop thread lives.

    Raises:
        RuntimeError: called on the loop's own thread (it would wait for itself), or the loop died.
        TimeoutError: no result in time; the task is cancelled.
    """
    if on_loop():
        coro.close()
        raise RuntimeError("loop.run() was called on the loop's own thread and would deadlock; await the coroutine")
    future = submit(coro)
    here = _current
    deadline = None if timeout is None else time.monotonic() + timeout
    try:
        while True:
            left = _POLL_S if deadline is None else min(_POLL_S, max(0.0, deadline - time.monotonic()))
            try:
                return future.result(left)
            except TimeoutError:
                if future.done():  # it was the coroutine's own, or the result came just now
                    return future.result()
            if here is None or not here.alive:
                raise RuntimeError("the background event loop of aworld_gym is gone; its thread has ended")
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"no result within {timeout} s")
    except BaseException:
        if future.cancel():
            concurrent.futures.wait((future,), timeout=SETTLE_S)
        raise


async def call(coro: Coroutine[Any, Any, T]) -> T:
    """Await ``coro``, run on the background loop, from any event loop.

    Cancellation is passed on, and takes effect here once ``coro`` has ended.
    """
    if on_loop():
        return await coro
    job = submit(coro)
    try:
        return await asyncio.wrap_future(job)
    except asyncio.CancelledError:
        if not job.done():
            # A future of its own: the one above is cancelled already, this one only watches.
            ended = asyncio.get_running_loop().create_future()
            watcher = asyncio.get_running_loop()
            job.add_done_callback(lambda _: watcher.call_soon_threadsafe(_release, ended))
            await asyncio.wait((ended,), timeout=SETTLE_S)
        raise


def _release(ended: asyncio.Future[None]) -> None:
    if not ended.done():
        ended.set_result(None)


def at_shutdown(callback: Callable[[], Awaitable[None]]) -> None:
    """Register what runs on the loop at interpreter exit; newest first."""
    _callbacks.append(callback)


def after_fork(callback: Callable[[], None]) -> Callable[[], None]:
    """Register what runs in a forked child, in its only thread, before anything else of this package."""
    _fork_callbacks.append(callback)
    return callback


def keep_forever(thing: Any) -> None:
    """Keep ``thing`` from being finalised in this (forked) process: its descriptors belong to the parent."""
    _graveyard.append(thing)


def _running() -> _Loop:
    global _current
    here = _current
    if here is not None and here.alive:
        return here
    with _lock:
        if _closing:
            raise RuntimeError("aworld_gym is shutting down: the interpreter is exiting")
        if _current is None or not _current.alive:
            _current = _Loop()
            _end_with_worker()
        return _current


def _end_with_worker() -> None:
    """Have the shutdown callbacks run at the end of a worker of multiprocessing too: a forked one skips ``atexit``.

    Pools of processes, gymnasium's AsyncVectorEnv and torch's DataLoader have such workers.
    """
    process, util = (sys.modules.get(f"multiprocessing.{name}") for name in ("process", "util"))
    if process is not None and util is not None and process.parent_process() is not None:
        util.Finalize(None, _shutdown, exitpriority=0)


def _child_after_fork() -> None:
    global _current, _lock, _closing
    if _current is not None:
        keep_forever(_current)
    _current, _lock, _closing = None, threading.RLock(), False
    for callback in _fork_callbacks:
        callback()


@atexit.register
def _shutdown() -> None:
    global _closing
    with _lock:
        _closing = True
        here = _current
    if here is None or not here.alive:
        return
    try:
        asyncio.run_coroutine_threadsafe(_run_callbacks(), here.loop).result(SHUTDOWN_TIMEOUT_S + 1)
    except Exception:  # nothing can be done about it any more, but it must be seen
        logger.exception("closing tool sessions at exit failed")
    here.loop.call_soon_threadsafe(here.loop.stop)
    here.thread.join(1.0)


async def _run_callbacks() -> None:
    async with asyncio.timeout(SHUTDOWN_TIMEOUT_S):
        for callback in reversed(_callbacks):
            try:
                await callback()
            except Exception:  # the others must still run
                logger.exception("closing tool sessions at exit failed")


os.register_at_fork(after_in_child=_child_after_fork)
