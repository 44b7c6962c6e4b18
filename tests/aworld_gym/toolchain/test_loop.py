"""The background loop: threads, running loops, forks, deadlines, cancellation."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import threading
import time

import pytest
import waits
from tool_servers import basic, one, raw

from aworld_gym.toolchain import Toolchain, close_idle, loop, stats


async def where() -> tuple[int, bool]:
    return threading.get_ident(), loop.on_loop()


def test_everything_runs_in_one_thread():
    first = loop.run(where())
    assert first == loop.run(where()) == loop.submit(where()).result(5)
    assert first[1] and not loop.on_loop()
    assert first[0] != threading.get_ident()


def test_inside_a_running_loop():
    async def main():
        assert loop.run(where())[1]  # what asyncio.run would refuse
        return await loop.call(where())

    assert asyncio.run(main()) == loop.run(where())


def test_call_on_the_loop_itself_awaits_directly():
    async def main():
        return await loop.call(where()), threading.get_ident()

    (ident, _), own = loop.run(main())
    assert ident == own


def test_run_on_the_loop_itself_is_refused():
    async def main():
        loop.run(where())

    with pytest.raises(RuntimeError, match="await the coroutine"):
        loop.run(main())


def test_exceptions_pass_through():
    async def fail():
        raise KeyError("x")

    with pytest.raises(KeyError, match="x"):
        loop.run(fail())


def test_a_timeout_cancels_what_ran():
    ended = threading.Event()

    async def forever():
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    with pytest.raises(TimeoutError, match=r"within 0\.1 s"):
        loop.run(forever(), timeout=0.1)
    assert ended.wait(5)


def test_cancellation_is_passed_on():
    ended = threading.Event()

    async def forever():
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    async def main():
        task = asyncio.create_task(loop.call(forever()))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert ended.wait(5)


def test_many_threads_at_once():
    results: list[int] = []

    async def answer(k):
        await asyncio.sleep(0.5)
        return k

    threads = [threading.Thread(target=lambda k=k: results.append(loop.run(answer(k)))) for k in range(20)]
    started = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(results) == list(range(20))
    assert time.monotonic() - started < 8.0  # one after another: 10 s


# -- fork -----------------------------------------------------------------------------------------------------


def in_fork(function, *args):
    """What ``function`` returns in a forked child, or the exception it raised there."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()

    def child():
        try:
            theirs.send(function(*args))
        except BaseException as error:
            theirs.send(error)

    process = context.Process(target=child)
    process.start()
    theirs.close()
    try:
        assert ours.poll(60), "the child hangs"
        result = ours.recv()
        process.join(20)
        assert process.exitcode == 0
    finally:
        process.kill()  # or this process would wait for it at its own end
        process.join(20)
    if isinstance(result, BaseException):
        raise result
    return result


async def use(toolchain, text):
    session = await toolchain.open()
    try:
        return (await session.call("c", "echo", {"text": text})).text
    finally:
        await session.aclose()


def test_a_forked_child_has_a_loop_of_its_own():
    mine = loop.run(where())
    theirs, pid = in_fork(lambda: (loop.run(where(), timeout=20), os.getpid()))
    assert theirs[1] and pid != os.getpid()
    assert loop.run(where()) == mine


@pytest.mark.parametrize(
    "entry",
    [basic(), raw(), raw(scope="shared"), raw(pool=1)],
    ids=["in process", "stdio", "shared", "pooled"],
)
def test_an_open_toolchain_can_be_forked(entry):
    toolchain = Toolchain(one(entry))
    session = loop.run(toolchain.open())

    def child():
        assert not toolchain.opened and stats().opened == 0
        text = loop.run(use(toolchain, "child"), timeout=30)
        loop.run(toolchain.aclose(), timeout=30)
        loop.run(close_idle(), timeout=30)
        return text, stats()

    text, counts = in_fork(child)
    assert text == "child"
    assert counts.connections_opened == counts.connections_closed > 0
    # and the parent's session has not noticed
    assert loop.run(session.call("c", "echo", {"text": "parent"})).text == "parent"
    started = time.monotonic()
    loop.run(session.aclose())
    loop.run(toolchain.aclose())
    assert time.monotonic() - started < 3.0


def test_a_forked_child_that_leaves_the_session_alone_harms_nothing():
    toolchain = Toolchain(one(raw()))
    session = loop.run(toolchain.open())
    assert in_fork(os.getpid) != os.getpid()
    pid = os.fork()
    if pid == 0:  # a child that runs all exit handlers
        import sys

        try:
            sys.exit(0)
        finally:
            import atexit

            atexit._run_exitfuncs()
            os._exit(0)
    waits.for_child(pid)
    assert loop.run(session.call("c", "echo", {"text": "still here"})).text == "still here"
    loop.run(session.aclose())
    loop.run(toolchain.aclose())
