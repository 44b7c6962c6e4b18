"""Which templates are supported is a list, asserted; every other one is refused with a reason."""

from __future__ import annotations

import time

import chat_tokenizers
import pytest

from aworld_gym.errors import ConfigError
from aworld_gym.tokens import ChatCodec, Parsed, UnsupportedTemplateError
from aworld_gym.tokens.pieces import Pieces

SUPPORTED = {
    "hermes": "qwen2_5 qwen2_5_training qwen3 qwen3_training qwen3_instruct_2507 qwen3_instruct_2507_training "
    "qwen3_vl qwen3_vl_training",
    "qwen_xml": "qwen3_5_nothink qwen3_5_nothink_training qwen3_5_think qwen3_5_think_training qwen3_6 "
    "qwen3_6_training qwen3_8 qwen3_8_training nemotron_3_nano nemotron_3_nano_training nemotron_3_super "
    "nemotron_3_super_training nemotron_3_ultra nemotron_3_ultra_training nemotron_3_5_lightning "
    "nemotron_3_5_lightning_training",
    "llama": "llama3_1 llama3_2",
    "glm": "glm4moe glm4moe_training",
}
FORMS = {name: form for form, names in SUPPORTED.items() for name in names.split()}

OTHER_FORM = "lfm2_2_5 lfm2_2_5_v2 lfm2_2_5_vl lfm2_v2 lfm2_v2_training muse_glimmer muse_glimmer_training".split()
"""Exact, but their calls are in a form of their own: they need a function as ``tool_format``."""

REFUSED = {
    "does not show the tool": "cohere cohere_training cohere2 cohere2_training deepseek_r1_distill "
    "deepseek_r1_distill_training deepseekv3 deepseekv3_training gemma gemma_training gemma3 gemma3_training llama3 "
    "llama3_training phi3 phi3_training phi3_5 phi3_5_training qwen2_5_vl qwen2_5_vl_training",
    "drops a message of role 'user'": "idefics3 idefics3_training llava_next llava_next_training smolvlm "
    "smolvlm_training",
    "with none of the stop tokens": "diffusion_gemma diffusion_gemma_training gemma4 gemma4_v3 gemma4_v4 gemma4_v5",
    "none of the forms": "gemma4_v2 gptoss gptoss_training lfm2 lfm2_training",
}
REASONS = {name: reason for reason, names in REFUSED.items() for name in names.split()}

TEMPLATES = sorted(path.stem for path in chat_tokenizers.TEMPLATES.glob("*.jinja"))


def own_form(text: str, tools: object) -> Pieces:
    """A reader for a form that this package does not know."""
    pieces = Pieces()
    pieces.content.append(text)
    return pieces


def test_the_lists_are_complete() -> None:
    assert TEMPLATES == sorted([*FORMS, *OTHER_FORM, *REASONS])


@pytest.mark.parametrize("name", TEMPLATES)
def test_every_template_is_supported_or_refused_with_a_reason(name: str) -> None:
    codec = ChatCodec(chat_tokenizers.for_template(name))
    if name in FORMS:
        codec.self_check()
        assert codec.tool_format == FORMS[name]
        return
    with pytest.raises(UnsupportedTemplateError, match=REASONS.get(name, "none of the forms")):
        codec.self_check()
    if name in OTHER_FORM:
        ChatCodec(chat_tokenizers.for_template(name), tool_format=own_form).self_check()


def test_it_passes_in_milliseconds(codec: ChatCodec) -> None:
    """The bound is ten times what it takes; a machine that is busy with other things must not fail it."""
    codec.self_check()
    fresh = ChatCodec(codec.tokenizer)
    start = time.process_time()
    fresh.self_check()
    assert time.process_time() - start < 0.4


