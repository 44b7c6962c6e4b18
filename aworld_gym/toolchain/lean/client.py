"""The HTTP of the lean client: one ``aiohttp`` session for one MCP session.

It keeps to what the SDK's transport does: redirects are followed only within the server's origin, proxies and
certificates are those that the environment names, and no header's value ever gets into a message. What goes wrong
comes out as :class:`InfraError`. It knows nothing of JSON-RPC; that is the dispatcher's.
"""

from __future__ import annotations

import asyncio
import base64
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from aworld_gym.errors import InfraError, describe
from aworld_gym.toolchain import replies, schemes
from aworld_gym.toolchain.hosted import file_pieces
from aworld_gym.toolchain.lean.events import MAX_REPLY_BYTES, aiohttp

_LINGER_S = 2.0  # that a stream may take to end after the answer, and its connection be used again
_IDLE_S = 4.0  # for idle connections: less than the 5 s after which common servers close them
_HOST_IDLE_S = 15.0  # environment hosts keep them for longer
_DELETE_TIMEOUT_S = 2.0  # for saying goodbye
_MAX_REDIRECTS = 20
_LARGE_BODY = 1 << 20  # what `aiohttp` wants to be given as a file


def proxy_of(url: str) -> str | None:
    """The proxy that the environment names for ``url``: HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY."""
    parts = urlsplit(url)
    if proxy_bypass(parts.netloc.rpartition("@")[2]):
        return None
    known = getproxies()
    proxy = known.get(parts.scheme) or known.get("all")
    return proxy if not proxy or "://" in proxy else f"http://{proxy}"


