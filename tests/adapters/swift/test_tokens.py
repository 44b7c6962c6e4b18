"""The ids that reach swift's loss are the codec's and the sampler's, for every family of templates."""

import copy
import random

import chat_tokenizers
import pytest
import swift_rows
import tiny_model
import torch
from chat_dialogues import odd_ids, write_call
from chat_tokenizers import FAMILIES, HERMES_TEMPLATE, assemble
from say_env import ENV_ID, SESSIONS
from swift.infer_engine.protocol import (
    ChatCompletionResponse,
    ChatCompletionResponseChoice,
    ChatMessage,
    RolloutOutput,
    UsageInfo,
)
from trl.chat_template_utils import qwen3_chat_template

from adapters.common import RolloutOptions, checked_codec
from adapters.handover import FAMILIES as FORMS
from adapters.swift.plugin import request_messages
from adapters.swift.trainer import EnvGRPOTrainer
from aworld_gym.play import Item
from aworld_gym.token_policy import token_rollout
from aworld_gym.tokens import ChatCodec, UnsupportedTemplateError
from aworld_gym.trained import TrainedRow

_XML_CALL = (
    "<tool_call>\n<function={{ c.function.name }}>\n{% for k, v in c.function.arguments.items() %}<parameter={{ k }}>\n"
    "{{ v if v is string else v | tojson }}\n</parameter>\n{% endfor %}</function>\n</tool_call>"
)
_GLM_CALL = (
    "<tool_call>{{ c.function.name }}\n{% for k, v in c.function.arguments.items() %}<arg_key>{{ k }}</arg_key>\n"
    "<arg_value>{{ v if v is string else v | tojson }}</arg_value>\n{% endfor %}</tool_call>"
)
_LLAMA_CALL = '{"name": {{ c.function.name | tojson }}, "parameters": {{ c.function.arguments | tojson }}}'


_SHAPE = (
    "BEGIN{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}HEAD{{ m.content or '' }}"
    "{% for c in m.tool_calls or [] %}CALL{% endfor %}CLOSE{% endfor %}{% if add_generation_prompt %}LAST{% endif %}"
)


def _template(call, head, close, begin="", tool="tool"):
    """A chat template in the manner of a family: how it begins, names roles, writes calls and ends turns."""
    role = "{{ m.role if m.role != 'tool' else '" + tool + "' }}"
    parts = {"BEGIN": begin, "HEAD": head.replace("ROLE", role), "CALL": call, "CLOSE": close}
    parts["LAST"] = head.replace("ROLE", "assistant")
    text = _SHAPE
    for name, part in parts.items():
        text = text.replace(name, part)
    return text


def _qwen_xml():
    parts = FAMILIES["qwen3_5_think"]
    return assemble(parts.added, _template(_XML_CALL, "<|im_start|>ROLE\n", "<|im_end|>\n"), parts.eos, parts.pad)


def _glm():
    template = _template(_GLM_CALL, "<|ROLE|>\n", "", begin="[gMASK]<sop>", tool="observation")
    return assemble(FAMILIES["glm4moe"].added, template, "<|observation|>", "<|endoftext|>")


def _llama():
    parts = FAMILIES["llama3_2"]
    head = "<|start_header_id|>ROLE<|end_header_id|>\n\n"
    template = _template(_LLAMA_CALL, head, "<|eot_id|>", begin="<|begin_of_text|>", tool="ipython")
    return assemble(parts.added, template, parts.eos, parts.pad, bos=parts.bos, split=parts.split)


def _smollm2():
    tokenizer = copy.copy(chat_tokenizers.build("smollm2"))
    tokenizer.pad_token = "<|endoftext|>"  # its own is its end of turn, which is refused
    return tokenizer


def _qwen3():
    parts = FAMILIES["real_qwen3"]
    model = chat_tokenizers._real_model("real_qwen3")
    return assemble(parts.added, qwen3_chat_template, parts.eos, parts.pad, split=parts.split, model=model)


MAKERS = {
    "qwen3, the original template over its real vocabulary": (_qwen3, "hermes", "real_qwen3"),
    "smollm2, its real vocabulary": (_smollm2, "hermes", "smollm2"),
    "tiny": (tiny_model.tokenizer, "hermes", None),
    "qwen_xml": (_qwen_xml, "qwen_xml", None),
    "glm": (_glm, "glm", None),
    "llama": (_llama, "llama", None),
}


