"""Reading an action: what an assistant message calls, and what it answers.

Only here is it decided what counts as a call, as an error of the model, and as a final answer. Nothing here
runs a tool.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aworld_gym.errors import ActionError
from aworld_gym.spaces import why_not_a_message
from aworld_gym.types import Message

INVALID_CALL_NAME = "invalid_call"
"""The name of tool messages that answer calls which could not be read at all."""

# Each is matched in linear time: samples that repeat a newline or a tag ten thousand times are ordinary.
_ANSWER_TAG = re.compile(r"<(/?)answer>", re.IGNORECASE | re.ASCII)
_ANSWER_LINE = re.compile(r"(\W*+)FINAL ANSWER([^\w:]*+):(.*)", re.IGNORECASE | re.DOTALL)
_FENCE = re.compile(r" {0,3}(```+|~~~+)")
_KNOWN_KEYS = frozenset({"role", "content", "tool_calls", "sampled", "parse_errors"})
# ``json.dumps`` would make an encoder for each of the dozens of short texts of an episode.
_CANONICAL = json.JSONEncoder(sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=str)
_PARSE_ERROR_KINDS = {"invalid_json": "call_invalid_json"}


@dataclass(frozen=True)
class Call:
    """One tool call of an action; ``error`` is set where it could not be read."""

    id: str
    name: str
    arguments: Mapping[str, Any]
    error: tuple[str, str] | None = None
    """(kind from CALL_ERRORS, text for the model)."""


def check_action(action: Any) -> None:
    """Raise ActionError, the caller's mistake, where ``action`` is not an assistant message."""
    problem = why_not_a_message(action, ("assistant",)) or _why_not_recordable(action)
    if problem is not None:
        raise ActionError(f"an action is an OpenAI-style assistant message: {problem}. {_hint(action)}")


def _why_not_recordable(action: Message) -> str | None:
    """What is wrong with what a message carries besides text and calls; None where nothing is."""
    sampled = action.get("sampled")
    if sampled is not None:
        ids = sampled.get("token_ids") if isinstance(sampled, Mapping) else None
        if not isinstance(sampled, Mapping) or not (ids is None or hasattr(ids, "__len__")):
            return f"expected sampled to be a dict whose token_ids are a list, got {str(sampled)[:80]!r}"
    problems = action.get("parse_errors") or ()
    if not isinstance(problems, list | tuple) or not all(isinstance(p, Mapping) for p in problems):
        return f"expected parse_errors to be a list of dicts with a type, got {str(problems)[:80]!r}"
    given = [c["function"]["arguments"] for c in action.get("tool_calls") or () if "arguments" in c["function"]]
    extra = {key: value for key, value in action.items() if key not in _KNOWN_KEYS}
    parts = None if isinstance(action.get("content"), str) else action.get("content")  # a text needs no look
    try:
        json.dumps([[a for a in given if isinstance(a, Mapping)], parts, extra], sort_keys=True, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        return f"expected content, arguments and extra keys to be JSON values, got something else ({error})"
    return None


def _hint(action: Any) -> str:
    if hasattr(action, "model_dump"):
        return "Pass message.model_dump() of a client library's message object."
    if isinstance(action, str):
        return "For raw model text wrap the env in RawTextAction."
    return 'For example {"role": "assistant", "content": "..."}.'


def read_calls(action: Message, turn: int, most_errors: int = 16) -> list[Call]:
    """The calls of a checked action in order; those that a parser could not read come last, as errors.

    Args:
        action: the action.
        turn: number of the turn, for the ids of calls that have none.
        most_errors: unreadable calls beyond this are counted in the last one's text: a degenerate sample can hold
            thousands, and each would cost the model a message.
    """
    calls = [_read(call, f"call_{turn}_{k}") for k, call in enumerate(action.get("tool_calls") or ())]
    problems = action.get("parse_errors") or ()
    for k, problem in enumerate(problems[:most_errors]):
        kind = _PARSE_ERROR_KINDS.get(problem.get("type", ""), "call_malformed")
        detail = problem.get("detail") or problem.get("type", "unreadable")
        text = f"this tool call could not be read ({detail}). Nothing was run. Write the call again, complete."
        if k + 1 == most_errors < len(problems):
            text += f" {len(problems) - most_errors} more could not be read either."
        calls.append(Call(f"error_{k}", INVALID_CALL_NAME, {}, (kind, text)))
    return calls


def final_answer(action: Message) -> str | None:
    """The answer in a message's own text.

    The last ``<answer>...</answer>``, else the last ``FINAL ANSWER:`` line; None where there is neither. What is
    thought (``<think>``, whether or not it is closed) or stands in a fenced code block is no answer. Tool output is
    never looked at, so a tool that echoes a tag cannot score.
    """
    content = action.get("content")
    if isinstance(content, list | tuple):
        content = "\n".join(str(part.get("text", "")) for part in content if part.get("type") == "text")
    text = _said(content or "")
    answer = _last_tagged(text)
    return _last_line(text) if answer is None else answer


def _said(text: str) -> str:
    """The text without reasoning and without fenced code blocks (CommonMark's; one that is not closed has no end)."""
    text = text.rpartition("</think>")[2].partition("<think>")[0]
    out, fence = [], ""
    for line in text.split("\n"):
        found = _FENCE.match(line)
        if fence:
            if found and found[1].startswith(fence) and not line[found.end() :].strip():
                fence = ""
        elif found:
            fence = found[1]
        else:
            out.append(line)
    return "\n".join(out)


def canonical_json(value: Any) -> str:
    """One text for equal JSON values: sorted keys, no spaces."""
    return _CANONICAL.encode(value)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _last_tagged(text: str) -> str | None:
    """What stands between the last closing tag that has an opening one before it, and the nearest such."""
    answer, opened = None, None
    for tag in _ANSWER_TAG.finditer(text):
        if not tag[1]:
            opened = tag.end()
        elif opened is not None:
            answer, opened = text[opened : tag.start()], None
    return None if answer is None else answer.strip()


def _last_line(text: str) -> str | None:
    """What follows the last ``FINAL ANSWER:`` on its line; emphasis that was opened before it is taken off."""
    for line in reversed(text.split("\n")):
        found = _ANSWER_LINE.match(line)
        if found and (answer := found[3].strip()):
            marks = "".join(set(found[1]) & set("*_`"))
            return answer.strip(marks).strip() if marks else answer
    return None


def _read(call: Mapping[str, Any], default_id: str) -> Call:
    function = call["function"]
    call_id, name = str(call.get("id") or default_id), function["name"]
    arguments = function.get("arguments") or "{}"
    if isinstance(arguments, Mapping):
        return Call(call_id, name, dict(arguments))
    try:
        value = json.loads(arguments, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:  # RecursionError: nesting far beyond any schema
        text = f"the arguments of {name!r} are not valid JSON ({error}). Expected one JSON object."
        return Call(call_id, name, {}, ("call_invalid_json", text))
    if not isinstance(value, dict):
        text = f"the arguments of {name!r} must be one JSON object, got {type(value).__name__}."
        return Call(call_id, name, {}, ("call_malformed", text))
    return Call(call_id, name, value)
