"""A host between changes nothing in what a fault is: the same tools, results and failures as without one."""

import asyncio
import time

import pytest
from hosts import host_here, session_at
from http_clients import each_http_client  # noqa: F401
from tool_servers import raw, session_of

from aworld_gym.errors import InfraError
from aworld_gym.toolchain import loop

DEEP = '{"jsonrpc":"2.0","id":ID,"result":{"structuredContent":' + "[" * 300 + "]" * 300 + "}}"
CALLS = {
    "works": [("echo", {"text": "hé 🎈 \x00"})],
    "remembers": [("put", {"text": "a"}), ("set", {"text": "b"}), ("get", {})],
    "unknown tool": [("nope", {})],
    "dies": [("put", {"text": "a"}), ("die", {}), ("get", {})],
    "dies before anything was done": [("die_once", {"text": "MARK"}), ("get", {})],
    "hangs": [("hang", {}), ("get", {})],
    "is slow": [("slow", {"seconds": 0.1}), ("slow", {"seconds": 30}), ("echo", {"text": "x"})],
    "answers 50 MB": [("huge", {"chars": 50 * 2**20}), ("echo", {"text": "x"})],
    "refuses by JSON-RPC": [("refuse", {}), ("echo", {"text": "x"})],
    "breaks its own schema": [("mismatch", {})],
    "closes its stdout": [("mute", {})],
    "prints a line": [("line", {"text": "warning: I print"}), ("echo", {"text": "x"})],
    "answers with null": [("line", {"text": '{"jsonrpc":"2.0","id":ID,"result":null}'}), ("get", {})],
    "answers with broken JSON": [("line", {"text": '{"jsonrpc":"2.0","id":ID,"result":{"a":1,}}'}), ("get", {})],
    "answers with depth": [("line", {"text": DEEP}), ("get", {})],
    "answers half a pair": [("raw", {"result": {"content": [{"type": "text", "text": "\ud83d cut"}]}})],
    "answers oddly": [
        ("odd", {"kind": kind}) for kind in ("string", "nothing", "null", "structured", "listed", "unknown", "halves")
    ],
    "is called with arguments that do not fit": [("echo", {"text": 3}), ("echo", {}), ("echo", [1])],
}


async def played(session, calls, tmp_path):
    """What came of each call: a result as the model sees it, or the kind of the failure, which ends the play."""
    seen = []
    for k, (name, arguments) in enumerate(calls):
        if isinstance(arguments, dict) and arguments.get("text") == "MARK":
            arguments = {"text": str(tmp_path / f"mark{id(session)}")}
        try:
            result = await session.call(str(k), name, arguments)
        except InfraError as error:
            seen.append(error.kind)
            break
        seen.append((result.error, result.content, result.structured, result.cut_chars))
    return seen


@pytest.fixture(scope="module")
def running():
    with host_here({"raw": {"mcpServers": {"raw": raw()}}}) as running:
        yield running


@pytest.mark.usefixtures("each_http_client")
@pytest.mark.parametrize("kind", CALLS)
def test_calls_end_alike(running, kind, tmp_path):
    limits = {"call_timeout_s": 20.0}
    if kind in ("hangs", "is slow", "prints a line"):
        limits = {"call_timeout_s": 4.0 if kind == "hangs" else 1.0}

    async def here():
        async with session_of({"it": raw()}, **limits) as session:
            return await played(session, CALLS[kind], tmp_path)

    async def away():
        async with session_at(running, **limits) as session:
            return await played(session, CALLS[kind], tmp_path)

    async def both():
        return await asyncio.gather(here(), away())

    direct, through = loop.run(both(), timeout=60)
    if kind in ("hangs", "prints a line"):  # the words differ: only who is beside a server can see that it hangs
        assert [r[0] for r in through] == [r[0] for r in direct] and len(through) == 2
        assert "gave no answer within" in through[0][1][0]["text"]
        assert ("anything it held in memory is lost" in through[1][1][0]["text"]) == (kind == "hangs")
    else:
        assert through == direct


@pytest.mark.parametrize("modes", [("odd-tools",), ()])
def test_tools_are_listed_alike(modes):
    async def tools(opening):
        async with opening as session:
            return session.tools

    with host_here({"raw": {"mcpServers": {"raw": raw(*modes)}}}) as running:
        assert loop.run(tools(session_at(running))) == loop.run(tools(session_of({"raw": raw(*modes)})))


def test_a_server_that_cannot_start_is_told_to_the_client(tmp_path):
    """It could when the host did."""
    mark = tmp_path / "broken"
    program = tmp_path / "server.sh"
    program.write_text(f'#!/bin/sh\nif [ -e {mark} ]; then echo "out of luck" >&2; exit 7; fi\nexec "$@"\n')
    program.chmod(0o755)
    entry = raw()
    entry = {"command": str(program), "args": [entry["command"], *entry["args"]]}

    async def attempt(running):
        async with session_at(running):
            pass

    with host_here({"raw": {"mcpServers": {"raw": entry}}}) as running:
        loop.run(attempt(running))
        mark.touch()
        began = time.monotonic()
        with pytest.raises(InfraError, match="(?s)exited with 7.*out of luck") as caught:
            loop.run(attempt(running))
        assert caught.value.kind == "server_start_failed" and time.monotonic() - began < 10
        mark.unlink()
        loop.run(attempt(running))
        assert running.host.sessions._slots._value == 64 - len(running.host.sessions)
