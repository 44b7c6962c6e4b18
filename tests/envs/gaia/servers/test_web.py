"""HTTP with every fault a service can have: what the model is told, how long it takes, what is never said."""

import asyncio
import gzip
import time

import pytest
from web_stand_in import Answer, StandIn

from envs.gaia.servers import web
from envs.gaia.servers.addresses import Guard
from envs.gaia.servers.web import Api, read
from envs.gaia.tools.base import ToolFault

KEY = "sk-very-secret-17"


def api(stand_in, **more):
    headers = {"Authorization": f"Bearer {KEY}"}
    return Api("Example", stand_in.url, headers=headers, key="EXAMPLE_API_KEY", **{"timeout_s": 3.0, **more})


async def fault(coroutine):
    with pytest.raises(ToolFault) as caught:
        await coroutine
    assert KEY not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("answer", "message", "requests"),
    [
        (Answer({"error": f"bad key {KEY}"}, 401), "refused access (HTTP 401): EXAMPLE_API_KEY may be wrong", 1),
        (Answer("no", 403), "refused access (HTTP 403)", 1),
        (Answer({"detail": "query is too long"}, 422), "refused the request (HTTP 422): query is too long", 1),
        (Answer({"error": {"message": "bad cx"}}, 400), "refused the request (HTTP 400): bad cx", 1),
        (Answer("<h1>gone</h1>", 404), "refused the request (HTTP 404)", 1),
        (Answer("", 429, headers={"Retry-After": "0"}), "limiting requests (HTTP 429); try again in 0 s", 3),
        (Answer("", 429, headers={"Retry-After": "3600"}), "try again in 3600 s", 1),
        (Answer("", 429, headers={"Retry-After": "nan"}), "try again later", 3),
        (Answer("", 500), "failure of its own (HTTP 500)", 3),
        (Answer("", 503, headers={"Retry-After": "900"}), "failure of its own (HTTP 503)", 1),
        (Answer("", 302, headers={"Location": "http://127.0.0.1:9/steal"}), "redirects elsewhere (HTTP 302)", 1),
        (Answer("<html>a captcha</html>"), "not JSON (text/html)", 1),
        (Answer(b'{"cut": ', kind="application/json"), "not JSON (application/json)", 1),
        (Answer(b"[" * 200_000, kind="application/json"), "not JSON", 1),
        (Answer(b"\xff\xfe{}", kind="application/json"), "not JSON", 1),
        (Answer(b"x" * 65536, endless=True), "more than 4 MB", 1),
        (Answer(b"{}", headers={"Content-Encoding": "gzip"}), "cannot be reached (DecodingError)", 1),
        (Answer(b"{}", headers={"Content-Encoding": "gzip, gzip"}), "cannot be reached (DecodingError)", 1),
    ],
)
async def test_what_a_service_can_do_wrong(answer, message, requests):
    with StandIn(lambda request: answer) as stand_in:
        told = await fault(api(stand_in).json("GET", "/x"))
    assert message in told and stand_in.host not in told
    assert len(stand_in.requests) == requests


async def test_a_service_that_recovers_is_asked_again():
    replies = iter([Answer("", 429, headers={"Retry-After": "0"}), Answer("", 502), Answer({"ok": 1})])
    with StandIn(lambda request: next(replies)) as stand_in:
        assert await api(stand_in).json("GET", "/x") == {"ok": 1}


async def test_what_must_not_be_repeated_is_not():
    with StandIn(lambda request: Answer("", 503)) as stand_in:
        await fault(api(stand_in, repeats=0).json("POST", "/x", json={}))
    assert len(stand_in.requests) == 1


@pytest.mark.parametrize("slow", [Answer({}, delay_s=20.0), Answer({"a": "b" * 200}, drip_s=0.1)])
async def test_slow_answers_end_at_the_deadline(slow):
    with StandIn(lambda request: slow) as stand_in:
        start = time.monotonic()
        assert "did not answer within 0.4 s" in await fault(api(stand_in, timeout_s=0.4).json("GET"))
        assert time.monotonic() - start < 10


