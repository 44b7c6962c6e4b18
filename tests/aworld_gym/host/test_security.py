"""Who may come in, how much is taken, and what is never said."""

import asyncio
import base64
import datetime
import hmac
import json
import logging
import time
from hashlib import sha256

import httpx2
import jwt
import pytest
from hosts import SECRET, host_here, session_at
from http_clients import each_http_client  # noqa: F401

from aworld_gym.errors import ConfigError, InfraError
from aworld_gym.host import HostSettings, credentials, logs, mint
from aworld_gym.toolchain import http, loop, schemes

NOW = int(time.time())
GOOD = {
    "iss": credentials.ISSUER,
    "aud": credentials.AUDIENCE,
    "sub": "s",
    "iat": NOW - 10,
    "nbf": NOW - 10,
    "exp": NOW + 3600,
    "scope": "basic",
}
OPENING = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}},
}
ACCEPT = {"accept": "application/json, text/event-stream"}


def part(value):
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def without(name):
    return jwt.encode({key: value for key, value in GOOD.items() if key != name}, SECRET, algorithm="HS256")


def signed(**changes):
    return jwt.encode(GOOD | changes, SECRET, algorithm="HS256")


def tampered():
    head, body, signature = signed(scope="other").split(".")
    return f"{head}.{part(GOOD)}.{signature}"


def by_hand(head):
    """A token whose header says something else than how it is signed."""
    text = f"{part(head)}.{part(GOOD)}"
    signature = base64.urlsafe_b64encode(hmac.new(SECRET.encode(), text.encode(), sha256).digest()).rstrip(b"=")
    return f"{text}.{signature.decode()}"


BAD = {
    "none": (None, 401, "no token"),
    "empty": ("Bearer", 401, "not of the form"),
    "basic": (f"Basic {signed()}", 401, "not of the form"),
    "garbage": ("Bearer garbage-garbage", 401, "not a JSON Web Token"),
    "odd bytes": (b"Bearer \xff\xfe.\xfa.\x80", 401, "not a JSON Web Token"),
    "huge": (f"Bearer {'a' * 5000}", 401, "too long"),
    "wrong signature": ("Bearer " + jwt.encode(GOOD, "x" * 40, algorithm="HS256"), 401, "not signed with this"),
    "tampered": (f"Bearer {tampered()}", 401, "not signed with this"),
    "alg none": (f"Bearer {part({'alg': 'none', 'typ': 'JWT'})}.{part(GOOD)}.", 401, "algorithm"),
    "alg HS512": ("Bearer " + jwt.encode(GOOD, SECRET + "x" * 40, algorithm="HS512"), 401, "algorithm"),
    "alg RS256": (f"Bearer {by_hand({'alg': 'RS256', 'typ': 'JWT'})}", 401, "algorithm"),
    "other audience": (f"Bearer {signed(aud='somebody')}", 401, "audience"),
    "other issuer": (f"Bearer {signed(iss='somebody')}", 401, "issuer"),
    "expired": (f"Bearer {signed(exp=NOW - 3600)}", 401, "expired"),
    "not yet valid": (f"Bearer {signed(nbf=NOW + 3600)}", 401, "not valid yet"),
    "issued in the future": (f"Bearer {signed(iat=NOW + 3600)}", 401, "not valid yet"),
    "no expiry": (f"Bearer {without('exp')}", 401, "lacks a claim"),
    "no audience": (f"Bearer {without('aud')}", 401, "lacks a claim"),
    "no scope": (f"Bearer {without('scope')}", 401, "lacks a claim"),
    "empty scope": (f"Bearer {signed(scope=' ')}", 401, "no scope"),
    "scope is a list": (f"Bearer {signed(scope=['basic'])}", 401, "no scope"),
    "wrong scope": (f"Bearer {signed(scope='basics other')}", 403, "not for this toolchain"),
}


@pytest.fixture(scope="module")
def running():
    with host_here(allowed_hosts=("tools.example",), allowed_origins=("https://ok.example",)) as running:
        yield running


@pytest.mark.parametrize("kind", BAD)
def test_bad_tokens_are_refused_with_a_reason_and_never_logged(running, kind, caplog):
    header, status, reason = BAD[kind]
    caplog.set_level(logging.DEBUG)

    async def knock():
        async with httpx2.AsyncClient(base_url=running.address, headers=ACCEPT) as client:
            headers = {} if header is None else {"authorization": header}
            return await client.post("/mcp", json=OPENING, headers=headers)

    reply = loop.run(knock())
    assert reply.status_code == status and reason in reply.text
    assert reply.headers["www-authenticate"].startswith("Bearer")
    assert not len(running.host.sessions)
    shown = header if isinstance(header, str) else ""
    secret = shown.partition(" ")[2]
    for piece in (secret, *secret.split(".")):
        if len(piece) > 8:
            assert piece not in reply.text
            assert not any(piece in logs.JsonLines().format(record) for record in caplog.records)