class Client:
    """Requests of one MCP session to its server. Made, used and closed on one event loop.

    Args:
        config: the server's ``ServerConfig``.
        ssl: the context that checks servers' certificates.

    Attributes:
        session_id: sent with every request once it is known.
        version: of the protocol, likewise.
    """

    def __init__(self, config: Any, ssl: Any):
        http = self._http = aiohttp()
        from yarl import URL

        self.server = config.name
        self.session_id: str | None = None
        self.version: str | None = None
        self._url = URL(config.url)
        headers = {name.lower(): value for name, value in config.headers.items()}
        if self._url.user is not None:  # as the SDK's client has it, this counts before a header
            login = f"{self._url.user}:{self._url.password or ''}".encode()
            headers["authorization"] = f"Basic {base64.b64encode(login).decode()}"
            self._url = self._url.with_user(None)
        self.origin = replies.origin(str(self._url))
        self._base = headers
        self._connect_s = config.timeout
        self._met = False  # something came from there
        self._proxied = (proxy := proxy_of(config.url)) is not None
        self._session = http.ClientSession(
            # a slow tool is not a broken pool: no limit on connections
            connector=http.TCPConnector(
                limit=0, ssl=ssl, keepalive_timeout=_HOST_IDLE_S if config.kind == "host" else _IDLE_S
            ),
            timeout=http.ClientTimeout(total=None, sock_connect=config.timeout, sock_read=config.sse_read_timeout),
            cookie_jar=http.CookieJar(unsafe=True),  # load balancers keep a session in its place with one
            proxy=proxy,
        )

    async def aclose(self) -> None:
        """Close all connections."""
        await self._session.close()

    async def request(
        self, method: str, headers: Mapping[str, str], body: bytes | Path | None = None, url: Any = None
    ) -> Any:
        """Send a request; its ``aiohttp`` response, of which the body is still to be read and which is to be closed.

        Args:
            method: of HTTP.
            headers: beside those that every request has.
            body: what is sent; of a file, a piece at a time.
            url: where to; the server's own if not given.

        Raises:
            InfraError: there was no answer, or a redirect that is not followed.
        """
        sent = {**self._base, **headers}
        if self.session_id is not None:
            sent["mcp-session-id"] = self.session_id
        if self.version is not None:
            sent["mcp-protocol-version"] = self.version
        target = url or self._url
        for _ in range(_MAX_REDIRECTS):
            data: Any = body
            if isinstance(body, Path):
                data = file_pieces(body)
            elif body is not None and len(body) >= _LARGE_BODY:
                data = io.BytesIO(body)
            try:
                response = await self._session.request(method, target, headers=sent, data=data, allow_redirects=False)
            except (self._http.ClientError, OSError) as error:
                # `aiohttp`'s own errors hold the request's headers
                raise await self._never_met(str(target), error) or self._unreached(error) from None
            self._met = True
            if response.status not in (301, 302, 303, 307, 308) or "location" not in response.headers:
                return response
            target = self._followed(method, target, response)
            await self.read(response)
        raise self._wrong(f"redirects more than {_MAX_REDIRECTS} times")

    async def read(self, response: Any) -> bytes:
        """The whole body of a response.

        Raises:
            InfraError: it broke off, or is larger than :data:`MAX_REPLY_BYTES`.
        """
        chunks, size = [], 0
        try:
            while (chunk := await response.content.readany()) or not response.content.at_eof():
                chunks.append(chunk)
                size += len(chunk)
                if size > MAX_REPLY_BYTES:
                    raise self._wrong(f"answered with more than {MAX_REPLY_BYTES} bytes")
        except (self._http.ClientError, OSError) as error:
            response.close()
            raise self._unreached(error) from None
        except BaseException:
            response.close()
            raise
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def release(self, response: Any) -> None:
        """Have done with a stream of events of which the answer has come."""
        if response.connection is not None:  # its end has not; with it, the connection can be used again
            asyncio.get_running_loop().call_later(_LINGER_S, response.close)

    async def put(self, url: str, content: bytes | Path) -> tuple[int, str]:
        """Bring ``content``, or that of a file, to ``url``; the status and body of the answer.

        Raises:
            InfraError: there was none.
        """
        from yarl import URL

        target = URL(url, encoded=True).with_user(None)
        size = {"content-length": str(content.stat().st_size)} if isinstance(content, Path) else {}
        response = await self.request("PUT", size, content, target)
        return response.status, (await self.read(response)).decode(errors="replace")

    async def delete(self) -> str | None:
        """End the session on the server; what went wrong, if anything."""
        try:
            async with asyncio.timeout(_DELETE_TIMEOUT_S):
                response = await self.request("DELETE", {})
                response.close()
        except (InfraError, TimeoutError) as error:
            return describe(error)
        return None if response.status < 300 or response.status == 405 else f"it answered {response.status}"

    def _followed(self, method: str, sent: Any, response: Any) -> Any:
        """Where a redirect leads.

        Raises:
            InfraError: it is one that is not followed: away from the server, or with another method.
        """
        from yarl import URL

        status, location = response.status, response.headers["location"]
        try:
            target = sent.join(URL(location))
            port = target.port
        except ValueError:
            response.close()
            raise self._wrong(f"answered {status} with a broken Location") from None
        same = (target.scheme, target.host, port) == (sent.scheme, sent.host, sent.port)
        upgrade = (sent.scheme, sent.port, target.scheme, port) == ("http", 80, "https", 443)
        within = same or (upgrade and target.host == sent.host)
        if within and target.user is None and (status in (307, 308) or method == "GET"):
            return target
        response.close()
        where = replies.origin(str(target))
        raise self._wrong(f"redirects ({status}) to {where}, which is not followed; if that is it, use it as `url`")

    async def _never_met(self, url: str, error: BaseException) -> InfraError | None:
        """The failure of a request to an address from which nothing ever came, if it is certain to be wrong."""
        if self._met or self._proxied:
            return None
        connected = not isinstance(error, self._http.ClientConnectorError)
        said = await schemes.wrong(url, error, connected=connected)
        return None if said is None else self._wrong(said, delivered=False)

    def _wrong(self, text: str, delivered: bool | None = None) -> InfraError:
        return InfraError("server_protocol", f"{self.origin} {text}", server=self.server, delivered=delivered)

    def _unreached(self, error: BaseException) -> InfraError:
        http = self._http
        never = (
            http.ClientConnectorError,
            http.ConnectionTimeoutError,
            http.ClientHttpProxyError,
            http.InvalidURL,
        )
        if isinstance(error, http.ConnectionTimeoutError):
            words = f"no connection within {self._connect_s:g} s"
        elif isinstance(error, http.ClientResponseError):  # its text has the whole URL
            words = f"{type(error).__name__}: {error.status} {error.message}"
        else:
            words = describe(error)
        text = f"no answer from {self.origin}: {words}"
        return InfraError(
            "host_unreachable", text, server=self.server, delivered=False if isinstance(error, never) else None
        )
