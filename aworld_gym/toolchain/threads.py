"""Daemon threads for synchronous tools.

Neither ``concurrent.futures`` nor ``anyio.to_thread`` will do: both wait for a running call, when it is cancelled
or when the interpreter exits, so one hanging tool would hold up its caller past the deadline and the program for
ever. Here a cancelled call is abandoned: its thread goes on by itself and cannot keep the process alive.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from aworld_gym.toolchain import loop as _loop

T = TypeVar("T")
_Job = tuple[contextvars.Context, Callable[[], Any], asyncio.AbstractEventLoop, "asyncio.Future[Any]"]

MAX_THREADS = 256
"""More calls than this wait their turn."""
_IDLE_S = 10.0


class Threads:
    """A pool that grows on demand up to ``limit`` threads, which end after some idle seconds.

    Args:
        limit: threads at most; with 1, calls run one after another.
        name: prefix of the threads' names.
    """

    def __init__(self, limit: int = MAX_THREADS, name: str = "aworld-gym-tool"):
        self._limit, self._name = limit, name
        self._reset()
        _loop.after_fork(self._reset)

    def _reset(self) -> None:
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._count = 0  # threads
        self._idle = 0  # of them, those that wait for a job
        self._queued = 0  # jobs that no thread has taken yet

    async def run(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        """Await ``fn(*args, **kwargs)``, run in a thread with the caller's context variables.

        A cancelled caller leaves at once; ``fn`` runs on and its result is dropped.
        """
        here = asyncio.get_running_loop()
        future: asyncio.Future[T] = here.create_future()
        self._jobs.put((contextvars.copy_context(), functools.partial(fn, *args, **kwargs), here, future))
        with self._lock:
            self._queued += 1
            spawn = self._queued > self._idle and self._count < self._limit
            self._count += spawn
        if spawn:
            self._spawn()
        return await future

    async def run_through(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        """The same for what must not run on alone: a cancelled caller leaves when ``fn`` has ended."""
        work = asyncio.ensure_future(self.run(fn, *args, **kwargs))
        cancelled: asyncio.CancelledError | None = None
        while not work.done():
            try:
                await asyncio.wait((work,))
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            work.exception()  # seen
            raise cancelled
        return work.result()

    def _spawn(self) -> None:
        try:
            threading.Thread(target=self._work, name=self._name, daemon=True).start()
        except RuntimeError:  # the interpreter is exiting, and starts no thread any more: what is left is done here
            self._work(once=True)

    def _work(self, once: bool = False) -> None:
        while True:
            with self._lock:
                self._idle += 1
            try:
                job = self._jobs.get(timeout=0 if once else _IDLE_S)
            except queue.Empty:
                job = None
            with self._lock:
                self._idle -= 1
                if job is None:
                    if self._queued:  # one is just being put
                        continue
                    self._count -= 1
                    return
                self._queued -= 1
            self._do(*job)
            del job  # an idle thread must not keep an episode's objects alive

    @staticmethod
    def _do(
        context: contextvars.Context,
        fn: Callable[[], Any],
        there: asyncio.AbstractEventLoop,
        future: asyncio.Future[Any],
    ) -> None:
        value: Any = None
        error: BaseException | None = None
        try:
            value = context.run(fn)
        except StopIteration as stop:  # a future refuses it
            error = RuntimeError(f"the call raised StopIteration: {stop!r}")
        except BaseException as raised:
            error = raised
        try:
            there.call_soon_threadsafe(_settle, future, value, error)
        except RuntimeError:
            pass  # that loop has been closed, and nobody waits on it any more


def _settle(future: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(error)


tools = Threads()
"""For synchronous tools."""
factories = Threads(1, "aworld-gym-factory")
"""For server factories and imports: off the loop, yet one at a time, so that they need no locks."""
files = Threads(4, "aworld-gym-files")
"""For what goes to disk: files of a workspace, and its end."""
