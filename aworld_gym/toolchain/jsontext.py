"""JSON as servers really write it: mended where that is safe, and measured before anything recursive touches it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_HALVES = re.compile(rb"\\u[dD][89a-fA-F]")
_ESCAPES = re.compile(
    rb"(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"  # a pair
    rb"|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})"  # half of one
    rb"|\\.",
    re.DOTALL,
)
# A string may lack its end; it still is one token, so that a scan is one pass.
_TOKENS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)|[{}\[\]]', re.DOTALL)
_VALUE = re.compile(rb'\s*:\s*(-?\d+|"[^"\\]*"|)')


def mended(data: bytes) -> bytes:
    r"""``data`` (JSON) with U+FFFD for what is no Unicode: lone surrogates such as ``\ud83d``, bytes that are no UTF-8.

    A program that cuts a string in the middle of an emoji writes the former, and strict parsers refuse the whole
    message for it. Returns ``data`` itself where there is nothing to mend.
    """
    try:
        data.decode()
    except UnicodeDecodeError:
        data = data.decode(errors="replace").encode()
    if _HALVES.search(data) is None:
        return data
    return _ESCAPES.sub(lambda match: rb"\ufffd" if match[2] else match[0], data)


def deeper(value: Any, limit: int) -> bool:
    """Whether ``value`` (JSON) has more than ``limit`` levels of lists and objects."""
    level = [value]
    for _ in range(limit + 1):
        level = [node for node in level if isinstance(node, list | tuple | Mapping)]
        if not level:
            return False
        level = [item for node in level for item in (node.values() if isinstance(node, Mapping) else node)]
    return True


def outer_members(data: bytes) -> dict[str, int | str | None]:
    """The members of an object that no parser takes: their names, with the values that are numbers or strings."""
    found: dict[str, int | str | None] = {}
    if not data.lstrip().startswith(b"{"):
        return found
    depth = 0
    for token in _TOKENS.finditer(data):
        if token[0] in (b"{", b"["):
            depth += 1
        elif token[0] in (b"}", b"]"):
            depth -= 1
        elif depth == 1 and (value := _VALUE.match(data, token.end())) is not None:
            text = value[1].decode(errors="replace")
            name = token[0][1:-1].decode(errors="replace")
            found[name] = text[1:-1] if text.startswith('"') else int(text[:20]) if text else None
    return found
