"""Toolchains and their sessions with servers that behave: scopes, names, workspaces, copies, costs."""

from __future__ import annotations

import asyncio
import copy
import gc
import json
import os
import pickle
import threading
import time

import psutil
import pytest
from tool_servers import basic, on_loop, one, raw, session_of

from aworld_gym.errors import CALL_ERRORS, ConfigError, InfraError
from aworld_gym.toolchain import Toolchain, loop, stats
from aworld_gym.types import Limits


async def text_of(session, name, /, **arguments):
    result = await session.call("c", name, arguments)
    assert result.error is None, result
    return result.text


def names(session):
    return [tool["function"]["name"] for tool in session.tools]


# -- calls ----------------------------------------------------------------------------------------------------


@on_loop
async def test_what_the_model_does_wrong_is_told_and_never_raised():
    async with session_of({"it": basic()}) as session:
        for name, arguments, kind, words in [
            (
                "ech",
                {"text": "a"},
                "call_unknown_tool",
                "there is no tool 'ech'. Did you mean 'echo'? The tools are: echo,",
            ),
            ("n" * 99_999, {}, "call_unknown_tool", f"there is no tool '{'n' * 79}…'. The tools are: echo,"),
            ("echo", {}, "call_bad_arguments", "`text` is required but missing. It takes (text: string)."),
            ("add", {"a": "1"}, "call_bad_arguments", '`a`: expected integer, got "1"'),
            ("add", {"A": 1}, "call_bad_arguments", "`a` is required but missing (it is not `A`)"),
            ("echo", ["a"], "call_bad_arguments", "must be a JSON object, got list"),
            ("echo", None, "call_bad_arguments", "must be a JSON object, got NoneType"),
            ("sleep", {"seconds": float("nan")}, "call_bad_arguments", "are not JSON"),
            ("echo", {"text": {1, 2}}, "call_bad_arguments", "are not JSON"),
            (None, {}, "call_unknown_tool", "there is no tool None"),
            ("fail", {"text": "the disk is full"}, "tool_error", "the disk is full"),
        ]:
            result = await session.call("id7", name, arguments)
            assert (result.error, result.call_id) == (kind, "id7") and kind in CALL_ERRORS
            assert words in result.text
            expected = None if kind == "tool_error" else (kind, result.text)
            assert session.check(name, arguments) == expected


@on_loop
async def test_text_that_is_no_unicode_is_made_so():
    for entry in (basic(), raw()):
        async with session_of({"it": entry}) as session:
            assert await text_of(session, "echo", text="a\ud800b 😀 \udfff") == "a\ufffdb 😀 \ufffd"


@pytest.mark.parametrize("factory", ["basic:make", "foreign:high_level"])
def test_synchronous_tools_run_in_threads(factory):
    async def check():
        servers = {"it": {"python": factory}}
        async with session_of(servers) as session:
            await text_of(session, "block", seconds=0.0)
            started = time.monotonic()
            await asyncio.gather(*(text_of(session, "block", seconds=0.3) for _ in range(50)))
            assert time.monotonic() - started < 10.0  # one after another: 15 s
        async with session_of(servers, call_timeout_s=0.5) as session:
            result = await session.call("c", "block", {"seconds": 15.0})
            assert result.error == "tool_timeout"
            assert await text_of(session, "block", seconds=0.0) == "blocked"
            started = time.monotonic()
        assert time.monotonic() - started < 8.0  # the thread goes on, and nobody waits for it

    loop.run(check())


@on_loop
async def test_structured_content_is_kept():
    async with session_of({"it": {"python": "foreign:high_level"}}) as session:
        result = await session.call("c", "structured", {"n": 3})
        assert result.structured == {"n": 3}


@on_loop
async def test_a_low_level_server_from_an_asynchronous_factory():
    entry = {"python": "foreign:low_level", "kwargs": {"greeting": "Salut"}}
    async with session_of({"it": entry}, public={"name": "Ada"}) as session:
        assert await text_of(session, "greet") == "Salut, Ada"


