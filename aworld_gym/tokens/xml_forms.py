"""Tool calls written in tags: Qwen's ``<function=...>`` and GLM's ``<arg_key>``.

Both write texts bare, so ``7`` may be a number or a text: the tool's schema decides, and where there is none,
whatever reads as a JSON number, boolean, null, list or object is one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from aworld_gym.tokens.pieces import OPEN, Pieces, Tools, broken, kind_of
from aworld_gym.tokens.strict_json import CallError, loads


def qwen_xml(text: str, tools: Tools) -> Pieces:
    """``<function=NAME>`` with ``<parameter=KEY>`` blocks, inside ``<tool_call>``."""
    return _xml(text, tools, _qwen_call)


def glm(text: str, tools: Tools) -> Pieces:
    """The function's name, then ``<arg_key>`` and ``<arg_value>`` pairs, inside ``<tool_call>``."""
    return _xml(text, tools, _glm_call)


def _xml(text: str, tools: Tools, read: Callable[[str, int, Tools], tuple[str, dict[str, Any], int]]) -> Pieces:
    pieces = Pieces()
    at = 0
    while (start := text.find(OPEN, at)) >= 0:
        pieces.content.append(text[at:start])
        body = start + len(OPEN)
        try:
            name, arguments, at = read(text, body, tools)
        except CallError as error:
            at = broken(pieces, error, text, body)
        else:
            pieces.calls.append((name, arguments))
    pieces.content.append(text[at:])
    return pieces


def _value(text: str, at: int, close: str, follows: re.Pattern[str], over: re.Pattern[str]) -> tuple[str, int]:
    """The bare value at ``at`` and the index after its closing tag.

    A value may hold closing tags as text: it ends at the first ``close`` after which the call goes on as it must
    (``follows``). But not beyond what looks like the end of the whole call (``over``): there, its tag is missing.
    """
    limit = over.search(text, at)
    end = text.find(close, at, limit.end() if limit else len(text))
    while end >= 0:
        if follows.match(text, end + len(close)):
            return text[at:end], end + len(close)
        end = text.find(close, end + 1, limit.end() if limit else len(text))
    raise CallError("malformed", f"expected {close} after the value that begins {text[at : at + 20]!r}")


_QWEN_HEAD = re.compile(r"\s*+<function=([^>\n]*+)>")
_QWEN_KEY = re.compile(r"\s*+<parameter=([^>\n]*+)>\n?")
_QWEN_NEXT = re.compile(r"\s*+(?:<parameter=|</function>\s*+</tool_call>)")
_QWEN_OVER = re.compile(r"</function>\s*+</tool_call>\s*+(?:<tool_call>|\Z)")
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
        value, at = _value(text, key.end(), "</parameter>", _QWEN_NEXT, _QWEN_OVER)
        _add(arguments, key.group(1).strip(), value.removesuffix("\n"), name, tools)
    tail = _QWEN_TAIL.match(text, at)
    if tail is None:
        raise CallError("malformed", "expected <parameter=KEY>, or </function> and </tool_call>")
    return name, arguments, tail.end()


_GLM_HEAD = re.compile(r"\s*+([^<\n]*+)\s*+(?=<arg_key>|</tool_call>)")
_GLM_KEY = re.compile(r"\s*+<arg_key>([^\n]*?)</arg_key>\s*+<arg_value>")
_GLM_NEXT = re.compile(r"\s*+(?:<arg_key>|</tool_call>)")
_GLM_OVER = re.compile(r"</tool_call>\s*+(?:<tool_call>|\Z)")
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
        value, at = _value(text, key.end(), "</arg_value>", _GLM_NEXT, _GLM_OVER)
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
            found = ((function.get("parameters") or {}).get("properties") or {}).get(key)
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
    return raw if allowed is not None and "string" in allowed and kind_of(value) not in allowed else value


def _types(schema: Mapping[str, Any]) -> set[str] | None:
    """The JSON types a schema allows, ``number`` including ``integer``; None where that is open."""
    declared = schema.get("type")
    found: set[str] = set()
    if isinstance(declared, str | list):
        found = {declared} if isinstance(declared, str) else set(map(str, declared))
    elif isinstance(schema.get("enum"), list):
        found = {kind_of(value) for value in schema["enum"]}
    elif "const" in schema:
        found = {kind_of(schema["const"])}
    else:
        branches = schema.get("anyOf") or schema.get("oneOf")
        for branch in branches if isinstance(branches, list) else [None]:
            inner = _types(branch) if isinstance(branch, Mapping) else None
            if inner is None:
                return None
            found |= inner
    return found | {"integer"} if "number" in found else found
