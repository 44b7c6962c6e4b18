"""Sessions that all episodes share: who gets which, and how long they are kept."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time

import pytest
from tool_servers import REPOSITORY, SERVERS, gone, http_server, on_loop, one, raw, session_of

from aworld_gym.errors import InfraError
from aworld_gym.toolchain import Toolchain, close_idle, shared, stats
from aworld_gym.types import Limits

SHARED = raw(scope="shared")


async def text_of(session, name, /, **arguments):
    result = await session.call("c", name, arguments)
    assert result.error is None, result
    return result.text


async def pid_of(toolchain):
    session = await toolchain.open()
    pid = int(await text_of(session, "pid"))
    await session.aclose()
    return pid


@on_loop
async def test_a_session_waits_for_the_toolchains_that_follow():
    pids = set()
    for _ in range(3):
        async with session_of({"it": SHARED}) as session:
            pids.add(int(await text_of(session, "pid")))
            assert stats().connections_idle == 0
        assert stats().connections_idle == 1
    (pid,) = pids
    await close_idle()
    assert stats().connections_idle == 0 and gone(pid)


@on_loop
async def test_an_http_session_serves_one_rollout_after_another():
    with http_server("raw_http.py") as (port, _):
        for _ in range(3):
            async with session_of({"it": {"url": f"http://127.0.0.1:{port}/mcp"}}) as session:
                assert await text_of(session, "session") == "s1"
        await close_idle()
        async with session_of({"it": {"url": f"http://127.0.0.1:{port}/mcp"}}) as session:
            assert await text_of(session, "session") == "s2"
        await close_idle()


@on_loop
async def test_it_closes_when_nobody_followed(monkeypatch):
    monkeypatch.setattr(shared, "LINGER_S", 0.3)
    toolchain = Toolchain(one(SHARED))
    pid = await pid_of(toolchain)
    await asyncio.sleep(0.6)
    assert await pid_of(toolchain) == pid  # a toolchain that is open keeps it
    await toolchain.aclose()
    assert stats().connections_idle == 1
    assert await asyncio.to_thread(gone, pid)
    assert stats().connections_idle == 0


@on_loop
async def test_what_died_or_timed_out_does_not_linger():
    for call in (("die", {}), ("slow", {"seconds": 5.0})):
        toolchain = Toolchain(one(SHARED), Limits(call_timeout_s=0.3))
        session = await toolchain.open()
        try:
            await session.call("c", *call)
        except InfraError:
            pass
        await session.aclose()
        await toolchain.aclose()
        assert stats().connections_idle == 0


@on_loop
async def test_a_server_that_does_not_start_is_waited_for_once():
    toolchain = Toolchain(one(raw("slow-start", scope="shared")), Limits(open_timeout_s=1.0))
    before, started = stats().processes_started, time.monotonic()
    outcomes = await asyncio.gather(*(toolchain.open() for _ in range(8)), return_exceptions=True)
    assert all(isinstance(outcome, InfraError) for outcome in outcomes)
    assert time.monotonic() - started < 4.0 and stats().processes_started == before + 1
    await toolchain.aclose()


@pytest.mark.parametrize("patient", [0, 1])
def test_one_who_stops_waiting_does_not_stop_the_others(patient):
    @on_loop
    async def check():
        toolchain = Toolchain(one(SHARED if patient else raw("slow-start", scope="shared")), Limits(open_timeout_s=30))
        opening = [asyncio.create_task(toolchain.open()) for _ in range(3)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        others = [asyncio.create_task(toolchain.open()) for _ in range(patient)]
        await asyncio.sleep(0.02)
        for task in opening:
            task.cancel()
        outcomes = await asyncio.gather(*opening, return_exceptions=True)
        assert all(isinstance(o, asyncio.CancelledError) for o in outcomes)
        for task in others:
            await (await task).aclose()
        await toolchain.aclose()

    started = time.monotonic()
    check()
    assert time.monotonic() - started < 10.0


@on_loop
async def test_closing_by_hand_takes_only_what_nobody_uses():
    async with session_of({"it": SHARED}) as session:
        await text_of(session, "put", text="a")
        await close_idle()
        assert await text_of(session, "get") == "a"


def test_at_exit_it_does_not_linger():
    code = (
        "from tool_servers import one, raw\n"
        "from aworld_gym.toolchain import Toolchain, loop, stats\n"
        "async def main():\n"
        "    toolchain = Toolchain(one(raw(scope='shared')))\n"
        "    session = await toolchain.open()\n"
        "    print((await session.call('c', 'pid', {})).text)\n"
        "    await toolchain.aclose()\n"
        "loop.run(main())\n"
        "import atexit; assert stats().connections_idle == 1\n"
    )
    env = {"PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'tests/lib'}:{SERVERS}"}
    started = time.monotonic()
    run = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    assert gone(int(run.stdout)) and time.monotonic() - started < 15.0


@on_loop
async def test_tools_that_change_are_those_of_the_episodes_that_begin_then(caplog):
    said = '{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'
    answer = '{"jsonrpc":"2.0","id":ID,"result":{"content":[]}}'
    toolchain = Toolchain({"mcpServers": {"it": raw("reset-changes", scope="shared")}})
    try:
        old = await toolchain.open()
        names = [tool["function"]["name"] for tool in old.tools]
        await old.call("1", "reset", {})  # it has one tool fewer now, and says so
        await old.call("2", "line", {"text": f"{said}\n{answer}"})
        new = await toolchain.open()
        assert [tool["function"]["name"] for tool in new.tools] == names[:-1]
        assert [tool["function"]["name"] for tool in old.tools] == names  # within an episode nothing changes
        assert (await old.call("3", "echo", {"text": "a"})).text == (await new.call("3", "echo", {"text": "a"})).text
        assert "says that its tools changed" in caplog.text
        await old.aclose()
        await new.aclose()
    finally:
        await toolchain.aclose()
