"""The self-check: whether a tokenizer and its chat template can be used token-exactly, proved on a few dialogues."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from aworld_gym.tokens.errors import UnsupportedTemplateError
from aworld_gym.tokens.parsers import END_THINK, FORMATS, THINK, parse_text
from aworld_gym.types import Message

if TYPE_CHECKING:
    from aworld_gym.tokens.codec import ChatCodec

_TOOLS: tuple[dict[str, Any], ...] = (
    {
        "type": "function",
        "function": {
            "name": "find_row",
            "description": "Find a row.",
            "parameters": {
                "type": "object",
                "properties": {"word": {"type": "string", "description": "A word."}, "count": {"type": "integer"}},
                "required": ["word"],
            },
        },
    },
)
_ARGUMENTS = {"word": "blue jay 7", "count": 3}
_TEXTS = ("Row 1:\n\tü 你好 🙂, don't  stop.\r\n\n x=1", " lead", "a", "{'k': [1, 2.5e3]}\n")


def check(codec: ChatCodec) -> None:
    """Raise UnsupportedTemplateError, with the reason, where ``codec`` is not exact or not safe."""
    _check_plain_text(codec)
    _check_prompt(codec)
    _check_extend(codec)
    _check_injection(codec)
    _check_calls(codec)


def detect_format(codec: ChatCodec) -> str | None:
    """The first form that reads back a tool call as the template writes it; None if none does."""
    try:
        text = _written_call(codec)
    except UnsupportedTemplateError:
        return None
    return next((name for name in FORMATS if _reads(text, name, codec.opens_reasoning)), None)


def _written_call(codec: ChatCodec) -> str:
    """How the template writes an assistant turn with one call, without the token that closes it."""
    turn = _call_turn(0)
    if codec.opens_reasoning:
        turn["reasoning_content"] = "I look."
    return codec.vocabulary.decode(codec.encode_assistant(turn)[:-1])


def _reads(text: str, name: str, in_reasoning: bool) -> bool:
    message = parse_text(text, name, in_reasoning=in_reasoning, tools=_TOOLS).message
    calls = [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in message.get("tool_calls", ())]
    return calls == [("find_row", _ARGUMENTS)] and not message.get("parse_errors")


def _check_plain_text(codec: ChatCodec) -> None:
    for text in _TEXTS:
        own = codec.vocabulary.text_ids(text, mid=False)
        theirs = codec.tokenizer.encode(text, add_special_tokens=False)
        _require(own == theirs, f"plain text is encoded as {own}, by the tokenizer itself as {theirs}: {text!r}")

    for literal in codec.vocabulary.control:
        try:
            codec.vocabulary.text_ids(literal, mid=True)
        except ValueError as error:
            raise UnsupportedTemplateError(str(error)) from error


def _check_prompt(codec: ChatCodec) -> None:
    for text in _TEXTS:
        messages = [{"role": "user", "content": text}]
        for tools in (None, _TOOLS):
            own, theirs = codec.prompt(messages, tools), _reference(codec, messages, tools)
            _require(own == theirs, f"the prompt differs from the template's own{_difference(codec, own, theirs)}")


def _check_extend(codec: ChatCodec) -> None:
    """What extend appends is what the whole dialogue's rendering has there, in the first round and in the second."""
    dialogue: list[Message] = [{"role": "user", "content": "Which row?"}]
    for turn in range(2):
        text = _TEXTS[turn].strip()
        answer: Message = {"role": "tool", "tool_call_id": _call_id(turn), "name": "find_row", "content": text}
        dialogue += [_call_turn(turn), answer]
        own = codec.extend([], [answer])
        theirs = _reference(codec, dialogue, _TOOLS)[-len(own) :]
        _require(
            own == theirs,
            f"tool results of round {turn + 1} are rendered otherwise in the whole dialogue"
            f"{_difference(codec, own, theirs)}",
        )
        written = codec.vocabulary.decode(own)
        _require(
            codec.opens_reasoning == (written.rfind(THINK) > written.rfind(END_THINK)),
            f"a turn begins inside {THINK} after a question and not after tool results, or the other way round",
        )


