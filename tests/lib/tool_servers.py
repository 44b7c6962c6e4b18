"""What the toolchain's tests share: misbehaving servers, and a way to use a session."""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import subprocess
import sys
import time
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import psutil
import waits

from aworld_gym.toolchain import Toolchain, loop
from aworld_gym.types import Limits

REPOSITORY = Path(__file__).parents[2]
SERVERS = REPOSITORY / "tests/aworld_gym/toolchain/servers"


def raw(*modes: str, **more) -> dict:
    """The configuration of a hand-written stdio server that misbehaves as told."""
    return {"command": sys.executable, "args": ["-S", str(SERVERS / "raw.py"), *modes], **more}


def basic(**more) -> dict:
    """The configuration of an ordinary in-process server."""
    return {"python": "basic:make", **more}


def one(entry: dict) -> dict:
    return {"mcpServers": {"it": entry}}


@asynccontextmanager
async def session_of(servers: dict, *, tools=None, public=None, **limits):
    """A tool session, and its toolchain closed after it."""
    config = servers if "mcpServers" in servers else {"mcpServers": servers}
    toolchain = Toolchain(config, Limits(**{"call_timeout_s": 10.0, "open_timeout_s": 20.0, **limits}), tools)
    try:
        session = await toolchain.open(public or {})
        try:
            yield session
        finally:
            await session.aclose()
    finally:
        await toolchain.aclose()


@asynccontextmanager
async def loop_test_session(factory):
    """A session with an in-process server, from a factory function."""
    async with session_of({"it": {"python": factory}}) as session:
        yield session


def on_loop(function):
    """Run an ``async def`` test on the package's own loop, where sessions live."""

    @functools.wraps(function)
    def test(*args, **kwargs):
        return loop.run(function(*args, **kwargs), timeout=120)

    test.__signature__ = inspect.signature(function)
    del test.__wrapped__
    return test


@contextmanager
def http_server(*args: str, port: int = 0):
    """A running HTTP server script; yields (port, process). It prints its port when it listens."""
    process = subprocess.Popen(
        [sys.executable, str(SERVERS / args[0]), *args[1:], "--port", str(port)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )
    try:
        line = waits.first_line(process)
        if not line:
            raise RuntimeError(f"{args} did not start: exit status {process.wait(20)}")
        yield int(line), process
    finally:
        waits.kill(process)
        process.stdout.close()


async def noticed(connection, within: float = 20.0) -> None:
    """Wait until a connection knows that its server is gone."""
    async with asyncio.timeout(within):
        while connection.dead is None:
            await asyncio.sleep(0.01)


def connection_of(session, name: str = "it"):
    """The connection that a session's calls to a server go over."""
    return session._grant.leases[name].connection


def gone(pid: int, within: float = 5.0) -> bool:
    """Whether the process has ended (zombies have)."""
    end = time.monotonic() + within
    while time.monotonic() < end:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.02)
    return False
