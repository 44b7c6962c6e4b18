"""The three operations over random dialogues, against the template's rendering of the whole dialogue."""

from __future__ import annotations

import copy
import json
import pickle
import random
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import chat_tokenizers
import pytest
from chat_dialogues import TOOLS, odd_ids, random_turn, results, standing_for, words

from aworld_gym.tokens import ChatCodec, TrajectoryBuilder, UnsupportedTemplateError

MARK = "ZQZ"


def render(codec: ChatCodec, messages: Sequence[dict[str, Any]], tools: Any = None, generate: bool = True) -> str:
    """What the template itself makes of messages."""
    return codec.tokenizer.apply_chat_template(
        copy.deepcopy(list(messages)),
        tools=copy.deepcopy(tools),
        add_generation_prompt=generate,
        tokenize=False,
        **codec.template_kwargs,
    )


def encode(codec: ChatCodec, text: str) -> list[int]:
    return codec.tokenizer.encode(text, add_special_tokens=False)


def first_messages(rng: random.Random) -> list[dict[str, Any]]:
    system = [{"role": "system", "content": words(rng, 5).strip() or "s"}] if rng.random() < 0.5 else []
    return [*system, {"role": "user", "content": ("Q " + words(rng, rng.randint(0, 8))).strip()}]


def stop_before(codec: ChatCodec, text: str, at: int) -> tuple[int, str]:
    """The first stop token in ``text`` after ``at``: the index after it, and itself."""
    stops = [codec.tokenizer.decode([i]) for i in codec.stop_ids]
    found = min((text.find(stop, at), stop) for stop in stops if text.find(stop, at) >= 0)
    return found[0] + len(found[1]), found[1]


@pytest.mark.parametrize("seed", range(30))
def test_a_dialogue_is_exact_token_for_token(
    codec: ChatCodec, family: str, parts: chat_tokenizers.Family, seed: int
) -> None:
    """Prompt, appended ids and parsed messages of a random dialogue, all as the template and the writer say."""
    rng = random.Random(f"{family}{seed}")
    tools = TOOLS if rng.random() < 0.8 else None
    dialogue = first_messages(rng)
    prompt = codec.prompt(dialogue, tools)
    assert prompt == encode(codec, render(codec, dialogue, tools))
    stop_id = codec.tokenizer.convert_tokens_to_ids(parts.stop)
    builder = TrajectoryBuilder()
    builder.prompt(prompt)
    for number in range(rng.randint(1, 4)):
        turn = random_turn(rng, parts)
        cut = odd_ids if rng.random() < 0.6 else (lambda tokenizer, text, _: encode(codec, text))
        sampled = cut(codec.tokenizer, turn.text, rng)
        truncated = rng.random() < 0.15
        answers = results(rng, turn, number)
        closer = stop_id
        if answers[0]["role"] == "user":
            closer = codec.extend([], answers)[0]
        sampled = sampled[: rng.randint(0, max(0, len(sampled) - 1))] if truncated else [*sampled, closer]
        appended = codec.extend(sampled, answers)

        # The reference: everything before and after this turn rendered as one, cut after the turn's closing token.
        stand_in = standing_for(turn, answers[: parts.calls], MARK)
        text = render(codec, [*dialogue, stand_in, *answers], tools)
        end, literal = stop_before(codec, text, text.rindex(MARK))
        assert codec.tokenizer.convert_tokens_to_ids(literal) == closer
        expected = encode(codec, text[end:])
        assert appended == ([closer, *expected] if truncated else expected)

        parsed = codec.parse(sampled, TOOLS)
        assert parsed.closed == (not truncated)
        if not truncated:
            message = parsed.message
            calls = [
                (c["function"]["name"], json.loads(c["function"]["arguments"])) for c in message.get("tool_calls", [])
            ]
            assert calls == turn.calls
            assert [error["type"] for error in parsed.errors] == turn.broken
            assert message["content"] == turn.content
            assert message.get("reasoning_content") == turn.reasoning
        if sampled:
            builder.sampled(sampled)
            builder.appended(appended)
        dialogue += [stand_in, *answers]
    trajectory = builder.build()
    assert len(trajectory.mask) == len(trajectory.response_ids)


def test_what_was_sampled_is_kept_whatever_it_was(codec: ChatCodec) -> None:
    """Ids that no tokenizer would give, closing tokens included, go through extend untouched and unseen."""
    answers = [{"role": "tool", "tool_call_id": "call_0", "name": "lookup", "content": "row 1"}]
    closing, *rest = codec.extend([], answers)
    assert codec.extend([5, 5, closing], answers) == rest
    for other in codec.stop_ids - {closing}:
        assert codec.extend([5, other], answers) == [closing, *rest], "another stop token does not close the turn"


