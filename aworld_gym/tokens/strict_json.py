"""JSON as a model writes it, read strictly: every way to be wrong has a name, and nothing else is raised.

Python's own reader takes too much (``NaN``, duplicate keys, lone surrogates) and fails in too many ways
(``RecursionError``, the limit on integer digits). What this module returns can be dumped again as valid JSON.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn

MAX_DEPTH = 64
"""Deeper values are refused: they are never meant, and recursive code downstream could not walk them."""

MAX_DIGITS = 1000
"""Longer integers are refused, well below Python's own limit of 4,300 digits."""

_SURROGATE = re.compile(r"[\ud800-\udfff]")


class CallError(Exception):
    """Why a text is not a tool call.

    Args:
        kind: one of :data:`aworld_gym.tokens.ERROR_KINDS`.
        detail: what was expected and what came, for the model to read.
    """

    def __init__(self, kind: str, detail: str):
        super().__init__(detail)
        self.kind, self.detail = kind, detail


def loads(text: str) -> Any:
    """The JSON value that ``text`` is, white space around it allowed. Raises CallError and nothing else."""
    value, end = decode_prefix(text, 0)
    rest = text[end:].strip()
    if rest:
        raise CallError("invalid_json", f"expected nothing after the JSON value, got {_short(rest)}")
    return value


def decode_prefix(text: str, start: int) -> tuple[Any, int]:
    """The JSON value that begins at or after ``start`` (white space skipped), and the index where it ends.

    Raises:
        CallError: ``invalid_json`` or ``duplicate_key``.
    """
    while start < len(text) and text[start].isspace():
        start += 1
    try:
        value, end = _DECODER.raw_decode(text, start)
        _check(value)
    except RecursionError:
        raise CallError("invalid_json", f"nested deeper than {MAX_DEPTH} levels") from None
    except json.JSONDecodeError as error:
        near = _short(text[error.pos : error.pos + 20])
        raise CallError("invalid_json", f"{error.msg} at character {error.pos - start}, near {near}") from None
    return value, end


def dumps(value: Any) -> str:
    """Compact-enough JSON text of a value that :func:`loads` gave (or any JSON value)."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise CallError("duplicate_key", f"the key {_short(twice)} stands twice in one object")
    return value


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise CallError("invalid_json", f"an integer of {len(digits)} digits; at most {MAX_DIGITS} are read")
    return int(digits)


def _float(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise CallError("invalid_json", f"the number {_short(digits)} is out of range")
    return value


def _constant(name: str) -> NoReturn:
    raise CallError("invalid_json", f"{name} is not JSON")


def _check(value: Any) -> None:
    """Refuse what Python reads and nobody can use: too deep, or text that is not valid Unicode."""
    stack = [(value, 1)]
    while stack:
        item, depth = stack.pop()
        if depth > MAX_DEPTH and isinstance(item, dict | list):
            raise CallError("invalid_json", f"nested deeper than {MAX_DEPTH} levels")
        if isinstance(item, str):
            if _SURROGATE.search(item):
                raise CallError("invalid_json", "a string holds half of a surrogate pair, which is not valid Unicode")
        elif isinstance(item, dict):
            stack.extend((key, depth + 1) for key in item)
            stack.extend((inner, depth + 1) for inner in item.values())
        elif isinstance(item, list):
            stack.extend((inner, depth + 1) for inner in item)


def _short(text: str, limit: int = 40) -> str:
    return repr(text if len(text) <= limit else text[: limit - 1] + "…")


_DECODER = json.JSONDecoder(object_pairs_hook=_pairs, parse_int=_integer, parse_float=_float, parse_constant=_constant)