class OddSampler:
    """Echoes, then submits, in ids as no tokenizer would cut them; the last turn of some episodes is cut off."""

    def __init__(self, codec, form):
        self.codec, self.form, self.turn, self.rng = codec, form, 0, random.Random(7)
        self.said: list[list[int]] = []

    def __call__(self, prompts, limits):
        name, argument = (("echo", "text"), ("submit_answer", "answer"))[min(self.turn, 1)]
        self.turn += 1
        out = []
        for k, limit in enumerate(limits):
            text = write_call(self.form, name, {argument: f"wörd-{k} 你好 <|im_end"})
            ids = odd_ids(self.codec.tokenizer, text, self.rng) + [self.codec.tokenizer.eos_token_id]
            ids = ids[:5] if self.turn == 2 and k == 1 else ids[:limit]
            out.append((ids, [-0.25] * len(ids)))
        self.said += [ids for ids, _ in out]
        return out


@pytest.mark.parametrize("name", MAKERS)
def test_ids_are_exact_for_every_family(name):
    make, form, vocabulary = MAKERS[name]
    if vocabulary and (reason := chat_tokenizers.missing(vocabulary)):
        pytest.skip(reason)
    codec = checked_codec(make())
    assert codec.tool_format == form and form in FORMS
    items, sampler = [Item(k, k, 0, str(k)) for k in range(3)], OddSampler(codec, form)
    found = swift_rows.rollout_rows(ENV_ID, codec, sampler, items, max_tokens=1000)
    played = token_rollout(ENV_ID, codec, OddSampler(codec, form), items, max_tokens=1000)
    assert found == [TrainedRow.of(one, filler=min(codec.stop_ids)) for one in played]
    assert [row.response_ids[a:b] for row in found for a, b in row.turns] == [
        tuple(sampler.said[k + 3 * t]) for k in range(3) for t in range(2)
    ]
    assert any(
        codec.tokenizer.encode(codec.tokenizer.decode(ids), add_special_tokens=False) != ids for ids in sampler.said
    )
    assert [len(row.turns) for row in found] == [2, 2, 2] and all(0 in row.mask for row in found)


def _canonical(tokenizer, ids):
    return tokenizer.encode(tokenizer.decode(ids), add_special_tokens=False)


def test_an_observation_closes_no_turn_twice():
    codec = checked_codec(tiny_model.tokenizer())
    (row,) = swift_rows.rollout_rows(ENV_ID, codec, OddSampler(codec, "hermes"), [Item(0, 0, 0, "0")], max_tokens=1000)
    end = codec.tokenizer.eos_token_id
    trained = [i for i, bit in zip(row.response_ids, row.mask, strict=True) if bit]
    assert trained.count(end) == 2 == len(row.turns), "one for each turn that was sampled"
    (first, _) = row.turn_ends
    assert row.response_ids[first] == end and row.response_ids[first + 1] != end


def test_sampling_keeps_ids_that_equal_the_pad_token_and_ends_at_stop_ids_alone():
    """swift's own engine drops the first and ends a turn where ordinary ids spell a stop word."""
    from types import SimpleNamespace

    from swift.infer_engine import RequestConfig

    tokenizer = tiny_model.tokenizer()
    model, pad, stop = tiny_model.random_model(tokenizer), tokenizer.pad_token_id, tokenizer.eos_token_id
    wanted = [pad, *tokenizer.encode("<|im_", add_special_tokens=False)[:1], pad, 5, 6, 7, stop]
    at = []

    def forced(module, args, kwargs, output):
        output.logits[:, -1] = -1e4
        output.logits[:, -1, wanted[len(at)]] = 0.0
        at.append(1)

    model.register_forward_hook(forced, with_kwargs=True)
    generate = lambda model, **kwargs: model.generate(**kwargs)  # noqa: E731
    template = SimpleNamespace(tokenizer=tokenizer, generate=generate)
    owner = SimpleNamespace(engine=SimpleNamespace(model=model), template=template, temperature=1.0)

    def sample(prompts, *stops):
        owner.codec = SimpleNamespace(stop_ids=frozenset(stops))
        return EnvGRPOTrainer._sample(owner, prompts, config)

    config = RequestConfig(max_tokens=20, temperature=1.0)
    (row, short) = sample([[1, 2, 3], [4]], stop)
    assert row[0] == wanted == short[0]
    assert row[1] == pytest.approx([0.0] * len(wanted), abs=1e-4)
    at.clear()
    (row,) = sample([[1, 2, 3]], pad, stop)
    assert row[0] == [pad], "a pad token that is a stop id ends a turn, and is part of it"


