"""The server as a whole: what it lists, over every transport, and what it may know."""

import asyncio
import json
import threading
import time

import pytest
import waits
from gaia_tools import REPOSITORY, command, http_server, needs_sandbox, served

from aworld_gym.errors import ConfigError
from aworld_gym.toolchain import Toolchain, loop
from aworld_gym.types import EpisodeContext, Limits
from envs.gaia import tools as gaia_tools
from envs.gaia.render import Database, Sheet, render
from envs.gaia.server import make_server

READERS = set(gaia_tools.NAMES) - {"unpack_archive", "run_python", "submit_answer"}


async def test_lists_every_tool_described_and_annotated(tmp_path):
    async with served(tmp_path) as session:
        tools = await session.tools()
    assert tuple(tools) == gaia_tools.NAMES
    for name, tool in tools.items():
        hints = tool["annotations"]
        assert hints["readOnlyHint"] is (name in READERS)
        assert hints["idempotentHint"] is (name in READERS)
        assert hints["openWorldHint"] is False
        assert 10 < len(tool["description"]) < 240
        assert "outputSchema" not in tool
        schema = tool["inputSchema"]
        assert schema["additionalProperties"] is False and "title" not in schema
        assert not any("title" in inner or name.startswith("_") for name, inner in schema["properties"].items())


async def test_tools_are_chosen_by_name(tmp_path):
    async with served(tmp_path, tools=["submit_answer", "calculate"]) as session:
        assert set(await session.tools()) == {"calculate", "submit_answer"}
        assert "nknown tool" in await session.refused("list_files")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tools": ["read_tabel"]}, "Did you mean 'read_table'"),
        ({"sandbox": "docker"}, "must be one of"),
    ],
)
def test_broken_options_name_the_fix(tmp_path, options, message):
    with pytest.raises(ConfigError, match=message):
        make_server(EpisodeContext(tmp_path), **options)


def test_a_workspace_must_exist(tmp_path):
    with pytest.raises(ConfigError, match="existing directory"):
        make_server(EpisodeContext(tmp_path / "none"))


async def test_submission_is_acknowledged_and_reveals_nothing(tmp_path):
    async with served(tmp_path) as session:
        assert await session.ok("submit_answer", answer="17") == await session.ok("submit_answer", answer="18")


@needs_sandbox
async def test_blocking_tools_leave_the_loop_free(tmp_path):
    """While a program sleeps, the same loop goes on ticking and other calls are answered."""
    ticks = 0

    async def tick():
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    async with served(tmp_path) as session:
        await session.ok("run_python", code="1")  # the sandbox's first trial
        ticker = asyncio.create_task(tick())
        code = "import os, time\nopen('begun', 'w')\nwhile not os.path.exists('go'):\n  time.sleep(0.01)"
        slow = asyncio.create_task(session.ok("run_python", code=code))
        async with asyncio.timeout(20):
            while not (tmp_path / "begun").exists() or ticks < 20:
                await asyncio.sleep(0.02)
        assert await session.ok("calculate", expression="2+2") == "4"
        assert not slow.done()
        (tmp_path / "go").touch()
        await slow
        ticker.cancel()


@needs_sandbox
async def test_calls_of_one_session_run_at_once(tmp_path):
    async with served(tmp_path) as session:
        await session.ok("run_python", code="1")
        code = "import os, time\nopen('at%d', 'w')\nwhile len(os.listdir('.')) < 6:\n  time.sleep(0.01)"
        await asyncio.gather(*(session.ok("run_python", code=code % k) for k in range(6)))  # each waits for all


@needs_sandbox
async def test_a_cancelled_call_ends_its_program(tmp_path):
    async with served(tmp_path) as session:
        await session.ok("run_python", code="1")
        code = "import time\nwhile True:\n  open('beat', 'a').write('x')\n  time.sleep(0.01)"
        call = asyncio.create_task(session("run_python", code=code))
        async with asyncio.timeout(20):
            while not (tmp_path / "beat").exists():
                await asyncio.sleep(0.02)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
    # at its session's end at the latest: a client of mcp 1.x does not say that a call is cancelled
    await asyncio.to_thread(waits.still, lambda: (tmp_path / "beat").stat().st_size)


