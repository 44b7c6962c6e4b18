"""What HTTP replies mean to MCP: which failure a status stands for, and whether a body answers its request.

Knows no HTTP client: statuses, texts and bytes only. Header values, which may be secrets, never get into a text.
"""

from __future__ import annotations

import json
import math
from typing import Any
from urllib.parse import urlsplit

_BODY_CHARS = 500
_LONGEST_WAIT_S = 60.0  # that a busy server can ask for


def origin(url: str) -> str:
    """A URL as it may be shown: a query or a user's name may hold a key."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def excerpt(text: str) -> str:
    """The beginning of what a server said."""
    text = text.strip()
    return text if len(text) <= _BODY_CHARS else text[:_BODY_CHARS] + "…"


def retry_after(status: int, value: str | None) -> float | None:
    """Seconds after which a busy server asks to be tried again (one that names none: one second).

    Args:
        status: of the reply.
        value: its ``Retry-After`` header.
    """
    if status not in (429, 503):
        return None
    try:
        wait = float(value if value is not None else 1.0)
    except ValueError:  # a date, of a clock that may not be ours
        return 1.0
    return 1.0 if math.isnan(wait) else min(max(wait, 0.0), _LONGEST_WAIT_S)


def refusal(
    where: str, status: int, reason: str, body: str, *, challenge: str | None, in_session: bool
) -> tuple[str, str, bool | None]:
    """What a status of 400 or more means: kind of failure, text with what the server said, whether it was delivered.

    Args:
        where: the :func:`origin` asked.
        status: of the reply.
        reason: the words beside it.
        body: of the reply.
        challenge: its ``WWW-Authenticate`` header.
        in_session: the request named a session.
    """
    said = excerpt(_words(body))
    text = f"{where} answered {status} {reason}: {said or '(no body)'}"
    if status in (401, 403):
        text += f" (it asks for {challenge})" if challenge else ""
        text += "; check the credentials in `headers`, or an environment host's `token` (MCP_SERVER_TOKEN)"
        return "host_refused", text, False
    if status in (429, 503):
        return "host_refused", text, False
    if in_session and (status == 404 or (status == 400 and "session" in said.lower())):
        return "session_lost", text, False
    if status in (502, 504):
        return "host_unreachable", text, None
    if status == 404:
        text += "; check the path of `url` (most servers use /mcp)"
    return "server_protocol", text, None


def _words(body: str) -> str:
    """What a refusal's body says: the message of a JSON-RPC error, or all of it."""
    try:
        message = json.loads(body)["error"]["message"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return body
    return message if isinstance(message, str) and message.strip() else body


def error_code(body: bytes) -> int | None:
    """The code of the JSON-RPC error in a refusal's body, if there is one."""
    try:
        code = json.loads(body)["error"]["code"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return code if isinstance(code, int) else None


def answer(number: Any, status: int, kind: str, body: bytes) -> dict[str, Any]:
    """The JSON-RPC answer that a reply (no stream of events) is to the request ``number``.

    Args:
        number: the request's id.
        status: of the reply, below 300.
        kind: its ``Content-Type``.
        body: mended where that was needed.

    Raises:
        ValueError: it is none; says why, to be read after the server's :func:`origin`.
    """
    if status == 202 or not body.strip():
        raise ValueError(f"answered {status} to a request, and nothing more")
    if not kind.lower().startswith("application/json"):
        raise ValueError(f"answered with {kind!r}, not with JSON or events: {_shown(body)}")
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"answered with broken JSON ({error}): {_shown(body)}") from None
    if not isinstance(value, dict) or not ({"result", "error"} & value.keys()) or str(value.get("id")) != str(number):
        raise ValueError(f"answered with JSON that is no answer to this request: {_shown(body)}")
    return value


def _shown(body: bytes) -> str:
    return excerpt(body[: 4 * _BODY_CHARS].decode(errors="replace"))