@pytest.mark.parametrize("entry", [basic(), raw()], ids=["in process", "stdio"])
def test_null_arguments_arrive(entry):
    async def check():
        tool = "raw" if "command" in entry else "given"
        async with session_of({"it": entry}) as session:
            answer = {"content": [], "structuredContent": {"a": None, "b": [None]}}
            result = await session.call("c", tool, {"result": answer})
            assert result.structured == {"a": None, "b": [None]} or json.loads(result.text) == answer

    loop.run(check())


@on_loop
async def test_closing_while_a_session_opens():
    toolchain = Toolchain(one(raw("slow-start")), Limits(open_timeout_s=30.0))
    opening = asyncio.create_task(toolchain.open())
    await asyncio.sleep(0.2)
    opening.cancel()
    await toolchain.aclose()
    with pytest.raises(asyncio.CancelledError):
        await opening
    toolchain = Toolchain(one(raw()))
    opening = asyncio.create_task(toolchain.open())
    await asyncio.sleep(0)
    await toolchain.aclose()
    with pytest.raises(InfraError, match="closed while the session opened"):
        await opening


def test_a_factory_that_gives_something_else():
    async def attempt():
        async with session_of({"it": {"python": "json:dumps"}}):
            pass

    with pytest.raises((ConfigError, InfraError), match="its factory raised TypeError"):
        loop.run(attempt())

    async def attempt_with_object():
        async with session_of({"it": {"python": lambda context: "a string"}}):
            pass

    with pytest.raises(ConfigError, match="expected an MCP server object.*got 'a string'"):
        loop.run(attempt_with_object())


def test_a_factory_that_fails():
    async def attempt(entry):
        async with session_of({"it": entry}):
            pass

    with pytest.raises(InfraError, match="its factory raised LookupError: no such corpus"):
        loop.run(attempt({"python": "foreign:raises"}))
    with pytest.raises(InfraError, match="TypeError.*sizes"):
        loop.run(attempt({"python": "basic:make", "kwargs": {"sizes": 1}}))


# -- names and filters ----------------------------------------------------------------------------------------


@on_loop
async def test_names_of_two_servers():
    servers = {"raw": raw(tools=["echo", "pid"]), "basic": basic(tools=["add", "echo"])}
    async with session_of(servers) as session:
        assert names(session) == ["raw__echo", "pid", "basic__echo", "add"]
        assert await text_of(session, "raw__echo", text="a") == "a"
        assert await text_of(session, "add", a=1) == "2"
    async with session_of(servers, tools=["add", "raw__echo"]) as session:
        assert names(session) == ["raw__echo", "add"]  # in the servers' order, under the names they have without it
        assert session.check("pid", {})[0] == "call_unknown_tool"


@pytest.mark.parametrize("tools", [[], "echo"])
def test_a_tool_filter_is_a_list(tools):
    with pytest.raises(ConfigError, match="`tools` must be a list"):
        Toolchain(one(basic()), tools=tools)


def test_a_tool_filter_that_matches_nothing():
    async def attempt():
        async with session_of({"it": basic()}, tools=["ecko"]):
            pass

    with pytest.raises(ConfigError, match="asks for 'ecko'.*Did you mean 'echo'"):
        loop.run(attempt())


# -- workspaces and scopes ------------------------------------------------------------------------------------


@on_loop
async def test_each_episode_has_a_workspace_and_its_public_part():
    toolchain = Toolchain({"mcpServers": {"it": basic()}})
    first, second = await toolchain.open({"corpus": 1}), await toolchain.open({"corpus": 2})
    assert first.workspace != second.workspace
    assert list(first.workspace.iterdir()) == []
    await text_of(first, "write", name="a.txt", text="hello")
    assert (first.workspace / "a.txt").read_text() == "hello"
    assert await text_of(second, "whoami") == f"{second.workspace} [('corpus', 2)]"
    assert await text_of(first, "note", text="x") == await text_of(second, "note", text="y") == "1"
    for session in (first, second):
        (session.workspace / "locked").mkdir()
        (session.workspace / "locked" / "file").write_text("")
        (session.workspace / "locked").chmod(0o500)
        await session.aclose()
        assert not session.workspace.parent.exists()
    await toolchain.aclose()