LONG = "x" * 3000
BAD_CALLS = [
    *(
        (tool, {"path": LONG + end})
        for tool in ("read_document", "read_table", "view_image", "query_sqlite", "decode_audio", "read_qr")
        for end in ("", ".csv", ".png")
    ),
    ("describe_image", {"path": LONG}),
    ("read_document", {"path": "a.csv", "page": int("9" * 3000)}),
    ("query_sqlite", {"path": "a.sqlite", "sql": "SELECT " + LONG}),
    ("query_sqlite", {"path": "a.sqlite", "sql": "SELECT 1", "start": int("9" * 3000)}),
    ("query_sqlite", {"path": "a.sqlite", "sql": LONG * 10}),
    ("decode_audio", {"path": "a.csv", "page": int("9" * 3000)}),
    ("unpack_archive", {"path": LONG}),
    ("unpack_archive", {"path": LONG + ".zip"}),
    ("unpack_archive", {"path": "../" + LONG}),
    ("list_files", {"path": LONG}),
    ("run_python", {"path": LONG}),
    ("read_table", {"path": "a.csv", "start": int("9" * 3000)}),
    ("calculate", {"expression": LONG[:1999]}),
    ("calculate", {"expression": LONG[:1990] + "(1)"}),
    ("calculate", {"expression": "1j" + "*2" * 900}),
    ("calculate", {"expression": "1 " + LONG[:1990]}),
    ("open_page", {"url": LONG}),
    ("find_in_page", {"url": LONG, "text": LONG}),
]


@pytest.mark.parametrize(("tool", "arguments"), BAD_CALLS)
async def test_errors_give_little_back_and_do_not_say_error_twice(tmp_path, tool, arguments):
    """The env puts "Error: " before what does not say it, and no error is a way to have a text of one's own read."""
    from envs.gaia.splits import world_seeds

    (tmp_path / "a.csv").write_text("k,v\nx,1\n")
    (tmp_path / "a.sqlite").write_bytes(render("a.sqlite", Database((("t", Sheet(("k",), (("x",),))),))))
    public = {"corpus": {"world": "synthetic", "seed": world_seeds("train")[0]}}
    async with served(tmp_path, public=public, sandbox="none") as session:
        text = await session.refused(tool, **arguments)
    assert "x" * 81 not in text and "9" * 81 not in text and not text.lower().startswith("error") and len(text) < 500


async def test_a_bug_in_a_tool_is_told_without_its_details(tmp_path, monkeypatch, caplog):
    from envs.gaia.tools import calculator

    def broken(expression):
        raise KeyError("secret detail")

    monkeypatch.setattr(calculator, "evaluate", broken)
    async with served(tmp_path) as session:
        result = await session("calculate", expression="1")
    assert result.failed and "KeyError" in result.text and "secret" not in result.text
    assert "secret detail" in caplog.text


def test_works_as_the_env_uses_it(tmp_path):
    """Through the toolchain: in process, a workspace per session, refusals as the model's errors."""
    chain = Toolchain({"mcpServers": {"gaia": {"python": "envs.gaia.server:make_server"}}}, Limits(), None)

    async def play():
        session = await chain.open({"corpus": None})
        (session.workspace / "a.csv").write_text("k,v\nx,1\n")
        read = await session.call("1", "read_table", {"path": "a.csv"})
        missing = await session.call("2", "read_table", {"path": "b.csv"})
        wrong = await session.call("3", "read_table", {"file": "a.csv"})
        await session.aclose()
        await chain.aclose()
        return read, missing, wrong, session.workspace

    read, missing, wrong, workspace = loop.run(play(), timeout=60)
    assert (read.text, read.error) == ("k,v\nx,1", None)
    assert missing.error == "tool_error" and "Did you mean 'a.csv'" in missing.text
    assert wrong.error == "call_bad_arguments"
    assert not workspace.exists()


