"""Servers made by `new_server` are alike on both lines of mcp; importing the package costs little."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import threading
import time

import pytest
from tool_servers import REPOSITORY, loop_test_session, on_loop

from aworld_gym.toolchain import compat


@on_loop
async def test_tools_of_a_new_server():
    def factory(context):
        server = compat.new_server("n", "Instructions.")
        ident = threading.get_ident()

        @server.tool(description="Told.", annotations=compat.api().types.ToolAnnotations(readOnlyHint=True))
        def where(a: int, b: str = "x") -> str:
            """Doc."""
            return str(threading.get_ident() == ident)

        @server.tool()
        async def crash() -> str:
            raise KeyError("internal")

        @server.tool()
        def refuse() -> str:
            raise compat.ToolError("not today")

        @server.tool(structured_output=True)
        def structured() -> dict[str, int]:
            return {"n": 1}

        return server

    async with loop_test_session(factory) as session:
        where = session.tools[0]["function"]
        assert where["description"] == "Told."
        properties = where["parameters"]["properties"]
        assert properties["a"]["type"] == "integer" and properties["b"]["default"] == "x"
        result = await session.call("c", "where", {"a": 1})
        assert (result.text, result.structured) == ("False", None)  # in a thread, and the text is not doubled
        for name, words in [("crash", "KeyError: 'internal'"), ("refuse", "not today")]:
            result = await session.call("c", name, {})
            assert result.error == "tool_error" and words in result.text
        assert (await session.call("c", "structured", {})).structured == {"n": 1}


@on_loop
async def test_the_same_declaration_with_another_function_is_another_tool():
    def factory_of(word, default):
        def factory(context):
            server = compat.new_server("n")

            @server.tool()
            def say(times: int = default) -> str:
                return word * times

            return server

        return factory

    for word, default in (("a", 1), ("b", 1), ("c", 2), ("d", 2)):
        async with loop_test_session(factory_of(word, default)) as session:
            assert (await session.call("c", "say", {})).text == word * default
            schema = session.tools[0]["function"]["parameters"]
            assert schema["properties"]["times"]["default"] == default


LOGGING = """
import asyncio, logging
from tool_servers import session_of
from aworld_gym.toolchain import compat, loop

root = logging.getLogger()

def ours(context):
    server = compat.new_server("n")

    @server.tool()
    def crash() -> str:
        raise KeyError("internal")

    assert root.handlers == [] and root.level == logging.WARNING
    return server

async def theirs(context):
    server = compat.api().Server("n")

    @server.tool()
    def fine() -> str:
        return "fine"

    return server

async def use(factory):
    async with session_of({"it": {"python": factory}}) as session:
        return (await session.call("c", session.tools[0]["function"]["name"], {})).text

assert "KeyError" in loop.run(use(ours))
assert "fine" in loop.run(use(theirs))
assert root.handlers == [] and root.level == logging.WARNING
compat.api().Server("a program's own")  # of which the SDK's logging is a feature
assert root.handlers
"""


def test_making_and_using_servers_leaves_logging_alone_and_stderr_silent():
    env = {**os.environ, "PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'tests/lib'}"}
    run = subprocess.run([sys.executable, "-c", LOGGING], env=env, capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, "")


@on_loop
async def test_a_tool_that_crashes_is_logged_for_those_who_look(caplog):
    def factory(context):
        server = compat.new_server("n")

        @server.tool()
        def crash() -> str:
            raise KeyError("internal")

        return server

    with caplog.at_level(logging.INFO, logger="aworld_gym"):
        async with loop_test_session(factory) as session:
            await session.call("c", "crash", {})
    (record,) = [r for r in caplog.records if r.name.startswith("aworld_gym")]
    assert record.levelno == logging.INFO and record.exc_info[0] is KeyError


IMPORTING = """
import importlib.abc, sys, time
from tool_servers import raw, session_of
from aworld_gym.errors import InfraError
from aworld_gym.toolchain import loop

class Slow(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "mcp":
            time.sleep(3.0)

sys.meta_path.insert(0, Slow())

async def main():
    started = time.monotonic()
    async with session_of({"it": raw()}, open_timeout_s=2.0):
        assert time.monotonic() - started > 3.0

loop.run(main())
"""


def test_importing_mcp_does_not_count_against_the_server():
    env = {**os.environ, "PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'tests/lib'}"}
    run = subprocess.run([sys.executable, "-c", IMPORTING], env=env, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_a_server_is_cheap_to_make_again():
    def make():
        server = compat.new_server("n")
        for k in range(10):

            def tool(path: str, sheet: str | None = None, start: int = 0) -> str:
                return path

            server.tool(name=f"t{k}", description="Reads.")(tool)
        return server

    make()
    started = time.thread_time()
    for _ in range(10):
        make()
    assert (time.thread_time() - started) / 10 < 0.008


def test_importing_costs_little_and_loads_no_mcp():
    code = (
        "import sys, time; import aworld_gym; t = time.process_time(); import aworld_gym.toolchain\n"
        "print(time.process_time() - t, [m for m in ('mcp', 'pydantic', 'anyio', 'jsonschema') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    seconds, modules = run.stdout.split(maxsplit=1)
    assert float(seconds) < 0.2 and modules.strip() == "[]"


def test_an_absent_mcp_is_named(monkeypatch):
    from aworld_gym.errors import MissingDependencyError

    compat.api.cache_clear()
    monkeypatch.setitem(sys.modules, "mcp", None)
    try:
        with pytest.raises(MissingDependencyError, match="pip install 'mcp>=1.30,<3'"):
            compat.api()
    finally:
        monkeypatch.undo()
        compat.api.cache_clear()
    assert asyncio.iscoroutinefunction(compat.list_tools)
