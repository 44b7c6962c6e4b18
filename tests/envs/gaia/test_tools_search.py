"""The local web: ranking, snippets, paging, and the index that a process keeps."""

import concurrent.futures
import os
import re
import time

import pytest
import waits
from gaia_tools import served
from hypothesis import given, settings
from hypothesis import strategies as st
from small_page import FILLER, PAGES, Page

from envs.gaia.tools import search
from envs.gaia.tools.search import Index

CORPUS = {"world": "test", "seed": 1}
LAKE, LIST, ADA, LONG, QUOTES = PAGES


@pytest.fixture(autouse=True)
def small_web(monkeypatch):
    made = []

    def pages(corpus):
        made.append(dict(corpus))
        return PAGES

    monkeypatch.setattr("envs.gaia.world.pages", pages)
    monkeypatch.setattr(search, "_indexes", type(search._indexes)())
    return made


def urls(query, limit=5):
    return [url for url, _, _ in Index(PAGES).search(query, limit)]


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("Lake Orrin", LAKE),
        ("lake orrin depth", LAKE),
        ("list of lakes", LIST),
        ("Who is the keeper? Ada Brandt", ADA),
        ("needle", LONG),
        ("zurich office", ADA),
        ("ZÜRICH", ADA),
        ("keeping lakes", ADA),
    ],
)
def test_the_best_page_comes_first(query, first):
    assert urls(query)[0] == first


def test_every_title_in_the_query_is_found():
    assert urls("Compare Ada Brandt and Lake Orrin", limit=2) == [ADA, LAKE]


def test_fewer_words_match_when_all_do_not():
    assert LAKE in urls("orrin bananas")
    assert urls("bananas") == [] and urls("") == [] and urls("?!") == []


async def test_results_are_lines_of_url_title_snippet(tmp_path):
    async with served(tmp_path, public={"corpus": CORPUS}) as session:
        lines = (await session.ok("search", query="lake orrin")).splitlines()
        assert lines[0] == f"{LAKE} | Lake Orrin | Lake Orrin is deep. Depth: 214 metres Keeper: Ada Brandt"
        assert len((await session.ok("search", query="lake", limit=1)).splitlines()) == 1
        assert "No page matches" in await session.ok("search", query="bananas")
        (hit,) = (await session.ok("search", query="needle 4711")).splitlines()
        assert "The needle is 4711." in hit and len(hit) < 260 and hit.count("…") == 2


async def test_pages_are_read_in_pieces(tmp_path):
    async with served(tmp_path, public={"corpus": CORPUS}) as session:
        assert await session.ok("open_page", url=LAKE) == f"Lake Orrin\n\n{PAGES[LAKE].text}"
        pages = [await session.ok("open_page", url=LONG, page=i) for i in range(1, 5)]
        assert pages[0].startswith("A long page\n\n") and pages[0].endswith("[page 1 of 4; next: page=2]")
        assert sum("needle is 4711" in page for page in pages) == 1
        assert "from 1 to 4" in await session.refused("open_page", url=LONG, page=5)
        text = await session.refused("open_page", url=LAKE + "x")
        assert f"Did you mean '{LAKE}'" in text


async def test_places_in_a_page(tmp_path):
    async with served(tmp_path, public={"corpus": CORPUS}) as session:
        assert "The needle is 4711." in await session.ok("find_in_page", url=LONG, text="NEEDLE")
        many = await session.ok("find_in_page", url=LONG, text="interest")
        assert many.startswith("200 found\n") and len(many.splitlines()) == search.MAX_FOUND + 1
        assert "does not occur" in await session.ok("find_in_page", url=LONG, text="haystack")
        assert "[" not in await session.ok("find_in_page", url=QUOTES, text="y*")
        assert "there is no page" in await session.refused("find_in_page", url="nope", text="x")


async def test_without_a_corpus_there_is_nothing_to_search(tmp_path):
    async with served(tmp_path) as session:
        for name, arguments in (
            ("search", {"query": "x"}),
            ("open_page", {"url": "x"}),
            ("find_in_page", {"url": "x", "text": "y"}),
        ):
            assert "no pages to search" in await session.refused(name, **arguments)


