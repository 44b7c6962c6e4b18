"""What stdio servers do wrong, each against a real server process that does it.

Faults of HTTP servers are in ``test_http.py``; the ends of programs in ``test_exit.py``.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
import time

import pytest
from tool_servers import SERVERS, basic, connection_of, gone, noticed, on_loop, raw, session_of

from aworld_gym.errors import ConfigError, InfraError
from aworld_gym.toolchain import loop, stats


async def text_of(session, name, /, **arguments):
    result = await session.call("c", name, arguments)
    assert result.error is None, result
    return result.text


# -- starting -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("modes", "kind", "words"),
    [
        (("dead",), "server_start_failed", "exited with 7.*stderr ends:\ncannot find libimportant.so.3"),
        (("slow-start",), "server_start_failed", r"no MCP session within 1 s"),
        (("old",), "server_start_failed", "Unsupported protocol version"),
        (("empty",), "tools_unavailable", "tool list is empty"),
        (("no-list",), "tools_unavailable", "no method tools/list"),
        (("nameless",), "server_protocol", "a tool without a name"),
        (("many",), "tools_unavailable", "3000 tools or more, and 2000 are the most"),
        (("mute",), "server_start_failed", "closed its stdout, over which it must answer, and went on running"),
    ],
)
def test_a_server_that_does_not_start_says_why(modes, kind, words):
    async def attempt():
        async with session_of({"it": raw(*modes)}, open_timeout_s=1.0):
            pass

    with pytest.raises(InfraError, match=f"(?s){words}") as caught:
        loop.run(attempt())
    assert (caught.value.kind, caught.value.server) == (kind, "it")


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"command": "no-such-program-anywhere"}, "'no-such-program-anywhere' was not found on PATH"),
        ({"command": "/no/such/program"}, "'/no/such/program' does not exist"),
        ({"command": str(SERVERS)}, "is a directory; `command` must name a program"),
        ({"command": str(SERVERS / "raw.py")}, "is a file that may not be executed; make it executable"),
        ({"command": "sh -c 'exit 1'"}, """'sh' is; split it: "command": "sh", "args": """),
        (raw(cwd="/no/such/directory"), "'/no/such/directory' does not exist"),
        ({"python": "no_such_module:make"}, "cannot import 'no_such_module'"),
        ({"python": "basic:mak"}, "has no 'mak'. Did you mean 'make'"),
        ({"python": "basic:__doc__"}, "not callable"),
        (raw(tools=["ech"]), "no tool 'ech'.*Did you mean 'echo'"),
        (raw(pool=1, reset_tool="rest"), "no tool 'rest'.*Did you mean 'reset'"),
    ],
)
def test_what_can_never_work_is_a_config_error(entry, words):
    async def attempt():
        async with session_of({"it": entry}):
            pass

    with pytest.raises(ConfigError, match=words):
        loop.run(attempt())


def test_one_server_that_fails_closes_the_others():
    before = stats().processes_started

    async def attempt():
        async with session_of({"good": raw(), "other": raw(), "bad": raw("dead")}):
            pass

    with pytest.raises(InfraError, match="libimportant"):
        loop.run(attempt())
    assert stats().processes_started == before + 3  # and that all have ended is the fixture's to check


@on_loop
async def test_a_timeout_while_a_failed_opening_is_cleaned_up_leaves_nothing():
    # the output has ended, and its owner waits for its exit status when the deadline of the opening comes
    with pytest.raises(InfraError):
        async with session_of({"it": raw("mute")}, open_timeout_s=0.6):
            pass


@on_loop
async def test_closing_a_session_while_it_is_opened_again_leaves_nothing(tmp_path):
    script = tmp_path / "once.py"
    script.write_text(
        "import os, sys, time\n"
        f"if os.path.exists({str(tmp_path / 'flag')!r}): time.sleep(3600)\n"
        f"open({str(tmp_path / 'flag')!r}, 'w').close()\n"
        f"sys.argv[1:] = []\nexec(open({str(SERVERS / 'raw.py')!r}).read())\n"
    )
    for scope in ("episode", "shared"):
        (tmp_path / "flag").unlink(missing_ok=True)
        entry = {"command": sys.executable, "args": ["-S", str(script)], "scope": scope}
        async with session_of({"it": entry}) as session:
            os.kill(int(await text_of(session, "pid")), signal.SIGKILL)
            await noticed(connection_of(session))
            before = stats().processes_started
            call = asyncio.create_task(session.call("c", "echo", {"text": "a"}))
            async with asyncio.timeout(20):
                while stats().processes_started == before:
                    await asyncio.sleep(0.01)
            assert not call.done()  # it waits for a server that does not start
            started = time.monotonic()
            await session.aclose()
            with pytest.raises(InfraError, match="was closed"):
                await call
            assert time.monotonic() - started < 10.0


@on_loop
async def test_a_cancelled_opening_leaves_nothing():
    async def attempt():
        async with session_of({"good": raw(), "bad": raw("slow-start")}):
            pass

    task = asyncio.create_task(attempt())
    await asyncio.sleep(0.5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


# -- dying ----------------------------------------------------------------------------------------------------


@on_loop
async def test_death_in_a_call_is_an_infra_failure_with_the_last_words():
    async with session_of({"it": raw()}) as session:
        with pytest.raises(InfraError, match="(?s)ended during a call.*exited with 3.*fatal: out of luck") as caught:
            await session.call("c", "die", {})
        assert caught.value.kind == "server_died"
        assert caught.value.delivered is not False  # so nobody may simply try again
        with pytest.raises(InfraError, match="What it held for this episode is lost"):
            await session.call("c", "echo", {"text": "a"})


@on_loop
async def test_death_in_a_read_only_call_is_retried(tmp_path):
    before = stats().retries
    async with session_of({"it": raw()}) as session:
        pid = await text_of(session, "pid")
        assert await text_of(session, "die_once", text=str(tmp_path / "flag")) == "alive"
        assert await text_of(session, "pid") != pid
    assert stats().retries == before + 1


@on_loop
async def test_nothing_is_retried_once_the_server_holds_state(tmp_path):
    async with session_of({"it": raw()}) as session:
        await text_of(session, "put", text="precious")
        with pytest.raises(InfraError, match="ended during a call"):
            await session.call("c", "die_once", {"text": str(tmp_path / "flag")})


@on_loop
async def test_death_between_calls():
    async with session_of({"it": raw()}) as session:
        os.kill(int(await text_of(session, "pid")), signal.SIGKILL)
        await noticed(connection_of(session))
        assert await text_of(session, "echo", text="again") == "again"  # a new server: nothing was lost
        assert await text_of(session, "put", text="x") == "1"
        os.kill(int(await text_of(session, "pid")), signal.SIGKILL)
        await noticed(connection_of(session))
        with pytest.raises(InfraError, match="is lost") as caught:
            await session.call("c", "get", {})
        assert caught.value.delivered is False


@on_loop
async def test_a_shared_server_that_died_is_opened_again():
    async with session_of({"it": raw(scope="shared")}) as session:
        await text_of(session, "put", text="x")
        with pytest.raises(InfraError, match="ended during a call"):  # it may have changed something: not repeated
            await session.call("c", "die", {})
        assert await text_of(session, "echo", text="next call") == "next call"


# -- hanging --------------------------------------------------------------------------------------------------


@on_loop
async def test_a_hung_server_times_out_and_is_replaced():
    async with session_of({"it": raw()}, call_timeout_s=0.5) as session:
        await text_of(session, "put", text="x")
        pid = int(await text_of(session, "pid"))
        started = time.monotonic()
        result = await session.call("c", "hang", {})
        assert time.monotonic() - started < 4.0
        assert result.error == "tool_timeout"
        assert re.search("no answer within 0.5 s.*restarted: files are kept, anything it held in memory", result.text)
        assert await text_of(session, "get") == ""
        assert await asyncio.to_thread(gone, pid)


@on_loop
async def test_a_slow_tool_times_out_and_its_server_stays():
    async with session_of({"it": raw()}, call_timeout_s=0.5) as session:
        await text_of(session, "put", text="x")
        result = await session.call("c", "slow", {"seconds": 0.8})
        assert result.error == "tool_timeout" and result.text.endswith("the call was given up.")
        assert await text_of(session, "get") == "x"
        await asyncio.sleep(0.5)  # its late answer must not confuse anything
        assert await text_of(session, "echo", text="y") == "y"


@on_loop
async def test_a_cancelled_call_leaves_the_session_usable():
    async with session_of({"it": raw()}) as session:
        call = asyncio.create_task(session.call("c", "slow", {"seconds": 0.3}))
        await asyncio.sleep(0.1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert await text_of(session, "echo", text="y") == "y"


@on_loop
async def test_calls_run_side_by_side():
    async with session_of({"it": raw()}) as session:
        started = time.monotonic()
        results = await asyncio.gather(*(session.call(str(i), "slow", {"seconds": 0.3}) for i in range(20)))
        assert time.monotonic() - started < 4.5  # one after another: 6 s
        assert [r.call_id for r in results] == [str(i) for i in range(20)]


# -- noise and oddities ---------------------------------------------------------------------------------------


@on_loop
async def test_a_flood_on_stderr_does_not_block():
    async with session_of({"it": raw("flood")}) as session:
        await asyncio.sleep(0.3)
        assert await text_of(session, "echo", text="through") == "through"
        with pytest.raises(InfraError) as caught:
            await session.call("c", "die", {})
        assert len(str(caught.value)) < 6000


@on_loop
async def test_garbage_on_stdout_is_skipped_and_named_when_it_matters():
    async with session_of({"it": raw("garbage")}) as session:
        assert await text_of(session, "echo", text="through") == "through"
        with pytest.raises(InfraError, match="lines to stdout that are not MCP messages.*must log to stderr"):
            await session.call("c", "die", {})


@on_loop
async def test_structured_content_that_breaks_its_schema_is_kept():
    async with session_of({"it": raw()}) as session:
        result = await session.call("c", "mismatch", {})
        assert (result.text, result.structured, result.error) == ("n is many", {"n": "many"}, None)


@on_loop
async def test_half_an_emoji_is_no_failure():
    async with session_of({"it": raw("emoji")}) as session:
        assert session.tools[0]["function"]["description"] == "Smile \ufffd"
    async with session_of({"it": raw()}) as session:
        for said, seen in [
            (r"\ud83d", "\ufffd"),
            (r"\ud83d\ude00 \ude00\ud83d", "😀 \ufffd\ufffd"),
            (r"\\ud83d \n", "\\ud83d \n"),
        ]:
            line = f'{{"jsonrpc":"2.0","id":ID,"result":{{"content":[{{"type":"text","text":"{said}"}}]}}}}'
            assert await text_of(session, "line", text=line) == seen


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"jsonrpc":"2.0","id":ID,"result":null}', "no answer in JSON-RPC"),
        ('{"jsonrpc":"2.0","id":ID,"result":[1]}', "no answer in JSON-RPC"),
        ('{"jsonrpc":"2.0","id":"ID","error":"text"}', "no answer in JSON-RPC"),
        ('{"jsonrpc":"2.0","id":ID,"result":{"a":1,}}', "cannot be read"),
        ('{"result":{"text":"cut off,"jsonrpc":"2.0","id":ID}', "cannot be read"),
        ('{"jsonrpc":"2.0","id":ID,"result":{"structuredContent":' + "[" * 300 + "]" * 300 + "}}", "200 levels"),
        ('{"result":{"a":' + "[" * 9999 + "]" * 9999 + '},"jsonrpc":"2.0","id":ID}', "cannot be read.*recursion"),
        ('{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"what?"}}', "what\\?"),
        ('{"jsonrpc":"2.0","id":99999,"result":{"content":[]}}', "99999"),
    ],
    ids=["null", "list", "error", "comma", "quote", "deep", "deeper", "no id", "wrong id"],
)
def test_an_answer_that_cannot_be_read_is_a_failure_of_the_server(line, words):
    async def check():
        async with session_of({"it": raw()}) as session:
            await text_of(session, "put", text="x")
            started = time.monotonic()
            with pytest.raises(InfraError, match=f"(?s)what it answered is not MCP: .*{words}") as caught:
                await session.call("c", "line", {"text": line})
            assert caught.value.kind == "server_protocol" and len(str(caught.value)) < 800
            assert time.monotonic() - started < 5.0
            assert await text_of(session, "get") == "x"  # the session goes on

    loop.run(check())


@on_loop
async def test_a_line_for_nobody_disturbs_nobody_and_is_named_in_a_timeout():
    async with session_of({"it": raw()}, call_timeout_s=1.0) as session:
        slow = asyncio.create_task(session.call("c", "slow", {"seconds": 0.5}))
        await asyncio.sleep(0.1)  # with two calls under way, it cannot be told whose it is
        lost = await session.call("c", "line", {"text": '{"jsonrpc":"2.0","id":null,"result":{}}'})
        assert (await slow).text == "late"
        assert lost.error == "tool_timeout"
        assert "printed 1 lines to stdout that are not MCP messages" in lost.text
        assert '"id":null' in lost.text
        quiet = await session.call("c", "slow", {"seconds": 1.5})
        assert quiet.text.endswith("the call was given up.")  # it printed nothing in this call
        await asyncio.sleep(0.7)


@on_loop
async def test_a_schema_of_absurd_depth_costs_only_itself():
    async with session_of({"it": raw("deep")}) as session:
        assert await text_of(session, "echo", text="a") == "a"
        deep = next(t for t in session.tools if t["function"]["name"] == "deep")["function"]["parameters"]
        assert deep == {"type": "object", "properties": {"a": {"type": "object"}, "b": {"type": "integer"}}}


@on_loop
async def test_arguments_of_absurd_depth_are_the_models_mistake():
    value = 1
    for _ in range(990):
        value = [value]
    for entry in (raw(), basic()):
        async with session_of({"it": entry}) as session:
            tool = "raw" if "command" in entry else "given"
            result = await session.call("c", tool, {"result": value})
            assert result.error == "call_bad_arguments" and "100 levels deep" in result.text


@on_loop
async def test_a_server_that_falls_silent_but_lives_is_not_called_dead():
    async with session_of({"it": raw()}) as session:
        pid = int(await text_of(session, "pid"))
        with pytest.raises(InfraError, match="closed its stdout, over which it must answer, and went on") as caught:
            await session.call("c", "mute", {})
        assert "SIG" not in str(caught.value)
    assert gone(pid)


@on_loop
async def test_a_huge_reply_is_cut():
    async with session_of({"it": raw()}, max_result_chars=1000) as session:
        result = await session.call("c", "huge", {"chars": 8_000_000})
        assert result.cut_chars == 7_999_000
        assert result.text == "x" * 1000 + "\n[cut: 7999000 of 8000000 characters are not shown]"


@on_loop
async def test_a_json_rpc_error_is_the_tools_refusal():
    async with session_of({"it": raw()}) as session:
        result = await session.call("c", "refuse", {})
        assert (result.error, result.text) == ("tool_error", "not in this tone")


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("string", "just text"),
        ("nothing", "(no output)"),
        ("null", "(no output)"),
        ("structured", '{"a": [1, "é"]}'),
        ("listed", "[1, 2]"),
        ("unknown", '{"type": "hologram", "x": 1}'),
        ("halves", '{"type": "text"}\n{"type": "image"}\nbare\n3'),
    ],
)
def test_odd_results_are_read_for_what_they_say(kind, text):
    async def check():
        async with session_of({"it": raw()}) as session:
            result = await session.call("c", "odd", {"kind": kind})
            assert (result.text, result.error) == (text, None)

    loop.run(check())


@on_loop
async def test_odd_tools_are_all_offered_under_legal_names():
    async with session_of({"it": raw("odd-tools")}) as session:
        names = [tool["function"]["name"] for tool in session.tools]
        assert len(set(names)) == len(names) == 8
        assert all(re.fullmatch("[A-Za-z0-9_-]{1,64}", name) for name in names)
        parameters = {t["function"]["name"]: t["function"]["parameters"] for t in session.tools}
        assert all(p["type"] == "object" and isinstance(p["properties"], dict) for p in parameters.values())
        tree = parameters["tree"]
        assert tree["properties"]["leaf"] == {"type": "integer"}
        assert tree["properties"]["root"] == {"$ref": "#/$defs/Node"} and "Node" in tree["$defs"]
        assert session.check("tree", {"root": {"next": {"next": 1}}})[0] == "call_bad_arguments"
        assert session.check("tree", {"root": {"next": {"next": {}}}}) is None
        assert session.check("broken", {"a": 1}) is None  # a broken schema is left to the server


@on_loop
async def test_a_tool_list_in_pages():
    async with session_of({"it": raw("pages")}) as session:
        assert len(session.tools) == 18


# -- processes ------------------------------------------------------------------------------------------------


@on_loop
async def test_children_of_a_server_end_with_the_session():
    async with session_of({"it": raw()}) as session:
        children = json.loads(await text_of(session, "children"))
    assert all(gone(pid) for pid in children)


@on_loop
async def test_children_of_a_server_end_when_it_dies():
    async with session_of({"it": raw()}) as session:
        children = json.loads(await text_of(session, "children"))
        with pytest.raises(InfraError):
            await session.call("c", "die", {})
        assert all([await asyncio.to_thread(gone, pid) for pid in children])


@on_loop
async def test_a_server_that_will_not_end_is_killed():
    async with session_of({"it": raw("stubborn")}) as session:
        pid = int(await text_of(session, "pid"))
        started = time.monotonic()
    assert time.monotonic() - started < 5.0
    assert gone(pid)
