"""Between the env's messages and what chat-completions endpoints take and give.

Endpoints are stricter than the env: tool messages hold text only, call ids must be there and be unique, and some
parse the arguments of earlier calls and refuse the whole request where they are not a JSON object.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from aworld_gym.types import Message

IMAGES = ("user", "tool", "omit")
"""Where image parts of tool messages may go."""


def wire_messages(messages: Iterable[Message], *, images: str = "user") -> list[Message]:
    """The messages as an endpoint takes them; what only the env knows (``sampled``, ...) is left out.

    Args:
        messages: new messages of the env, or one assistant message.
        images: one of :data:`IMAGES`. ``"user"`` puts the images of consecutive tool messages into one user
            message after the last of them, each announced by the call it belongs to.
    """
    wire: list[Message] = []
    moved: list[dict[str, Any]] = []
    for message in messages:
        if message["role"] == "tool":
            wire.append(_tool(message, images, moved))
            continue
        _flush(wire, moved)
        wire.append(_assistant(message) if message["role"] == "assistant" else _plain(message))
    _flush(wire, moved)
    return wire


def is_completion(reply: Any) -> bool:
    """Whether a reply (an ``openai`` object, which the library does not check) has what :func:`reply_message` reads."""
    choices = getattr(reply, "choices", None)
    if not isinstance(choices, list) or not choices:
        return False
    message, reason = getattr(choices[0], "message", None), getattr(choices[0], "finish_reason", None)
    content, calls = getattr(message, "content", 0), getattr(message, "tool_calls", None) or []
    parts = isinstance(content, list) and all(isinstance(part, dict) for part in content)  # some endpoints give parts
    if not (parts or isinstance(content, str | None)) or not isinstance(calls, list):
        return False
    usage = getattr(reply, "usage", None)
    return (
        isinstance(reason, str | None)
        and (usage is None or hasattr(usage, "model_dump"))
        and all(_is_call(call) for call in calls)
    )


def _is_call(call: Any) -> bool:
    function = getattr(call, "function", None)
    if function is None:  # a call of another kind
        return True
    return (
        isinstance(getattr(call, "id", None), str | None)
        and hasattr(function, "arguments")
        and isinstance(getattr(function, "name", None), str | None)
    )


def reply_message(completion: Any, *, turn: int) -> Message:
    """The action in a chat completion (an ``openai`` object).

    Calls whose id is missing or taken get one of their own. ``sampled`` records the model's version, token usage
    and why it stopped (``length`` where the message was cut); reasoning text is kept beside the content.
    """
    choice = completion.choices[0]
    reply = choice.message
    message: Message = {"role": "assistant", "content": reply.content}
    seen: set[str] = set()
    calls = []
    for k, call in enumerate(reply.tool_calls or ()):
        function = getattr(call, "function", None)
        if function is None:  # a "custom" tool call: none was offered
            continue
        call_id = call.id if call.id and call.id not in seen else f"call_{turn}_{k}"
        seen.add(call_id)
        arguments = function.arguments
        if not isinstance(arguments, str):  # some servers send an object
            arguments = json.dumps({} if arguments is None else arguments, ensure_ascii=False)
        calls.append(
            {"id": call_id, "type": "function", "function": {"name": function.name or "", "arguments": arguments}}
        )
    if calls:
        message["tool_calls"] = calls
    for name in ("reasoning_content", "reasoning", "refusal"):
        text = getattr(reply, name, None)
        if isinstance(text, str) and text:
            message[name] = text
    usage = completion.usage.model_dump(exclude_none=True) if completion.usage is not None else None
    message["sampled"] = {"model_version": completion.model, "finish_reason": choice.finish_reason, "usage": usage}
    return message


def _plain(message: Message) -> Message:
    content = message.get("content") or ""
    return {"role": message["role"], "content": _sendable(content) if isinstance(content, str) else content}


def _assistant(message: Message) -> Message:
    wire = _plain(message)
    if message.get("tool_calls"):
        wire["tool_calls"] = [_call(call) for call in message["tool_calls"]]
    return wire


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    arguments = function.get("arguments") or "{}"
    if isinstance(arguments, Mapping):
        arguments = json.dumps(arguments, ensure_ascii=False)
    try:
        sound = isinstance(json.loads(arguments), dict)
    except (ValueError, RecursionError):
        sound = False
    if not sound:
        # The model is told of its mistake in the tool message; here its text is kept in a form that can be sent.
        arguments = json.dumps({"unreadable_arguments": arguments}, ensure_ascii=False)
    name, arguments = _sendable(function["name"]), _sendable(arguments)
    return {"id": call["id"], "type": "function", "function": {"name": name, "arguments": arguments}}


def _tool(message: Message, images: str, moved: list[dict[str, Any]]) -> Message:
    content = message.get("content") or ""
    if not isinstance(content, str) and images != "tool":
        lines = []
        for part in content:
            if part.get("type") == "text":
                lines.append(part["text"])
            elif images == "omit":
                lines.append(f"[a part of type {part['type']} was left out: this model takes text only]")
            else:
                lines.append("[an image: see the next user message]")
                moved.append({"type": "text", "text": f"Image from {message['tool_call_id']}:"})
                moved.append(dict(part))
        content = "\n".join(lines)
    if isinstance(content, str):
        content = _sendable(content)
    return {"role": "tool", "tool_call_id": message["tool_call_id"], "content": content}


def _sendable(text: str) -> str:
    """The text without lone surrogates, which JSON can carry into a tool result and UTF-8 cannot carry out."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def _flush(wire: list[Message], moved: list[dict[str, Any]]) -> None:
    if moved:
        wire.append({"role": "user", "content": list(moved)})
        moved.clear()
