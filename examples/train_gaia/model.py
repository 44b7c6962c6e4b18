"""The small model: Qwen3's architecture at 440 thousand parameters, with a start that can learn to copy.

The start is not plain noise. Copying needs heads that look a fixed number of tokens back; with rotary positions and
normalised queries such heads take very long to appear by themselves, so two of layer 0 begin that way (they are
trained like every other weight afterwards).
"""

from __future__ import annotations

import torch
from transformers import GenerationConfig, PreTrainedTokenizerBase, Qwen3Config, Qwen3ForCausalLM

WIDTH, LAYERS, HEADS, HEAD_DIM = 96, 3, 4, 32
THETA = 1000.0
"""Base of the rotary frequencies: short, as the episodes are."""
LOOK_BACK = 2
"""Heads of layer 0 that begin by looking 1, 2, ... tokens back."""


def build_model(tokenizer: PreTrainedTokenizerBase, *, seed: int) -> Qwen3ForCausalLM:
    """A fresh model in float32; ``seed`` decides its weights (torch's global generator is left as it was)."""
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=WIDTH,
        intermediate_size=3 * WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        head_dim=HEAD_DIM,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        attention_bias=True,
        initializer_range=0.05,
        rope_parameters={"rope_type": "default", "rope_theta": THETA},
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(config)
    _look_back(model)
    model.generation_config = GenerationConfig(eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id)
    return model


@torch.no_grad()
def fold_output_biases(model: Qwen3ForCausalLM) -> None:
    """Move the bias of each attention's output into that of its values, where it has the same effect.

    The weights that a query gives its values sum to 1, so what all values have in common comes out as it went in:
    through an output projection W, a value bias b adds W b. Any output bias c is W (W^+ c), as W has full row rank.

    Qwen3's published models have no such bias, and engines know none in this architecture: vLLM leaves it out without
    a word, and its log-probabilities are then another model's.
    """
    for layer in model.model.layers:
        attention = layer.self_attn
        weight, bias = attention.o_proj.weight.double(), attention.o_proj.bias.double()
        attention.v_proj.bias += (torch.linalg.pinv(weight) @ bias).to(attention.v_proj.bias)
        attention.o_proj.bias.zero_()


@torch.no_grad()
def _look_back(model: Qwen3ForCausalLM) -> None:
    """Bias queries and keys of head h in layer 0 so that their rotated product peaks at distance h + 1.

    A key bias (c, ..., c | 0) over the fast rotary frequencies w and a query bias (c cos wd | -c sin wd) give, at
    distance x, a sum of cos(w (x - d)): largest where x = d.
    """
    attention = model.model.layers[0].self_attn
    attention.q_norm.weight.fill_(3.0)  # sharper than the unit norm allows
    half, fast = HEAD_DIM // 2, HEAD_DIM // 4
    frequency = THETA ** (-torch.arange(half) * 2.0 / HEAD_DIM)[:fast]
    for head in range(LOOK_BACK):
        rows = slice(head * HEAD_DIM, (head + 1) * HEAD_DIM)
        key, query = torch.zeros(HEAD_DIM), torch.zeros(HEAD_DIM)
        key[:fast] = 2.0
        query[:fast] = 2.0 * torch.cos(frequency * (head + 1))
        query[half : half + fast] = -2.0 * torch.sin(frequency * (head + 1))
        attention.k_proj.bias[rows], attention.q_proj.bias[rows] = key, query
        attention.k_proj.weight[rows] *= 0.2
        attention.q_proj.weight[rows] *= 0.2
