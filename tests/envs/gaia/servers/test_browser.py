"""A real Chromium on local pages: what it shows, what it can do, and that it reaches public addresses only."""

import asyncio
import importlib.util

import pytest
from hosts import host_here, session_at
from hypothesis import given
from hypothesis import strategies as st
from web_stand_in import Answer, StandIn, session_with

from aworld_gym.errors import ConfigError
from aworld_gym.toolchain import loop
from aworld_gym.types import EpisodeContext
from envs.gaia.servers import browser, catalog
from envs.gaia.servers.addresses import Guard
from envs.gaia.servers.browser import SERVER
from envs.gaia.servers.proxy import GuardedProxy
from envs.gaia.servers.settings import Settings

HERE = browser.executable(Settings({})) is not None and importlib.util.find_spec("playwright") is not None
needs_browser = pytest.mark.skipif(not HERE, reason="no Chromium (or no playwright) on this machine")

FORM = """<title>Ferries</title><h1>Ferries</h1><a href="/times">Times</a>
<form action="/found"><label for="q">From</label><input id="q" name="q"><input type="password" name="p" value="hidden">
<select name="day"><option>Monday</option><option>Sunday</option></select><button>Find</button></form>
<p id="made"></p><a href="/new" target="_blank">New window</a><a style="display:none" href="/no">Unseen</a>
<script>document.getElementById('made').innerText = 'made by a ' + 'script'</script>"""


def site(request):
    if request.path == "/found":
        return Answer(f"<title>Found</title><p>{request.query['q']} on {request.query['day']}</p>")
    if request.path == "/times":
        rows = "".join(f"<p>Ferry number {n} leaves the northern pier.</p>" for n in range(300))
        return Answer(f"<title>Times</title>{rows}")
    if request.path == "/many":
        return Answer("".join(f"<a href='/{n}'>Link {n}</a><br>" for n in range(70)))
    if request.path == "/busy":
        return Answer("<script>while (true) {}</script>")
    if request.path == "/new":
        return Answer("<title>New</title>The new window")
    if request.path == "/thief":
        return Answer(f"<p id=x>nothing</p><script>fetch('{request.query['of']}').then(r => r.text(), () => 'refused')"
                      ".then(t => document.getElementById('x').innerText = 'got: ' + t)</script>")  # fmt: skip
    return Answer(FORM)


def numbered(view, text):
    """The number of the element whose line holds the text."""
    return int(next(line for line in view.splitlines() if line.startswith("[") and text in line)[1:].split("]")[0])


@needs_browser
async def test_a_page_with_a_form_and_scripts(tmp_path):
    with StandIn(site) as stand_in:
        async with session_with(SERVER, tmp_path, WEB_ALLOW_HOSTS=stand_in.host) as session:
            view = await session.ok("browser_open", url=stand_in.url)
            assert view.startswith(f"{stand_in.url}/ | Ferries") and "made by a script" in view
            assert "link 'Times'" in view and "Unseen" not in view and "hidden" not in view
            await session.ok("browser_type", element=numbered(view, "select"), text="Sunday")
            found = await session.ok(
                "browser_type", element=numbered(view, "text 'From'"), text="Oban & Co", submit=True
            )
            assert "Found" in found and "Oban & Co on Sunday" in found
            again = await session.ok("browser_back")
            times = await session.ok("browser_click", element=numbered(again, "'Times'"))
            assert "characters in all: browser_read]" in times and len(times) < 2200
            text = await session.ok("browser_read", page=2)
            assert "Ferry number 299" in await session.ok("browser_read", page=4) and "[page 2 of 4; next" in text
            picture = await session("browser_screenshot")
            assert picture.images[0].startswith(b"\x89PNG") and picture.text == f"{stand_in.url}/times"
            await session.ok("browser_back")
            new = await session.ok(
                "browser_click", element=numbered(await session.ok("browser_elements"), "New window")
            )
            assert "The new window" in new
            assert "Ferries" in await session.ok("browser_back")  # closes it
            many = await session.ok("browser_open", url=f"{stand_in.url}/many")
            assert "[40 more: browser_elements]" in many
            assert "[70] link 'Link 69'" in await session.ok("browser_elements", start=61)
            assert "there is no element 99" in await session.refused("browser_click", element=99)
            assert "there are 70 elements" in await session.refused("browser_elements", start=200)


