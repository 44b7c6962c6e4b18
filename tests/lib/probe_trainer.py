"""A trainer that remembers what its sampler returned and what reached its loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from trl import GRPOTrainer

from adapters.trl.trainer import EnvGRPOTrainer


@dataclass
class Step:
    """One forward and backward pass."""

    inputs: dict[str, Any]
    grad: torch.Tensor
    """Of the loss with respect to the log-probability of each completion id: (B, T)."""


class Probe:
    """Mixin over a GRPOTrainer."""

    made: list[Any] = []

    def __init__(self, *args: Any, **kwargs: Any):
        self.samples: list[tuple[list[int], list[int]]] = []
        self.scored: list[tuple[list[dict], dict[str, Any]]] = []
        self.steps: list[Step] = []
        super().__init__(*args, **kwargs)
        self.first_weights = {n: p.detach().clone() for n, p in self.model.named_parameters()}
        Probe.made.append(self)

    def _generate_single_turn(self, prompt_ids, *args, **kwargs):
        ids, logprobs = super()._generate_single_turn(prompt_ids, *args, **kwargs)
        self.samples += [(list(p), list(c)) for p, c in zip(prompt_ids, ids, strict=True)]
        return ids, logprobs

    def _generate_and_score_completions(self, inputs):
        output = super()._generate_and_score_completions(inputs)
        kept = {k: v.clone() if torch.is_tensor(v) else v for k, v in output.items()}
        self.scored.append((inputs, kept))
        return output

    def _get_per_token_logps_and_entropies(self, *args, **kwargs):
        out = super()._get_per_token_logps_and_entropies(*args, **kwargs)
        if out[0].requires_grad:
            out[0].retain_grad()
            self._logps = out[0]
        return out

    def _compute_loss(self, model, inputs):
        self._inputs = inputs
        return super()._compute_loss(model, inputs)

    def training_step(self, *args, **kwargs):
        loss = super().training_step(*args, **kwargs)
        kept = {k: v.clone() if torch.is_tensor(v) else v for k, v in self._inputs.items()}
        self.steps.append(Step(kept, self._logps.grad.clone()))
        return loss


class ProbeTrainer(Probe, EnvGRPOTrainer):
    """What ``adapters.trl.train`` uses, watched."""


class StockProbeTrainer(Probe, GRPOTrainer):
    """TRL's own trainer, watched."""


def assert_trained_on_what_was_sampled(trainer: Any) -> int:
    """Every run of mask-1 ids in every row that reached the loss was sampled, after exactly the ids before it.

    Returns:
        How many runs there were.
    """
    known: dict[tuple[int, ...], list[list[int]]] = {}
    for prompt, ids in trainer.samples:
        known.setdefault(tuple(prompt), []).append(ids)
    runs = 0
    for step in trainer.steps:
        x = step.inputs
        for row in range(len(x["completion_ids"])):
            kept = x["completion_mask"][row].bool()
            prompt = x["prompt_ids"][row][x["prompt_mask"][row].bool()].tolist()
            completion, mask = x["completion_ids"][row][kept].tolist(), x["tool_mask"][row][kept].tolist()
            k = 0
            while k < len(completion):
                end = k
                while end < len(completion) and mask[end] == mask[k]:
                    end += 1
                if mask[k]:
                    outputs = known[tuple(prompt + completion[:k])]  # KeyError: the context was never sampled from
                    assert any(ids[: end - k] == completion[k:end] for ids in outputs)
                    runs += 1
                k = end
    return runs


def assert_gradient_only_on_sampled_ids(trainer: Any, clipped: bool = False) -> int:
    """Gradients are non-zero exactly at sampled ids with a non-zero advantage (at some of them, where clipped).

    Returns:
        How many ids have a gradient.
    """
    total = 0
    for step in trainer.steps:
        x = step.inputs
        advantages = x["advantages"] if x["advantages"].dim() == 2 else x["advantages"][:, None]
        expected = (x["completion_mask"] * x["tool_mask"]).bool() & (advantages.abs() > 0)
        found = step.grad != 0
        assert not (found & ~expected).any()
        assert clipped or torch.equal(found, expected)
        total += int(found.sum())
    return total


def changed_weights(trainer: Any) -> set[str]:
    """Names of the parameters that training changed."""
    return {n for n, p in trainer.model.named_parameters() if not torch.equal(p, trainer.first_weights[n])}
