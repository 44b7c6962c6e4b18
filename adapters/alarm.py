"""The alarm: does the trainer see what was sampled, with the weights that sampled it? No framework, no torch."""

from __future__ import annotations

import logging

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
