"""HTTP for the servers: a service's API with its key, and pages that the model names, both bounded in every way.

Whatever goes wrong is a :class:`~envs.gaia.tools.base.ToolFault` that says what happened and what can be done; no
address of a request, no header and no key is ever part of it.
"""

from __future__ import annotations

import asyncio
import codecs
import email.utils
import functools
import json
import math
import ssl
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from aworld_gym import __version__
from envs.gaia.servers.addresses import Guard, GuardedTransport
from envs.gaia.servers.settings import Variable
from envs.gaia.tools.base import ToolFault, clip, quoted

AGENT_VAR = Variable("WEB_USER_AGENT", "How the servers introduce themselves; some sites ask for a contact in it")
ALLOW_VAR = Variable("WEB_ALLOW_HOSTS", "host:port, ... that pages may be read from although their address is private")

TIMEOUT_S = 25.0
"""Seconds for one answer, repeats included."""
MAX_API_BYTES = 4 << 20
"""Bytes of one answer of an API."""
MAX_PAGE_BYTES = 3 << 20
"""Bytes of a page that are read; the rest is left out."""
MAX_REDIRECTS = 5
REPEATS = 2
"""How often a request is repeated that was answered 429 or 5xx."""
MAX_WAIT_S = 8.0
"""Longest wait that a Retry-After may ask for."""
_PAUSE_S = 0.3
_ENCODINGS = ("", "identity", "gzip", "deflate")
_NO_CHARSETS = frozenset({"idna", "punycode", "raw-unicode-escape", "unicode-escape"})
"""What Python decodes text from and no page is written in; it takes a square of the time for one of them."""


@dataclass(frozen=True)
class Reply:
    """An answer, decoded and bounded."""

    url: str
    """Where it came from, after redirects."""
    status: int
    headers: httpx.Headers
    body: bytes
    cut: bool = False
    """Whether there was more."""

    @property
    def kind(self) -> str:
        """The media type, without parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def text(self) -> str:
        """The body as text, in the encoding that it declares; in UTF-8 where that is none of a page's."""
        declared = httpx.Response(200, headers={"content-type": self.headers.get("content-type", "")}).charset_encoding
        try:
            if declared and codecs.lookup(declared).name not in _NO_CHARSETS:
                return self.body.decode(declared, "replace")
        except (LookupError, ValueError):  # not known, or no encoding of text, such as zlib's
            pass
        return self.body.decode("utf-8", "replace")


@functools.cache
def _tls() -> ssl.SSLContext:
    return httpx.create_ssl_context()


class Api:
    """The HTTP API of one service: its address, its key, its limits. Redirects are refused: a key goes to one host.

    Args:
        service: its name, for messages.
        base_url: its address, from the operator's settings.
        headers: sent with every request.
        key: the variable that holds its key, for messages.
        timeout_s: seconds for one answer.
        repeats: how often a request is repeated that was answered 429 or 5xx; 0 where it must not be.
    """

    def __init__(
        self,
        service: str,
        base_url: str,
        *,
        headers: Mapping[str, str] | None = None,
        key: str = "",
        agent: str = "",
        timeout_s: float = TIMEOUT_S,
        repeats: int = REPEATS,
    ):
        self.service, self.base_url, self.key = service, base_url.rstrip("/"), key
        self._headers = {"User-Agent": agent or user_agent(), "Accept-Encoding": "gzip, deflate", **(headers or {})}
        self._timeout_s, self._repeats = timeout_s, repeats

    async def json(self, method: str, path: str = "", **request: Any) -> Any:
        """The answer as JSON.

        Args:
            method: the HTTP method.
            path: after the base URL, or a whole URL below it.
            request: what httpx takes: ``params``, ``json``, ``data``, ``files``, ``headers``.

        Raises:
            ToolFault: no answer in time, an error, or an answer that is no JSON.
        """
        reply = await self.send(method, path, **request)
        try:
            return json.loads(reply.body)
        except (ValueError, RecursionError):
            kind = reply.kind or "no type"
            raise ToolFault(f"{self.service} answered with what is not JSON ({kind}); try again later") from None

    async def send(self, method: str, path: str = "", *, ok: tuple[int, ...] = (), **request: Any) -> Reply:
        """The answer of the service; the request is repeated where that helps.

        Args:
            method: the HTTP method.
            path: as for :meth:`json`.
            ok: statuses besides 2xx that are no failure.
            request: as for :meth:`json`.

        Raises:
            ToolFault: no answer in time, another status, or a body that is too large.
        """
        url = path if path.startswith(self.base_url) else f"{self.base_url}{path}"
        headers = {**self._headers, **request.pop("headers", {})}
        try:
            async with asyncio.timeout(self._timeout_s) as limit:
                async with httpx.AsyncClient(verify=_tls(), timeout=None) as client:
                    for turn in range(self._repeats + 1):
                        reply = await _bounded(client, method, url, MAX_API_BYTES, headers=headers, **request)
                        wait = _pause(reply, turn)
                        left = (limit.when() or math.inf) - asyncio.get_running_loop().time()
                        if turn == self._repeats or wait is None or wait > min(MAX_WAIT_S, left):
                            break
                        await asyncio.sleep(wait)
        except TimeoutError:
            raise ToolFault(f"{self.service} did not answer within {self._timeout_s:g} s; try again later") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            # its text may hold the address, and that a query
            raise ToolFault(f"{self.service} cannot be reached ({type(error).__name__}); try again later") from None
        if not (200 <= reply.status < 300 or reply.status in ok):
            raise ToolFault(self._refusal(reply))
        if reply.cut:
            raise ToolFault(f"{self.service} answered with more than {MAX_API_BYTES >> 20} MB; ask for less")
        return reply

    def shape(self) -> ToolFault:
        """The fault of an answer that lacks what it should hold."""
        return ToolFault(f"{self.service} answered in an unexpected form; its API may have changed")

    def _refusal(self, reply: Reply) -> str:
        status = reply.status
        if status in (401, 403):
            what = f": {self.key} may be wrong, or its quota used up" if self.key else ""
            return f"{self.service} refused access (HTTP {status}){what}. Use another tool"
        if status == 429:
            wait = retry_after(reply.headers)
            when = f"in {wait:.0f} s" if wait is not None and wait < 86400 else "later"
            return f"{self.service} is limiting requests (HTTP 429); try again {when}, or use another tool"
        if 300 <= status < 400:
            return f"{self.service} redirects elsewhere (HTTP {status}), which is not followed; is its address right?"
        if status >= 500:
            return f"{self.service} has a failure of its own (HTTP {status}); try again later"
        said = _said(reply)
        return f"{self.service} refused the request (HTTP {status}){': ' + said if said else ''}"