def test_refusals_name_the_fix() -> None:
    tokenizer = chat_tokenizers.build("qwen3")

    class Slow:
        chat_template = "x"
        added_tokens_decoder: dict = {}

    with pytest.raises(UnsupportedTemplateError, match="processor.tokenizer"):
        ChatCodec(Slow())
    with pytest.raises(UnsupportedTemplateError, match=r"ChatCodec\(template=...\)"):
        ChatCodec(chat_tokenizers.assemble((), "", "</s>", "</s>"))
    with pytest.raises(ValueError, match="tool_format must be one of"):
        ChatCodec(tokenizer, tool_format="hermse")
    with pytest.raises(UnsupportedTemplateError, match="pass tool_format"):
        ChatCodec(chat_tokenizers.for_template("lfm2_2_5")).parse([5])
    with pytest.raises(UnsupportedTemplateError, match="pass stop_ids"):
        ChatCodec(tokenizer, stop_ids=[0]).self_check()
    assert issubclass(UnsupportedTemplateError, ConfigError)


def test_a_form_can_be_named_or_given() -> None:
    tokenizer = chat_tokenizers.build("qwen3_instruct_2507")
    ids = tokenizer.encode('{"name": "f", "parameters": {}}', add_special_tokens=False)
    assert ChatCodec(tokenizer).parse(ids).message["content"]
    assert ChatCodec(tokenizer, tool_format="llama").parse(ids).message["tool_calls"]
    given: Parsed = ChatCodec(tokenizer, tool_format=own_form).parse(ids)
    assert given.message["content"].startswith("{")


def test_a_template_that_changes_with_the_round_is_refused() -> None:
    """Appended ids cannot depend on how many rounds came before; a template whose ids do is not exact."""
    tokenizer = chat_tokenizers.build("qwen3_instruct_2507")
    broken = tokenizer.chat_template.replace(
        "{{- '\\n<tool_response>\\n' }}", "{{- '\\n<tool_response>\\n' }}{{- 'later' if loop.index0 > 3 else '' }}"
    )
    assert broken != tokenizer.chat_template
    with pytest.raises(UnsupportedTemplateError, match="round 2 are rendered otherwise"):
        ChatCodec(tokenizer, template=broken).self_check()


def test_a_template_that_opens_reasoning_only_sometimes_is_refused() -> None:
    """Whether a turn begins with reasoning is known once, not by turn."""
    tokenizer = chat_tokenizers.build("qwen3_5_think")
    fickle = tokenizer.chat_template.replace(
        "{%- if enable_thinking is defined and", "{%- if messages[-1].role == 'tool' or enable_thinking is defined and"
    )
    assert fickle != tokenizer.chat_template
    with pytest.raises(UnsupportedTemplateError, match="begins inside <think> after a question and not after tool"):
        ChatCodec(tokenizer, template=fickle).self_check()


def test_a_template_that_twists_its_data_is_refused() -> None:
    tokenizer = chat_tokenizers.build("qwen2_5")
    shouting = tokenizer.chat_template.replace("{{- message.content }}", "{{- message.content | upper }}")
    with pytest.raises(UnsupportedTemplateError, match="does not survive in a tool result"):
        ChatCodec(tokenizer, template=shouting).self_check()
    lowering = tokenizer.chat_template.replace("{{- message.content }}", "{{- message.content | lower }}")
    codec = ChatCodec(tokenizer, template=lowering)
    answers = [{"role": "tool", "tool_call_id": "c", "name": "f", "content": "a <|IM_END|>"}]
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert codec.extend([], answers).count(end) == 2, "one closes the turn, one the results; none comes from the text"


def test_several_templates_by_name() -> None:
    """Of a tokenizer with named templates the one for tools is used, in every call."""
    tokenizer = chat_tokenizers.for_template("qwen3")
    source = tokenizer.chat_template
    tokenizer.chat_template = {"default": "{{ messages }}", "tool_use": source}
    codec = ChatCodec(tokenizer)
    codec.self_check()
    assert codec.template == source


@pytest.mark.skipif(bool(chat_tokenizers.missing("smollm2")), reason=chat_tokenizers.missing("smollm2"))
def test_smollm2s_own_template_knows_no_tools() -> None:
    codec = ChatCodec(chat_tokenizers.build("smollm2"), template=chat_tokenizers.smollm2_template())
    with pytest.raises(UnsupportedTemplateError, match="does not show the tool 'find_row' to the model"):
        codec.self_check()
