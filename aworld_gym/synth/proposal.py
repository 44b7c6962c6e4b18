"""What a language model proposes: a question, the calls that lead to its answer, and where in their results it stands.

The format, as the model writes it::

    {"question": "...",
     "steps": [{"tool": "a", "arguments": {"x": 1}},
               {"tool": "b", "arguments": {"y": {"$from": {"step": 1, "json": "/items/0/name"}}}}],
     "answer": {"step": 2, "after": "total: ", "before": " EUR"},
     "type": "float", "unit": "EUR"}

A place in a result (``$from``, ``answer``) is the whole text of a step's result; or a value in it by JSON pointer
(RFC 6901); or what stands between two texts, the first occurrence of each. ``"as": "number"`` makes a text a number.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from aworld_gym.actions import canonical_json
from aworld_gym.scorers import TYPES

MAX_QUESTION, MAX_STEPS = 2000, 12
MAX_OBJECTS = 500
"""Places of a reply at which an object may begin."""

_FENCE = re.compile(r"```(?:json)?[ \t]*\n(.*?)```", re.DOTALL)
_PLACE_KEYS = frozenset({"step", "json", "after", "before", "as"})


class Malformed(Exception):
    """What the model wrote is no proposal; the message says why."""


@dataclass(frozen=True)
class Place:
    """A place in a step's result."""

    step: int
    """From 1."""
    pointer: str | None = None
    after: str = ""
    before: str = ""
    number: bool = False


@dataclass(frozen=True)
class Step:
    """One call; a :class:`Place` may stand anywhere in its arguments."""

    tool: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class Proposal:
    """A question with a solution that was not run yet."""

    question: str
    steps: tuple[Step, ...]
    answer: Place
    type: str = "string"
    unit: str | None = None
    key: str = ""
    """Equal for proposals with the same calls and the same place of the answer."""


Check = Callable[[str, Any], tuple[str, str] | None]
"""``(tool, arguments)`` -> what is wrong with the call, as :meth:`aworld_gym.toolchain.ToolSession.check` says it."""


def read_items(text: str) -> list[Any]:
    """What a model's reply lists: the items of its JSON list, what stands under ``"tasks"`` or ``"calls"``, or objects.

    Thoughts before ``</think>``, fences and prose are passed over, and so is the end of a reply that was cut short:
    whatever is whole counts.

    Raises:
        Malformed: there is no JSON in it.
    """
    text = text.rpartition("</think>")[2].strip()
    for candidate in (text, *(match[1].strip() for match in _FENCE.finditer(text))):
        try:
            return _listed(json.loads(candidate))
        except (ValueError, RecursionError):
            continue
    found = list(_objects(text))
    if not found:
        raise Malformed("the reply holds no JSON")
    return found


def read_proposal(item: Any, check: Check) -> Proposal:
    """The proposal that one item of a reply describes.

    Args:
        item: a JSON value.
        check: says what is wrong with a call; asked of every call whose arguments are known.

    Raises:
        Malformed: it describes none.
    """
    try:
        return _read(item, check)
    except RecursionError:
        raise Malformed("it is nested too deep") from None


def _read(item: Any, check: Check) -> Proposal:
    if not isinstance(item, Mapping):
        raise Malformed(f"a task is an object, got {type(item).__name__}")
    question = item.get("question")
    if not isinstance(question, str) or not question.strip() or len(question) > MAX_QUESTION:
        raise Malformed(f"`question` is a text of at most {MAX_QUESTION} characters")
    raw = item.get("steps")
    if not isinstance(raw, list) or not 1 <= len(raw) <= MAX_STEPS:
        raise Malformed(f"`steps` is a list of 1 to {MAX_STEPS} calls")
    steps = tuple(_step(number, one, check) for number, one in enumerate(raw, 1))
    kind, unit = item.get("type") or "string", item.get("unit") or None
    if kind not in TYPES:
        raise Malformed(f"`type` is one of {', '.join(TYPES)}, got {kind!r:.80}")
    if unit is not None and not isinstance(unit, str):
        raise Malformed("`unit` is a text")
    answer = _place(item.get("answer"), len(steps), "`answer`")
    key = canonical_json([raw, item.get("answer")])
    question = question.encode("utf-8", "replace").decode().strip()  # JSON can spell halves of surrogate pairs
    return Proposal(question, steps, answer, kind, unit if kind in ("int", "float") else None, key)


def _listed(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        inner = next((value[name] for name in ("tasks", "calls") if isinstance(value.get(name), list)), None)
        return [value] if inner is None else inner
    return value if isinstance(value, list) else [value]


def _objects(text: str) -> Iterator[Any]:
    """The items of the JSON objects that stand in a text, one behind the other."""
    decoder, start = json.JSONDecoder(), text.find("{")
    for _ in range(MAX_OBJECTS):
        if start < 0:
            return
        try:
            value, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            end = start + 1
        else:
            yield from _listed(value)
        start = text.find("{", end)


def _step(number: int, raw: Any, check: Check) -> Step:
    if not isinstance(raw, Mapping) or not isinstance(raw.get("tool"), str):
        raise Malformed(f'step {number} is {{"tool": ..., "arguments": ...}}')
    given = raw.get("arguments") or {}
    if not isinstance(given, Mapping):
        raise Malformed(f"the arguments of step {number} are an object")
    arguments = {str(name): _with_places(value, number) for name, value in given.items()}
    problem = check(raw["tool"], given if not any(map(has_place, arguments.values())) else {})
    if problem is not None and (problem[0] == "call_unknown_tool" or not any(map(has_place, arguments.values()))):
        raise Malformed(f"step {number}: {problem[1]}")
    return Step(raw["tool"], arguments)


def _with_places(value: Any, number: int) -> Any:
    if isinstance(value, Mapping):
        if set(value) == {"$from"}:
            return _place(value["$from"], number - 1, f"`$from` in step {number}")
        return {str(name): _with_places(item, number) for name, item in value.items()}
    if isinstance(value, list):
        return [_with_places(item, number) for item in value]
    return value


def has_place(value: Any) -> bool:
    """Whether a place stands anywhere in the value."""
    if isinstance(value, Mapping):
        return any(map(has_place, value.values()))
    return isinstance(value, Place) or isinstance(value, list) and any(map(has_place, value))


def _place(raw: Any, last: int, where: str) -> Place:
    if not isinstance(raw, Mapping):
        raise Malformed(f'{where} is a place in a result, such as {{"step": 1, "json": "/name"}}')
    unknown = sorted(set(map(str, raw)) - _PLACE_KEYS)
    if unknown:
        raise Malformed(f"{where} has the unknown key {unknown[0]!r}; known are {', '.join(sorted(_PLACE_KEYS))}")
    step, pointer = raw.get("step"), raw.get("json")
    if isinstance(step, bool) or not isinstance(step, int) or not 1 <= step <= last:
        raise Malformed(f"{where} names a step from 1 to {last}" if last else f"{where}: no step stands before it")
    if pointer is not None and (not isinstance(pointer, str) or pointer and not pointer.startswith("/")):
        raise Malformed(f"{where}: `json` is a JSON pointer, such as /items/0")
    after, before = raw.get("after") or "", raw.get("before") or ""
    if not isinstance(after, str) or not isinstance(before, str):
        raise Malformed(f"{where}: `after` and `before` are texts")
    return Place(step, pointer, after, before, raw.get("as") == "number")
