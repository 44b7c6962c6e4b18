"""The warm start: supervised steps that take the small model from noise to a demonstrator in a hurry.

Two phases. A copying drill: random strings, then pieces of them again in another order. Then imitation of
:func:`envs.gaia.mini.hurried`, with the loss on the demonstrator's tokens only. The demonstrator takes short cuts:
with some probability it opens the first file listed instead of the one asked for, or submits the first value noted
instead of calculating. So the model ends with the right moves and the wrong ones, and what reinforcement learning
has to find out is that the long way pays. (A model that half-copies a perfect demonstrator makes diffuse errors
instead, and those GRPO hardly mends.)
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from transformers import Qwen3ForCausalLM

from envs.gaia import mini
from examples.train_gaia.muon import Muon
from examples.train_gaia.traces import dialogue, encode


@dataclass(frozen=True)
class WarmSettings:
    """Everything that decides the warm start, besides the code and the env's texts."""

    seed: int = 11
    drill_steps: int = 120
    imitation_steps: int = 1000
    batch: int = 8
    """Demonstrations an imitation step."""
    drill_tokens: int = 1200
    """Tokens a drill step, about."""
    first: float = 0.5
    """How often the demonstrator opens the first file listed instead of looking for the one asked for."""
    skip: float = 0.5
    """How often it submits the first value noted instead of calculating."""
    matrix_lr: float = 0.02
    """Muon's learning rate, for the matrices."""
    other_lr: float = 3e-3
    """AdamW's, for embeddings, norms and biases."""
    decay: float = 0.4
    """Share of the imitation steps, the last ones, over which both rates fall to a twentieth."""

    @property
    def steps(self) -> int:
        """Of both phases."""
        return self.drill_steps + self.imitation_steps

    def rate(self, step: int) -> float:
        """The factor on both learning rates at a step, from 1: it rises over the first steps of each phase."""
        if step <= self.drill_steps:
            return min(1.0, step / 20)
        left = (self.steps - step) / max(1.0, self.decay * self.imitation_steps)
        return min(1.0, (step - self.drill_steps) / 10, 0.05 + 0.95 * left)


def warm_start(
    model: Qwen3ForCausalLM,
    codec: Any,
    tools: Sequence[dict[str, Any]],
    settings: WarmSettings,
    on_step: Callable[[int, float], None] = lambda step, loss: None,
) -> None:
    """Train ``model`` in place.

    Args:
        model: a fresh model in float32.
        codec: its :class:`~aworld_gym.tokens.ChatCodec`.
        tools: the env's tool schemas, as they stand in the prompt.
        settings: see there.
        on_step: called after each step with its number, from 1, and its loss in nats per token.
    """
    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and "embed" not in name]
    others = [p for name, p in model.named_parameters() if p.ndim != 2 or "embed" in name]
    optimisers = [
        Muon(matrices, lr=settings.matrix_lr),
        torch.optim.AdamW(others, lr=settings.other_lr, betas=(0.9, 0.98), weight_decay=0.0),
    ]
    base = [[group["lr"] for group in optimiser.param_groups] for optimiser in optimisers]
    traces = demonstrations(codec, tools, settings)
    model.train()
    for step in range(1, settings.steps + 1):
        for optimiser, rates in zip(optimisers, base, strict=True):
            for group, rate in zip(optimiser.param_groups, rates, strict=True):
                group["lr"] = rate * settings.rate(step)
        if step <= settings.drill_steps:
            ids, mask = drill(codec, settings, step)
        else:
            ids, mask = _pad([next(traces) for _ in range(settings.batch)], codec.tokenizer.pad_token_id)
        hidden = model.model(input_ids=ids).last_hidden_state[:, :-1][mask[:, 1:]]
        loss = F.cross_entropy(model.lm_head(hidden), ids[:, 1:][mask[:, 1:]])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimiser in optimisers:
            optimiser.step()
            optimiser.zero_grad()
        on_step(step, loss.item())
    model.eval()


def demonstrations(
    codec: Any, tools: Sequence[dict[str, Any]], settings: WarmSettings
) -> Iterator[tuple[list[int], list[int]]]:
    """Ids and mask of one hurried demonstration after another, each of a fresh training task."""
    source, draw, rng = mini.MiniTasks("train"), np.random.default_rng(settings.seed), random.Random(settings.seed)
    while True:
        task = source.sample(draw)
        plan = mini.hurried(task, rng, first=settings.first, skip=settings.skip)
        yield encode(codec, dialogue(task, plan), tools)


def drill(codec: Any, settings: WarmSettings, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A batch of strings, each followed by its own pieces in another order.

    The loss is on every repeated token but the first of a piece: which piece comes next cannot be known. Strings
    grow over the first half of the drill.

    Returns:
        ids and mask (True where the loss is), both of shape (rows, 2 * length of a string).
    """
    rng = random.Random(f"drill/{settings.seed}/{step}")
    alphabet = _drill_alphabet(codec.tokenizer)
    longest = min(18, step * 18 // max(1, settings.drill_steps // 2))
    length = rng.randint(6, 6 + longest)
    rows, masks = [], []
    for _ in range(max(1, settings.drill_tokens // (2 * length))):
        string, size = rng.sample(alphabet, length), rng.randint(3, 6)
        pieces = [string[at : at + size] for at in range(0, length, size)]
        rng.shuffle(pieces)
        row, mask = list(string), [False] * length
        for piece in pieces:
            row += piece
            mask += [False] + [True] * (len(piece) - 1)
        rows.append(row)
        masks.append(mask)
    return torch.tensor(rows), torch.tensor(masks)


def _drill_alphabet(tokenizer: Any) -> list[int]:
    """The tokens that tasks are made of: syllables and digits."""
    texts = [*mini.SYLLABLES, *(f"{before}{digit}" for before in ("", " ", "_") for digit in range(1, 10)), "0"]
    return sorted({tokenizer.encode(text, add_special_tokens=False)[0] for text in texts})


def _pad(traces: Sequence[tuple[list[int], list[int]]], pad: int) -> tuple[torch.Tensor, torch.Tensor]:
    longest = max(len(ids) for ids, _ in traces)
    ids = torch.tensor([ids + [pad] * (longest - len(ids)) for ids, _ in traces])
    mask = torch.tensor([mask + [0] * (longest - len(mask)) for _, mask in traces], dtype=torch.bool)
    return ids, mask
