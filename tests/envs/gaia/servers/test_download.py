"""Downloads: where files go, what they are called, what is refused."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from web_stand_in import Answer, StandIn, session_with

from envs.gaia.servers import download
from envs.gaia.servers.download import SERVER, safe_name


def allowing(stand_in, tmp_path):
    return session_with(SERVER, tmp_path, WEB_ALLOW_HOSTS=stand_in.host)


def files(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


@pytest.mark.parametrize(
    ("path", "headers", "name", "saved"),
    [
        ("/data/report.pdf?x=1", {}, "", "report.pdf"),
        ("/a%20b.csv", {}, "", "a b.csv"),
        ("/", {}, "", "file.pdf"),
        ("/x", {"Content-Disposition": 'attachment; filename="table 1.csv"'}, "", "table 1.csv"),
        ("/x", {"Content-Disposition": "attachment; filename*=UTF-8''%C3%BCber.txt"}, "", "über.txt"),
        ("/x", {"Content-Disposition": 'attachment; filename="../../etc/passwd"'}, "", "passwd"),
        ("/x", {"Content-Disposition": 'attachment; filename="..\\\\..\\\\evil.exe"'}, "", "evil.exe"),
        ("/x", {"Content-Disposition": 'attachment; filename="/etc/cron.d/job"'}, "", "job"),
        ("/x", {"Content-Disposition": 'attachment; filename=".bashrc"'}, "", "bashrc"),
        ("/x", {"Content-Disposition": 'attachment; filename=".."'}, "", "file.pdf"),
        ("/x.csv", {"Content-Disposition": "attachment; filename*=undefined''a"}, "", "x.csv"),
        ("/x.csv", {"Content-Disposition": "attachment; filename*=idna''a%ff"}, "", "x.csv"),
        ("/x.csv", {"Content-Disposition": f"attachment; filename*{'9' * 5000}*=utf-8''a"}, "", "x.csv"),
        ("/..%2f..%2fup.txt", {}, "", "up.txt"),
        ("/x.bin", {}, "mine.dat", "mine.dat"),
        ("/x.bin", {}, "../outside.dat", "outside.dat"),
        ("/x.bin", {}, "NUL", "x.bin"),
    ],
)
async def test_names_stay_inside(path, headers, name, saved, tmp_path):
    with StandIn(lambda request: Answer(b"content", kind="application/pdf", headers=headers)) as stand_in:
        async with allowing(stand_in, tmp_path) as session:
            told = await session.ok("download_file", url=stand_in.url + path, name=name)
    assert told == f"Saved as downloads/{saved}: 7 bytes, application/pdf."
    assert files(tmp_path) == [f"downloads/{saved}"]
    assert (tmp_path / "downloads" / saved).read_bytes() == b"content"


@given(st.text(max_size=300))
def test_any_text_becomes_a_plain_name_or_none(text):
    name = safe_name(text)
    assert len(name) <= 80 and not name.startswith(".") and not set(name) & set('/\\\0\n\r:*?"<>|')
    assert name == "" or safe_name(name) == name


async def test_the_same_name_twice_and_at_once(tmp_path):
    with StandIn(lambda request: Answer(request.path.encode())) as stand_in:
        async with allowing(stand_in, tmp_path) as session:
            calls = [session.ok("download_file", url=f"{stand_in.url}/{n}/a.txt") for n in range(4)]
            await asyncio.gather(*calls)
    assert files(tmp_path) == [f"downloads/{n}" for n in ("a-2.txt", "a-3.txt", "a-4.txt", "a.txt")]
    contents = {p.read_bytes() for p in (tmp_path / "downloads").iterdir()}
    assert contents == {f"/{n}/a.txt".encode() for n in range(4)}


async def test_what_is_too_large_is_not_saved(tmp_path, monkeypatch):
    monkeypatch.setattr(download, "MAX_BYTES", 100_000)
    with StandIn(lambda request: Answer(b"x" * 50_000, endless=request.path == "/endless")) as stand_in:
        async with allowing(stand_in, tmp_path) as session:
            assert "more than 100,000 bytes" in await session.refused("download_file", url=f"{stand_in.url}/endless")
            await session.ok("download_file", url=f"{stand_in.url}/fits")
    assert files(tmp_path) == ["downloads/fits"]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (Answer("no", 404), "HTTP 404; nothing was saved"),
        (Answer("", 302, headers={"Location": "http://127.0.0.1:9/"}), "private address"),
        (Answer("", 302, headers={"Location": "/"}), "redirects more than 5 times"),
    ],
)
async def test_failures_leave_nothing(answer, message, tmp_path):
    with StandIn(lambda request: answer) as stand_in:
        async with allowing(stand_in, tmp_path) as session:
            assert message in await session.refused("download_file", url=stand_in.url)
    assert files(tmp_path) == []


async def test_a_link_in_the_workspace_leads_nowhere(tmp_path):
    outside = tmp_path / "outside"
    workspace = tmp_path / "workspace"
    outside.mkdir()
    workspace.mkdir()
    (workspace / "downloads").symlink_to(outside)
    with StandIn(lambda request: Answer(b"content")) as stand_in:
        async with allowing(stand_in, workspace) as session:
            assert "links" in await session.refused("download_file", url=f"{stand_in.url}/a.txt")
    assert files(outside) == []


async def test_private_addresses_are_refused_by_default(tmp_path):
    with StandIn(lambda request: Answer(b"content")) as stand_in:
        async with session_with(SERVER, tmp_path) as session:
            assert "private address" in await session.refused("download_file", url=stand_in.url)
    assert stand_in.requests == [] and files(tmp_path) == []
