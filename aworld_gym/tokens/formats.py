"""How model families write tool calls as text, and how to read them back.

One function per form: text in; plain content, calls and typed errors out. None of them ever raises for what
the text says. A tag counts whether the model sampled it as one control token or spelled it with ordinary ones:
the text is the model's own, and servers of the same models read it in the same way.

=============  =====================================================================================
``hermes``     ``<tool_call>{"name": ..., "arguments": {...}}</tool_call>``: Hermes, Qwen2.5, Qwen3
``llama``      the whole message is ``{"name": ..., "parameters": {...}}``, several joined by ``;``: Llama 3.x
``qwen_xml``   ``<tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>``:
               Qwen3-Coder, Qwen3.5, Nemotron 3
``glm``        ``<tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value></tool_call>``: GLM-4.5, 4.6
=============  =====================================================================================

The XML forms write strings bare, so ``7`` may be a number or a text: the tool's schema decides, and where there
is none, whatever reads as a JSON number, boolean, null, list or object is one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aworld_gym.tokens.strict_json import CallError, decode_prefix, dumps, loads
from aworld_gym.types import Message

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
THINK, END_THINK = "<think>", "</think>"

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
"""``(text, tools) -> Pieces``. ``tools`` is empty where the caller gave none."""


@dataclass(frozen=True)
class Parsed:
    """A sampled message, read."""

    message: Message
    """Ready to be an env's action: ``role``, ``content`` (text, maybe empty), and where there are any
    ``tool_calls`` (ids ``call_0``, ``call_1``, ...; arguments as JSON text), ``reasoning_content``, ``parse_errors``."""
    closed: bool = True
    """Whether a stop token ended it; False where it was cut off."""

    @property
    def errors(self) -> list[dict[str, str]]:
        """``{"type", "raw", "detail"}`` each; ``type`` is one of :data:`ERROR_KINDS`. Also in the message."""
        errors: list[dict[str, str]] = self.message.get("parse_errors", [])
        return errors


def parse_text(
    text: str,
    tool_format: str | ToolFormat = "hermes",
    *,
    closed: bool = True,
    in_reasoning: bool = False,
    tools: Tools | None = None,
) -> Parsed:
    """Read one sampled message. Never raises for what ``text`` says.

    Args:
        text: the message, without the stop token.
        tool_format: a name in :data:`FORMATS`, or a function like those.
        closed: whether a stop token followed; passed on.
        in_reasoning: the generation prompt ends inside ``<think>``, so the text begins as reasoning.
        tools: the tools the model was given; only the XML forms need them, to type bare values.

    Raises:
        ValueError: an unknown ``tool_format``.
    """
    reader = find_format(tool_format)
    message: Message = {"role": "assistant", "content": ""}
    errors: list[dict[str, str]] = []
    body, opened = text, in_reasoning
    if body.lstrip().startswith(THINK):
        body, opened = body.lstrip()[len(THINK) :], True
    if opened:
        reasoning, ended, body = body.partition(END_THINK)
        message["reasoning_content"] = reasoning.strip("\n")
        if not ended:
            detail = f"the message ended inside its reasoning: {END_THINK} was expected before any answer or tool call"
            errors.append({"type": "unclosed_reasoning", "raw": reasoning.strip(), "detail": detail})
    pieces = reader(body, tools or ())
    message["content"] = "\n".join(part for part in (p.strip() for p in pieces.content) if part)
    if pieces.calls:
        message["tool_calls"] = [
            {"id": f"call_{k}", "type": "function", "function": {"name": name, "arguments": dumps(arguments)}}
            for k, (name, arguments) in enumerate(pieces.calls)
        ]
    errors += pieces.errors
    if errors:
        message["parse_errors"] = errors
    return Parsed(message, closed)


def find_format(tool_format: str | ToolFormat) -> ToolFormat:
    """The function for a name. Raises ValueError for a name that is not in :data:`FORMATS`."""
    if callable(tool_format):
        return tool_format
    try:
        return FORMATS[tool_format]
    except KeyError:
        raise ValueError(f"tool_format must be one of {sorted(FORMATS)} or a function, got {tool_format!r}") from None


def hermes(text: str, tools: Tools) -> Pieces:
    """JSON between ``<tool_call>`` tags; a ``</tool_call>`` inside a JSON string does not end the call."""
    pieces = Pieces()
    at = 0
    while (start := text.find(OPEN, at)) >= 0:
        pieces.content.append(text[at:start])
        body = start + len(OPEN)
        try:
            value, end = decode_prefix(text, body)
            tail = _HERMES_TAIL.match(text, end)
            if tail is None:
                raise CallError("invalid_json", f"expected {CLOSE} after the JSON object")
        except CallError as error:
            at = _broken(pieces, error, text, body)
            continue
        at = tail.end()
        try:
            pieces.calls.append(_json_call(value, "arguments"))
        except CallError as error:
            pieces.failed(error, text[body : tail.start()])
    pieces.content.append(text[at:])
    return pieces


def llama(text: str, tools: Tools) -> Pieces:
    """JSON objects with ``name`` and ``parameters``, as the whole message or after ``<|python_tag|>``.

    A message that begins with a JSON object is a call only if the object looks like one: a model may well answer
    in JSON.
    """
    pieces = Pieces()
    before, tag, body = text.partition("<|python_tag|>")
    if tag:
        pieces.content.append(before)
    else:
        body = text
        if not _LLAMA_CALL.match(body):
            pieces.content.append(text)
            return pieces
    at = 0
    while at < len(body):
        start = at
        try:
            value, at = decode_prefix(body, start)
            inner = value.get("function") if isinstance(value, dict) else None
            pieces.calls.append(_json_call(inner if isinstance(inner, dict) else value, "parameters", "arguments"))
        except CallError as error:
            if at == start:  # not JSON: nothing after it can be read either
                raw, at = body[start:], len(body)
                if error.kind == "invalid_json" and _cut_off(raw):
                    error = CallError("unclosed", "the message ended inside the JSON object")
                pieces.failed(error, raw)
            else:
                pieces.failed(error, body[start:at])
        gap = _SEPARATOR.match(body, at)
        at = gap.end() if gap else at
        if at < len(body) and body[at] != "{":
            pieces.content.append(body[at:])
            break
    return pieces


def qwen_xml(text: str, tools: Tools) -> Pieces:
    """``<function=NAME>`` with ``<parameter=KEY>`` blocks, inside ``<tool_call>``."""
    return _xml(text, tools, _qwen_call)


def glm(text: str, tools: Tools) -> Pieces:
    """The function's name, then ``<arg_key>`` and ``<arg_value>`` pairs, inside ``<tool_call>``."""
    return _xml(text, tools, _glm_call)


