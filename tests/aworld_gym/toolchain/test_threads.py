"""Threads for synchronous tools: they grow, wait their turn, are abandoned, and end."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time

import pytest
from tool_servers import on_loop

from aworld_gym.toolchain import threads
from aworld_gym.toolchain.threads import Threads


@on_loop
async def test_calls_run_side_by_side_and_threads_are_reused():
    pool = Threads(name="test-side")
    started = time.monotonic()
    await asyncio.gather(*(pool.run(time.sleep, 0.5) for _ in range(30)))
    assert time.monotonic() - started < 10.0  # one after another: 15 s
    count = sum(t.name == "test-side" for t in threading.enumerate())
    assert count == 30
    for _ in range(5):
        await asyncio.gather(*(pool.run(time.sleep, 0.01) for _ in range(10)))
    assert sum(t.name == "test-side" for t in threading.enumerate()) == count


@on_loop
async def test_calls_over_the_limit_wait_their_turn():
    pool = Threads(2)
    order: list[int] = []
    for _ in range(3):  # the books must balance after each burst
        await asyncio.gather(*(pool.run(order.append, k) for k in range(50)))
    assert sorted(order) == sorted(list(range(50)) * 3)
    single = Threads(1)
    seen: list[int] = []
    await asyncio.gather(*(single.run(seen.append, k) for k in range(50)))
    assert seen == list(range(50))


@on_loop
async def test_a_cancelled_call_is_abandoned_at_once():
    release = threading.Event()
    task = asyncio.create_task(threads.tools.run(release.wait, 30))
    await asyncio.sleep(0.05)
    started = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - started < 10.0
    release.set()


@on_loop
async def test_a_cancelled_caller_can_wait_for_what_must_not_run_on_alone():
    release, ended = threading.Event(), []

    def work(fails):
        release.wait(30)
        ended.append(fails)
        if fails:
            raise OSError("seen by nobody")

    for fails in (False, True):
        release.clear()
        task = asyncio.create_task(threads.tools.run_through(work, fails))
        for _ in range(2):  # however often it is cancelled
            await asyncio.sleep(0.05)
            task.cancel()
        await asyncio.sleep(0.05)
        assert not task.done() and fails not in ended
        release.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert fails in ended
    assert await threads.tools.run_through(len, "abc") == 3
    with pytest.raises(OSError, match="seen"):
        await threads.tools.run_through(work, True)


@on_loop
async def test_results_exceptions_and_context_pass():
    variable = contextvars.ContextVar("variable", default=0)
    variable.set(7)
    assert await threads.tools.run(variable.get) == 7
    assert await threads.tools.run(lambda a, *, b: a + b, 1, b=2) == 3
    with pytest.raises(ZeroDivisionError):
        await threads.tools.run(lambda: 1 / 0)
    with pytest.raises(RuntimeError, match="StopIteration"):
        await threads.tools.run(lambda: next(iter(())))


@on_loop
async def test_idle_threads_end(monkeypatch):
    monkeypatch.setattr(threads, "_IDLE_S", 0.1)
    pool = Threads(name="test-idle")
    for _ in range(3):
        await asyncio.gather(*(pool.run(time.sleep, 0.01) for _ in range(5)))
        async with asyncio.timeout(20):
            while any(t.name == "test-idle" for t in threading.enumerate()):
                await asyncio.sleep(0.02)
