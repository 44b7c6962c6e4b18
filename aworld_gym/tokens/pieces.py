"""What every form of tool call shares: what a text is taken apart into, and the names of what can be wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aworld_gym.tokens.strict_json import CallError

ERROR_KINDS = (
    "invalid_json",  # the call, or its arguments, are not JSON
    "duplicate_key",  # an object, or an XML call, names one key twice
    "missing_name",  # no function name, or not a non-empty text
    "bad_arguments",  # the arguments are not an object
    "malformed",  # an XML call whose parts are not where they belong
    "unclosed",  # the call is not closed (cut off, or another one begins inside it)
    "unclosed_reasoning",  # the message ends inside <think>
)
"""What can be wrong with a sampled message. Closed."""

OPEN, CLOSE = "<tool_call>", "</tool_call>"

Tools = Sequence[Mapping[str, Any]]
"""OpenAI tool schemas: ``{"type": "function", "function": {"name", "description", "parameters"}}``."""


@dataclass
class Pieces:
    """What a form found in a text, in order."""

    content: list[str] = field(default_factory=list)
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    errors: list[dict[str, str]] = field(default_factory=list)

    def failed(self, error: CallError, raw: str) -> None:
        """Note that ``raw`` was meant as a call and is none."""
        self.errors.append({"type": error.kind, "raw": raw.strip(), "detail": error.detail})


ToolFormat = Callable[[str, Tools], Pieces]
"""``(text, tools) -> Pieces``. ``tools`` is empty where the caller gave none. Must not raise for what the text says."""


def broken(pieces: Pieces, error: CallError, text: str, start: int) -> int:
    """Note the broken call that began at ``start``; the index to read on from."""
    following = text.find(OPEN, start)
    end = following if following >= 0 else len(text)
    close = text.find(CLOSE, start, end)
    if close >= 0:
        pieces.failed(error, text[start:close])
        return close + len(CLOSE)
    what = f"the next {OPEN}" if following >= 0 else "the end of the message"
    pieces.failed(CallError("unclosed", f"expected {CLOSE} after the call, got {what}"), text[start:end])
    return end


def kind_of(value: Any) -> str:
    """The JSON type of a value, in JSON schema's words."""
    if value is None:
        return "null"
    for kind, types in (("boolean", bool), ("integer", int), ("number", float), ("string", str), ("array", list)):
        if isinstance(value, types):
            return kind
    return "object"