@needs_browser
async def test_private_addresses_cannot_be_reached_by_any_way(tmp_path):
    with (
        StandIn(site) as allowed,
        StandIn(lambda r: Answer("secret", headers={"Access-Control-Allow-Origin": "*"})) as private,
    ):
        async with session_with(SERVER, tmp_path, WEB_ALLOW_HOSTS=allowed.host) as session:
            for url in (private.url, f"http://localhost:{private.port}/", "file:///etc/passwd", "chrome://version"):
                told = await session.refused("browser_open", url=url)
                assert "private address" in told or "only http" in told
            for host in ("127.1", "2130706433", "127.0.0.1.", "[::ffff:127.0.0.1]"):
                await session.refused("browser_open", url=f"http://{host}:{private.port}/")
            for other in (private.url, f"http://localhost:{private.port}/"):
                view = await session.ok("browser_open", url=f"{allowed.url}/thief?of={other}")
                assert "secret" not in view and ("got: refused" in view or "got: " in view)
    assert private.requests == []


@needs_browser
async def test_a_page_that_never_rests_ends_at_the_deadline(tmp_path, monkeypatch):
    monkeypatch.setattr(browser, "ACTION_S", 3.0)
    with StandIn(site) as stand_in:
        async with session_with(SERVER, tmp_path, WEB_ALLOW_HOSTS=stand_in.host) as session:
            await session.refused("browser_open", url=f"{stand_in.url}/busy")


KEPT = """<title>Kept</title><p id=kept></p><script>
const open = indexedDB.databases().then(all => all.map(one => one.name).join());
const caught = caches.keys().then(all => all.join());
Promise.all([open, caught]).then(found => {
  const kept = [document.cookie, localStorage.getItem('mine'), sessionStorage.getItem('mine'), name, history.length];
  document.getElementById('kept').innerText = 'kept: ' + JSON.stringify([...kept, ...found]);
});
</script>"""
MINE = """<title>Mine</title><p id=done></p><script>
document.cookie = 'script=mine; max-age=3600';
localStorage.setItem('mine', 'mine'); sessionStorage.setItem('mine', 'mine'); name = 'mine';
indexedDB.open('mine'); caches.open('mine').then(() => document.getElementById('done').innerText = 'all is kept');
</script>"""


@needs_browser
@pytest.mark.slow
def test_two_sessions_of_a_host_share_nothing_of_their_browsers():
    """Cookies, storage, databases, caches, history, windows: one session keeps something in each, others look."""

    def pages(request):
        if request.path == "/mine":
            return Answer(MINE, headers={"Set-Cookie": "server=mine; Max-Age=3600; HttpOnly"})
        if request.path == "/cached":
            return Answer(f"<p>copy {len(seen(request.path))}</p>", headers={"Cache-Control": "max-age=3600"})
        return Answer(KEPT)

    def seen(path):
        return [request for request in stand_in.requests if request.path == path]

    async def play(running):
        async def does(session, tool, **arguments):
            result = await session.call("c", tool, arguments)
            assert result.error is None, result
            return result.text

        async def kept(session):
            await does(session, "browser_open", url=f"{stand_in.url}/look")
            text = await does(session, "browser_read")
            return seen("/look")[-1].headers.get("cookie", ""), text[text.index("kept: ") :]

        limits = {"call_timeout_s": 60.0, "open_timeout_s": 60.0}
        async with session_at(running, **limits) as one, session_at(running, **limits) as other:
            await does(one, "browser_open", url=f"{stand_in.url}/cached")
            await does(one, "browser_open", url=f"{stand_in.url}/mine")
            assert "all is kept" in await does(one, "browser_read")
            mine, theirs = await kept(one), await kept(other)
            assert "server=mine" in mine[0] and "script=mine" in mine[0]
            assert mine[1].startswith('kept: ["script=mine","mine","mine","mine",') and mine[1].count("mine") == 6
            assert theirs == ("", 'kept: ["",null,null,"",2,"",""]')  # the empty page, and this one
            result = await other.call("c", "browser_back", {})  # its own first page was that one
            assert stand_in.url + "/mine" not in result.text and "/cached" not in result.text
            assert "copy 2" in await does(other, "browser_open", url=f"{stand_in.url}/cached")  # it has no copy of it
        async with session_at(running, **limits) as third:  # nor is anything left for those who come later
            assert await kept(third) == theirs

    with StandIn(pages) as stand_in:
        server = catalog.config(["browser"])["browser"]
        server["env"] = {**server.get("env", {}), "WEB_ALLOW_HOSTS": stand_in.host}
        with host_here({"browser": {"mcpServers": {"browser": server}}}, open_timeout_s=60.0) as running:
            loop.run(play(running), timeout=120)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"BROWSER_EXECUTABLE": "/no/such/chromium"},
            "BROWSER_EXECUTABLE names '/no/such/chromium', which cannot be run",
        ),
        ({}, "there is no Chromium on this machine. pip install 'aworld-gym\\[browser\\]', and have a Chromium"),
    ],
)
def test_what_is_missing_is_named(settings, message, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path))
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: True if name == "playwright" else real(name))
    with pytest.raises(ConfigError, match=message):
        SERVER.make_server(EpisodeContext(tmp_path, {}), settings=Settings(settings))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="the package 'playwright' is not installed"):
        SERVER.make_server(EpisodeContext(tmp_path, {}), settings=Settings(settings))