def _check_injection(codec: ChatCodec) -> None:
    vocabulary = codec.vocabulary
    named = [literal for literal in vocabulary.control if literal in codec.template]
    literals = named + [literal for literal in vocabulary.control if literal not in named][:16]
    attack = "a " + " b ".join(literals) + " c"

    def ids(text: str, key: str) -> list[list[int]]:
        parameters = {"type": "object", "properties": {f"k{key}": {"type": "string", "description": text}}}
        tool = {"type": "function", "function": {"name": "f", "description": text, "parameters": parameters}}
        answer = {"role": "tool", "tool_call_id": _call_id(0), "name": "f", "content": text}
        return [codec.prompt([{"role": "user", "content": text}], [tool]), codec.extend([], [answer])]

    for found, benign, where in zip(ids(attack, attack), ids("a b", ""), ("prompt", "tool result"), strict=True):
        added = _controls(codec, found) - _controls(codec, benign)
        spelled = [vocabulary.decode([i]) for i in added]
        _require(not added, f"text in a {where} becomes the control tokens {spelled}")
        text = vocabulary.decode(found)
        kept = attack in text or json.dumps(attack, ensure_ascii=False)[1:-1] in text
        _require(kept, f"text that names control tokens does not survive in a {where}")


def _check_calls(codec: ChatCodec) -> None:
    if codec.tool_format is None:
        try:
            written = repr(_written_call(codec)[:160])
        except UnsupportedTemplateError as error:
            written = str(error)
        raise UnsupportedTemplateError(
            f"none of the forms {sorted(FORMATS)} reads how this template writes a tool call ({written}); "
            "pass tool_format to ChatCodec: a name, if the model writes one of these all the same, or a function"
        )


def _call_turn(turn: int) -> Message:
    function = {"name": "find_row", "arguments": dict(_ARGUMENTS)}
    call = {"id": _call_id(turn), "type": "function", "function": function}
    return {"role": "assistant", "content": "", "tool_calls": [call]}


def _call_id(turn: int) -> str:
    return f"callabc0{turn}"  # nine letters and digits: what Mistral's templates insist on


def _reference(codec: ChatCodec, messages: Sequence[Message], tools: Sequence[dict[str, Any]] | None) -> list[int]:
    """The template's own rendering, encoded by the tokenizer itself."""
    try:
        text = codec.tokenizer.apply_chat_template(
            list(messages),
            tools=list(tools) if tools else None,
            add_generation_prompt=True,
            tokenize=False,
            chat_template=codec.template,
            **codec.template_kwargs,
        )
    except Exception as error:  # a template is a program: it may raise anything
        roles = ", ".join(message["role"] for message in messages)
        raise UnsupportedTemplateError(
            f"the chat template does not render a dialogue of {roles}: {type(error).__name__}: {error}"
        ) from error
    ids: list[int] = codec.tokenizer.encode(text, add_special_tokens=False)
    return ids


def _controls(codec: ChatCodec, ids: Sequence[int]) -> Counter[int]:
    return Counter(i for i in ids if i in codec.control_ids)


def _difference(codec: ChatCodec, own: Sequence[int], theirs: Sequence[int]) -> str:
    at = next((k for k, (a, b) in enumerate(zip(own, theirs, strict=False)) if a != b), min(len(own), len(theirs)))
    decode = codec.vocabulary.decode
    return f" at token {at}: {decode(own[at : at + 12])!r} here, {decode(theirs[at : at + 12])!r} there"


def _require(condition: bool, reason: str) -> None:
    if not condition:
        raise UnsupportedTemplateError(f"this tokenizer and chat template cannot be used token-exactly: {reason}")
