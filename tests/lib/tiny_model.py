"""A tiny Qwen3 and its tokenizer, built locally and taught by imitation, in seconds, to call the tools of ``say_env``.

It calls well-formed tools most of the time and picks the right word some of the time, so that groups of episodes
have differing rewards. ``python tests/lib/tiny_model.py FOLDER`` writes one.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import torch
from say_env import WORDS
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from aworld_gym.tokens import ChatCodec

TEMPLATE = """\
{%- if tools %}<|im_start|>tools{% for t in tools %} {{ t.function.name }}{% endfor %}<|im_end|>{% endif %}
{%- for m in messages %}<|im_start|>{{ m.role }} {{ m.content }}
{%- for call in m.tool_calls or [] %}
{{- '<tool_call>{"name": ' + (call.function.name | tojson) + ', "arguments": ' }}
{{- (call.function.arguments | tojson) + '}</tool_call>' }}
{%- endfor %}<|im_end|>{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant {% endif %}"""

torch.set_num_threads(1)  # on matrices this small threads only wait for each other

TOOLS = [
    {"type": "function", "function": {"name": name, "description": "", "parameters": {"type": "object"}}}
    for name in ("echo", "submit_answer")
]


def tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level BPE whose merges come from what the model will write."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    corpus = [json.dumps(m) for word in WORDS for m in _trace(word, word, True)] + [f"say {w} user tool" for w in WORDS]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    backend.train_from_iterator(corpus, trainer)
    backend.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    for text in ("<tool_call>", "</tool_call>"):
        backend.add_tokens([AddedToken(text, special=False, normalized=False)])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<|im_end|>", pad_token="<|endoftext|>", padding_side="left"
    )
    fast.chat_template = TEMPLATE
    return fast


def random_model(tok: PreTrainedTokenizerFast, seed: int = 0, **changes) -> Qwen3ForCausalLM:
    """An untrained model for this tokenizer."""
    torch.manual_seed(seed)
    shape = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "head_dim": 16}
    config = Qwen3Config(
        vocab_size=len(tok),
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tok.eos_token_id,
        pad_token_id=tok.pad_token_id,
        **{**shape, **changes},
    )
    model = Qwen3ForCausalLM(config)
    model.generation_config = GenerationConfig(eos_token_id=tok.eos_token_id, pad_token_id=tok.pad_token_id)
    return model


def build(folder: Path, *, steps: int = 70, seed: int = 0, **changes) -> Path:
    """Write a taught model and its tokenizer to ``folder``; ``changes`` are of its shape."""
    tok = tokenizer()
    codec, model = ChatCodec(tok), random_model(tok, seed, **changes)
    rng, optimizer = random.Random(seed), torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(steps):
        rows = [_ids(codec, rng) for _ in range(16)]
        longest = max(len(ids) for ids, _ in rows)
        ids = torch.full((len(rows), longest), tok.pad_token_id)
        labels = torch.full((len(rows), longest), -100)
        for k, (row, mask) in enumerate(rows):
            ids[k, : len(row)] = torch.tensor(row)
            labels[k, : len(row)] = torch.where(torch.tensor(mask) == 1, torch.tensor(row), -100)
        loss = model(input_ids=ids, attention_mask=(ids != tok.pad_token_id).long(), labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.save_pretrained(folder)
    tok.save_pretrained(folder)
    return folder


def _trace(word: str, answer: str, echoes: bool) -> list[dict]:
    """One assistant message per turn."""
    calls = [("echo", {"text": word})] * echoes + [("submit_answer", {"answer": answer})]
    return [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"type": "function", "function": {"name": n, "arguments": a}}],
        }
        for n, a in calls
    ]


def _ids(codec: ChatCodec, rng: random.Random) -> tuple[list[int], list[int]]:
    word = rng.choice(WORDS)
    answer = word if rng.random() < 0.5 else rng.choice(WORDS)
    ids = codec.prompt([{"role": "user", "content": f"say {word}"}], TOOLS)
    mask, turns = [0] * len(ids), _trace(word, answer, rng.random() < 0.6)
    for k, message in enumerate(turns):
        turn = codec.encode_assistant(message)
        ids, mask = ids + turn, mask + [1] * len(turn)
        if k + 1 < len(turns):
            result = {"role": "tool", "name": "echo", "tool_call_id": "call_0", "content": word}
            appended = codec.extend(turn, [result])
            ids, mask = ids + appended, mask + [0] * len(appended)
    return ids, mask


if __name__ == "__main__":
    build(Path(sys.argv[1]))
