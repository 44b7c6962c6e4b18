"""Gymnasium spaces of chat messages: direct subclasses of :class:`gymnasium.spaces.Space`.

Membership asks for well-formed messages, not for sensible ones: an unknown tool or malformed arguments are
things a model does, so they are inside the action space and answered by the env.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from gymnasium.spaces import Space

from aworld_gym.types import Message

ROLES = ("system", "user", "assistant", "tool")
_WIDEST = 2**62
"""Numbers are drawn from no wider range than this."""
_WORDS = ("table", "north", "seven", "open", "query", "ünïcode", "42", "-1.5", "yes")


class UnicodeText(Space[str]):
    """Any string of at most ``max_length`` characters (Gymnasium's ``Text`` asks for a character set).

    Example:
        >>> "naïve 你好" in UnicodeText(max_length=20)
        True
    """

    def __init__(self, max_length: int | None = None, seed: int | None = None):
        if max_length is not None and max_length < 0:
            raise ValueError(f"max_length must not be negative, got {max_length}")
        self.max_length = max_length
        super().__init__(None, None, seed)

    @property
    def is_np_flattenable(self) -> bool:
        """Text is not an array."""
        return False

    def sample(self, mask: None = None, probability: None = None) -> str:
        """A few words; masks do not apply."""
        words = self.np_random.choice(_WORDS, size=int(self.np_random.integers(1, 6)))
        return " ".join(str(word) for word in words)[: self.max_length]

    def contains(self, x: Any) -> bool:
        """True for a string within the length."""
        return isinstance(x, str) and (self.max_length is None or len(x) <= self.max_length)

    def __repr__(self) -> str:
        return f"UnicodeText(max_length={self.max_length})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UnicodeText) and self.max_length == other.max_length


class AssistantMessage(Space[Message]):
    """OpenAI-style assistant messages, tool calls included.

    ``offer(tools)`` makes samples realistic (names and arguments drawn from the tools' schemas); it changes
    what is drawn, never what is contained, so spaces stay equal.

    Example:
        >>> {"role": "assistant", "content": "42"} in AssistantMessage()
        True
        >>> {"role": "user", "content": "42"} in AssistantMessage()
        False
    """

    def __init__(self, tools: Sequence[Mapping[str, Any]] = (), seed: int | None = None):
        self._tools = list(tools)
        super().__init__(None, None, seed)

    def offer(self, tools: Sequence[Mapping[str, Any]]) -> None:
        """Draw calls from these OpenAI tool schemas from now on."""
        self._tools = list(tools)

    @property
    def is_np_flattenable(self) -> bool:
        """Messages are not arrays."""
        return False

    def sample(self, mask: None = None, probability: None = None) -> Message:
        """One message: a call of one or two offered tools, or a line of text where none is offered."""
        rng = self.np_random
        if not self._tools:
            return {"role": "assistant", "content": UnicodeText(seed=int(rng.integers(2**31))).sample()}
        calls = []
        for k in range(int(rng.integers(1, 3))):
            function = self._tools[int(rng.integers(len(self._tools)))]["function"]
            arguments = sample_json(function.get("parameters") or {"type": "object"}, rng)
            calls.append(
                {
                    "id": f"call_{k}",
                    "type": "function",
                    "function": {"name": function["name"], "arguments": json.dumps(arguments, ensure_ascii=False)},
                }
            )
        return {"role": "assistant", "content": None, "tool_calls": calls}

    def contains(self, x: Any) -> bool:
        """True for a well-formed assistant message."""
        return why_not_a_message(x, ("assistant",)) is None

    def __repr__(self) -> str:
        return "AssistantMessage()"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AssistantMessage)


class Messages(Space[tuple[Message, ...]]):
    """Tuples of chat messages of the given roles: what an env shows the model next.

    Example:
        >>> ({"role": "user", "content": "hello"},) in Messages()
        True
    """

    def __init__(self, roles: Sequence[str] = ROLES, seed: int | None = None):
        if not roles or not set(roles) <= set(ROLES):
            raise ValueError(f"roles must be some of {ROLES}, got {roles!r}")
        self.roles = tuple(roles)
        super().__init__(None, None, seed)

    @property
    def is_np_flattenable(self) -> bool:
        """Messages are not arrays."""
        return False

    def sample(self, mask: None = None, probability: None = None) -> tuple[Message, ...]:
        """Zero to three messages of random roles and words."""
        rng, messages = self.np_random, []
        for k in range(int(rng.integers(0, 4))):
            role = self.roles[int(rng.integers(len(self.roles)))]
            message: Message = {"role": role, "content": UnicodeText(seed=int(rng.integers(2**31))).sample()}
            if role == "tool":
                message |= {"tool_call_id": f"call_{k}", "name": "tool"}
            messages.append(message)
        return tuple(messages)

    def contains(self, x: Any) -> bool:
        """True for a tuple of well-formed messages of the space's roles."""
        return isinstance(x, tuple) and all(why_not_a_message(m, self.roles) is None for m in x)

    def __repr__(self) -> str:
        return f"Messages(roles={self.roles})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Messages) and self.roles == other.roles


def why_not_a_message(x: Any, roles: Sequence[str] = ROLES) -> str | None:
    """What is wrong with ``x`` as a chat message of one of ``roles``; None where nothing is."""
    if not isinstance(x, Mapping):
        return f"expected a dict with a role and content, got {type(x).__name__}"
    if x.get("role") not in roles:
        return f"expected role {' or '.join(map(repr, roles))}, got {x.get('role')!r}"
    content = x.get("content")
    if isinstance(content, list | tuple):
        for part in content:
            if not (isinstance(part, Mapping) and isinstance(part.get("type"), str)):
                return f"expected content parts to be dicts with a type, got {part!r}"
    elif not (content is None or isinstance(content, str)):
        return f"expected content to be a string, None or a list of parts, got {type(content).__name__}"
    if x["role"] == "tool" and not isinstance(x.get("tool_call_id"), str):
        return "expected a tool message to carry the tool_call_id it answers"
    calls = x.get("tool_calls")
    if calls is None:
        return None
    if x["role"] != "assistant" or not isinstance(calls, list | tuple):
        return f"expected tool_calls to be a list in an assistant message, got {type(calls).__name__}"
    for call in calls:
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            return f"expected tool calls like {{'type': 'function', 'function': {{'name', 'arguments'}}}}, got {call!r}"
        if not isinstance(function.get("arguments", ""), str | Mapping | None):
            return f"expected a call's arguments to be a JSON string or a dict, got {function['arguments']!r}"
    return None


def sample_json(schema: Mapping[str, Any] | bool, rng: Any, depth: int = 0) -> Any:
    """A random value that roughly fits a JSON schema: enough for random policies, not a validator.

    Args:
        schema: the JSON schema (``True``, in a schema's parts, takes anything); unknown keywords are ignored.
        rng: a ``numpy.random.Generator``.
        depth: how deep the value stands; below six levels optional parts are left out.
    """
    if isinstance(schema, bool):
        schema = {}
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][int(rng.integers(len(schema["enum"])))]
    for key in ("anyOf", "oneOf"):
        if schema.get(key):
            return sample_json(schema[key][int(rng.integers(len(schema[key])))], rng, depth + 1)
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = kind[int(rng.integers(len(kind)))]
    if kind == "object" or "properties" in schema:
        required = set(schema.get("required", ()))
        return {
            name: sample_json(sub, rng, depth + 1)
            for name, sub in schema.get("properties", {}).items()
            if name in required or (depth < 6 and rng.random() < 0.5)
        }
    if kind == "array":
        size = int(schema.get("minItems", 0)) + int(rng.integers(0, 3)) * (depth < 6)
        return [sample_json(schema.get("items", {}), rng, depth + 1) for _ in range(size)]
    if kind == "integer":
        low, high = _bounds(schema)
        # Servers in other languages give the bounds of their types, which may be wider than NumPy's.
        return math.ceil(low) + int(rng.integers(0, min(max(math.floor(high) - math.ceil(low), 0), _WIDEST) + 1))
    if kind == "number":
        low, high = _bounds(schema)
        return float(low + rng.random() * min(high - low, float(_WIDEST)))
    if kind == "boolean":
        return bool(rng.integers(2))
    if kind == "null":
        return None
    return str(rng.choice(_WORDS))


def _bounds(schema: Mapping[str, Any]) -> tuple[float, float]:
    """Between which numbers a schema's number lies; 100 apart where it does not say."""
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is None:
        low = 0 if high is None else min(0, high - 100)
    return low, low + 100 if high is None else high
