"""The Wayback Machine against a stand-in that speaks its availability, CDX and snapshot addresses."""

import pytest
from web_stand_in import Answer, StandIn, session_with

from envs.gaia.servers.wayback import SERVER

ROWS = [[f"2019010{n}120000", "200", "text/html", "http://example.org/"] for n in range(1, 8)]


def wayback(request):
    if request.path == "/wayback/available":
        if "nowhere" in request.query["url"]:
            return Answer({"url": request.query["url"], "archived_snapshots": {}})
        stamp = (request.query.get("timestamp") or "20260101000000").ljust(14, "0")
        closest = {"status": "200", "available": True, "timestamp": stamp,
                   "url": f"http://web.archive.org/web/{stamp}/{request.query['url']}"}  # fmt: skip
        return Answer({"url": request.query["url"], "archived_snapshots": {"closest": closest}})
    if request.path == "/cdx/search/cdx":
        assert request.query["output"] == "json"
        if "nowhere" in request.query["url"]:
            return Answer([])
        first, count = int(request.query["offset"]), int(request.query["limit"])
        return Answer([["timestamp", "statuscode", "mimetype", "original"], *ROWS[first : first + count]])
    if request.path.endswith("/moved"):
        return Answer("", 302, headers={"Location": "/web/20190102000000id_/https://example.org/"})
    if request.path.endswith("/out"):
        return Answer("", 302, headers={"Location": "http://169.254.169.254/"})
    if request.path.endswith("/circle"):
        return Answer("", 302, headers={"Location": request.path})
    if request.path.endswith("/lost"):
        return Answer("<p>not archived</p>", 404)
    return Answer(f"<html><body><p>{request.path}</p></body></html>")


def session_on(stand_in, tmp_path):
    return session_with(SERVER, tmp_path, WAYBACK_BASE_URL=stand_in.url, WAYBACK_API_BASE_URL=stand_in.url)


async def test_snapshots_and_their_text(tmp_path):
    with StandIn(wayback) as stand_in:
        async with session_on(stand_in, tmp_path) as session:
            found = await session.ok("wayback_snapshots", url="example.org", limit=3, earliest="2019", latest="201912")
            last = await session.ok("wayback_snapshots", url="example.org", limit=3, page=3)
            none = await session.ok("wayback_snapshots", url="https://nowhere.example/")
            newest = await session.ok("wayback_page", url="https://example.org/a?b=1")
            exact = await session.ok("wayback_page", url="https://example.org/", timestamp="20190105120000")
            moved = await session.ok("wayback_page", url="https://example.org/moved", timestamp="2019")
    lines = found.splitlines()
    assert lines[0] == "20190101120000 | 200 | text/html | http://example.org/"
    assert len(lines) == 4 and lines[-1] == "[there are more; next: page=2]"
    assert last == "20190107120000 | 200 | text/html | http://example.org/"
    assert none == "There is no snapshot of this page in that time."
    assert stand_in.requests[0].query["from"] == "2019" and stand_in.requests[0].query["to"] == "201912"
    assert newest.startswith("Snapshot of https://example.org/a?b=1 from 2026-01-01 (20260101000000)")
    assert "/web/20190105120000id_/https://example.org/" in exact
    assert "/web/20190102000000id_/https://example.org/" in moved


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("https://nowhere.example/", "has no snapshot"),
        ("https://example.org/lost", "answered HTTP 404"),
        ("https://example.org/out", "redirects out of the archive"),
        ("https://example.org/circle", "redirects in a circle"),
        ("http://10.0.0.1/", "private address"),
    ],
)
async def test_what_cannot_be_read(url, message, tmp_path):
    with StandIn(wayback) as stand_in:
        async with session_on(stand_in, tmp_path) as session:
            assert message in await session.refused("wayback_page", url=url)


@pytest.mark.parametrize("body", [{}, [1], [["a", "b"], ["c"]], "null"])
async def test_lists_in_another_form_are_refused(body, tmp_path):
    with StandIn(lambda request: Answer(body, kind="application/json")) as stand_in:
        async with session_on(stand_in, tmp_path) as session:
            assert "unexpected form" in await session.refused("wayback_snapshots", url="example.org")
            assert "unexpected form" in await session.refused("wayback_page", url="example.org")