async def test_a_waiting_time_beyond_the_deadline_is_not_waited():
    with StandIn(lambda request: Answer("", 429, headers={"Retry-After": "20"})) as stand_in:
        start = time.monotonic()
        assert "try again in 20 s" in await fault(api(stand_in, timeout_s=15.0).json("GET"))
        assert time.monotonic() - start < 10


async def test_nobody_there():
    with StandIn(lambda request: Answer()) as stand_in:
        gone = api(stand_in)
    assert "cannot be reached (ConnectError)" in await fault(gone.json("GET"))


async def test_keys_go_to_the_service_and_stay_out_of_addresses():
    with StandIn(lambda request: Answer({})) as stand_in:
        await api(stand_in).json("GET", "/x", params={"q": "a b"})
    (request,) = stand_in.requests
    assert request.headers["authorization"] == f"Bearer {KEY}" and request.query == {"q": "a b"}
    assert request.headers["user-agent"].startswith("aworld-gym/")


def allowing(*stand_ins):
    return Guard(s.host for s in stand_ins)


async def test_pages_follow_redirects_that_stay_allowed():
    def answer(request):
        return Answer("the page") if request.path == "/c" else Answer("", 302, headers={"Location": "c?x=1"})

    with StandIn(answer) as stand_in:
        reply = await read(f"{stand_in.url}/a", allowing(stand_in))
    assert reply.text == "the page" and reply.url == f"{stand_in.url}/c?x=1" and not reply.cut


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("/again", "redirects more than 5 times"),
        ("http://127.0.0.1:1/", "private address"),
        ("http://169.254.169.254/latest/meta-data", "private address"),
        ("http://[::1]/", "private address"),
        ("file:///etc/passwd", "only http and https"),
        ("gopher://127.0.0.1/", "only http and https"),
        ("http://user:pw@example.org/", "must not hold a user name"),
        ("http://[bad", "cannot be found"),
    ],
)
async def test_redirects_are_checked_at_every_step(location, message):
    with StandIn(lambda request: Answer("", 301, headers={"Location": location})) as stand_in:
        assert message in await fault(read(f"{stand_in.url}/a", allowing(stand_in), timeout_s=5.0))
    assert 1 <= len(stand_in.requests) <= 6


async def test_a_page_that_does_not_end_is_cut():
    with StandIn(lambda request: Answer(b"abc " * 20000, endless=True)) as stand_in:
        reply = await read(stand_in.url, allowing(stand_in), limit=100_000)
    assert reply.cut and len(reply.body) == 100_000


async def test_a_compressed_page_is_bounded_after_unpacking():
    bomb = gzip.compress(b"0" * 30_000_000)
    answer = Answer(bomb, headers={"Content-Encoding": "gzip"}, kind="text/plain")
    with StandIn(lambda request: answer) as stand_in:
        reply = await read(stand_in.url, allowing(stand_in), limit=1_000_000)
    assert reply.cut and len(reply.body) == 1_000_000


async def test_private_pages_are_refused_before_anything_is_sent():
    with StandIn(lambda request: Answer("secret")) as stand_in:
        for host in ("127.0.0.1", "localhost", "127.1", "2130706433", "0x7f.0.0.1", "[::ffff:127.0.0.1]", "0.0.0.0"):
            assert "private address" in await fault(read(f"http://{host}:{stand_in.port}/", Guard()))
    assert stand_in.requests == []


async def test_pages_of_one_text_come_from_one_fetch_and_failures_are_not_kept():
    made = []

    async def make():
        made.append(1)
        if len(made) == 1:
            raise ToolFault("not yet")
        return "text"

    recent = web.Recent(size=2)
    with pytest.raises(ToolFault):
        await recent.get("a", make)
    assert await recent.get("a", make) == await recent.get("a", make) == "text" and len(made) == 2
    await asyncio.gather(recent.get("b", make), recent.get("c", make))
    await recent.get("a", make)
    assert len(made) == 5
