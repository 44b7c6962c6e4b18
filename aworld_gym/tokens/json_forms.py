"""Tool calls written as JSON: Hermes and Qwen (between tags), Llama 3 (the bare object)."""

from __future__ import annotations

import re
from typing import Any

from aworld_gym.tokens.pieces import CLOSE, OPEN, Pieces, Tools, broken, kind_of
from aworld_gym.tokens.strict_json import CallError, decode_prefix, loads

_HERMES_TAIL = re.compile(r"\s*+</tool_call>")
_LLAMA_CALL = re.compile(r'\s*+\{\s*+"(?:(?:name|parameters|arguments|function)"\s*+:|type"\s*+:\s*+"function")')
_SEPARATOR = re.compile(r"[\s;]*")


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
            at = broken(pieces, error, text, body)
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


def _json_call(value: Any, *keys: str) -> tuple[str, dict[str, Any]]:
    """Name and arguments of a JSON call; ``keys`` are the names its arguments may stand under, the first preferred."""
    if not isinstance(value, dict):
        raise CallError("invalid_json", f"a tool call is a JSON object, got {kind_of(value)}")
    name = value.get("name")
    if not isinstance(name, str) or not name.strip():
        got = f"got {kind_of(name)}" if "name" in value else f"got the keys {sorted(value)[:8]}"
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
        raise CallError("bad_arguments", f'"{key}" is a JSON object, got {kind_of(arguments)}')
    return name.strip(), arguments


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
