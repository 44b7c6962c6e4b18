"""Which addresses a URL of the model's may lead to: public ones, and those that the operator allows by name.

The check is made on the address that is then connected to, at every redirect, so that neither a host name that
resolves to a private address nor one that resolves to another address the second time gets through.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import Iterable
from typing import Any

import httpx

from aworld_gym.errors import ConfigError
from envs.gaia.tools.base import ToolFault, quoted

ALLOW_VAR = "WEB_ALLOW_HOSTS"
"""``host:port`` entries, separated by commas, that may be private: an intranet's, or a test's."""
MAX_URL = 2000
RESOLVE_S = 5.0
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


class Guard:
    """Decides on URLs and addresses.

    Args:
        allowed: ``host:port`` that may be connected to whatever they resolve to.
    """

    def __init__(self, allowed: Iterable[str] = ()):
        self._allowed = frozenset(allowed)

    @classmethod
    def of(cls, text: str) -> Guard:
        """From the value of ``WEB_ALLOW_HOSTS``.

        Raises:
            ConfigError: an entry that is no ``host:port``.
        """
        entries = [entry.strip().lower() for entry in text.split(",") if entry.strip()]
        for entry in entries:
            if not re.fullmatch(r"[^\s/:@]+:\d{1,5}|\[[0-9a-f:]+\]:\d{1,5}", entry):
                raise ConfigError(f"{ALLOW_VAR} must list host:port, separated by commas; {entry!r} is none")
        return cls(entries)

    def url(self, text: str) -> httpx.URL:
        """The URL that the model gave, once it is plain; names are resolved later, by :meth:`address`.

        Raises:
            ToolFault: it is not an http(s) URL, holds a password, or names a private host outright.
        """
        if len(text) > MAX_URL:
            raise ToolFault(f"a URL has at most {MAX_URL:,} characters, got {len(text):,}")
        text = text.strip()
        if "://" not in text[:10] and re.match(r"[\w-]+(\.[\w-]+)+(:\d+)?(/|$)", text):
            text = f"https://{text}"
        try:
            url = httpx.URL(text)
            if url.port is not None and not 0 < url.port < 65536:
                raise ValueError
        except (httpx.InvalidURL, ValueError):
            raise ToolFault(f"{quoted(text)} is no URL; give one like https://example.org/page") from None
        if url.scheme not in ("http", "https") or not url.host:
            raise ToolFault(f"only http and https URLs can be opened, got {quoted(text)}")
        if url.userinfo:
            raise ToolFault("a URL must not hold a user name or password")
        if not self._is_allowed(url.host, port_of(url)):
            literal = _literal(url.host)
            if literal is not None and not is_public(literal) or url.host.rstrip(".").lower() == "localhost":
                raise ToolFault(_refusal(url.host))
        return url.copy_with(fragment=None)

    async def address(self, host: str, port: int) -> str:
        """The IP address to connect to.

        Raises:
            ToolFault: there is none, or it is not public.
        """
        try:
            async with asyncio.timeout(RESOLVE_S):
                found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError, TimeoutError):
            raise ToolFault(f"the host {quoted(host)} cannot be found") from None
        addresses = [str(entry[4][0]) for entry in found]
        if not self._is_allowed(host, port) and not all(map(is_public, addresses)):
            raise ToolFault(_refusal(host))
        return addresses[0]

    def _is_allowed(self, host: str, port: int) -> bool:
        name = f"[{host}]" if ":" in host else host
        return f"{name.lower()}:{port}" in self._allowed


class GuardedTransport(httpx.AsyncBaseTransport):
    """Connects to the address that the guard has checked, and to no other; the certificate must be the name's.

    It uses no proxy: a proxy would resolve the name again.
    """

    def __init__(self, guard: Guard, verify: Any = True):
        self._guard = guard
        # kept-alive connections are found again by address, whatever name they were made for
        limits = httpx.Limits(max_keepalive_connections=0)
        self._inner = httpx.AsyncHTTPTransport(verify=verify, trust_env=False, limits=limits)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """As httpx asks for it."""
        address = await self._guard.address(request.url.host, port_of(request.url))
        return await self._inner.handle_async_request(
            httpx.Request(
                request.method,
                request.url.copy_with(host=address),
                headers=request.headers,
                stream=request.stream,
                extensions={**request.extensions, "sni_hostname": request.url.host},
            )
        )

    async def aclose(self) -> None:
        """As httpx asks for it."""
        await self._inner.aclose()


def port_of(url: httpx.URL) -> int:
    """The port a URL leads to."""
    return url.port or (443 if url.scheme == "https" else 80)


def is_public(text: str) -> bool:
    """Whether an IP address belongs to the public internet, what it embeds included."""
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo and address.teredo[1])
        if inner is None and address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(str(inner))
        if address in ipaddress.ip_network("::/96"):  # the obsolete way to embed IPv4
            return False
    return address.is_global and not address.is_multicast


def _literal(host: str) -> str | None:
    try:
        return str(ipaddress.ip_address(host.strip("[]").partition("%")[0]))
    except ValueError:
        return None


def _refusal(host: str) -> str:
    return f"{quoted(host)} is a private address, and only public hosts can be reached"
