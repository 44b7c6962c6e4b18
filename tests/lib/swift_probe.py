"""A trainer of the ms-swift adapter that remembers what its sampler returned and what reached its loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from adapters.swift.trainer import EnvGRPOTrainer


@dataclass
class Step:
    """One forward and backward pass; rows are right-padded, the completion frame is their last T columns."""

    ids: torch.Tensor
    """(B, L)."""
    attended: torch.Tensor
    """(B, L), 1 at ids that are no padding."""
    mask: torch.Tensor
    """(B, T)."""
    advantages: torch.Tensor
    """(B, T)."""
    grad: torch.Tensor
    """Of the loss with respect to the log-probability of each id: (B, T)."""


class ProbeTrainer(EnvGRPOTrainer):
    """What ``adapters.swift.train`` uses, watched."""

    made: list[Any] = []

    def __init__(self, *args: Any, **kwargs: Any):
        self.samples: list[tuple[list[int], list[int], list[float]]] = []
        self.batches: list[tuple[list[Any], list[dict[str, Any]]]] = []
        self.steps: list[Step] = []
        super().__init__(*args, **kwargs)
        self.first_weights = {n: p.detach().clone() for n, p in self.model.named_parameters()}
        ProbeTrainer.made.append(self)

    def _sample(self, prompts, config):
        rows = super()._sample(prompts, config)
        self.samples += [(list(p), list(ids), logprobs) for p, (ids, logprobs) in zip(prompts, rows, strict=True)]
        return rows

    def _postprocess_batch(self, samples, batch_encoded_inputs):
        super()._postprocess_batch(samples, batch_encoded_inputs)
        self.batches.append((list(samples), [dict(b) for b in batch_encoded_inputs]))

    def _get_per_token_logps_and_entropies(self, *args, **kwargs):
        out = super()._get_per_token_logps_and_entropies(*args, **kwargs)
        if out[0].requires_grad:
            out[0].retain_grad()
            self._logps = out[0]
        return out

    def compute_loss(self, model, inputs, *args, **kwargs):
        self._inputs = inputs
        return super().compute_loss(model, inputs, *args, **kwargs)

    def training_step(self, *args, **kwargs):
        loss = super().training_step(*args, **kwargs)
        model, batch = self._inputs["model_inputs"], self._inputs["grpo_batch"]
        kept = model["input_ids"], model["attention_mask"], batch.completion_mask, batch.advantages
        self.steps.append(Step(*(x.clone() for x in kept), self._logps.grad.clone()))
        return loss


def rows(step: Step) -> list[tuple[list[int], list[int]]]:
    """Of each row the ids without padding, and a mask over them of those that are trained on."""
    out = []
    width = step.ids.size(1)
    for k in range(len(step.ids)):
        length = int(step.attended[k].sum())
        assert step.attended[k][:length].all(), "rows are right-padded"
        mask = [0] * (width - step.mask.size(1)) + step.mask[k].int().tolist()
        assert not any(mask[length:]), "padding is trained on"
        out.append((step.ids[k][:length].tolist(), mask[:length]))
    return out


def assert_trained_on_what_was_sampled(trainer: Any) -> int:
    """Every run of trained ids in every row was sampled, after exactly the ids before it.

    Returns:
        How many runs there were.
    """
    known: dict[tuple[int, ...], list[list[int]]] = {}
    for prompt, ids, _ in trainer.samples:
        known.setdefault(tuple(prompt), []).append(ids)
    runs = 0
    for step in trainer.steps:
        for ids, mask in rows(step):
            k = 0
            while k < len(ids):
                end = k
                while end < len(ids) and mask[end] == mask[k]:
                    end += 1
                if mask[k]:
                    outputs = known[tuple(ids[:k])]  # KeyError: the context was never sampled from
                    assert any(out[: end - k] == ids[k:end] for out in outputs)
                    runs += 1
                k = end
    return runs


def assert_gradient_only_on_sampled_ids(trainer: Any) -> int:
    """Gradients are non-zero exactly at trained ids with a non-zero advantage.

    Returns:
        How many ids have a gradient.
    """
    total = 0
    for step in trainer.steps:
        expected = step.mask.bool() & (step.advantages.abs() > 0)
        found = step.grad != 0
        assert torch.equal(found, expected)
        total += int(found.sum())
    return total


def changed_weights(trainer: Any) -> set[str]:
    """Names of the parameters that training changed."""
    return {n for n, p in trainer.model.named_parameters() if not torch.equal(p, trainer.first_weights[n])}