@on_loop
async def test_a_stdio_server_learns_of_its_episode(tmp_path):
    (tmp_path / "tell.py").write_text(
        "import json, os, sys\n"
        "facts = {'args': sys.argv[1:], 'cwd': os.getcwd(), 'env': os.environ.get('HERE'),"
        " 'file': os.environ['AWORLD_EPISODE_FILE'], 'secret': os.environ.get('SECRET_TOKEN')}\n"
        "for line in sys.stdin:\n"
        "    m = json.loads(line)\n"
        "    if 'id' not in m: continue\n"
        "    r = {'protocolVersion': '2025-06-18', 'capabilities': {}, 'serverInfo': {'name': 't', 'version': '0'}}\n"
        "    if m['method'] == 'tools/list': r = {'tools': [{'name': 'tell', 'inputSchema': {'type': 'object'}}]}\n"
        "    if m['method'] == 'tools/call':\n"
        "        r = {'content': [], 'structuredContent': facts | json.load(open(facts['file']))}\n"
        "    print(json.dumps({'jsonrpc': '2.0', 'id': m['id'], 'result': r}), flush=True)\n"
    )
    os.environ["SECRET_TOKEN"] = "hidden"
    entry = {
        "command": "python3",
        "args": [str(tmp_path / "tell.py"), "--root=${AWORLD_WORKSPACE}"],
        "env": {"HERE": "${AWORLD_WORKSPACE}/x"},
        "cwd": "${AWORLD_WORKSPACE}",
    }
    try:
        async with session_of({"it": entry}, public={"corpus": "é"}) as session:
            facts = (await session.call("c", "tell", {})).structured
    finally:
        del os.environ["SECRET_TOKEN"]
    workspace = str(session.workspace)
    assert facts["args"] == [f"--root={workspace}"] and facts["cwd"] == workspace and facts["env"] == f"{workspace}/x"
    assert facts["public"] == {"corpus": "é"}
    assert not facts["file"].startswith(workspace)  # beside the workspace, where tools do not look
    assert facts["secret"] is None  # servers inherit nothing that is not given


@on_loop
async def test_shared_servers_are_one_for_all_toolchains():
    config = {"mcpServers": {"it": raw(scope="shared")}}
    chains = [Toolchain(config) for _ in range(3)]
    sessions = await asyncio.gather(*(chain.open() for chain in chains for _ in range(2)))
    assert len({await text_of(session, "pid") for session in sessions}) == 1
    await text_of(sessions[0], "put", text="a")
    assert await text_of(sessions[-1], "get") == "a"
    await asyncio.gather(*(session.aclose() for session in sessions))
    for chain in chains[1:]:
        await chain.aclose()
    again = await chains[0].open()
    assert await text_of(again, "get") == "a"  # kept between episodes while a toolchain is open on it
    await chains[0].aclose()
    with pytest.raises(InfraError, match="closed"):
        await again.call("c", "get", {})


# -- life -----------------------------------------------------------------------------------------------------


def test_a_toolchain_is_cheap_to_make_and_to_copy():
    toolchain = Toolchain(one(raw()), Limits(max_turns=3), ["echo"])
    for twin in (pickle.loads(pickle.dumps(toolchain)), copy.deepcopy(toolchain)):
        assert (twin.config, twin.limits, twin.tools) == (toolchain.config, toolchain.limits, toolchain.tools)
    session = loop.run(toolchain.open())
    twin = copy.deepcopy(toolchain)
    assert toolchain.opened and not twin.opened
    loop.run(twin.aclose())
    assert loop.run(session.call("c", "echo", {"text": "a"})).text == "a"
    loop.run(toolchain.aclose())
    loop.run(session.aclose())


