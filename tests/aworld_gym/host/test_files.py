"""Files on their way into a session's workspace, and what is left of those that do not arrive."""

import asyncio
import filecmp
import os
import resource
from contextlib import asynccontextmanager

import httpx2
import psutil
import pytest
from hosts import host_here, session_at
from http_clients import each_http_client  # noqa: F401
from tool_servers import one, raw

from aworld_gym.errors import InfraError
from aworld_gym.host import bodies, files
from aworld_gym.toolchain import hosted, loop

MIB = 2**20


def playing(test, served=None, **settings):
    """Run ``test(running)`` against a host with these settings."""
    with host_here(served, **settings) as running:
        return loop.run(test(running), timeout=60)


@asynccontextmanager
async def session_and_files(running):
    """A session: the client's, the host's own of it, and an HTTP client for its files."""
    known = set(running.host.sessions._all)
    async with session_at(running) as session:
        (mine,) = running.host.sessions._all - known
        headers = {"authorization": f"Bearer {running.token}", "mcp-session-id": mine.id}
        async with httpx2.AsyncClient(base_url=running.address, headers=headers, timeout=20) as http:
            yield session, mine, http


async def begun(running, mine, name, size, sent):
    """An upload of ``size`` bytes of which so many are sent; its connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
    lines = (f"PUT /workspace/{name} HTTP/1.1", "host: 127.0.0.1", f"authorization: Bearer {running.token}")
    lines = (*lines, f"mcp-session-id: {mine.id}", f"content-length: {size}")
    writer.write("\r\n".join((*lines, "", "")).encode())
    for start in range(0, sent, MIB):
        writer.write(b"x" * min(MIB, sent - start))
        await writer.drain()
    return reader, writer


async def until(condition, seconds=15.0):
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)


def beside(mine):
    """What stands in a session's directory: its workspace, and parts of files."""
    return sorted(path.name for path in mine.tools.workspace.parent.iterdir() if path.name != "episode.json")


def test_files_that_come_do_not_fill_the_memory():
    size, many = 16 * MIB, 12

    async def test(running):
        async with session_and_files(running) as (session, mine, http):
            process = psutil.Process()
            before = process.memory_info().rss
            coming = [await begun(running, mine, f"f{k}", size, size - 1) for k in range(many)]
            await until(lambda: mine.uploaded == many * (size - 1))
            assert process.memory_info().rss - before < 3 * size
            assert list(mine.tools.workspace.iterdir()) == []  # no tool takes a part for the file
            assert len(beside(mine)) == many + 1
            for k, (reader, writer) in enumerate(coming):
                if k < many - 1:
                    writer.write(b"x")
                    assert (await reader.readline()).startswith(b"HTTP/1.1 204 ")
                writer.close()
            await until(lambda: mine.uploaded == (many - 1) * size)
            assert beside(mine) == ["workspace"]
            assert {p.stat().st_size for p in mine.tools.workspace.iterdir()} == {size}
            assert len(list(mine.tools.workspace.iterdir())) == many - 1

    playing(test)


@pytest.mark.parametrize("why", ["leaves", "is slow", "is too long", "fills the workspace", "has no room on the disk"])
def test_nothing_is_left_of_a_file_that_does_not_arrive(why, monkeypatch):
    monkeypatch.setattr(bodies, "SLOWEST", 100 * MIB)
    size = 2 * MIB

    async def chunks(count):
        for _ in range(count):
            yield b"x" * MIB

    async def test(running):
        async with session_and_files(running) as (session, mine, http):
            kept = await http.put("/workspace/f", content=b"old")
            assert kept.status_code == 204
            if why == "leaves":
                _, writer = await begun(running, mine, "f", size, size - 1)
                await until(lambda: mine.uploaded == size - 1 + 3)
                writer.transport.abort()
            elif why == "is slow":
                reader, writer = await begun(running, mine, "f", size, size - 1)
                async with asyncio.timeout(10):
                    assert (await reader.readline()).startswith(b"HTTP/1.1 408 ")
                writer.close()
            elif why == "has no room on the disk":
                soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
                resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, hard))
                try:
                    reply = await http.put("/workspace/f", content=b"x" * size)
                finally:
                    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
                assert reply.status_code == 409 and "too large" in reply.text
            else:
                reply = await http.put("/workspace/f", content=chunks(4))
                assert reply.status_code == 413
            await until(lambda: mine.uploaded == 3)
            assert beside(mine) == ["workspace"]
            assert [(p.name, p.read_bytes()) for p in mine.tools.workspace.iterdir()] == [("f", b"old")]
            assert (await http.put("/workspace/f", content=b"x" * MIB)).status_code == 204
            assert (mine.tools.workspace / "f").stat().st_size == MIB

    limits = {"max_workspace_bytes": size} if why == "fills the workspace" else {"max_workspace_bytes": 8 * MIB}
    limits |= {"max_file_bytes": size} if why == "is too long" else {}
    limits |= {"body_timeout_s": 1.0} if why == "is slow" else {}
    playing(test, **limits)