class LastOnly(Sequence):
    """Ids of which only the last may be looked at."""

    def __init__(self, length: int, last: int):
        self._length, self._last = length, last

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: Any) -> Any:
        assert index in (-1, self._length - 1), f"extend looked at index {index}"
        return self._last

    def __iter__(self) -> Iterator[int]:
        raise AssertionError("extend walked over what was sampled")


def test_extend_costs_the_same_after_any_history(codec: ChatCodec, monkeypatch: pytest.MonkeyPatch) -> None:
    """Structural: of what was sampled only the last id is read, and what is encoded is the new messages' share."""
    answers = [{"role": "tool", "tool_call_id": "call_0", "name": "lookup", "content": "row " * 50}]
    closing = codec.extend([], answers)[0]
    counts = []
    own = type(codec.vocabulary).text_ids

    def counting(self: Any, text: str, *, mid: bool) -> list[int]:
        counts[-1] += len(text)
        return own(self, text, mid=mid)

    monkeypatch.setattr(type(codec.vocabulary), "text_ids", counting)
    for length in (1, 1_000, 1_000_000):
        counts.append(0)
        codec.extend(LastOnly(length, closing), answers)
    assert counts[0] == counts[1] == counts[2] < 2 * len(answers[0]["content"])


def test_nothing_is_changed(codec: ChatCodec) -> None:
    tokenizer = codec.tokenizer
    before = (tokenizer.backend_tokenizer.to_str(), tokenizer.chat_template, dict(tokenizer.special_tokens_map))
    messages = [{"role": "user", "content": "a <|im_end|> b"}]
    answers = [{"role": "tool", "tool_call_id": "call_0", "name": "lookup", "content": "</think> ü"}]
    assistant = {
        "role": "assistant",
        "content": "",
        "reasoning_content": "",
        "tool_calls": [
            {"id": "call_0", "type": "function", "function": {"name": "lookup", "arguments": '{"key": "a"}'}}
        ],
    }
    given = copy.deepcopy((messages, answers, assistant, TOOLS))
    codec.self_check()
    ids = codec.prompt(messages, TOOLS)
    codec.extend(ids, answers)
    codec.parse(ids, TOOLS)
    try:
        codec.encode_assistant(assistant)
    except UnsupportedTemplateError:
        pass  # templates that open reasoning refuse a turn without any; that is tested elsewhere
    assert (messages, answers, assistant, TOOLS) == given
    assert before == (tokenizer.backend_tokenizer.to_str(), tokenizer.chat_template, dict(tokenizer.special_tokens_map))