def test_opening_off_the_loop_is_refused():
    with pytest.raises(RuntimeError, match="loop.call"):
        asyncio.run(Toolchain(one(basic())).open())


@on_loop
async def test_closing_is_idempotent_and_survives_cancellation():
    toolchain = Toolchain(one(raw("stubborn")))
    session = await toolchain.open()
    closing = asyncio.create_task(session.aclose())
    await asyncio.sleep(0.1)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    await asyncio.gather(session.aclose(), session.aclose())
    assert not session.workspace.exists()
    with pytest.raises(InfraError, match="the tool session is closed"):
        await session.call("c", "echo", {"text": "a"})
    await toolchain.aclose()
    await toolchain.aclose()


def test_a_forgotten_toolchain_closes_its_sessions():
    before = stats()

    async def forget():
        await Toolchain(one(raw())).open()

    loop.run(forget())
    gc.collect()
    end = time.monotonic() + 10
    while stats().closed == before.closed and time.monotonic() < end:
        time.sleep(0.05)
    assert (stats().closed, stats().connections_closed) == (before.closed + 1, before.connections_closed + 1)


@on_loop
async def test_a_session_outlives_the_callers_toolchain_variable():
    session = await Toolchain(one(raw())).open()
    gc.collect()
    await asyncio.sleep(0.1)
    assert await text_of(session, "echo", text="a") == "a"
    await session.aclose()


# -- costs ----------------------------------------------------------------------------------------------------


def usage() -> tuple[int, int, int]:
    process = psutil.Process()
    return process.num_fds(), threading.active_count(), len(process.children(recursive=True))


def test_sixty_four_episodes_at_once_leave_nothing_behind():
    toolchain = Toolchain(one(basic()))

    async def episode(k):
        session = await toolchain.open({"k": k})
        await asyncio.gather(text_of(session, "echo", text="a"), text_of(session, "add", a=k))
        await session.aclose()

    async def round_of(n):
        await asyncio.gather(*(episode(k) for k in range(n)))

    before = stats()
    loop.run(round_of(64), timeout=60)
    baseline = usage()
    for _ in range(19):
        loop.run(round_of(64), timeout=60)
    after = stats()
    fds, threads, children = (now - then for now, then in zip(usage(), baseline, strict=True))
    assert fds <= 0 and children <= 0
    assert threads <= 128  # as many as calls at once, which go when they are idle; 19 rounds made 2,432 calls
    assert after.opened - before.opened == after.closed - before.closed == 20 * 64
    loop.run(toolchain.aclose())


def test_processes_come_and_go_without_a_trace():
    toolchain = Toolchain(one(raw()))

    async def round_of(n):
        sessions = await asyncio.gather(*(toolchain.open() for _ in range(n)))
        await asyncio.gather(*(text_of(session, "echo", text="a") for session in sessions))
        await asyncio.gather(*(session.aclose() for session in sessions))

    loop.run(round_of(8), timeout=60)
    baseline = usage()
    for _ in range(3):
        loop.run(round_of(8), timeout=60)
    assert all(now <= then for now, then in zip(usage(), baseline, strict=True))
    loop.run(toolchain.aclose())


@on_loop
async def test_a_call_costs_little_more_than_the_protocol():
    from aworld_gym.toolchain import compat

    async with session_of({"it": basic()}) as session:
        raw_session = session._grant.leases["it"].connection._session

        calls = {
            "protocol": lambda: compat.call_tool(raw_session, "echo", {"text": "a"}),
            "whole": lambda: session.call("c", "echo", {"text": "a"}),
        }
        best = dict.fromkeys(calls, float("inf"))
        for _ in range(20):  # by turns, so that a busy machine is equally hard on both
            for name, call in calls.items():
                started = time.thread_time()
                for _ in range(40):
                    await call()
                best[name] = min(best[name], (time.thread_time() - started) / 40 * 1e6)
        assert best["whole"] - best["protocol"] < 300, best  # microseconds of CPU; about 100 on an idle machine