def test_what_a_tool_put_in_a_files_place_is_not_written_through(tmp_path):
    outside = tmp_path / "outside"
    outside.write_text("secret")

    async def test(running):
        async with session_and_files(running) as (session, mine, http):
            workspace = mine.tools.workspace
            os.link(outside, workspace / "hard")
            (workspace / "soft").symlink_to(outside)
            (workspace / "folder").mkdir()
            (workspace / "door").symlink_to(tmp_path)
            answers = [
                (await http.put(f"/workspace/{name}", content=b"x")).status_code
                for name in ("hard", "soft", "folder", "door/outside", "door/new", "hard/x")
            ]
            assert answers == [204, 409, 409, 409, 409, 409]
            assert (workspace / "hard").read_text() == "x" and outside.stat().st_nlink == 1
            assert beside(mine) == ["workspace"]
            workspace.rename(workspace.with_name("moved"))  # by a program that runs as the host's own user
            workspace.symlink_to(tmp_path)
            assert (await http.put("/workspace/new", content=b"x")).status_code == 409
            assert (await http.get("/workspace/outside")).status_code == 404
            workspace.unlink()
        assert outside.read_text() == "secret" and sorted(p.name for p in tmp_path.iterdir()) == ["outside"]

    playing(test)


def test_a_file_that_comes_late_does_not_get_into_the_next_sessions_workspace():
    async def test(running):
        pool = running.host.catalogue.toolchain("it", None)._runtime._pool
        await until(lambda: pool._ready)
        async with session_and_files(running) as (session, mine, http):
            workspace = mine.tools.workspace
            reader, writer = await begun(running, mine, "late", 1000, 999)
            await until(lambda: mine.uploaded == 999)
        await until(lambda: pool._ready)
        assert pool._ready[0].episode.workspace == workspace
        writer.write(b"x")
        async with asyncio.timeout(10):
            assert (await reader.readline()).startswith(b"HTTP/1.1 404 ")
        writer.close()
        async with session_and_files(running) as (session, mine, http):
            assert mine.tools.workspace == workspace
            assert list(workspace.iterdir()) == [] and beside(mine) == ["workspace"]

    playing(test, {"it": one(raw(pool=1, reset_tool="reset"))})


def test_a_file_that_does_not_fit_on_the_disk_keeps_nothing_of_it(tmp_path):
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        arriving = files.Arriving(workspace, ["deep", "file"])
        with pytest.raises(OSError, match="too large"):
            arriving.finish([b"x" * 2000])
        arriving.abandon()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [p.name for p in tmp_path.rglob("*")] == ["workspace"]
    files.Arriving(workspace, ["deep", "file"]).finish([b"x" * 1500, b"x" * 500])
    assert (workspace / "deep/file").stat().st_size == 2000 and [p.name for p in tmp_path.iterdir()] == ["workspace"]


@pytest.mark.usefixtures("each_http_client")
def test_files_that_are_sent_do_not_fill_the_memory(tmp_path):
    size, many = 24 * MIB, hosted.UPLOADS
    parts = [os.urandom(MIB), os.urandom(MIB - 5)]  # not a round number of pieces

    async def test(running):
        async with session_and_files(running) as (session, mine, http):
            for k in range(many):
                with (session.workspace / f"f{k} ä").open("wb") as out:
                    for part in (parts[0],) * (size // MIB) + (parts[1],):
                        out.write(part)
            process, most = psutil.Process(), 0
            before = process.memory_info().rss
            sending = asyncio.create_task(session.deliver())
            while not sending.done():
                most = max(most, process.memory_info().rss)
                await asyncio.sleep(0.01)
            await sending
            assert most - before < 3 * size
            for k in range(many):
                given, got = session.workspace / f"f{k} ä", mine.tools.workspace / f"f{k} ä"
                assert filecmp.cmp(given, got, shallow=False)
            with (session.workspace / "f0 ä").open("ab") as out:
                out.write(b"x" * 8 * MIB)
            with pytest.raises(InfraError, match="refused with 413"):
                await session.deliver()

    playing(test, max_file_bytes=size + 2 * MIB)