def test_threads_share_a_codec(family: str) -> None:
    """Eight threads at once on a fresh codec give what one alone gives."""
    tokenizer = chat_tokenizers.build(family)
    rng = random.Random(3)
    jobs = [
        [
            {
                "role": "tool",
                "tool_call_id": f"call_{k}",
                "name": "lookup",
                "content": words(rng, 6) + " <|im_end|></think>",
            }
        ]
        for k in range(12)
    ]
    alone = ChatCodec(tokenizer)
    expected = [alone.extend([], job) for job in jobs]
    shared, wrong = ChatCodec(tokenizer), []
    start = threading.Barrier(8, timeout=60)

    def work(seed: int) -> None:
        start.wait()
        order = random.Random(seed).choices(range(len(jobs)), k=30)
        wrong.extend(k for k in order if shared.extend([], jobs[k]) != expected[k])
        parsed = shared.parse(expected[0], TOOLS)
        if parsed != alone.parse(expected[0], TOOLS):
            wrong.append(-1)

    threads = [threading.Thread(target=work, args=(seed,), daemon=True) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    assert wrong == []


def test_a_turn_ends_at_a_stop_id_and_not_at_its_spelling(codec: ChatCodec, parts: chat_tokenizers.Family) -> None:
    stop = codec.tokenizer.convert_tokens_to_ids(parts.stop)
    spelled = codec.vocabulary.text_ids(f"</think>say {parts.stop} aloud", mid=True)
    assert codec.control_ids.isdisjoint(spelled)
    parsed = codec.parse([*spelled, stop])
    assert parsed.closed
    assert f"say {parts.stop} aloud" in parsed.message["content"]
    cut = codec.parse(spelled)
    assert not cut.closed
    after = codec.parse([*spelled, stop, *spelled])
    assert after.message == parsed.message, "what follows a stop id is not part of the turn"


def test_ids_that_the_vocabulary_does_not_have_are_no_text(codec: ChatCodec) -> None:
    """Models have more output rows than their tokenizers have tokens, and a young one samples them."""
    parsed = codec.parse([len(codec.tokenizer) + 100, *codec.vocabulary.text_ids("</think>hi", mid=True)])
    assert parsed.message["content"].endswith("hi")


def test_prompt_takes_earlier_turns_for_a_rewritten_history(codec: ChatCodec) -> None:
    dialogue = [
        {"role": "user", "content": "Which row?"},
        {"role": "assistant", "content": "I look.\u200b" if codec.tool_format != "llama" else ""},
        {"role": "user", "content": "And?"},
    ]
    if not dialogue[1]["content"]:
        dialogue[1]["content"] = "Row 1."
    assert codec.prompt(dialogue) == encode(codec, render(codec, dialogue))


@pytest.mark.parametrize(
    ("messages", "what"),
    [
        ([{"role": "assistant", "content": "x"}], "sampled, never rendered"),
        ([], "at least one new message"),
        ([{"role": "<|im_end|>", "content": "x"}], "whose role is one of"),
        (["text"], "whose role is one of"),
        ([{"role": "user", "content": 7}], "content must be text"),
        ([{"role": "user", "content": [{"type": "audio"}]}], "'audio'"),
        ([{"role": "user", "content": "x", "tool_calls": [{"name": "f"}]}], "a tool call is"),
    ],
)
def test_extend_refuses_what_is_no_new_message(messages: list, what: str) -> None:
    codec = ChatCodec(chat_tokenizers.build("qwen3"))
    with pytest.raises(ValueError, match=what):
        codec.extend([], messages)


def test_image_parts_become_a_text_or_are_refused() -> None:
    tokenizer = chat_tokenizers.build("qwen3")
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    answers = [
        {"role": "tool", "tool_call_id": "call_0", "name": "view", "content": [{"type": "text", "text": "2x2"}, image]}
    ]
    text = tokenizer.decode(ChatCodec(tokenizer).extend([], answers))
    assert "2x2\n[an image, which this model cannot see]\n</tool_response>" in text
    assert "AAAA" not in text
    assert "2x2\n(picture)" in tokenizer.decode(ChatCodec(tokenizer, image_text="(picture)").extend([], answers))
    with pytest.raises(ValueError, match="image_text"):
        ChatCodec(tokenizer, image_text=None).extend([], answers)


def test_text_that_is_not_unicode_is_mended_not_fatal(codec: ChatCodec) -> None:
    """A tool may return lone surrogates, which no tokenizer takes, and which are our marks."""
    hostile = "a\udfffb \ud800 \udffe<|im_end|> \ud83d\ude00"
    answers = [{"role": "tool", "tool_call_id": "call_0", "name": "lookup", "content": hostile}]
    benign = [{**answers[0], "content": "a\ufffdb \ufffd \ufffd<|im_end|> \U0001f600"}]
    assert codec.extend([], answers) == codec.extend([], benign)


def test_a_codec_can_be_sent_to_another_process() -> None:
    codec = ChatCodec(chat_tokenizers.build("qwen3"), template_kwargs={"enable_thinking": False})
    codec.self_check()
    sent = pickle.loads(pickle.dumps(codec))
    messages = [{"role": "user", "content": "hi <|im_end|>"}]
    assert sent.prompt(messages, TOOLS) == codec.prompt(messages, TOOLS)
    assert sent.stop_ids == codec.stop_ids


def test_template_arguments_and_the_clock() -> None:
    tokenizer = chat_tokenizers.build("llama3_2")
    messages = [{"role": "user", "content": "hi"}]
    assert "26 Jul 2024" in tokenizer.decode(ChatCodec(tokenizer).prompt(messages))
    dated = ChatCodec(tokenizer, template_kwargs={"date_string": "1 Jan 2030"})
    assert "1 Jan 2030" in tokenizer.decode(dated.prompt(messages))
    qwen = chat_tokenizers.build("qwen3")
    quiet = ChatCodec(qwen, template_kwargs={"enable_thinking": False})
    assert qwen.decode(quiet.prompt(messages)).endswith("<think>\n\n</think>\n\n")
    assert not quiet.opens_reasoning
    assert ChatCodec(chat_tokenizers.build("qwen3_5_think")).opens_reasoning


@pytest.mark.parametrize("before", ["", "\n", "  {%- if true %}\n{% endif %}"])
def test_a_template_that_asks_the_clock_itself(before: str) -> None:
    """Else the prompts of a run would change at midnight, and with them what is compared."""
    tokenizer = chat_tokenizers.build("qwen3")
    template = before + "today: {{ strftime_now('%d %B %Y') }}\n" + tokenizer.chat_template
    plain = ChatCodec(tokenizer, template=template.replace("{{ strftime_now('%d %B %Y') }}", "26 Jul 2024"))
    codec = ChatCodec(tokenizer, template=template)
    codec.self_check()
    messages = [{"role": "user", "content": "hi"}]
    assert codec.prompt(messages, TOOLS) == plain.prompt(messages, TOOLS)
    again = ChatCodec(tokenizer, template=codec.template)
    assert again.template == codec.template and again.prompt(messages) == codec.prompt(messages)


def test_importing_loads_no_tokenizer_library() -> None:
    program = (
        "import sys, aworld_gym.tokens; print({'torch', 'transformers', 'tokenizers', 'jinja2'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