def test_unsupported_templates_are_refused_with_the_list_of_those_that_are_not():
    tokenizer = tiny_model.tokenizer()
    tokenizer.chat_template = "{% for m in messages %}<|im_start|>{{ m.role }} {{ m.content }}<|im_end|>{% endfor %}"
    with pytest.raises(UnsupportedTemplateError, match="Families whose templates work: Qwen2.5, Qwen3.*GLM.*Llama"):
        checked_codec(tokenizer)
    assert checked_codec(tiny_model.tokenizer(), given=ChatCodec(tokenizer, template=tiny_model.TEMPLATE)).tool_format


def test_a_pad_token_may_end_turns_by_the_models_own_word():
    tokenizer = tiny_model.tokenizer()
    tokenizer.chat_template = HERMES_TEMPLATE
    assert checked_codec(tokenizer, ends=[tokenizer.pad_token_id]).stop_ids >= {tokenizer.pad_token_id}


def test_the_template_never_truncates():
    codec = checked_codec(tiny_model.tokenizer())
    (row,) = swift_rows.rollout_rows(ENV_ID, codec, OddSampler(codec, "hermes"), [Item(0, 0, 0, "0")], max_tokens=7)
    assert len(row.response_ids) == 7 == sum(row.mask), "the episode's budget, and nothing else, bounds it"
    assert torch.tensor(row.prompt_ids).numel() > 7


@pytest.mark.parametrize("mode", ["vllm", "transformers", "train"])
def test_every_engine_is_given_the_same_ids(mode):
    """What swift's own engines encode of a request: vLLM has no other way to be given ids."""
    from swift.infer_engine.protocol import RolloutInferRequest

    codec = checked_codec(tiny_model.tokenizer())
    template = swift_rows.ScriptedTrainer(codec, None, 1).template
    template.set_mode(mode)
    template.max_length, template.truncation_strategy = 5, "left"
    ids = [7, codec.tokenizer.pad_token_id, codec.tokenizer.eos_token_id, *range(5, 40)]
    assert template.encode(RolloutInferRequest(messages=request_messages(ids)))["input_ids"] == ids


def test_through_swifts_own_engine(monkeypatch):
    """The way that vLLM goes: swift's engine encodes the requests itself and answers with ids and log-probabilities."""
    from swift.rlhf_trainers import GRPOTrainer

    codec = checked_codec(tiny_model.tokenizer())
    items = [Item(k, k, 0, str(k)) for k in range(3)]
    expected = swift_rows.rollout_rows(ENV_ID, codec, OddSampler(codec, "hermes"), items, max_tokens=1000)
    sampler, asked = OddSampler(codec, "hermes"), []

    class Fast(swift_rows.ScriptedTrainer):
        def __init__(self, *args):
            super().__init__(*args)
            self.use_fast_infer = True

    def infer(self, infer_requests, request_config=None, *, use_tqdm=False):
        self.template.set_mode("vllm")
        prompts = [self.template.encode(request)["input_ids"] for request in infer_requests]
        self.template.set_mode("train")
        asked.append((len(prompts), request_config.max_tokens))
        sampled = sampler(prompts, [request_config.max_tokens] * len(prompts))
        return [_output(*one) for one in sampled]

    monkeypatch.setattr(swift_rows, "ScriptedTrainer", Fast)
    monkeypatch.setattr(GRPOTrainer, "_engine_infer", infer)
    SESSIONS.reset(broken=lambda number: number == 0)
    monkeypatch.setattr(swift_rows, "OPTIONS", RolloutOptions(retries=0))
    rows = swift_rows.rollout_rows(ENV_ID, codec, sampler, items, max_tokens=1000)
    assert [row.valid for row in rows].count(False) == 1 and asked[0] == (2, 1000)
    assert [len(row.turns) for row in rows if row.valid] == [2, 2] and asked[1][1] < 1000
    assert all(a.prompt_ids == b.prompt_ids for a, b in zip(rows, expected, strict=True) if a.valid)


def _output(ids, logprobs):
    """As swift's engines answer."""
    content = {"content": [{"logprob": p} for p in logprobs]}
    choice = ChatCompletionResponseChoice(0, ChatMessage(role="assistant", content=""), "stop", content, token_ids=ids)
    return RolloutOutput(response=ChatCompletionResponse(model="", choices=[choice], usage=UsageInfo(0, 0, 0)))