FORMATS: dict[str, ToolFormat] = {"hermes": hermes, "qwen_xml": qwen_xml, "glm": glm, "llama": llama}
"""The forms by name."""

_HERMES_TAIL = re.compile(r"\s*+</tool_call>")
_LLAMA_CALL = re.compile(r'\s*\{\s*"(?:name|parameters|arguments|function|type)"\s*:')
_SEPARATOR = re.compile(r"[\s;]*")


def _json_call(value: Any, *keys: str) -> tuple[str, dict[str, Any]]:
    """Name and arguments of a JSON call; ``keys`` are the names its arguments may stand under, the first preferred."""
    if not isinstance(value, dict):
        raise CallError("invalid_json", f"a tool call is a JSON object, got {_kind(value)}")
    name = value.get("name")
    if not isinstance(name, str) or not name.strip():
        got = f"got {_kind(name)}" if "name" in value else f"got the keys {sorted(value)[:8]}"
        raise CallError("missing_name", f'a tool call names its function under "name", {got}')
    key = next((k for k in keys if k in value), None)
    if key is None:
        others = sorted(set(value) - {"name", "id", "type"})
        if others:
            raise CallError("bad_arguments", f'the arguments stand under "{keys[0]}", got the keys {others[:8]}')
        return name.strip(), {}
    arguments = value[key]
    if isinstance(arguments, str):  # OpenAI's own form: JSON text of the object
        arguments = loads(arguments)
    if not isinstance(arguments, dict):
        raise CallError("bad_arguments", f'"{key}" is a JSON object, got {_kind(arguments)}')
    return name.strip(), arguments