@needs_sandbox
def test_over_stdio_with_an_episode_file_that_comes_later(tmp_path):
    """The server process starts before its episode: workspace and public facts are filled in afterwards."""
    chain = Toolchain(
        {
            "mcpServers": {
                "gaia": {
                    "command": command()[0],
                    "args": command("--workspace", "${AWORLD_WORKSPACE}", "--episode", "${AWORLD_EPISODE_FILE}")[1:],
                    "cwd": str(REPOSITORY),
                }
            }
        },
        Limits(),
        None,
    )

    async def play():
        from envs.gaia.splits import world_seeds

        corpus = {"world": "synthetic", "seed": world_seeds("train")[0]}
        session = await chain.open({"corpus": corpus})
        (session.workspace / "note.txt").write_text("the code is 4711")
        found = [
            await session.call("1", "read_document", {"path": "note.txt"}),
            await session.call("2", "search", {"query": "mayor of a town", "limit": 2}),
            await session.call("3", "run_python", {"code": "import os; print(sorted(os.listdir()))"}),
        ]
        names = [tool["function"]["name"] for tool in session.tools]
        await session.aclose()
        await chain.aclose()
        return names, found

    names, (note, hits, listing) = loop.run(play(), timeout=100)
    assert tuple(names) == gaia_tools.NAMES
    assert note.text == "the code is 4711"
    assert hits.error is None and hits.text.count("https://") == 2
    assert listing.text == "['note.txt']"


def test_over_http(tmp_path):
    (tmp_path / "a.csv").write_text("k,v\nx,1\n")
    with http_server(tmp_path, "--tools", "read_table,calculate", "--compact") as url:
        chain = Toolchain({"mcpServers": {"gaia": {"type": "streamable-http", "url": url}}}, Limits(), None)

        async def play():
            session = await chain.open({})
            read = await session.call("1", "read_table", {"path": "a.csv"})
            sums = await asyncio.gather(
                *(session.call(str(i), "calculate", {"expression": f"{i}*2"}) for i in range(20))
            )
            names = {tool["function"]["name"] for tool in session.tools}
            await session.aclose()
            await chain.aclose()
            return names, read, sums

        names, read, sums = loop.run(play(), timeout=60)
    assert names == {"read_table", "calculate"}
    assert read.text == "v\nx 1"
    assert [s.text for s in sums] == [str(i * 2) for i in range(20)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--workspace"),
        (["--workspace", "/nowhere-at-all"], "existing directory"),
        (["--tools", "x"], "unknown tool"),
    ],
)
def test_the_command_line_says_what_is_wrong(tmp_path, capsys, arguments, message):
    from envs.gaia import server

    arguments = arguments if not arguments or "--workspace" in arguments else [*arguments, "--workspace", str(tmp_path)]
    with pytest.raises(SystemExit):
        server.main(arguments)
    assert message in capsys.readouterr().err


async def test_many_sessions_share_no_state(tmp_path):
    folders = [tmp_path / str(i) for i in range(8)]
    for i, folder in enumerate(folders):
        folder.mkdir()
        (folder / "me.txt").write_text(f"I am {i}")

    async def one(folder):
        async with served(folder) as session:
            return [await session.ok("read_document", path="me.txt"), await session.ok("list_files")]

    texts = await asyncio.gather(*map(one, folders))
    assert [t[0] for t in texts] == [f"I am {i}" for i in range(8)]
    assert all(t[1] == "me.txt (6 bytes)" for t in texts)


def test_making_a_server_is_cheap(tmp_path):
    make_server(EpisodeContext(tmp_path))
    start = time.process_time()
    for _ in range(20):
        make_server(EpisodeContext(tmp_path))
    assert (time.process_time() - start) / 20 < 0.01


def test_no_thread_is_left_behind(tmp_path):
    async def once():
        async with served(tmp_path) as session:
            await session.ok("calculate", expression="1")

    before = threading.active_count()
    for _ in range(5):
        asyncio.run(once())
    deadline = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < deadline:  # they are told to end, not waited for
        time.sleep(0.02)
    assert threading.active_count() <= before


async def test_odd_text_survives_the_wire(tmp_path):
    """Lone surrogates (from names that are not UTF-8) and control characters are made harmless."""
    with open(bytes(tmp_path) + b"/\xff\xfe.txt", "w") as file:
        file.write("x")
    (tmp_path / "a\nb.txt").write_text("x")
    async with served(tmp_path) as session:
        listing = await session.ok("list_files")
        assert len(listing.splitlines()) == 2 and json.dumps(listing).isascii()
        await session.refused("read_document", path="\udcff\udcfe.txt")
        await session.refused("find_in_page", url="\ud800", text="x")
        await session.ok("calculate", expression="1")
