"""What every service answers with is taken apart: each part of it in turn is missing, or something else."""

import asyncio
import copy
from importlib import import_module

import pytest
from web_stand_in import Answer, StandIn, session_with

ODD = (None, 1, "x", [], {}, [None], {"title": None})
PLACE = "https://example.org/{n}"
PAGE = {"title": "A", "extract": "words", "revisions": [{"revid": 1, "timestamp": "2020-01-01T00:00:00Z"}]}
HIT = {"url": "https://example.org", "link": "https://example.org", "title": "t", "content": "c", "snippet": "s"}

SERVICES = {
    "wikipedia's search": (
        "wikipedia",
        {"WIKIPEDIA_BASE_URL": "{url}"},
        ("wikipedia_search", {"query": "{n}"}),
        {"query": {"search": [{"title": "A", "snippet": "<b>x</b>"}]}},
    ),
    "an article": (
        "wikipedia",
        {"WIKIPEDIA_BASE_URL": "{url}"},
        ("wikipedia_page", {"title": "{n}"}),
        {"query": {"pages": [PAGE]}},
    ),
    "an old article": (
        "wikipedia",
        {"WIKIPEDIA_BASE_URL": "{url}"},
        ("wikipedia_page", {"title": "{n}", "date": "2020-01-01"}),
        {"query": {"pages": [PAGE]}, "parse": {"text": "<p>words</p>"}},
    ),
    "a snapshot": (
        "wayback",
        {"WAYBACK_API_BASE_URL": "{url}", "WAYBACK_BASE_URL": "{url}"},
        ("wayback_page", {"url": PLACE}),
        {"archived_snapshots": {"closest": {"timestamp": "20200101000000", "url": "x"}}},
    ),
    "Tavily": (
        "search",
        {"TAVILY_API_KEY": "k", "TAVILY_BASE_URL": "{url}"},
        ("web_search", {"query": "{n}"}),
        {"results": [HIT]},
    ),
    "Google": (
        "search",
        {"GOOGLE_API_KEY": "k", "GOOGLE_CSE_ID": "c", "GOOGLE_BASE_URL": "{url}"},
        ("web_search", {"query": "{n}"}),
        {"items": [HIT]},
    ),
    "Jina's search": (
        "search",
        {"JINA_API_KEY": "k", "JINA_SEARCH_BASE_URL": "{url}"},
        ("web_search", {"query": "{n}"}),
        {"data": [HIT]},
    ),
    "Jina's reader": (
        "reader",
        {"JINA_API_KEY": "k", "JINA_READER_BASE_URL": "{url}"},
        ("read_url", {"url": PLACE}),
        {"data": {"title": "t", "content": "words"}},
    ),
    "E2B": (
        "e2b",
        {"E2B_API_KEY": "k", "E2B_BASE_URL": "{url}", "E2B_SANDBOX_BASE_URL": "{url}"},
        ("run_code_online", {"code": "{n}"}),
        {"sandboxID": "a", "domain": "b", "envdAccessToken": "c", "type": "stdout", "text": "words"},
    ),
    "a language model": (
        "think",
        {"THINK_LLM_API_KEY": "k", "THINK_LLM_MODEL_NAME": "m", "THINK_LLM_BASE_URL": "{url}"},
        ("think_hard", {"question": "{n}"}),
        {"choices": [{"index": 0, "message": {"role": "assistant", "content": "words"}}]},
    ),
}


def places(value):
    """The way to every part of a JSON value."""
    yield ()
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        for way in places(one):
            yield (key, *way)


def variants(value):
    """The value with one part missing, or something else in its place."""
    yield from ODD
    for way in places(value):
        for odd in (..., *ODD) if way else ():
            changed = copy.deepcopy(value)
            parent = changed
            for key in way[:-1]:
                parent = parent[key]
            if odd is ...:
                del parent[way[-1]]
            else:
                parent[way[-1]] = odd
            yield changed


@pytest.mark.parametrize("service", SERVICES)
async def test_no_answer_makes_a_tool_fail(service, tmp_path):
    name, settings, (tool, arguments), whole = SERVICES[service]
    current = whole
    with StandIn(lambda request: Answer(current)) as stand_in:
        settings = {key: value.format(url=stand_in.url) for key, value in settings.items()}
        async with session_with(import_module(f"envs.gaia.servers.{name}").SERVER, tmp_path, **settings) as session:

            async def call(number):  # no two of them alike, or what is kept of the one would answer the other
                filled = {key: value.format(n=number) for key, value in arguments.items()}
                return await asyncio.wait_for(session(tool, **filled), 30)

            first = await call(0)
            assert not first.failed, first.text
            for number, current in enumerate(variants(whole), 1):
                result = await call(number)
                assert "unexpectedly" not in result.text, current