def _broken(pieces: Pieces, error: CallError, text: str, start: int) -> int:
    """Note the broken call that began at ``start``; the index to read on from."""
    close, following = text.find(CLOSE, start), text.find(OPEN, start)
    if close >= 0 and (following < 0 or close < following):
        pieces.failed(error, text[start:close])
        return close + len(CLOSE)
    what = f"the next {OPEN}" if following >= 0 else "the end of the message"
    end = following if following >= 0 else len(text)
    pieces.failed(CallError("unclosed", f"expected {CLOSE} after the call, got {what}"), text[start:end])
    return end


def _cut_off(raw: str) -> bool:
    """Whether a broken JSON object lacks its end, rather than being wrong inside."""
    in_string = escaped = False
    depth = 0
    for char in raw:
        if in_string:
            in_string = escaped or char != '"'
            escaped = char == "\\" and not escaped
        elif char == '"':
            in_string = True
        else:
            depth += (char in "{[") - (char in "}]")
    return in_string or depth > 0


def _xml(text: str, tools: Tools, read: Callable[[str, int, Tools], tuple[str, dict[str, Any], int]]) -> Pieces:
    pieces = Pieces()
    at = 0
    while (start := text.find(OPEN, at)) >= 0:
        pieces.content.append(text[at:start])
        body = start + len(OPEN)
        try:
            name, arguments, at = read(text, body, tools)
        except CallError as error:
            at = _broken(pieces, error, text, body)
        else:
            pieces.calls.append((name, arguments))
    pieces.content.append(text[at:])
    return pieces


def _value(text: str, at: int, close: str, follows: re.Pattern[str], key: str) -> tuple[str, int]:
    """The bare value at ``at`` and the index after its closing tag.

    A value may hold the closing tag as text: it ends at the first one after which the call goes on as it must.
    """
    end = text.find(close, at)
    while end >= 0:
        if follows.match(text, end + len(close)):
            return text[at:end], end + len(close)
        end = text.find(close, end + 1)
    raise CallError("malformed", f"expected {close} after the value of {key!r}")


_QWEN_HEAD = re.compile(r"\s*+<function=([^>\n]*+)>")
_QWEN_KEY = re.compile(r"\s*+<parameter=([^>\n]*+)>\n?")
_QWEN_NEXT = re.compile(r"\s*+(?:<parameter=|</function>\s*+</tool_call>)")
_QWEN_TAIL = re.compile(r"\s*+</function>\s*+</tool_call>")


def _qwen_call(text: str, at: int, tools: Tools) -> tuple[str, dict[str, Any], int]:
    head = _QWEN_HEAD.match(text, at)
    if head is None:
        raise CallError("malformed", "expected <function=NAME> after <tool_call>")
    name = head.group(1).strip()
    if not name:
        raise CallError("missing_name", "expected a name in <function=NAME>")
    arguments: dict[str, Any] = {}
    at = head.end()
    while key := _QWEN_KEY.match(text, at):
        value, at = _value(text, key.end(), "</parameter>", _QWEN_NEXT, key.group(1))
        _add(arguments, key.group(1).strip(), value.removesuffix("\n"), name, tools)
    tail = _QWEN_TAIL.match(text, at)
    if tail is None:
        raise CallError("malformed", "expected <parameter=KEY>, or </function> and </tool_call>")
    return name, arguments, tail.end()


