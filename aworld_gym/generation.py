"""Batching the requests of concurrent episodes for one thread that generates.

Episodes run on the package's event loop; a trainer or a torch model is bound to the thread that called. The pool
stands between them: episodes await :meth:`GenerationPool.generate`, the thread runs :meth:`GenerationPool.serve`.
It knows nothing of tokens but that they are lists, and nothing of envs.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

Sampled = tuple[list[int], list[float] | None]
"""Sampled ids, the stop id included, and of each its log-probability where the sampler has them."""

STRAGGLER_S = 2.0


class Generate(Protocol):
    """A batch of id lists in, one continuation each out, in the same order."""

    def __call__(self, prompts: list[list[int]], limits: list[int]) -> Sequence[Sampled]:
        """Sample at most ``limits[i]`` ids after ``prompts[i]``, up to and with a stop id (more is cut off)."""


class AsyncGenerate(Protocol):
    """One id list in, its continuation out; ``key`` names the episode and orders batches."""

    async def __call__(self, key: int, ids: list[int], limit: int) -> Sampled:
        """Sample at most ``limit`` ids after ``ids``."""


class Rendezvous(Protocol):
    """How the processes of a distributed run agree on a round of generation."""

    def __call__(self, alive: bool, waiting: bool) -> tuple[bool, bool]:
        """Is any process still alive, and does any have a batch to generate?"""


@dataclass
class _Request:
    ids: list[int]
    limit: int
    future: asyncio.Future[Sampled]
    loop: asyncio.AbstractEventLoop


@dataclass
class PoolStats:
    """What a pool did: seconds on the caller's thread, and counts."""

    batches: int = 0
    requests: int = 0
    late: int = 0
    """How often an episode missed a batch because it was still with its tools when the window closed."""
    generate_s: float = 0.0
    wait_s: float = 0.0
    """Spent waiting for episodes, that is for tools and set-up."""


class GenerationPool:
    """Gathers the requests of concurrent episodes into batches for one thread that generates.

    A batch goes out when every live episode waits for it. An episode that is still with its tools when no other
    has come for ``straggler_s`` is *late*: the batch goes without it, and later ones do not wait for it either,
    until it is back. So a tool that hangs costs the others one window, once. Batches are in the order of their
    keys: with tools that answer within the window, the same seeds give the same batches.

    Args:
        straggler_s: seconds without an arrival after which a batch waits no longer for those who are not there;
            ``math.inf`` waits for all of them.
        stats: added to; a fresh one where None.
    """

    def __init__(self, straggler_s: float = STRAGGLER_S, stats: PoolStats | None = None):
        if not straggler_s >= 0:
            raise ValueError(f"straggler_s must be at least 0 seconds, got {straggler_s!r}")
        self.straggler_s = straggler_s
        self.stats = PoolStats() if stats is None else stats
        self._change = threading.Condition()
        self._live: set[int] = set()
        self._late: set[int] = set()
        self._requests: dict[int, _Request] = {}
        self._arrivals = 0  # of requests and of episodes' ends: while they come, the others are slow, not hung
        self._closed = False
        self._failure: Exception | None = None

    # ---- the episodes' side, on the loop thread ----------------------------------------------------------

    def enter(self, *keys: int) -> None:
        """These episodes are live: batches wait for them."""
        with self._change:
            self._live.update(keys)

    def leave(self, key: int) -> None:
        """This episode has ended."""
        with self._change:
            self._live.discard(key)
            self._late.discard(key)
            self._arrivals += 1
            self._change.notify()

    async def generate(self, key: int, ids: list[int], limit: int) -> Sampled:
        """Wait for a batch with this request in it, and for what was sampled.

        Raises:
            RuntimeError: this key already waits, or the pool is closed.
            Exception: what ``generate`` raised on the caller's thread.
        """
        loop = asyncio.get_running_loop()
        request = _Request(ids, limit, loop.create_future(), loop)
        with self._change:
            if self._failure is not None:
                raise self._failure
            if self._closed or key in self._requests:
                raise RuntimeError(f"cannot generate for episode {key}: the pool is closed, or it already waits")
            self._requests[key] = request
            self._late.discard(key)
            self._arrivals += 1
            self._change.notify()
        try:
            return await request.future
        finally:
            with self._change:
                if self._requests.get(key) is request:  # cancelled while it waited
                    del self._requests[key]

    def close(self) -> None:
        """No more episodes will come: ``serve`` returns."""
        with self._change:
            self._closed = True
            self._change.notify()

    # ---- the generating side, on the caller's thread -------------------------------------------------------

    def serve(self, generate: Generate, rendezvous: Rendezvous | None = None) -> None:
        """Answer requests with ``generate``, on this thread, until the pool is closed.

        Args:
            generate: called with each batch; see :class:`Generate`.
            rendezvous: for distributed runs in which generation is a collective operation: called before each
                round; where another process has a batch and this one has none, ``generate`` is called with none.

        Raises:
            BaseException: whatever ``generate`` raised; the episodes that wait are given it too.
        """
        while True:
            started = time.perf_counter()
            batch = self._collect(patient=rendezvous is None)
            self.stats.wait_s += time.perf_counter() - started
            alive, waiting = batch is not None, bool(batch)
            if rendezvous is not None:
                alive, waiting = rendezvous(alive, waiting)
            if not alive:
                return
            if waiting:
                self._answer(generate, batch or {})

    def _collect(self, patient: bool) -> dict[int, _Request] | None:
        """The next batch by key; None once the pool is closed and nobody waits.

        Where others depend on this process taking part (not ``patient``), an empty batch after a window
        without any request.
        """
        deadline: float | None = None
        with self._change:
            seen = self._arrivals
            while True:
                if self._closed and not self._requests:
                    return None
                missing = self._live - self._late - self._requests.keys()
                if self._requests and not missing:
                    break
                if seen != self._arrivals:
                    seen, deadline = self._arrivals, None
                if deadline is None and (self._requests or not patient):
                    deadline = time.monotonic() + self.straggler_s
                left = None if deadline in (None, math.inf) else deadline - time.monotonic()
                if left is not None and left <= 0:
                    self._late |= missing
                    self.stats.late += len(missing)
                    break
                self._change.wait(left)
            batch = dict(sorted(self._requests.items()))
            self._requests.clear()
            return batch

    def _answer(self, generate: Generate, batch: dict[int, _Request]) -> None:
        requests = list(batch.values())
        started = time.perf_counter()
        try:
            outputs = generate([request.ids for request in requests], [request.limit for request in requests])
            if len(outputs) != len(requests):
                raise RuntimeError(f"generate was given {len(requests)} prompts and returned {len(outputs)} samples")
        except BaseException as error:
            # An interrupt is this thread's: set in a future it would end the event loop instead.
            failure = error if isinstance(error, Exception) else RuntimeError(f"generation ended: {error!r}")
            with self._change:
                self._failure = failure
                waiting_too = list(self._requests.values())
            for request in requests + waiting_too:
                request.loop.call_soon_threadsafe(_fail, request.future, failure)
            raise
        finally:
            self.stats.generate_s += time.perf_counter() - started
        self.stats.batches += bool(requests)
        self.stats.requests += len(requests)
        for request, output in zip(requests, outputs, strict=True):
            request.loop.call_soon_threadsafe(_succeed, request.future, output)


def _succeed(future: asyncio.Future[Sampled], output: Sampled) -> None:
    if not future.done():  # its episode may have been cancelled meanwhile
        future.set_result(output)


def _fail(future: asyncio.Future[Sampled], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
