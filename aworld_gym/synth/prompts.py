"""What the language model is asked. Texts only."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from aworld_gym.types import Message, ToolResult

EXPLORE = "You are about to write tasks for a set of tools. First you try the tools, to see what they return."
PROPOSE = (
    "You write tasks for an agent that has a set of tools. Each task is a question with one short, exact answer that "
    "only the tools can give, together with the calls that find it. The calls will be run, and what they return is "
    "the true answer: never guess it."
)
ASK = (
    "Answer from what you know; you have no tools. Give your best guess even when unsure, as <answer>...</answer>, "
    "with the answer alone."
)

_CALLS = """Write up to {count} calls as one JSON list, nothing else:
[{{"tool": "name", "arguments": {{...}}}}]
Use concrete arguments that will work. Cover different tools. Leave out calls that would delete, send or publish."""

_TASKS = """Write {count} different tasks as one JSON list, nothing else. Each is an object:
{{"question": "...",
 "steps": [{{"tool": "name", "arguments": {{...}}}}],
 "answer": PLACE,
 "type": "string" | "int" | "float" | "date" | "code" | "list",
 "unit": "km"}}
PLACE says where the answer stands in the result of a step (steps count from 1):
{{"step": 1}} is the whole text of the result, {{"step": 1, "json": "/items/0/name"}} a JSON pointer into it,
{{"step": 1, "after": "total: ", "before": " EUR"}} what stands between two texts of it.
An argument may be taken from an earlier result: {{"$from": {{"step": 1, "json": "/id"}}}}; with "as": "number" a text
becomes a number. "unit" only where the question asks for one.
The question stands alone: it names everything that the calls need, but neither tools nor the answer. It has the same
answer tomorrow, so ask for nothing that depends on the time, on chance or on the network's mood. The answer cannot be
guessed or known by heart. Prefer questions that take {steps} calls, the later using results of the earlier.
Let these tools have a part: {focus}."""


def explore(tools: Sequence[Mapping[str, Any]], files: Sequence[str], count: int) -> list[Message]:
    """Ask for sample calls."""
    return _conversation(EXPLORE, [_tools(tools), _files(files), _CALLS.format(count=count)])


def propose(
    tools: Sequence[Mapping[str, Any]],
    files: Sequence[str],
    samples: Iterable[str],
    known: Sequence[str],
    *,
    count: int,
    focus: Sequence[str],
    steps: str,
) -> list[Message]:
    """Ask for proposals."""
    tried, old = "\n\n".join(samples), "\n".join(f"- {question}" for question in known)
    parts = [
        _tools(tools),
        _files(files),
        f"What some calls returned:\n\n{tried}" if tried else "",
        f"These questions are there already; write others:\n{old}" if old else "",
        _TASKS.format(count=count, focus=", ".join(focus), steps=steps),
    ]
    return _conversation(PROPOSE, parts)


def ask(question: str) -> list[Message]:
    """Ask a question without tools."""
    return _conversation(ASK, [question])


def sample(tool: str, arguments: Mapping[str, Any], result: ToolResult, limit: int) -> str:
    """A call and what it returned, for the next prompts."""
    text = result.text if len(result.text) <= limit else f"{result.text[:limit]} [... {len(result.text)} characters]"
    failed = "" if result.error is None else "(failed) "
    return f"{tool}({json.dumps(arguments, ensure_ascii=False)}) -> {failed}{text}"


def _conversation(system: str, parts: Iterable[str]) -> list[Message]:
    return [{"role": "system", "content": system}, {"role": "user", "content": "\n\n".join(filter(None, parts))}]


def _tools(tools: Sequence[Mapping[str, Any]]) -> str:
    lines = "\n".join(json.dumps(tool["function"], ensure_ascii=False) for tool in tools)
    return f"The tools:\n{lines}"


def _files(files: Sequence[str]) -> str:
    return f"Files in the tools' working folder: {', '.join(files)}" if files else ""