@pytest.mark.parametrize("path", ["/mcp", "/workspace/x", "/other", "/mcp/", "//mcp", "/health/../mcp"])
def test_no_path_is_open_but_those_for_monitors(running, path):
    async def knock():
        async with httpx2.AsyncClient(base_url=running.address) as client:
            return [(await client.request(method, path)).status_code for method in ("GET", "PUT", "POST", "DELETE")]

    assert set(loop.run(knock())) == {401}


def test_the_client_shows_why_it_was_refused(running):
    async def knock(token):
        async with session_at(running, entry=running.entry() | {"token": token}):
            pass

    for token, reason in ((signed(exp=NOW - 99), "the token has expired"), (signed(scope="x"), "not for this")):
        began = time.monotonic()
        with pytest.raises(InfraError, match=reason) as caught:
            loop.run(knock(token))
        assert caught.value.kind == "host_refused" and token not in str(caught.value)
        assert time.monotonic() - began < 5  # it is not tried again


def test_a_secret_can_be_replaced_while_its_tokens_are_good():
    old, new = "o" * 32, "n" * 32
    secrets = credentials.find_secrets({credentials.SECRET_VAR: f"{new}, {old}"})
    assert secrets == (new, old)
    for secret in secrets:
        assert credentials.verify(secrets, f"Bearer {mint(secret, ['gaia'], 60, 'me')}").subject == "me"
    with pytest.raises(credentials.Refused, match="expired"):
        expired = jwt.encode(GOOD | {"exp": NOW - 99}, old, algorithm="HS256")
        credentials.verify(secrets, f"Bearer {expired}")
    with pytest.raises(ConfigError, match="at least 32"):
        credentials.find_secrets({credentials.SECRET_VAR: "short"})
    assert credentials.find_secrets({}) is None
    for scopes, ttl in (([], 60), (["a b"], 60), ([""], 60), (["a"], 0)):
        with pytest.raises(ConfigError):
            mint(new, scopes, ttl)


def test_a_token_that_was_good_is_not_when_it_has_expired(monkeypatch):
    check, header = credentials.Verifier([SECRET]), f"Bearer {signed(exp=NOW + 3600)}"
    assert check(header) is check(header)  # remembered
    monkeypatch.setattr(credentials, "_jwt", lambda: pytest.fail("its signature is checked again"))
    check(header)
    monkeypatch.undo()
    later = time.time() + 3700
    monkeypatch.setattr(credentials.time, "time", lambda: later)
    monkeypatch.setattr(jwt.api_jwt, "datetime", Later)
    with pytest.raises(credentials.Refused, match="expired"):
        check(header)


class Later(datetime.datetime):
    """What PyJWT takes for the time, an hour from now."""

    @classmethod
    def now(cls, tz=None):
        return datetime.datetime.fromtimestamp(NOW + 3700, tz)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:80", 200),
        ("localhost", 200),
        ("LOCALHOST:1234", 200),
        ("[::1]:80", 200),
        ("10.0.0.7", 200),
        ("tools.example:8000", 200),
        ("evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("localhost.evil.example:80", 421),
    ],
)
def test_names_that_could_be_rebound_are_refused(running, host, status):
    async def knock():
        async with httpx2.AsyncClient(base_url=running.address) as client:
            return await client.get("/health", headers={"host": host})

    assert loop.run(knock()).status_code == status


@pytest.mark.parametrize(
    ("origin", "status"),
    [(good, 401) for good in ("https://ok.example", "http://localhost:6274", "http://127.0.0.1", "http://[::1]:80")]
    + [(bad, 403) for bad in ("https://evil.example", "null", "http://localhost.evil.example", "http://[", "x")],
)
def test_scripts_of_pages_are_refused_but_for_those_allowed(running, origin, status):
    async def knock():
        async with httpx2.AsyncClient(base_url=running.address) as client:
            return await client.post("/mcp", json=OPENING, headers={"origin": origin})

    assert loop.run(knock()).status_code == status