async def test_an_index_is_built_once_for_a_corpus(tmp_path, small_web):
    for seed in (1, 2, 1, 1):
        async with served(tmp_path, public={"corpus": {"seed": seed, "world": "test"}}) as session:
            await session.ok("search", query="lake")
    assert [made["seed"] for made in small_web] == [1, 2]


def test_old_indexes_are_let_go():
    for seed in range(search.KEPT_INDEXES + 3):
        search.index_of({"world": "test", "seed": seed})
    assert len(search._indexes) == search.KEPT_INDEXES


def test_threads_share_an_index():
    index = Index(PAGES)
    alone = [index.search(q, 5) for q in ("lake orrin", "ada", "nothing of interest", "needle")] * 25
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        found = list(
            pool.map(lambda q: index.search(q, 5), ["lake orrin", "ada", "nothing of interest", "needle"] * 25)
        )
    assert found == alone


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_makes_its_own(small_web):
    search.index_of(CORPUS).search("lake", 5)
    pid = os.fork()
    if pid == 0:
        ok = False
        try:
            ok = search.index_of(CORPUS).search("lake orrin", 1)[0][0] == LAKE and len(small_web) == 2
        finally:  # a child that went on would run all the tests that follow, beside this process
            os._exit(0 if ok else 1)
    assert waits.for_child(pid) == 0


@pytest.mark.parametrize(
    "query",
    [
        "a" * 1_000_000,
        "a " * 300_000,
        '"' * 100_000,
        "NEAR(" * 10_000,
        "(lake OR deep) AND " * 10_000,
        "title: " * 10_000,
    ],
    ids=["a long word", "many words", "quotes", "near", "boolean", "columns"],
)
async def test_queries_made_to_hurt_do_not(tmp_path, query):
    async with served(tmp_path, public={"corpus": CORPUS}) as session:
        await session.ok("search", query="lake")
        start = time.process_time()
        assert len(await session.ok("search", query=query, limit=20)) < 5000
        assert "does not occur" in await session.ok("find_in_page", url=LAKE, text=query)
        text = await session.refused("open_page", url=query)
        assert len(text) < 300
        assert time.process_time() - start < 0.5


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=60), st.integers(1, 20))
def test_any_query_is_only_words(query, limit):
    hits = Index({url: PAGES[url] for url in (LAKE, QUOTES)}).search(query, limit)
    assert len({url for url, _, _ in hits}) == len(hits) <= limit


@pytest.mark.parametrize(
    "query", ['"', "a OR", "NEAR(", "title:x", "*", "x^2", "lake AND NOT", "{lake}", "-lake", "'; drop table pages;--"]
)
def test_the_query_language_of_the_index_is_not_reachable(query):
    index = Index(PAGES)
    assert index.search(query, 5) == index.search(" ".join(re.findall("[a-z0-9]+", query.lower())), 5)


def test_a_large_web_is_quick():
    pages = {
        f"https://w.example/{i}": Page(f"Entity number {i}", f"Entity {i} has value {i * 7}. {FILLER * 2}")
        for i in range(4000)
    }
    start = time.process_time()
    index = Index(pages)
    built = time.process_time() - start
    start = time.process_time()
    for i in range(50):
        assert index.search(f"Entity number {i * 70}", 5)[0][0] == f"https://w.example/{i * 70}"
    assert built < 3 and (time.process_time() - start) / 50 < 0.05


async def test_the_real_world_is_searched(tmp_path, monkeypatch):
    monkeypatch.undo()
    from envs.gaia import world
    from envs.gaia.splits import world_seeds

    corpus = {"world": "shifted", "seed": world_seeds("train")[0]}
    pages = world.pages(corpus)
    wanted = [url for url in pages if "-by-" not in url][:5]
    async with served(tmp_path, public={"corpus": corpus}) as session:
        for url in wanted:
            assert (await session.ok("search", query=pages[url].title)).startswith(f"{url} | {pages[url].title} | ")
            assert (await session.ok("open_page", url=url)).startswith(pages[url].title)
