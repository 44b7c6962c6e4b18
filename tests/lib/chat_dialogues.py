"""Random dialogues as models of each family write them, for the token tests."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from chat_tokenizers import Family

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"The {name} tool, ünïcode too.",
            "parameters": {
                "type": "object",
                "properties": {
                    "key": {"type": "string", "description": "What to look for."},
                    "n": {"type": "integer"},
                    "deep": {"type": "array", "items": {"type": "object"}},
                },
                "required": ["key"],
            },
        },
    }
    for name in ("lookup", "add", "fetch_page")
]

WORDS = [
    "ok",
    "file.txt",
    "héllo",
    "你好",
    "🙂🚀",
    "\n",
    "\n\n",
    "  ",
    "\t",
    '{"a": [1, 2]}',
    "'q'",
    '"qq"',
    "None",
    "$1",
] + ["</td>", "a\\nb", "\u200b", "e\u0301", "٣", "\r\n", "x" * 30, "7", "true", "<", ">", "<|", "im_end|>", "\ue000"]


def words(rng: random.Random, count: int) -> str:
    """``count`` words that are awkward for tokenizers and templates."""
    return " ".join(rng.choice(WORDS) for _ in range(count))


@dataclass
class Turn:
    """One assistant turn, as text, and what should be read in it."""

    text: str
    content: str = ""
    reasoning: str | None = None
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    """The kinds of errors it should be read with."""


def random_turn(rng: random.Random, family: Family) -> Turn:
    """Text, calls, or both; sometimes a malformed call, sometimes nothing at all."""
    turn = Turn("")
    if family.thinks == "must" or (family.thinks == "may" and rng.random() < 0.5):
        turn.reasoning = words(rng, rng.randint(0, 4)).strip("\n")
        head = "" if family.thinks == "must" else "<think>"
        turn.text = f"{head}\n{turn.reasoning}\n</think>\n\n"
    kind = rng.choice(["call", "call", "text", "both", "malformed", "nothing"])
    if family.form == "llama" and kind == "both":
        kind = "call"
    if kind in ("text", "both"):
        turn.content = ("Well, " + words(rng, 3)).strip()
        turn.text += turn.content + ("\n" if kind == "both" else "")
    if kind in ("call", "both"):
        for _ in range(rng.randint(1, family.calls)):
            arguments: dict[str, Any] = {"key": words(rng, 2)}
            if rng.random() < 0.7:
                arguments["n"] = rng.randint(-9, 99)
            if rng.random() < 0.3:
                arguments["deep"] = [{"a b": [1.5, None, True, words(rng, 1)]}]
            turn.calls.append((rng.choice(TOOLS)["function"]["name"], arguments))
        turn.text += "\n".join(write_call(family.form, name, arguments) for name, arguments in turn.calls)
    if kind == "malformed":
        text, error = MALFORMED[family.form]
        turn.text += text
        turn.broken = [error]
    return turn


def write_call(form: str, name: str, arguments: dict[str, Any]) -> str:
    """One call in a form, written by hand, not by a template."""
    if form == "llama":
        return json.dumps({"name": name, "parameters": arguments}, ensure_ascii=False)
    if form == "hermes":
        body = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
        return f"<tool_call>\n{body}\n</tool_call>"
    bare = {k: v if isinstance(v, str) else json.dumps(v, ensure_ascii=False) for k, v in arguments.items()}
    if form == "glm":
        pairs = "".join(f"<arg_key>{k}</arg_key>\n<arg_value>{v}</arg_value>\n" for k, v in bare.items())
        return f"<tool_call>{name}\n{pairs}</tool_call>"
    blocks = "".join(f"<parameter={k}>\n{v}\n</parameter>\n" for k, v in bare.items())
    return f"<tool_call>\n<function={name}>\n{blocks}</function>\n</tool_call>"


MALFORMED = {
    "hermes": ("<tool_call>\n{bad json\n</tool_call>", "invalid_json"),
    "llama": ('{"name": lookup, "parameters": {}}', "invalid_json"),
    "glm": ("<tool_call>lookup\n<arg_key>key</arg_key>\n</tool_call>", "malformed"),
    "qwen_xml": ("<tool_call>\n<function=lookup>\n<parameter=key>\n1\n</function>\n</tool_call>", "malformed"),
}


def odd_ids(tokenizer: Any, text: str, rng: random.Random) -> list[int]:
    """``text`` in ids as no tokenizer would cut it, control tokens whole: what a sampler at temperature 1 may give."""
    added = sorted(tokenizer.get_added_vocab(), key=len, reverse=True)
    ids: list[int] = []
    at = 0
    while at < len(text):
        token = next((token for token in added if text.startswith(token, at)), None)
        width = len(token) if token else rng.choice([1, 1, 1, 2, 3])
        ids += tokenizer.encode(text[at : at + width], add_special_tokens=False)
        at += width
    return ids


def results(rng: random.Random, turn: Turn, number: int) -> list[dict[str, Any]]:
    """What an env answers to a turn: a tool message per call or error, or else a user's next question."""
    names = [name for name, _ in turn.calls] + ["invalid_call"] * len(turn.broken)
    if not names:
        return [{"role": "user", "content": "And " + words(rng, 3).strip()}]
    return [
        {"role": "tool", "tool_call_id": f"call_{number}_{k}", "name": name, "content": words(rng, rng.randint(0, 6))}
        for k, name in enumerate(names)
    ]


def standing_for(turn: Turn, answers: Sequence[dict[str, Any]], mark: str) -> dict[str, Any]:
    """A canonical assistant message that ends in ``mark`` and that ``answers`` may follow."""
    if answers[0]["role"] == "user":
        return {"role": "assistant", "content": mark}
    calls = [
        {
            "id": answer["tool_call_id"],
            "type": "function",
            "function": {"name": answer["name"], "arguments": {"q": mark}},
        }
        for answer in answers
    ]
    return {"role": "assistant", "content": "", "tool_calls": calls}
