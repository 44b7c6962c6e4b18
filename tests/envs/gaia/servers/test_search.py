"""Web search against stand-ins for Tavily, Google and Jina that speak their formats."""

import pytest
from web_stand_in import Answer, StandIn, session_with

from aworld_gym.errors import ConfigError
from envs.gaia.servers.search import SERVER
from envs.gaia.servers.settings import Settings

PAGES = [(f"https://example.org/{n}", f"Title {n}", f"Snippet  of\npage {n}. " + "word " * 100) for n in range(1, 31)]


def tavily(request):
    assert (request.method, request.path) == ("POST", "/search")
    if request.headers["authorization"] != "Bearer tvly-key-1":
        return Answer({"detail": {"error": "Unauthorized: missing or invalid API key."}}, 401)
    found = [
        {"url": u, "title": t, "content": s, "score": 0.9, "raw_content": None}
        for u, t, s in PAGES[: request.json["max_results"]]
    ]
    if request.json["query"] == "nothing":
        found = []
    return Answer(
        {"query": request.json["query"], "answer": None, "images": [], "results": found, "response_time": 0.8}
    )


def google(request):
    assert request.headers["x-goog-api-key"] == "google-key-1" and request.query["cx"] == "engine-1"
    assert "key" not in request.query
    info = {"kind": "customsearch#search", "searchInformation": {"totalResults": "30", "searchTime": 0.2}}
    if request.query["q"] == "nothing":
        return Answer(info | {"searchInformation": {"totalResults": "0"}})
    first, count = int(request.query["start"]), int(request.query["num"])
    return Answer(info | {"items": [
        {"kind": "customsearch#result", "title": t, "link": u, "displayLink": "example.org", "snippet": s}
        for u, t, s in PAGES[first - 1 : first - 1 + count]
    ]})  # fmt: skip


def jina(request):
    assert request.headers["authorization"] == "Bearer jina-key-1"
    assert request.headers["accept"] == "application/json" and request.headers["x-respond-with"] == "no-content"
    if request.query["q"] == "nothing":
        return Answer({"code": 200, "status": 20000, "data": []})
    page, count = int(request.query["page"]), int(request.query["num"])
    found = PAGES[(page - 1) * count : page * count]
    return Answer({"code": 200, "status": 20000, "data": [
        {"title": t, "url": u, "description": s, "content": "", "usage": {"tokens": 1000}} for u, t, s in found
    ]})  # fmt: skip


KEYS = {
    "tavily": (tavily, "TAVILY_BASE_URL", {"TAVILY_API_KEY": "tvly-key-1"}),
    "google": (google, "GOOGLE_BASE_URL", {"GOOGLE_API_KEY": "google-key-1", "GOOGLE_CSE_ID": "engine-1"}),
    "jina": (jina, "JINA_SEARCH_BASE_URL", {"JINA_API_KEY": "jina-key-1"}),
}


@pytest.mark.parametrize("name", KEYS)
async def test_every_provider_gives_the_same_lines(name, tmp_path):
    answer, base, keys = KEYS[name]
    with StandIn(answer) as stand_in:
        async with session_with(SERVER, tmp_path, **keys, **{base: stand_in.url}) as session:
            lines = (await session.ok("web_search", query="rivers")).splitlines()
            second = (await session.ok("web_search", query="rivers", limit=3, page=2)).splitlines()
            nothing = await session.ok("web_search", query="nothing")
            await session.ok("web_search", query="rivers", site="example.org")
    assert [line.split(" | ")[0] for line in lines] == [u for u, _, _ in PAGES[:5]]
    assert lines[0].startswith("https://example.org/1 | Title 1 | Snippet of page 1. word") and len(lines[0]) < 320
    assert [line.split(" | ")[1] for line in second] == ["Title 4", "Title 5", "Title 6"]
    assert nothing == "No page matches. Try fewer or other words."
    last = stand_in.requests[-1]
    assert "example.org" in (last.body.decode() + str(last.query) + last.headers.get("x-site", ""))


async def test_pages_end(tmp_path):
    with StandIn(tavily) as stand_in:
        keys = {"TAVILY_API_KEY": "tvly-key-1", "TAVILY_BASE_URL": stand_in.url}
        async with session_with(SERVER, tmp_path, **keys) as session:
            assert len((await session.ok("web_search", query="x", limit=10, page=2)).splitlines()) == 10
            assert await session.ok("web_search", query="x", limit=10, page=3) == "No further page."


async def test_a_wrong_key_is_named_and_not_shown(tmp_path):
    def echo(request):
        return Answer({"detail": {"error": f"invalid API key {request.headers['authorization']}"}}, 400)

    for answer, message in ((tavily, "TAVILY_API_KEY may be wrong"), (echo, "invalid API key Bearer [TAVILY_API_KEY]")):
        with StandIn(answer) as stand_in:
            keys = {"TAVILY_API_KEY": "tvly-wrong-key", "TAVILY_BASE_URL": stand_in.url}
            async with session_with(SERVER, tmp_path, **keys) as session:
                told = await session.refused("web_search", query="x")
        assert message in told and "tvly-wrong" not in told


@pytest.mark.parametrize(
    "body",
    [[], {}, {"results": None}, {"results": ["x"]}, {"results": [{"title": "no url"}]}, {"results": [{"url": 3}]}, "1"],
)
async def test_answers_in_another_form_are_refused(body, tmp_path):
    with StandIn(lambda request: Answer(body, kind="application/json")) as stand_in:
        keys = {"TAVILY_API_KEY": "tvly-key-1", "TAVILY_BASE_URL": stand_in.url}
        async with session_with(SERVER, tmp_path, **keys) as session:
            assert "unexpected form" in await session.refused("web_search", query="x")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "it needs TAVILY_API_KEY, or GOOGLE_API_KEY and GOOGLE_CSE_ID, or JINA_API_KEY, and none of these is set"),
        ({"GOOGLE_API_KEY": "key-of-google"}, "or GOOGLE_CSE_ID"),
        ({"TAVILY_API_KEY": "key-1", "SEARCH_PROVIDER": "tavly"}, "Did you mean 'tavily'"),
        (
            {"TAVILY_API_KEY": "key-1", "SEARCH_PROVIDER": "google"},
            "GOOGLE_API_KEY and GOOGLE_CSE_ID must be set for it",
        ),
        ({"TAVILY_API_KEY": "tvly key"}, "TAVILY_API_KEY must be printable ASCII"),
        ({"TAVILY_API_KEY": "key-1", "TAVILY_BASE_URL": "api.tavily.com"}, "TAVILY_BASE_URL must be an address"),
    ],
)
def test_what_is_missing_is_named(settings, message, tmp_path):
    from aworld_gym.types import EpisodeContext

    with pytest.raises(ConfigError, match=message) as caught:
        SERVER.make_server(EpisodeContext(tmp_path, {}), settings=Settings(settings))
    assert "tvly key" not in str(caught.value)


async def test_the_provider_can_be_chosen(tmp_path):
    with StandIn(jina) as stand_in:
        keys = {"TAVILY_API_KEY": "tvly-key-1", "JINA_API_KEY": "jina-key-1", "SEARCH_PROVIDER": "jina"}
        async with session_with(SERVER, tmp_path, **keys, JINA_SEARCH_BASE_URL=stand_in.url) as session:
            assert "Title 1" in await session.ok("web_search", query="x")
