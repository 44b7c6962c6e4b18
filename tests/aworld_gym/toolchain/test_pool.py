"""Sessions started ahead: ready before they are asked for, and reused only when they proved clean."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time

import pytest
from tool_servers import gone, noticed, on_loop, one, raw, session_of

from aworld_gym.toolchain import Toolchain, stats
from aworld_gym.types import Limits


async def text_of(session, name, /, **arguments):
    result = await session.call("c", name, arguments)
    assert result.error is None, result
    return result.text


async def ready(toolchain, count):
    """Wait until so many bundles stand ready."""
    for _ in range(500):
        if len(toolchain._runtime._pool._ready) >= count:
            return
        await asyncio.sleep(0.02)
    raise AssertionError("the pool does not fill")


async def episode(toolchain, *calls):
    """One episode; its server's pid and workspace."""
    session = await toolchain.open({"k": 1})
    pid = await text_of(session, "pid")
    for name, arguments in calls:
        await session.call("c", name, arguments)
    await session.aclose()
    return int(pid), session.workspace


@on_loop
async def test_sessions_are_ready_before_they_are_asked_for():
    toolchain = Toolchain(one(raw(pool=2, args=[*raw()["args"], "${AWORLD_WORKSPACE}"])))
    await episode(toolchain)
    await ready(toolchain, 2)
    started = stats().connections_opened
    first, second = await asyncio.gather(toolchain.open({"n": 1}), toolchain.open({"n": 2}))
    assert stats().connections_opened == started  # nothing had to be opened
    assert first.workspace != second.workspace
    assert (first.workspace.parent / "episode.json").read_text() == '{"public": {"n": 1}}'
    for session in (first, second):
        assert list(session.workspace.iterdir()) == []
        assert await text_of(session, "echo", text="a") == "a"
        await session.aclose()
    await toolchain.aclose()


@on_loop
async def test_without_a_reset_every_episode_has_a_new_server():
    toolchain = Toolchain(one(raw(pool=1)))
    pids = []
    for _ in range(3):
        pid, workspace = await episode(toolchain, ("put", {"text": "x"}))
        assert await asyncio.to_thread(gone, pid) and not workspace.exists()
        pids.append(pid)
        await ready(toolchain, 1)
    assert len(set(pids)) == 3
    await toolchain.aclose()


@on_loop
async def test_a_session_that_proved_clean_is_reused():
    toolchain = Toolchain(one(raw(pool=1, reset_tool="reset")))
    session = await toolchain.open()
    assert "reset" not in [tool["function"]["name"] for tool in session.tools]
    first = int(await text_of(session, "pid"))
    await text_of(session, "put", text="left over")
    (session.workspace / "left").write_text("over")
    started = stats().processes_started
    await session.aclose()
    await ready(toolchain, 1)
    for _ in range(4):
        session = await toolchain.open()
        assert int(await text_of(session, "pid")) == first
        assert await text_of(session, "get") == "" and list(session.workspace.iterdir()) == []
        await text_of(session, "put", text="left over")
        await session.aclose()
        await ready(toolchain, 1)
    assert stats().processes_started == started
    await toolchain.aclose()


@on_loop
async def test_more_episodes_than_the_pool_holds():
    toolchain = Toolchain(one(raw(pool=2, reset_tool="reset")))
    for _ in range(2):
        sessions = await asyncio.gather(*(toolchain.open() for _ in range(5)))
        pids = [await text_of(session, "pid") for session in sessions]
        assert len(set(pids)) == 5
        await asyncio.gather(*(session.aclose() for session in sessions))
        await ready(toolchain, 2)
    await toolchain.aclose()


@pytest.mark.parametrize(
    ("modes", "call"),
    [
        (("reset-fails",), ("put", {"text": "x"})),
        (("reset-changes",), ("put", {"text": "x"})),
        ((), ("slow", {"seconds": 5})),  # times out: something may still run
        ((), ("hang", {})),
    ],
    ids=["reset fails", "tools change", "a call timed out", "hung"],
)
def test_a_session_that_did_not_prove_clean_is_not_reused(modes, call):
    @on_loop
    async def check():
        toolchain = Toolchain(one(raw(*modes, pool=1, reset_tool="reset")), Limits(call_timeout_s=0.5))
        pid, _ = await episode(toolchain, call)
        await ready(toolchain, 1)
        assert gone(pid)
        again, _ = await episode(toolchain)
        assert again != pid
        await toolchain.aclose()

    check()


@on_loop
async def test_a_server_that_hangs_after_its_reset_holds_nothing_up():
    toolchain = Toolchain(one(raw("hang-relist", pool=1, reset_tool="reset")), Limits(open_timeout_s=1.5))
    pid, _ = await episode(toolchain)
    assert await asyncio.to_thread(gone, pid, 10.0)  # it was given up
    await ready(toolchain, 1)
    started = time.monotonic()
    await toolchain.aclose()
    assert time.monotonic() - started < 5.0


@on_loop
async def test_a_pooled_server_that_died_is_not_handed_out():
    toolchain = Toolchain(one(raw(pool=1)))
    await episode(toolchain)
    await ready(toolchain, 1)
    connection = toolchain._runtime._pool._ready[0].connections["it"]
    os.kill(int((await connection.call("pid", {}, 5.0))["content"][0]["text"]), signal.SIGKILL)
    await noticed(connection)
    session = await toolchain.open()
    assert await text_of(session, "echo", text="a") == "a"
    await session.aclose()
    await toolchain.aclose()


@on_loop
async def test_a_failure_ahead_is_logged_and_the_next_episode_says_why(caplog, tmp_path):
    script = tmp_path / "once.py"
    flag = tmp_path / "flag"
    script.write_text(
        f"import os, sys\nif os.path.exists({str(flag)!r}): sys.exit('worn out')\nopen({str(flag)!r}, 'w')\n"
        f"sys.argv[1:] = []\nexec(open({raw()['args'][1]!r}).read())\n"
    )
    toolchain = Toolchain(one(raw(pool=1) | {"args": ["-S", str(script)]}))
    session = await toolchain.open()
    with caplog.at_level(logging.WARNING):
        for _ in range(200):
            if caplog.records:
                break
            await asyncio.sleep(0.02)
    assert "could not be started ahead" in caplog.text and "worn out" in caplog.text
    await session.aclose()
    from aworld_gym.errors import InfraError

    with pytest.raises(InfraError, match="worn out"):
        await toolchain.open()
    await toolchain.aclose()


@on_loop
async def test_closing_while_sessions_start():
    toolchain = Toolchain(one(raw("slow-start", pool=3)), Limits(open_timeout_s=30.0))
    opening = asyncio.create_task(toolchain.open())
    await asyncio.sleep(0.2)
    opening.cancel()
    started = time.monotonic()
    await toolchain.aclose()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert time.monotonic() - started < 8.0


@on_loop
async def test_pooled_and_plain_servers_share_a_workspace():
    servers = {"ahead": raw(pool=1, tools=["echo"]), "plain": {"python": "basic:make", "tools": ["write", "whoami"]}}
    async with session_of(servers) as session:
        assert await text_of(session, "whoami") == f"{session.workspace} []"
        assert await text_of(session, "write", name="a", text="b") == "written"
        assert (session.workspace / "a").read_text() == "b"