_GLM_HEAD = re.compile(r"\s*+([^<\n]*+)\s*+(?=<arg_key>|</tool_call>)")
_GLM_KEY = re.compile(r"\s*+<arg_key>([^\n]*?)</arg_key>\s*+<arg_value>")
_GLM_NEXT = re.compile(r"\s*+(?:<arg_key>|</tool_call>)")
_GLM_TAIL = re.compile(r"\s*+</tool_call>")


def _glm_call(text: str, at: int, tools: Tools) -> tuple[str, dict[str, Any], int]:
    head = _GLM_HEAD.match(text, at)
    if head is None:
        raise CallError("malformed", "expected the function's name, then <arg_key> or </tool_call>")
    name = head.group(1).strip()
    if not name:
        raise CallError("missing_name", "expected the function's name after <tool_call>")
    arguments: dict[str, Any] = {}
    at = head.end()
    while key := _GLM_KEY.match(text, at):
        value, at = _value(text, key.end(), "</arg_value>", _GLM_NEXT, key.group(1))
        _add(arguments, key.group(1).strip(), value, name, tools)
    tail = _GLM_TAIL.match(text, at)
    if tail is None:
        raise CallError("malformed", "expected <arg_key>KEY</arg_key><arg_value>VALUE</arg_value>, or </tool_call>")
    return name, arguments, tail.end()


def _add(arguments: dict[str, Any], key: str, raw: str, name: str, tools: Tools) -> None:
    if not key:
        raise CallError("malformed", "expected a parameter's name, got none")
    if key in arguments:
        raise CallError("duplicate_key", f"the parameter {key!r} stands twice")
    arguments[key] = typed_value(raw, _property(name, key, tools))


def _property(name: str, key: str, tools: Tools) -> Mapping[str, Any] | None:
    """The schema of a parameter, or None where it is not known."""
    for tool in tools:
        function = tool.get("function", tool)
        if function.get("name") == name:
            found = (function.get("parameters") or {}).get("properties", {}).get(key)
            return found if isinstance(found, Mapping) else None
    return None


def typed_value(raw: str, schema: Mapping[str, Any] | None) -> Any:
    """The value a bare text stands for, by the parameter's JSON schema.

    Text that does not fit the schema stays text, so that checking it against the schema says what is wrong.
    """
    allowed = _types(schema) if schema is not None else None
    if allowed == {"string"}:
        return raw
    text = raw.strip()
    # Templates that print values by Python's str() teach the model these spellings.
    text = {"True": "true", "False": "false", "None": "null"}.get(text, text)
    try:
        value = loads(text)
    except CallError:
        return raw
    if isinstance(value, str):  # a quoted text is one only where a string is not allowed bare
        return raw if allowed is None or "string" in allowed else value
    return raw if allowed is not None and "string" in allowed and _kind(value) not in allowed else value


def _types(schema: Mapping[str, Any]) -> set[str] | None:
    """The JSON types a schema allows, ``number`` including ``integer``; None where that is open."""
    declared = schema.get("type")
    if isinstance(declared, str):
        found: set[str] | None = {declared}
    elif isinstance(declared, list):
        found = set(map(str, declared))
    elif "enum" in schema or "const" in schema:
        values = schema["enum"] if isinstance(schema.get("enum"), list) else [schema.get("const")]
        found = {_kind(value) for value in values}
    else:
        branches = schema.get("anyOf") or schema.get("oneOf")
        if not isinstance(branches, list):
            return None
        found = set()
        for branch in branches:
            inner = _types(branch) if isinstance(branch, Mapping) else None
            if inner is None:
                return None
            found |= inner
    return found | {"integer"} if "number" in found else found


def _kind(value: Any) -> str:
    """The JSON type of a value, in JSON schema's words."""
    if value is None:
        return "null"
    for kind, types in (("boolean", bool), ("integer", int), ("number", float), ("string", str), ("array", list)):
        if isinstance(value, types):
            return kind
    return "object"
