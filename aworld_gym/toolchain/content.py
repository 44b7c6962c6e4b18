"""MCP content blocks to the content parts of a chat message.

Text stays text and images become data URLs. What a chat message cannot hold (audio, other binary data) is named in
a line of text, so that the model knows of it. Text beyond the limit is cut, and the model told how much is missing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from aworld_gym.toolchain.jsontext import deeper
from aworld_gym.types import ToolResult

Part = dict[str, Any]

NO_OUTPUT = "(no output)"
"""What the model is shown of a call that worked and gave nothing."""
MAX_DEPTH = 100
"""Levels of a call's arguments at most."""


def tool_result(
    raw: Mapping[str, Any], *, call_id: str, name: str, max_chars: int, duration_s: float = 0.0
) -> ToolResult:
    """The result of a call, from the JSON of an MCP ``CallToolResult``.

    Args:
        raw: ``content``, ``structuredContent``, ``isError``; each may be missing or odd.
        call_id: the model's id for the call.
        name: the tool's name as the model sees it.
        max_chars: characters of text at most, over all parts.
        duration_s: seconds the call took.
    """
    structured = raw.get("structuredContent")
    blocks = raw.get("content")
    if isinstance(blocks, str | Mapping):  # servers that forget the list
        blocks = [{"type": "text", "text": blocks} if isinstance(blocks, str) else blocks]
    parts = [part for block in blocks or () for part in _parts(block)]
    failed = raw.get("isError") is True
    if not parts and structured is not None:
        parts = [text_part(json.dumps(structured, ensure_ascii=False))]
    if not parts:
        parts = [text_part("the tool failed and gave no reason" if failed else NO_OUTPUT)]
    kept, missing = cut(parts, max_chars)
    return ToolResult(
        call_id=call_id,
        name=name,
        content=tuple(kept),
        error="tool_error" if failed else None,
        structured=structured,
        cut_chars=missing,
        duration_s=duration_s,
    )


def error_result(
    kind: str, text: str, *, call_id: str, name: str, max_chars: int, duration_s: float = 0.0
) -> ToolResult:
    """The result of a call that no tool answered: what was wrong, for the model to read."""
    kept, missing = cut([text_part(text)], max_chars)
    return ToolResult(call_id, name, tuple(kept), error=kind, cut_chars=missing, duration_s=duration_s)


def text_part(text: str) -> Part:
    """A text part."""
    return {"type": "text", "text": plain(text)}


def plain(text: str) -> str:
    """``text`` with lone surrogates, which JSON can spell but no tokenizer, pipe or file takes, as U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def sendable(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """A call's arguments as they can be sent: JSON in UTF-8.

    Raises:
        ValueError: they hold something else, such as NaN, or are nested too deep for the SDK to send.
    """
    if deeper(arguments, MAX_DEPTH):
        raise ValueError(f"they are nested more than {MAX_DEPTH} levels deep")
    try:
        text = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
    except TypeError as error:
        raise ValueError(str(error)) from error
    try:
        text.encode()
    except UnicodeEncodeError:
        cleaned: dict[str, Any] = json.loads(plain(text))
        return cleaned
    return dict(arguments)


def cut(parts: list[Part], max_chars: int) -> tuple[list[Part], int]:
    """``parts`` with at most ``max_chars`` characters of text and a notice, and the number of those left out."""
    total = sum(len(part["text"]) for part in parts if part["type"] == "text")
    if total <= max_chars:
        return parts, 0
    kept, left = [], max_chars
    for part in parts:
        if part["type"] != "text":
            kept.append(part)
        elif left > 0:
            kept.append({"type": "text", "text": part["text"][:left]})
            left -= len(part["text"])
    missing = total - max_chars
    kept.append(text_part(f"[cut: {missing} of {total} characters are not shown]"))
    return kept, missing


def _parts(block: Any) -> Iterator[Part]:
    if not isinstance(block, Mapping):
        yield text_part(block if isinstance(block, str) else json.dumps(block, ensure_ascii=False, default=str))
        return
    match block.get("type"):
        case "text" if isinstance(block.get("text"), str):
            yield text_part(block["text"])
        case "image" if isinstance(block.get("data"), str):
            yield _image(block.get("mimeType") or "image/png", block["data"])
        case "audio" if isinstance(block.get("data"), str):
            yield text_part(f"[audio, {block.get('mimeType') or 'unknown type'}, {_bytes(block['data'])} bytes]")
        case "resource" if isinstance(block.get("resource"), Mapping):
            yield from _resource(block["resource"])
        case "resource_link":
            words = [block.get(key) for key in ("name", "uri", "mimeType", "description")]
            yield text_part(f"[resource: {', '.join(word for word in words if isinstance(word, str))}]")
        case _:
            yield text_part(json.dumps(block, ensure_ascii=False, default=str))


def _resource(resource: Mapping[str, Any]) -> Iterator[Part]:
    uri, mime = resource.get("uri") or "no uri", resource.get("mimeType") or ""
    text, blob = resource.get("text"), resource.get("blob")
    if isinstance(text, str):
        yield text_part(f"[resource {uri}]\n{text}")
    elif isinstance(blob, str) and mime.startswith("image/"):
        yield text_part(f"[resource {uri}]")
        yield _image(mime, blob)
    else:
        size = f", {_bytes(blob)} bytes" if isinstance(blob, str) else ""
        yield text_part(f"[resource {uri}, {mime or 'unknown type'}{size}]")


def _image(mime: str, data: str) -> Part:
    return {"type": "image_url", "image_url": {"url": f"data:{mime};base64,{data}"}}


def _bytes(base64: str) -> int:
    return len(base64) * 3 // 4 - base64[-2:].count("=")
