"""Where a URL of the model's may lead."""

import ipaddress
import socket

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from web_stand_in import Answer, StandIn

from aworld_gym.errors import ConfigError
from envs.gaia.servers.addresses import Guard, GuardedTransport, is_public
from envs.gaia.tools.base import ToolFault

PRIVATE = """127.0.0.1 127.255.255.254 10.0.0.1 172.16.0.1 172.31.255.255 192.168.1.1 169.254.169.254 100.64.0.1 0.0.0.0
255.255.255.255 224.0.0.1 192.0.2.1 198.18.0.1 ::1 :: fe80::1 fe80::1%eth0 fc00::1 fd12::1 ff02::1 2001:db8::1
::ffff:127.0.0.1 ::ffff:10.0.0.1 ::127.0.0.1 64:ff9b::7f00:1 64:ff9b::a00:1 2002:7f00:1:: 2002:c0a8:101::""".split()
PUBLIC = "8.8.8.8 1.1.1.1 93.184.216.34 172.32.0.1 2606:4700::1111 ::ffff:8.8.8.8 64:ff9b::808:808".split()


@pytest.mark.parametrize("address", PRIVATE)
def test_private_addresses(address):
    assert not is_public(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses(address):
    assert is_public(address)


@given(st.ip_addresses(v=4))
def test_an_address_is_as_public_as_the_one_it_embeds(address):
    if not address.is_global or address.is_multicast:
        assert not is_public(f"::ffff:{address}")
        assert not is_public(str(ipaddress.IPv6Address((0x64FF9B << 96) | int(address))))
        assert not is_public(str(ipaddress.IPv6Address((0x2002 << 112) | (int(address) << 80))))


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("ftp://example.org/", "only http and https"),
        ("javascript:alert(1)", "only http and https"),
        ("data:text/html,x", "only http and https"),
        ("http:///path", "only http and https"),
        ("", "only http and https"),
        ("http://user:password@example.org/", "user name or password"),
        ("http://[::1", "no URL"),
        ("http://example.org:99999/", "no URL"),
        ("http://exa\x00mple.org/", "no URL"),
        ("http://localhost/", "private address"),
        ("http://LOCALHOST.:80/", "private address"),
        ("http://10.1.2.3/", "private address"),
        ("http://[fd00::1]/", "private address"),
        ("http://" + "a" * 3000, "at most 2,000"),
    ],
)
def test_urls_that_are_refused_outright(url, message):
    with pytest.raises(ToolFault, match=message):
        Guard().url(url)


def test_plain_urls_are_taken():
    assert str(Guard().url(" https://Example.org/a b#part ")) == "https://example.org/a%20b"
    assert str(Guard().url("example.org/x")) == "https://example.org/x"


async def test_allowed_hosts_are_allowed_at_their_port_only():
    guard = Guard.of("127.0.0.1:8001, intranet.local:443,[::1]:80")
    assert await guard.address("127.0.0.1", 8001) == "127.0.0.1"
    guard.url("http://127.0.0.1:8001/")
    guard.url("http://[::1]/")
    for url in ("http://127.0.0.1:8002/", "https://127.0.0.1/", "http://[::1]:81/"):
        with pytest.raises(ToolFault, match="private"):
            guard.url(url)


@pytest.mark.parametrize("text", ["127.0.0.1", "http://a:80", "a b:80", "a:port", "a:1;b:2"])
def test_broken_lists_of_hosts_are_told(text):
    with pytest.raises(ConfigError, match="must list host:port"):
        Guard.of(text)


async def test_a_name_with_one_private_address_is_refused(monkeypatch):
    def resolve(host, port, *args, **kwargs):
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (a, port)) for a in ("93.184.216.34", "10.0.0.7")]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with pytest.raises(ToolFault, match="private address"):
        await Guard().address("rebind.example", 80)


async def test_a_name_that_resolves_differently_the_second_time_gains_nothing(monkeypatch):
    """The address that was checked is the one that is connected to: names are resolved once."""
    resolved = []
    real = socket.getaddrinfo

    def resolve(host, port, *args, **kwargs):
        if host != "rebind.example":
            return real(host, port, *args, **kwargs)
        resolved.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with StandIn(lambda request: Answer(request.headers["host"])) as stand_in:
        guard = Guard([f"rebind.example:{stand_in.port}"])
        async with httpx.AsyncClient(transport=GuardedTransport(guard)) as client:
            reply = await client.get(f"http://rebind.example:{stand_in.port}/")
    assert reply.text == f"rebind.example:{stand_in.port}" and resolved == ["rebind.example"]