async def read(url: str, guard: Guard, *, agent: str = "", limit: int = MAX_PAGE_BYTES, timeout_s: float = TIMEOUT_S,
               accept: str = "text/html,application/xhtml+xml,text/plain;q=0.9,*/*;q=0.5") -> Reply:  # fmt: skip
    """Fetch what the model asked for, following redirects that the guard allows.

    Args:
        url: the model's.
        guard: decides where it may lead, at each step.
        agent: the User-Agent.
        limit: bytes of the body that are read.
        timeout_s: seconds for all of it.
        accept: the Accept header.

    Returns:
        The last reply, whatever its status; its body is cut at ``limit``.

    Raises:
        ToolFault: a URL that is refused, no answer in time, too many redirects, a broken answer.
    """
    target = guard.url(url)
    headers = {"User-Agent": agent or user_agent(), "Accept": accept, "Accept-Encoding": "gzip, deflate"}
    try:
        async with asyncio.timeout(timeout_s):
            async with httpx.AsyncClient(transport=GuardedTransport(guard, _tls()), timeout=None) as client:
                for _ in range(MAX_REDIRECTS + 1):
                    reply = await _bounded(client, "GET", str(target), limit, headers=headers)
                    location = reply.headers.get("location")
                    if reply.status not in (301, 302, 303, 307, 308) or not location:
                        return reply
                    try:
                        target = guard.url(str(target.join(location)))
                    except (httpx.InvalidURL, ValueError):
                        raise ToolFault(f"{quoted(url)} redirects to what is no URL") from None
    except TimeoutError:
        raise ToolFault(f"{quoted(url)} did not answer within {timeout_s:g} s") from None
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ToolFault(f"{quoted(url)} cannot be read ({type(error).__name__})") from None
    raise ToolFault(f"{quoted(url)} redirects more than {MAX_REDIRECTS} times")


async def _bounded(client: httpx.AsyncClient, method: str, url: str, limit: int, **request: Any) -> Reply:
    """One exchange; never more than ``limit`` bytes of the body."""
    async with client.stream(method, url, **request) as response:
        # one layer of compression can multiply by a thousand, two by a million
        if response.headers.get("content-encoding", "").strip().lower() not in _ENCODINGS:
            raise httpx.DecodingError("an encoding that was not asked for")
        chunks, size, cut = [], 0, False
        async for chunk in response.aiter_bytes(1 << 16):
            chunks.append(chunk)
            size += len(chunk)
            if size > limit:
                cut = True
                break
        return Reply(str(response.url), response.status_code, response.headers, b"".join(chunks)[:limit], cut)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that a Retry-After header asks to wait (as a number or a date); None where there is none."""
    value = headers.get("retry-after", "").strip()
    try:
        return max(0.0, float(value)) if math.isfinite(float(value)) else None
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def _pause(reply: Reply, turn: int) -> float | None:
    """Seconds to wait before the same request is made again; None where that would not help."""
    if reply.status != 429 and reply.status < 500:
        return None
    asked = retry_after(reply.headers)
    return _PAUSE_S * 2**turn if asked is None else asked


def _said(reply: Reply) -> str:
    """What an error's body says, in a few words."""
    try:
        value = json.loads(reply.body)
    except (ValueError, RecursionError):
        return ""
    for name in ("detail", "error", "message", "readableMessage", "title"):
        inner = value.get(name) if isinstance(value, dict) else None
        inner = inner.get("message") or inner.get("error") if isinstance(inner, dict) else inner
        if isinstance(inner, str) and inner:
            return clip(" ".join(inner.split()), 200)
    return ""


def user_agent() -> str:
    """How the servers introduce themselves by default."""
    return f"aworld-gym/{__version__} (tool server)"


class Recent:
    """The last few texts by key, so that the pages of one document are pages of the same document."""

    def __init__(self, size: int = 8, seconds: float = 600.0):
        self._size, self._seconds = size, seconds
        self._kept: OrderedDict[Any, tuple[float, Any]] = OrderedDict()

    async def get(self, key: Any, make: Callable[[], Awaitable[Any]]) -> Any:
        """What is kept under ``key``, or else what ``make`` gives; a failure is not kept."""
        held = self._kept.get(key)
        if held is None or time.monotonic() - held[0] > self._seconds:
            held = (time.monotonic(), await make())
            self._kept[key] = held
            while len(self._kept) > self._size:
                self._kept.popitem(last=False)
        return held[1]
