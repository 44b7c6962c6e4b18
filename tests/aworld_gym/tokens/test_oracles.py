"""Other implementations as oracles, where they are right; and where they are not, the difference stated."""

from __future__ import annotations

import random
from typing import Any

import chat_tokenizers
import pytest
from chat_dialogues import TOOLS, random_turn, words
from renderers import config_from_name, create_renderer

from aworld_gym.tokens import ChatCodec

SMOLLM2 = chat_tokenizers.missing("smollm2")
WITH_RENDERER = [
    name for name, parts in chat_tokenizers.FAMILIES.items() if parts.renderer and name not in chat_tokenizers.PACKAGES
]


def trl_suffix(tokenizer: Any, answers: list[dict[str, Any]], **template_kwargs: Any) -> list[int]:
    """What TRL's GRPO trainer appends after a turn (``_get_tool_suffix_ids``); raises where its method fails."""
    call = {"type": "function", "function": {"name": answers[0]["name"], "arguments": {}}}
    dummy = [{"role": "user", "content": "dummy"}, {"role": "assistant", "content": "", "tool_calls": [call]}]
    apply = tokenizer.apply_chat_template
    before = apply(dummy, tokenize=True, return_dict=False, **template_kwargs)
    whole = apply(dummy + answers, add_generation_prompt=True, tokenize=True, return_dict=False, **template_kwargs)
    ends = [k for k, i in enumerate(before) if i == tokenizer.eos_token_id]
    before = before[: ends[-1] + 1] if ends else before
    if whole[: len(before)] != before:
        raise ValueError("the template does not preserve prefixes")
    return whole[len(before) :]


def results(rng: random.Random, count: int) -> list[dict[str, Any]]:
    return [
        {"role": "tool", "tool_call_id": f"call_{k}", "name": "lookup", "content": words(rng, rng.randint(0, 6))}
        for k in range(count)
    ]


@pytest.mark.parametrize(
    ("family", "agrees"),
    [
        ("qwen2_5", True),
        ("qwen3_training", True),
        ("qwen3_instruct_2507", True),
        ("qwen3_5_think", True),
        ("nemotron_3_nano", True),
        ("llama3_1", True),
        ("llama3_2", True),
        pytest.param("smollm2", True, marks=pytest.mark.skipif(bool(SMOLLM2), reason=SMOLLM2)),
        # TRL refuses the original Qwen3 template, and takes GLM's turn to be closed by nothing.
        ("qwen3", False),
        ("glm4moe", False),
    ],
)
def test_trls_suffix(family: str, agrees: bool) -> None:
    codec = ChatCodec(chat_tokenizers.build(family))
    parts = chat_tokenizers.FAMILIES[family]
    rng = random.Random(family)
    for _ in range(15):
        answers = results(rng, rng.randint(1, parts.calls))
        own = codec.extend([codec.extend([], answers)[0]], answers)
        if agrees:
            assert own == trl_suffix(codec.tokenizer, answers, **codec.template_kwargs)
        elif family == "qwen3":
            with pytest.raises(ValueError, match="prefixes"):
                trl_suffix(codec.tokenizer, answers)
        else:
            theirs = trl_suffix(codec.tokenizer, answers)
            assert theirs == [codec.tokenizer.convert_tokens_to_ids("<|observation|>"), *own]


@pytest.mark.parametrize("family", WITH_RENDERER)
def test_renderers_prompt_and_bridge(family: str) -> None:
    """The hand-written renderers agree on every prompt and, where they keep the sampled ids, on what they append."""
    parts = chat_tokenizers.FAMILIES[family]
    tokenizer = chat_tokenizers.build(family)
    codec = ChatCodec(tokenizer)
    oracle = create_renderer(tokenizer, config_from_name(parts.renderer))
    rng = random.Random(family)
    kept = 0
    for _ in range(30):
        messages = [{"role": "user", "content": ("Q " + words(rng, 5)).strip()}]
        prompt = codec.prompt(messages, TOOLS)
        assert prompt == oracle.render_ids(messages, tools=TOOLS, add_generation_prompt=True)
        turn = random_turn(rng, parts)
        if not turn.calls:
            continue
        answers = results(rng, len(turn.calls))
        sampled = tokenizer.encode(turn.text, add_special_tokens=False) + [codec.extend([], answers)[0]]
        bridged = oracle.bridge_to_next_turn(prompt, sampled, answers, tools=TOOLS)
        if bridged is not None and bridged.token_ids[: len(prompt) + len(sampled)] == prompt + sampled:
            kept += 1
            assert bridged.token_ids[len(prompt) + len(sampled) :] == codec.extend(sampled, answers)
    assert kept >= 8


@pytest.mark.parametrize("family", WITH_RENDERER)
def test_renderers_reading_of_calls(family: str) -> None:
    """The same calls, by name. (It takes an opened think block for content, and bare values as they look.)"""
    parts = chat_tokenizers.FAMILIES[family]
    tokenizer = chat_tokenizers.build(family)
    codec = ChatCodec(tokenizer)
    oracle = create_renderer(tokenizer, config_from_name(parts.renderer))
    rng = random.Random(f"{family} reading")
    read = 0
    for _ in range(40):
        turn = random_turn(rng, parts)
        stop = tokenizer.convert_tokens_to_ids(parts.stop)
        sampled = [*tokenizer.encode(turn.text, add_special_tokens=False), stop]
        names = [c["function"]["name"] for c in codec.parse(sampled, TOOLS).message.get("tool_calls", [])]
        if not turn.broken:  # of a broken call the oracle gives a name and a status
            assert names == [call.name for call in oracle.parse_response(sampled).tool_calls]
            read += len(names)
    assert read > 10