def test_sizes_are_limited():
    async def fill(running):
        headers = ACCEPT | {"authorization": f"Bearer {running.token}"}
        async with httpx2.AsyncClient(base_url=running.address, headers=headers) as client:

            async def chunks():
                for _ in range(100):
                    yield b" " * 100

            for content in (b" " * 2001, chunks()):
                assert (await client.post("/mcp", content=content)).status_code == 413
            number = (await client.post("/mcp", json=OPENING)).headers["mcp-session-id"]
            headers = {"mcp-session-id": number}

            async def slowly(content):
                for k in range(10):
                    yield content[100 * k : 100 * k + 100]
                    await asyncio.sleep(0.02)

            async def put(name, content):
                return (await client.put(f"/workspace/{name}", content=content, headers=headers)).status_code

            assert await put("a", b"x" * 1001) == 413
            assert await put("a", chunks()) == 413
            assert await put("a", b"x" * 1000) == 204
            assert await put("b", b"x" * 501) == 413
            assert await put("b", b"x" * 500) == 204
            assert await put("c", b"x") == 413
            assert (await client.get("/workspace/c", headers=headers)).status_code == 404
            number = (await client.post("/mcp", json=OPENING)).headers["mcp-session-id"]
            headers = {"mcp-session-id": number}
            at_once = await asyncio.gather(*(put(name, slowly(b"x" * 1000)) for name in "abc"))
            assert sorted(at_once) == [204, 413, 413]

    with host_here(max_request_bytes=2000, max_file_bytes=1000, max_workspace_bytes=1500) as running:
        loop.run(fill(running))


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    """A certificate for 127.0.0.1, signed by itself."""
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    folder = tmp_path_factory.mktemp("tls")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tests")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return folder


def tls(folder):
    return {"ssl_certfile": folder / "cert.pem", "ssl_keyfile": folder / "key.pem"}


@pytest.mark.usefixtures("each_http_client")
@pytest.mark.parametrize(
    ("spoken", "meant", "words"),
    [("http", "https", "does not speak TLS; .* http://$"), ("https", "http", "speaks TLS")],
)
def test_an_address_with_the_wrong_scheme_is_told_at_once(certificate, spoken, meant, words):
    async def knock(running):
        url = running.url.replace(spoken, meant, 1)
        async with session_at(running, entry=running.entry() | {"url": url}, open_timeout_s=20.0):
            pass

    with host_here(**(tls(certificate) if spoken == "https" else {})) as running:
        began = time.monotonic()
        with pytest.raises(InfraError, match=words) as caught:
            loop.run(knock(running))
        assert caught.value.kind == "server_protocol" and time.monotonic() - began < 10
        assert f"{meant}://127.0.0.1:{running.port}/mcp " in str(caught.value)


@pytest.mark.parametrize("meant", ["http", "https"])
@pytest.mark.usefixtures("each_http_client")
def test_what_only_seems_to_have_the_wrong_scheme_is_tried_again(monkeypatch, meant):
    """A server that drops every connection, as one does that is about to stop."""
    monkeypatch.setattr(schemes, "ASK_TIMEOUT_S", 0.5)
    dropped = []

    async def drop(reader, writer):
        dropped.append(await reader.read(10))
        writer.close()

    async def knock():
        async with await asyncio.start_server(drop, "127.0.0.1", 0) as server:
            url = f"{meant}://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
            async with session_at(None, entry={"type": "aworld-host", "url": url}, open_timeout_s=2.5):
                pass

    with pytest.raises(InfraError) as caught:
        loop.run(knock())
    assert caught.value.kind in ("host_unreachable", "session_timeout")  # as the last attempt had time
    assert "tried for 2.5 s" in caught.value.__notes__ and len(dropped) > 2


@pytest.mark.usefixtures("each_http_client")
def test_tls(certificate, monkeypatch):
    async def play(running):
        async with session_at(running, open_timeout_s=4.0) as session:
            (session.workspace / "f").write_text("x")
            await session.deliver()
            return (await session.call("1", "echo", {"text": "hello"})).text

    with host_here(**tls(certificate)) as running:
        with pytest.raises(InfraError, match="not accepted .self-signed certificate.; .*SSL_CERT_FILE") as caught:
            loop.run(play(running))
        assert caught.value.kind == "server_protocol" and not hasattr(caught.value, "__notes__")  # not tried again
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "cert.pem"))
        http._ssl_context.cache_clear()
        try:
            assert loop.run(play(running)) == "hello"
        finally:
            http._ssl_context.cache_clear()


def test_settings_that_cannot_work_are_named(tmp_path):
    for changes, words in (
        ({"port": 70000}, "port"),
        ({"max_sessions": 0}, "max_sessions"),
        ({"idle_s": -1.0}, "idle_s"),
        ({"queue": -1}, "queue"),
        ({"ssl_certfile": tmp_path / "c"}, "both"),
        ({"ssl_certfile": tmp_path / "c", "ssl_keyfile": tmp_path / "k"}, "no file"),
    ):
        with pytest.raises(ConfigError, match=words):
            HostSettings(**changes)
    assert HostSettings().loopback and HostSettings(host="localhost").loopback
    assert not HostSettings(host="0.0.0.0").loopback and not HostSettings(host="tools.example").loopback
