"""Reading pages: fetched and reduced to their text, or through a stand-in for Jina's reader."""

import asyncio
import threading
import time
import tracemalloc
import zlib

import httpx
import pytest
from web_stand_in import Answer, StandIn, session_with

from envs.gaia.servers import reading
from envs.gaia.servers.reader import SERVER
from envs.gaia.servers.web import Reply
from envs.gaia.tools.base import ToolFault

SENTENCE = "The river rises in the hills, turns north at the mill, and joins the lake near the old bridge. "
PAGE = f"""<!doctype html><html><head><title>The Grey River</title><style>p {{color: red}}</style></head><body>
<nav><a href="/">Home</a> <a href="/all">All rivers of the site</a></nav>
<article><h1>The Grey River</h1>{"".join(f"<p>Part {n}. {SENTENCE * 4}</p>" for n in range(1, 21))}
<table><tr><th>Year</th><th>Flow</th></tr><tr><td>1999</td><td>12.5</td></tr></table></article>
<footer>Imprint and cookies</footer><script>alert("x")</script></body></html>"""


def reading_session(stand_in, tmp_path, **settings):
    return session_with(SERVER, tmp_path, WEB_ALLOW_HOSTS=stand_in.host, **settings)


async def test_the_main_part_of_a_page_in_pages(tmp_path):
    with StandIn(lambda request: Answer(PAGE)) as stand_in:
        async with reading_session(stand_in, tmp_path) as session:
            first = await session.ok("read_url", url=f"{stand_in.url}/river")
            second = await session.ok("read_url", url=f"{stand_in.url}/river", page=2)
            whole = await session.ok("read_url", url=f"{stand_in.url}/river", whole=True)
            beyond = await session.refused("read_url", url=f"{stand_in.url}/river", page=99)
    assert first.startswith("The Grey River") and "Part 1. The river rises" in first and len(first) < 4200
    assert "[page 1 of 2; next: page=2]" in first and "[page 2 of 2" in second
    assert "Imprint" not in first and "alert" not in whole and "All rivers of the site" in whole
    assert "pages run from 1 to 2" in beyond
    assert len(stand_in.requests) == 2  # one for the main part, one for all of it


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (Answer("plain words", kind="text/plain"), "plain words"),
        (Answer({"a": 1}), '{"a": 1}'),
        (Answer("<p>Zürich</p>".encode("latin-1"), kind="text/html; charset=iso-8859-1"), "Zürich"),
        (Answer("<html><body><p>Short.</p></body></html>"), "Short."),
        (Answer("a word <!["), "a word"),
        (Answer("<p>a\0b \x08 word"), "word"),
        (Answer('<?xml version="1.0" encoding="utf-8"?><html><body><p>as XML</p></body></html>'), "as XML"),
        (Answer("<p>unclosed <b>tags <table><tr><td>1<td>2"), "unclosed tags"),
    ],
)
async def test_kinds_of_text(answer, expected, tmp_path):
    with StandIn(lambda request: answer) as stand_in:
        async with reading_session(stand_in, tmp_path) as session:
            assert expected in await session.ok("read_url", url=stand_in.url)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (Answer(b"%PDF-1.7", kind="application/pdf"), "is application/pdf, no page; download it"),
        (Answer("gone", 404), "answered HTTP 404"),
        (Answer("<html><script>draw()</script></html>"), "no text that can be read without running its scripts"),
        (Answer(b"x" * 70000, endless=True, kind="image/png"), "is image/png"),
    ],
)
async def test_what_is_no_page(answer, message, tmp_path):
    with StandIn(lambda request: answer) as stand_in:
        async with reading_session(stand_in, tmp_path) as session:
            assert message in await session.refused("read_url", url=stand_in.url)


@pytest.mark.parametrize("page", ["<!--" * 200_000, "<a " * 300_000, "<p>" * 400_000, "<?" * 400_000])
async def test_a_page_that_is_made_to_take_long_is_given_up(page, tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "PARSE_CPU_S", 0.3)
    with StandIn(lambda request: Answer(page)) as stand_in:
        async with reading_session(stand_in, tmp_path) as session:
            assert "takes too long to be read" in await session.refused("read_url", url=stand_in.url)


