"""Wikipedia against a stand-in that speaks MediaWiki's action API."""

import pytest
from web_stand_in import Answer, StandIn, session_with

from envs.gaia.servers.wikipedia import SERVER

TEXT = "The Grey River is a river.\n\n== Course ==\n" + "It flows north. " * 400


def wiki(request):
    query = request.query
    assert request.path == "/en/w/api.php" and query["format"] == "json" and query["formatversion"] == "2"
    if query["action"] == "parse":
        if query.get("page") == "Nowhere":
            return Answer({"error": {"code": "missingtitle", "info": "The page you specified doesn't exist."}})
        which = f"revision {query['oldid']}" if "oldid" in query else query["page"]
        return Answer({"parse": {"title": "Grey River", "pageid": 7, "text": f"<p>{which}</p><table><tr><td>Length</td>"
                                 "<td>12 km</td></tr></table><style>x</style>"}})  # fmt: skip
    if query.get("list") == "search":
        if query["srsearch"] == "nothing":
            return Answer({"batchcomplete": True, "query": {"searchinfo": {"totalhits": 0}, "search": []}})
        first, count = int(query["sroffset"]), int(query["srlimit"])
        return Answer({"batchcomplete": True, "query": {"search": [
            {"ns": 0, "title": f"River {n}", "snippet": f'a <span class="searchmatch">river</span> &amp; {n}'}
            for n in range(first, first + count)
        ]}})  # fmt: skip
    if query["titles"] == "Nowhere":
        return Answer({"batchcomplete": True, "query": {"pages": [{"ns": 0, "title": "Nowhere", "missing": True}]}})
    page = {"pageid": 7, "ns": 0, "title": "Grey River"}
    if query["prop"] == "extracts":
        return Answer({"batchcomplete": True, "query": {"pages": [page | {"extract": TEXT}]}})
    assert query["rvdir"] == "older" and query["rvlimit"] == "1"
    if query["rvstart"] < "2005":
        return Answer({"batchcomplete": True, "query": {"pages": [page]}})
    revision = {"revid": 4711, "parentid": 1, "timestamp": "2020-05-06T07:08:09Z"}
    return Answer({"continue": {"rvcontinue": "x"}, "query": {"pages": [page | {"revisions": [revision]}]}})


def session_on(stand_in, tmp_path):
    return session_with(SERVER, tmp_path, WIKIPEDIA_BASE_URL=stand_in.url + "/{language}")


async def test_search_and_articles(tmp_path):
    with StandIn(wiki) as stand_in:
        async with session_on(stand_in, tmp_path) as session:
            found = await session.ok("wikipedia_search", query="river", limit=2, start=10)
            nothing = await session.ok("wikipedia_search", query="nothing")
            first = await session.ok("wikipedia_page", title="Grey River")
            second = await session.ok("wikipedia_page", title="Grey River", page=2)
            asked = len(stand_in.requests)
            old = await session.ok("wikipedia_page", title="Grey River", date="2020-06-01")
            tables = await session.ok("wikipedia_page", title="Grey River", tables=True)
    assert found.splitlines() == ["River 10 | a river & 10", "River 11 | a river & 11"]
    assert nothing == "No article matches."
    assert first.startswith("Grey River\n\nThe Grey River is a river.") and "[page 1 of 2; next: page=2]" in first
    assert "[page 2 of 2]" in second and asked == 3
    assert old == "Grey River (as of 2020-05-06)\n\nrevision 4711\n\nLength | 12 km"
    assert tables == "Grey River\n\nGrey River\n\nLength | 12 km"


async def test_what_is_not_there(tmp_path):
    with StandIn(wiki) as stand_in:
        async with session_on(stand_in, tmp_path) as session:
            assert "no article 'Nowhere'" in await session.refused("wikipedia_page", title="Nowhere")
            assert "doesn't exist" in await session.refused("wikipedia_page", title="Nowhere", tables=True)
            told = await session.refused("wikipedia_page", title="Grey River", date="2001-01-01")
            assert "did not exist on 2001-01-01" in told


@pytest.mark.parametrize("language", ["evil.example/", "a@b", "en.evil.example#", "EN", "../x"])
async def test_a_language_cannot_become_another_host(language, tmp_path):
    with StandIn(wiki) as stand_in:
        async with session_on(stand_in, tmp_path) as session:
            assert (await session("wikipedia_search", query="x", language=language)).failed
    assert stand_in.requests == []


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (Answer({"error": {"code": "maxlag", "info": "Waiting for a database"}}), "Waiting for a database"),
        (Answer([1]), "unexpected form"),
        (Answer({"something": "else"}), "unexpected form"),
        (Answer("<html>"), "not JSON"),
        (Answer("", 429, headers={"Retry-After": "50"}), "try again in 50 s"),
    ],
)
async def test_faults(answer, message, tmp_path):
    with StandIn(lambda request: answer) as stand_in:
        async with session_on(stand_in, tmp_path) as session:
            assert message in await session.refused("wikipedia_search", query="x")
