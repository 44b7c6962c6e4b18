"""JSON-RPC messages: what stands in for an answer that did not come, and what the lines of a stdio server mean.

A failure between client and server is given to the SDK's session as a JSON-RPC error *answer* to the request that
met it. So the session stays alive, the caller does not wait for its deadline, and it reads what happened from the
error's data (:func:`failure`).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from aworld_gym.errors import INFRA_KINDS, InfraError
from aworld_gym.toolchain import compat
from aworld_gym.toolchain.jsontext import deeper, mended, outer_members

MAX_DEPTH = 200
"""Levels of a result at most: what the SDK's own parser takes."""
_MARK = "aworld_gym"
_CODE = -32099  # of answers made here; within the range that JSON-RPC leaves to implementations
_EXCERPT_CHARS = 300
_LONGEST_WAIT_S = 3600.0  # that anybody can ask for


def failure(data: Any, server: str) -> InfraError | None:
    """The failure that :func:`mark` described, or None if ``data`` is of another origin."""
    found = data.get(_MARK) if isinstance(data, dict) else None
    if not isinstance(found, dict):
        return None
    kind = found["kind"] if found.get("kind") in INFRA_KINDS else "server_protocol"  # a host may be newer than we are
    wait = found.get("retry_after_s")
    return InfraError(
        kind,
        str(found.get("message")),
        server=server,
        delivered=False if found.get("delivered") is False else None,
        # NaN, which Python's JSON has, is in no range: no clock ever reaches it
        retry_after_s=wait if isinstance(wait, int | float) and 0 <= wait <= _LONGEST_WAIT_S else None,
    )


def refusal(number: Any, error: InfraError, code: int | None = None) -> dict[str, Any]:
    """The answer (JSON) that stands in for the one that did not come to request ``number``."""
    details = {"code": _CODE if code is None else code, "message": error.args[0], "data": mark(error)}
    return {"jsonrpc": "2.0", "id": number, "error": details}


def mark(error: InfraError) -> dict[str, Any]:
    """What :func:`failure` reads a failure from: the data of an error answer, or ``_meta`` of a tool's result.

    A server whose tool meets a machine that fails (a full disk, no more processes) puts it into the result's
    ``_meta``, so that the model is not held to account for it.
    """
    found = {"kind": error.kind, "message": error.args[0], "delivered": error.delivered}
    if error.retry_after_s is not None:
        found["retry_after_s"] = error.retry_after_s
    return {_MARK: found}


class Wire:
    """The messages of one session with a stdio server, from and to lines.

    An answer that cannot be read is replaced by a refusal to the request that it answers: nobody has to wait for a
    deadline, or take a broken server for a slow tool.

    Args:
        noise: told of the lines that are no messages.
    """

    def __init__(self, noise: Callable[[bytes], None]):
        self._noise = noise
        self._pending: set[Any] = set()  # requests that wait for an answer
        self._last = -1  # the highest number that was asked

    def dump(self, message: Any) -> bytes:
        """A message to the server, as a line."""
        method, number, params = compat.parts(message)
        if method is not None and number is not None:
            self._pending.add(_key(number))
            self._last = max(self._last, number) if isinstance(number, int) else self._last
        elif method == "notifications/cancelled":
            self._pending.discard(_key((params or {}).get("requestId")))
        return compat.dump_message(message)

    def read(self, line: bytes) -> Any:
        """The message that a line of the server is; None if it is none."""
        try:
            message = compat.parse_message(line)
        except ValueError:
            message, members, why = _second_reading(line)
            if message is None and "method" not in members and {"jsonrpc", "result", "error"} & members.keys():
                return self._refuse(members.get("id"), line, why)
            if message is None:
                self._noise(line)
                return None
        method, number, _ = compat.parts(message)
        if method is not None:
            return message
        key = _key(number)
        if key in self._pending:
            self._pending.discard(key)
        elif not self._was_asked(key):
            why = f"it is for a request {number!r} that was not made" if number is not None else "it is for no request"
            return self._refuse(number, line, why)
        return message

    def _was_asked(self, key: Any) -> bool:
        return isinstance(key, int) and 0 <= key <= self._last

    def _refuse(self, number: Any, line: bytes, why: str) -> Any:
        """A refusal to the request that ``line`` must have meant to answer; None, and noise, if none is certain."""
        key = _key(number)
        if key not in self._pending:
            if len(self._pending) != 1 or self._was_asked(key):
                self._noise(line)
                return None
            (key,) = self._pending
        self._pending.discard(key)
        excerpt = line[:_EXCERPT_CHARS].decode(errors="replace") + ("…" if len(line) > _EXCERPT_CHARS else "")
        error = InfraError("server_protocol", f"what it answered is not MCP: {why}: {excerpt}")
        return compat.make_message(refusal(key, error))


def _second_reading(line: bytes) -> tuple[Any, dict[str, Any], str]:
    """A line that the SDK refuses: as a message, if it can be mended; its outer members; and what is wrong with it."""
    text = mended(line)
    try:
        value = json.loads(text, strict=False)
    except (ValueError, RecursionError) as error:
        return None, outer_members(text), f"it cannot be read ({error})"
    if not isinstance(value, dict):
        return None, {}, "it is no object"
    if deeper(value, MAX_DEPTH) and not _lists_tools(value):  # a list is wanted even if one tool's schema is absurd
        return None, value, f"it is nested more than {MAX_DEPTH} levels deep"
    try:
        return compat.make_message(value), value, ""
    except ValueError:
        return None, value, "it is no answer in JSON-RPC"


def _lists_tools(value: dict[str, Any]) -> bool:
    result = value.get("result")
    return isinstance(result, dict) and isinstance(result.get("tools"), list)


def _key(number: Any) -> Any:
    """A request's number whichever way it is spelt; both SDKs take "7" for 7."""
    if isinstance(number, str) and number.isascii() and number.isdigit():
        return int(number[:20])
    return number if isinstance(number, int | str) and not isinstance(number, bool) else None