async def test_a_page_that_is_stuck_in_c_code_is_given_up(monkeypatch):
    """Nothing ends that: libxml2 takes minutes over an element of a hundred thousand attributes."""
    monkeypatch.setattr(reading, "PARSE_WALL_S", 0.2)
    ended = threading.Event()

    def stuck():
        try:
            time.sleep(1.0)
        finally:
            ended.set()

    with pytest.raises(ToolFault, match="takes too long to be read"):
        await reading.parsed(stuck)
    assert not ended.is_set()
    assert await asyncio.to_thread(ended.wait, 30)


BOMB = zlib.compress(bytes(64 << 20), 9)


@pytest.mark.parametrize(
    ("charset", "body", "expected"),
    [
        ("utf-16", "<p>Zürich</p>".encode("utf-16-le"), "Zürich"),  # the order that is usual, but without its mark
        ("utf-16", "<p>Zürich</p>".encode("utf-16"), "Zürich"),
        ("gb18030", "<p>苏黎世</p>".encode("gb18030"), "苏黎世"),
        ("utf-8", b"<p>Z\xfcrich</p>", "Z�rich"),
        *((name, "<p>Zürich</p>".encode(), "Zürich") for name in ("", "nonsense", "a%00b", "x" * 3000)),
        *((name, "<p>Zürich</p>".encode(), "Zürich") for name in ("base64", "hex", "rot13", "uu", "zlib", "bz2")),
        *((name, "<p>Zürich</p>".encode(), "Zürich") for name in ("idna", "punycode", "undefined", "unicode_escape")),
        ("punycode", b"a-b&#" * 200_000, "a-b&#"),  # in a square of the time
        ("zlib", BOMB, ""),
    ],
    ids=lambda value: str(value)[:12],
)
def test_pages_in_any_encoding_that_is_declared(charset, body, expected):
    """What a server says may be wrong, or be made to fill the memory; it is never more than the bytes that came."""
    tracemalloc.start()
    try:
        reply = Reply(
            "https://example.org", 200, httpx.Headers({"content-type": f"text/html; charset={charset}"}), body
        )
        assert expected in reply.text
        assert tracemalloc.get_traced_memory()[1] < 20 * len(body) + (1 << 20)
    finally:
        tracemalloc.stop()


async def test_private_addresses_are_refused_by_default(tmp_path):
    with StandIn(lambda request: Answer(PAGE)) as stand_in:
        for settings in ({}, {"JINA_API_KEY": "jina-key-1", "JINA_READER_BASE_URL": stand_in.url}):
            async with session_with(SERVER, tmp_path, **settings) as session:
                assert "private address" in await session.refused("read_url", url=f"{stand_in.url}/x")
                assert "only http" in await session.refused("read_url", url="file:///etc/passwd")
    assert stand_in.requests == []


def jina(request):
    assert request.headers["authorization"] == "Bearer jina-key-1" and request.headers["accept"] == "application/json"
    if "private" in request.path:
        return Answer({"data": None, "code": 451, "name": "SecurityCompromiseError", "status": 45102,
                       "readableMessage": "SecurityCompromiseError: blocked"}, 451)  # fmt: skip
    if "odd" in request.path:
        return Answer({"code": 200, "status": 20000, "data": {"title": "no content"}})
    return Answer({"code": 200, "status": 20000, "data": {
        "title": "Example", "description": "", "url": request.path[1:], "content": f"# Read\n{request.path}",
        "usage": {"tokens": 12}}})  # fmt: skip


async def test_with_a_key_pages_are_read_by_jina(tmp_path):
    with StandIn(jina) as stand_in:
        keys = {"JINA_API_KEY": "jina-key-1", "JINA_READER_BASE_URL": stand_in.url}
        async with session_with(SERVER, tmp_path, **keys) as session:
            text = await session.ok("read_url", url="https://example.org/a?b=c")
            blocked = await session.refused("read_url", url="https://example.org/private")
            odd = await session.refused("read_url", url="https://example.org/odd")
    assert text == "Example\n\n# Read\n/https://example.org/a"
    assert stand_in.requests[0].query == {"b": "c"}
    assert "HTTP 451): SecurityCompromiseError: blocked" in blocked and "unexpected form" in odd