# ---- the proxy ---------------------------------------------------------------------------------------------


async def through_proxy(guard, *sent: bytes) -> bytes:
    proxy = GuardedProxy(guard)
    address = await proxy.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", int(address.rsplit(":", 1)[1]))
    got = b""
    try:
        for part in sent:
            writer.write(part)
        async with asyncio.timeout(5):
            got = await reader.read(-1)
    finally:
        writer.close()
        await proxy.aclose()
    return got


async def test_the_proxy_forwards_requests_and_tunnels():
    with StandIn(lambda request: Answer(f"{request.path} {request.headers.get('proxy-secret')}")) as stand_in:
        guard = Guard([stand_in.host])
        request = f"GET {stand_in.url}/a?b=1 HTTP/1.1\r\nHost: {stand_in.host}\r\nProxy-Secret: x\r\n\r\n".encode()
        assert (await through_proxy(guard, request)).endswith(b"/a None")
        tunnel = f"CONNECT {stand_in.host} HTTP/1.1\r\n\r\n".encode()
        inner = f"GET /inner HTTP/1.1\r\nHost: {stand_in.host}\r\n\r\n".encode()
        assert (await through_proxy(guard, tunnel, inner)).endswith(b"/inner None")


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"GET http://127.0.0.1:1/ HTTP/1.1", b"403"),
        (b"CONNECT localhost:22 HTTP/1.1", b"403"),
        (b"CONNECT [::1]:22 HTTP/1.1", b"403"),
        (b"CONNECT 2130706433:22 HTTP/1.1", b"403"),
        (b"GET https://example.org/ HTTP/1.1", b"400"),
        (b"GET /etc/passwd HTTP/1.1", b"400"),
        (b"GET file:///etc/passwd HTTP/1.1", b"400"),
        (b"CONNECT example.org:port HTTP/1.1", b"400"),
        (b"nonsense", b"400"),
        (b"\xff\xfe \x00 x", b"400"),
    ],
)
async def test_the_proxy_refuses(request_line, status):
    assert (await through_proxy(Guard(), request_line + b"\r\n\r\n")).split(b" ")[1] == status


async def test_the_proxy_says_where_nobody_answers():
    with StandIn(lambda request: Answer()) as stand_in:
        gone = stand_in.host
    assert b" 502 " in await through_proxy(Guard([gone]), f"CONNECT {gone} HTTP/1.1\r\n\r\n".encode())


@given(st.binary(max_size=200).filter(lambda data: b"\r\n\r\n" not in data))
def test_the_proxy_survives_anything(data):
    async def one():
        return await through_proxy(Guard(), data + b"\r\n\r\n")

    assert asyncio.run(one()).startswith(b"HTTP/1.1 4")
