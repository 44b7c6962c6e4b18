"""Whether an address is wrong for certain: its scheme is not what is spoken there, or no certificate of it is accepted.

Such an address does not get better by itself, so nobody should be kept waiting for a server that seems to be down.
What the failure of a request leaves open, one connection of our own finds out; texts of errors are not interpreted.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Iterator
from urllib.parse import SplitResult, urlsplit

ASK_TIMEOUT_S = 3.0
"""Seconds for finding out."""
ASK_AGAIN_S = 10.0
"""Seconds for which what was found out of an address holds: hosts that are down are not asked by each of their clients,
each time that one tries."""
_found: dict[tuple[str, str | None, int | None, bool], tuple[float, str | None]] = {}


async def wrong(url: str, error: BaseException, *, connected: bool) -> str | None:
    """What is certainly wrong with an address of which no answer came; None if nothing is.

    Args:
        url: where the request went, without a proxy between.
        error: how it failed, with its causes.
        connected: there was a connection, over which no answer came.

    Returns:
        Words to follow the address in a message.
    """
    parts, chain = urlsplit(url), list(_chain(error))
    refused = [one for one in chain if isinstance(one, ssl.SSLCertVerificationError)]
    if refused:
        why = next((one.verify_message for one in refused if hasattr(one, "verify_message")), str(refused[0]))
        return (
            f"shows a certificate that is not accepted ({why}); if it is the right server, set SSL_CERT_FILE to a file "
            "with the certificate that signed it"
        )
    if any(isinstance(one, TimeoutError) for one in chain):  # whoever hangs would hang again
        return None
    tls = parts.scheme == "https" and any(isinstance(one, ssl.SSLError) for one in chain)
    if not tls and not (parts.scheme == "http" and connected):
        return None
    key, now = (parts.scheme, parts.hostname, parts.port, tls), time.monotonic()
    found = _found.get(key)
    if found is None or now - found[0] > ASK_AGAIN_S:
        for old in [one for one, (at, _) in _found.items() if now - at > ASK_AGAIN_S]:
            del _found[old]
        _found[key] = now, None  # for those that come meanwhile: nothing is certain yet
        found = _found[key] = now, await _asked(parts)
    return found[1]


async def _asked(parts: SplitResult) -> str | None:
    """What one connection finds out; None where nothing is certain."""
    try:
        async with asyncio.timeout(ASK_TIMEOUT_S):
            if parts.scheme == "https" and await _speaks_http(parts):
                return "does not speak TLS; its address begins with http://"
            if parts.scheme == "http" and await _speaks_tls(parts):
                return "speaks TLS; its address begins with https://"
    except (OSError, EOFError):  # time-outs and failed handshakes included
        pass
    return None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An exception and what caused it."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


async def _speaks_http(parts: SplitResult) -> bool:
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port or 443)
    try:
        writer.write(f"HEAD / HTTP/1.1\r\nHost: {parts.hostname}\r\nConnection: close\r\n\r\n".encode())
        return await reader.readexactly(5) == b"HTTP/"
    finally:
        writer.transport.abort()


async def _speaks_tls(parts: SplitResult) -> bool:
    anything = ssl.create_default_context()
    anything.check_hostname, anything.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection(parts.hostname, parts.port or 80, ssl=anything)
    writer.transport.abort()
    return True
