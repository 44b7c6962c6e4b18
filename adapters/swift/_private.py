"""What of ms-swift is not its documented interface, behind checks of the versions. Imports no framework by itself.

swift fails silently, or late and far from the cause, in several ways; those that can be seen before a model is
loaded are refused here. The names that :mod:`adapters.swift.trainer` overrides stand in :data:`OVERRIDDEN`.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import logging
from collections.abc import Sequence
from typing import Any

from aworld_gym.errors import ConfigError, MissingDependencyError
from aworld_gym.generation import Sampled

log = logging.getLogger(__name__)

TESTED = ("4.6.0",)
"""Versions of ms-swift that the tests of this package pass with."""

OVERRIDDEN = (
    "_infer_single_or_multi_turn",
    "_get_request_config",
    "_engine_infer",
    "_postprocess_rollout_outputs",
    "_compute_advantages",
    "_postprocess_batch",
    "compute_std",
)
"""Methods of swift's GRPOTrainer that the adapter's trainer extends."""


def require_swift() -> str:
    """The installed version of ms-swift.

    Raises:
        MissingDependencyError: there is none, or no msgspec, which swift needs and does not declare.
        ConfigError: a trl that swift cannot work with, or a swift that lacks what this adapter needs.
    """
    try:
        found = importlib.metadata.version("ms-swift")
    except importlib.metadata.PackageNotFoundError as error:
        raise MissingDependencyError(
            f"the ms-swift adapter needs ms-swift {TESTED[-1]}: pip install 'aworld-gym[swift]'"
        ) from error
    if importlib.util.find_spec("msgspec") is None:
        raise MissingDependencyError(
            f"ms-swift {found} needs msgspec for GRPO and does not install it: pip install 'aworld-gym[swift]'"
        )
    try:
        trl = importlib.metadata.version("trl")
    except importlib.metadata.PackageNotFoundError as error:
        raise MissingDependencyError(
            f"ms-swift {found} needs a trl below 1: pip install 'aworld-gym[swift]'"
        ) from error
    if int(trl.split(".", 1)[0]) >= 1:
        raise ConfigError(
            f"ms-swift {found} works with a trl below 1, and trl {trl} is installed; the adapters for TRL and for "
            "ms-swift need an environment each: pip install 'aworld-gym[swift]' in a fresh one"
        )
    if found not in TESTED:
        log.warning("ms-swift %s is not among the versions this adapter is tested with (%s)", found, ", ".join(TESTED))
    return found


def check_trainer(trainer_class: type) -> None:
    """Raises ConfigError where swift's GRPOTrainer lacks what the adapter extends."""
    missing = [name for name in OVERRIDDEN if not hasattr(trainer_class, name)]
    if missing:
        raise ConfigError(
            f"this ms-swift lacks GRPOTrainer.{missing[0]}; the adapter is tested with ms-swift {', '.join(TESTED)}"
        )


def sample(trainer: Any, prompts: Sequence[Sequence[int]], config: Any, stop_ids: frozenset[int]) -> list[Sampled]:
    """Sample one continuation for each prompt with the trainer's own transformers model.

    In the place of swift's TransformersEngine, which drops every sampled id that equals the pad token, ends a turn
    where ordinary ids *spell* a stop word, and gives no log-probabilities at the trainer's temperature.

    Args:
        trainer: swift's.
        prompts: their ids.
        config: swift's RequestConfig.
        stop_ids: a turn ends with the first of them, which is part of it.
    """
    import torch
    from swift.infer_engine.utils import prepare_generation_config
    from transformers import LogitsProcessorList

    model, tokenizer = trainer.engine.model, trainer.template.tokenizer
    settings = prepare_generation_config(model.generation_config, config, tokenizer)
    settings.eos_token_id, settings.use_cache = sorted(stop_ids), True
    longest, watch = max(map(len, prompts)), _Watch(trainer.temperature)
    ids = torch.full((len(prompts), longest), tokenizer.pad_token_id)
    mask = torch.zeros_like(ids)
    for k, prompt in enumerate(prompts):
        ids[k, longest - len(prompt) :] = torch.tensor(prompt)
        mask[k, longest - len(prompt) :] = 1
    model.eval()
    with torch.no_grad():
        out = trainer.template.generate(
            model,
            input_ids=ids.to(model.device),
            attention_mask=mask.to(model.device),
            generation_config=settings,
            logits_processor=LogitsProcessorList([watch]),
        )
    table = watch.logprobs(out[:, -1:])
    rows: list[Sampled] = []
    for k, row in enumerate(out[:, longest:].tolist()):
        end = next((j + 1 for j, token in enumerate(row) if token in stop_ids), len(row))
        rows.append((row[:end], table[k][:end]))
    return rows


class _Watch:
    """A logits processor that changes nothing and reads off the log-probability of each sampled id.

    It is called with the ids so far before each new one, first of all processors: the policy's own distribution, at
    the temperature at which the loss scores. One step of logits is held, never the sequence's.
    """

    def __init__(self, temperature: float):
        self._temperature, self._held, self._steps = temperature or 1.0, None, []

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        if self._held is not None:
            self._steps.append(self._of(input_ids[:, -1:]))
        self._held = scores.float() / self._temperature
        return scores

    def _of(self, ids: Any) -> Any:
        return (self._held.gather(1, ids) - self._held.logsumexp(-1, keepdim=True))[:, 0]

    def logprobs(self, last: Any) -> list[list[float]]:
        """Aligned with the sampled ids, of which ``last`` (B, 1) are the last ones."""
        import torch

        return torch.stack([*self._steps, self._of(last)], dim=1).tolist()
