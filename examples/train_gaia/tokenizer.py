"""The small model's tokenizer: a byte-level BPE of a few hundred tokens and a short chat template.

Copying is the hard part for a model this small, so the tokens are cut to help it: a word is its two syllables, a
value is one token for its first digit (with the space before it) and one for the second, and a value follows its
name with nothing between them. The chat template names each tool in one line instead of a JSON schema.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from envs.gaia import mini
from examples.train_gaia.traces import dialogue

CHAT_TEMPLATE = """\
{%- if tools %}<|im_start|>system
{% for t in tools %}{{ t.function.name }}({{ (t.function.parameters.required or []) | join(', ') }})
{% endfor %}<|im_end|>
{% endif %}{%- for m in messages %}<|im_start|>{{ m.role }}
{{ m.content or '' }}{% for c in m.tool_calls or [] %}<tool_call>
{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
"""Qwen's form (Hermes calls), with a tool as ``name(required, arguments)``."""

VOCABULARY = 460
"""Tokens before the special ones are added."""

_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_MARKS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
_PIECES = Regex(r"[ _]?\d|[A-Za-z]+|[^A-Za-z\d]+?(?=[ _]?\d|[A-Za-z]|\z)")
_WORD = re.compile(rf"(?<![a-z])({'|'.join(mini.SYLLABLES)})({'|'.join(mini.SYLLABLES)})(?![a-z])")


def build_tokenizer(tools: Sequence[dict[str, Any]], *, tasks: int = 300) -> PreTrainedTokenizerFast:
    """Train the tokenizer on demonstrations of training tasks.

    Args:
        tools: the env's OpenAI tool schemas; their names stand in the prompt.
        tasks: how many training tasks the BPE sees.
    """
    bpe = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(_PIECES, "isolated")
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        min_frequency=3,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=[],
        show_progress=False,
    )
    bpe.train_from_iterator(_texts(tools, tasks), trainer)
    bpe.add_special_tokens(list(_SPECIAL))
    bpe.add_tokens([AddedToken(mark, special=False, normalized=False) for mark in _MARKS])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe, eos_token="<|im_end|>", pad_token="<|endoftext|>", padding_side="left"
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def _texts(tools: Sequence[dict[str, Any]], tasks: int) -> Iterator[str]:
    """What the BPE learns from: syllables above all, so that their merges come first, then whole dialogues."""
    for _ in range(4000):
        yield " ".join(mini.SYLLABLES)
    bare = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), eos_token="<|im_end|>")
    source, draw = mini.MiniTasks("train"), np.random.default_rng(0)
    control = re.compile("|".join(re.escape(mark) for mark in _SPECIAL + _MARKS))
    for index in range(tasks):
        task = source.sample(draw)
        plan = mini.hurried(task, random.Random(index), first=0.2, skip=0.2)
        text = bare.apply_chat_template(
            dialogue(task, plan), tools=list(tools), chat_template=CHAT_TEMPLATE, tokenize=False
        )
        # Words are shown in two pieces: no merge may reach across the syllables of a name.
        yield from control.split(_WORD.sub(r"\1 \2", str(text)))
