"""The alarm: does the trainer see what was sampled, with the weights that sampled it? No framework, no torch."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

from aworld_gym.errors import ConfigError

log = logging.getLogger(__name__)

THRESHOLD_FP32, THRESHOLD_LOW_PRECISION = 1e-3, 5e-2
"""Mean differences (nats) that rounding explains: fp32 gives about 1e-6, bf16 or another engine about 1e-2."""


class LogprobAlarm:
    """Compares the log-probabilities of sampling with the trainer's own, for the same ids and weights.

    They are equal up to rounding if the trainer scores the context that was sampled from, with the weights that
    sampled. A server that kept old weights, a shifted row, dropout, another temperature: all show here.

    Args:
        threshold: mean absolute difference (nats per sampled id) above which it warns.
    """

    def __init__(self, threshold: float):
        if not threshold > 0:
            raise ConfigError(f"the log-probability threshold must be positive, got {threshold!r}")
        self.threshold, self.warnings = threshold, 0

    def check(self, mean: float, largest: float, *, step: int) -> bool:
        """True, and a warning, where the mean difference is above the threshold (or not a number)."""
        if mean <= self.threshold:
            return False
        self.warnings += 1
        log.warning(
            "step %d: log-probabilities of sampling and of the trainer differ by %.3g on average (largest %.3g; "
            "expected below %.3g). The trainer does not see what was sampled: look for weights that did not reach the "
            "sampler, dropout, sampling options that change the distribution, or lower precision.",
            step,
            mean,
            largest,
            self.threshold,
        )
        return True

    def compare(
        self,
        gaps: Iterable[Any],
        *,
        step: int,
        gather: Callable[[list[Any]], list[Any]] = list,
        speaks: bool = True,
    ) -> dict[str, float]:
        """Look at the differences of a batch, and warn where they are too large.

        Args:
            gaps: arrays or tensors of any shape: the absolute difference at each sampled id that is trained on.
            step: the trainer's.
            gather: makes one list of those of all processes.
            speaks: may this process warn?

        Returns:
            ``logprob_gap/mean`` and ``logprob_gap/max`` (nats) over all processes; nothing where no id is known.
        """
        own = [(float(gap.sum()), len(gap), float(gap.max())) for gap in (gap.reshape(-1) for gap in gaps) if len(gap)]
        found = gather(own)
        if not found:
            return {}
        mean, largest = sum(f[0] for f in found) / sum(f[1] for f in found), max(f[2] for f in found)
        if speaks:
            self.check(mean, largest, step=step)
        return {"logprob_gap/mean": mean, "logprob_gap/max": largest}
