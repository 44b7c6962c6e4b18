"""Assistant turns for supervised traces: what the template renders, and what parse reads back."""

from __future__ import annotations

import json
import random
from typing import Any

import chat_tokenizers
import pytest
from chat_dialogues import TOOLS, words

from aworld_gym.tokens import ChatCodec, UnsupportedTemplateError


def random_message(rng: random.Random, parts: chat_tokenizers.Family) -> dict[str, Any]:
    """A canonical assistant message that the family's template can render."""
    message: dict[str, Any] = {"role": "assistant", "content": ""}
    if parts.thinks == "must" or (parts.thinks == "may" and rng.random() < 0.5):
        message["reasoning_content"] = ("First, " + words(rng, 3)).strip()
    count = rng.randint(0, parts.calls)
    if count:
        message["tool_calls"] = [
            {
                "id": f"call_{k}",
                "type": "function",
                "function": {
                    "name": rng.choice(TOOLS)["function"]["name"],
                    "arguments": json.dumps({"key": words(rng, 2), "n": rng.randint(0, 9)}, ensure_ascii=False),
                },
            }
            for k in range(count)
        ]
    if not count or (parts.form != "llama" and rng.random() < 0.5):
        message["content"] = ("Well, " + words(rng, 3)).strip()
    return message


def with_objects(message: dict[str, Any]) -> dict[str, Any]:
    """The message as templates take it: arguments as objects."""
    calls = [
        {**call, "function": {**call["function"], "arguments": json.loads(call["function"]["arguments"])}}
        for call in message.get("tool_calls", [])
    ]
    return {**message, **({"tool_calls": calls} if calls else {})}


def render(codec: ChatCodec, messages: list[dict[str, Any]], generate: bool) -> str:
    return codec.tokenizer.apply_chat_template(
        messages, add_generation_prompt=generate, tokenize=False, **codec.template_kwargs
    )


@pytest.mark.parametrize("seed", range(12))
def test_it_is_the_templates_rendering_and_reads_back(
    codec: ChatCodec, family: str, parts: chat_tokenizers.Family, seed: int
) -> None:
    rng = random.Random(f"{family}{seed}")
    message = random_message(rng, parts)
    ids = codec.encode_assistant(message)
    assert ids[-1] in codec.stop_ids
    assert codec.stop_ids.isdisjoint(ids[:-1])

    user = {"role": "user", "content": "Which row?"}
    begin = render(codec, [user], True)
    whole = render(codec, [user, with_objects(message)], False)
    written = codec.tokenizer.decode(ids)
    # GLM closes a turn with the next speaker's token, which stands in no rendering of the turn alone.
    expected = begin + (written if whole.startswith(begin + written) else codec.tokenizer.decode(ids[:-1]))
    assert whole.startswith(expected)
    assert whole[len(expected) :].strip() == ""
    tail = whole[len(begin) : len(expected)]
    assert ids[: len(ids) - (tail != written)] == codec.tokenizer.encode(tail, add_special_tokens=False)

    parsed = codec.parse(ids, TOOLS)
    assert parsed.closed
    assert parsed.errors == []
    assert with_objects(parsed.message).get("tool_calls") == with_objects(message).get("tool_calls")
    assert parsed.message["content"] == message["content"]
    # Templates show a turn without thoughts as an empty think block.
    assert parsed.message.get("reasoning_content", "") == message.get("reasoning_content", "")


def test_the_closing_token_is_the_one_that_extend_expects(codec: ChatCodec, parts: chat_tokenizers.Family) -> None:
    """prompt + encode_assistant + extend is one seamless sequence: extend adds no closing token of its own."""
    rng = random.Random(5)
    for _ in range(6):
        message = random_message(rng, parts)
        answers = [
            {"role": "tool", "tool_call_id": call["id"], "name": call["function"]["name"], "content": "row"}
            for call in message.get("tool_calls", [])
        ] or [{"role": "user", "content": "And?"}]
        ids = codec.encode_assistant(message)
        assert [ids[-1], *codec.extend(ids, answers)] == codec.extend([], answers)


def test_a_whole_trace_is_what_the_template_renders_of_it() -> None:
    """Where a template keeps earlier turns as they were (TRL's training variants do), the pieces make the whole."""
    tokenizer = chat_tokenizers.build("qwen3_training")
    codec = ChatCodec(tokenizer)
    rng = random.Random(1)
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Which row?"}]
    ids = codec.prompt(messages, TOOLS)
    for k in range(3):
        message = random_message(rng, chat_tokenizers.FAMILIES["qwen3_training"])
        message["tool_calls"] = message.get("tool_calls", [])[:1] or [
            {"id": "call_0", "type": "function", "function": {"name": "add", "arguments": "{}"}}
        ]
        name = message["tool_calls"][0]["function"]["name"]
        answer = {"role": "tool", "tool_call_id": "call_0", "name": name, "content": f"row {k}"}
        turn = codec.encode_assistant(message)
        ids += turn + codec.extend(turn, [answer])
        messages += [with_objects(message), answer]
    text = tokenizer.apply_chat_template(messages, tools=TOOLS, add_generation_prompt=True, tokenize=False)
    assert tokenizer.decode(ids) == text


def test_what_a_template_would_drop_or_twist_is_refused() -> None:
    call = {"id": "call_0", "type": "function", "function": {"name": "f", "arguments": {}}}
    cases = [
        ("qwen2_5", {"content": "a", "reasoning_content": "b"}, "drops reasoning_content"),
        ("llama3_2", {"content": "a", "tool_calls": [call]}, "drops content"),
        ("llama3_2", {"content": "", "tool_calls": [call, call]}, "single tool-calls at once"),
        ("nemotron_3_nano", {"content": "a"}, "give the message reasoning_content or pass"),
    ]
    for family, message, reason in cases:
        codec = ChatCodec(chat_tokenizers.build(family))
        with pytest.raises(UnsupportedTemplateError, match=reason):
            codec.encode_assistant({"role": "assistant", **message})
    quiet = ChatCodec(chat_tokenizers.build("nemotron_3_nano"), template_kwargs={"enable_thinking": False})
    assert quiet.tokenizer.decode(quiet.encode_assistant({"role": "assistant", "content": "a"})) == "a<|im_end|>"
    with pytest.raises(ValueError, match="expected an assistant message, got role 'user'"):
        quiet.encode_assistant({"role": "user", "content": "a"})


def test_an_empty_message_is_only_its_closing_token() -> None:
    codec = ChatCodec(chat_tokenizers.build("qwen2_5"))
    assert codec.encode_assistant({"role": "assistant", "content": ""}) == [codec.tokenizer.eos_token_id]
