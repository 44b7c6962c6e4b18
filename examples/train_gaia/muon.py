"""Muon in float32: torch's own works in bfloat16, which CPUs without such units emulate slowly."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch


class Muon(torch.optim.Optimizer):
    """Momentum whose update is orthogonalised by five Newton-Schulz steps (Jordan et al., 2024).

    Args:
        params: matrices only; vectors and embeddings belong to another optimiser.
        lr: size of an update: each has singular values near ``lr``, times ``sqrt(rows / columns)`` for tall matrices.
        momentum: of the running mean of gradients (Nesterov).
    """

    def __init__(self, params: Iterable[torch.nn.Parameter], lr: float = 0.02, momentum: float = 0.9):
        super().__init__(params, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """One update of every matrix that has a gradient."""
        if closure is not None:
            raise ValueError("Muon takes no closure")
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                mean = self.state[p].setdefault("mean", torch.zeros_like(p))
                mean.lerp_(p.grad, 1 - group["momentum"])
                update = _orthogonalise(p.grad.lerp(mean, group["momentum"]))
                p.add_(update, alpha=-group["lr"] * max(1.0, p.size(0) / p.size(1)) ** 0.5)


def _orthogonalise(matrix: torch.Tensor) -> torch.Tensor:
    """The nearest semi-orthogonal matrix, roughly: singular values end between about 0.7 and 1.2."""
    tall = matrix.size(0) > matrix.size(1)
    x = matrix.T if tall else matrix
    x = x / (x.norm() + 1e-7)
    for _ in range(5):
        gram = x @ x.T
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x.T if tall else x
