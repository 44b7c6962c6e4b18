"""What of ms-swift is not its documented interface, behind checks of the versions. Imports no framework by itself.

swift fails silently, or late and far from the cause, in several ways; those that can be seen before a model is
loaded are refused here. The names that :mod:`adapters.swift.trainer` overrides stand in :data:`OVERRIDDEN`.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Sequence
from typing import Any

from adapters.versions import require
from aworld_gym.errors import ConfigError, MissingDependencyError
from aworld_gym.generation import Sampled

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
        ConfigError: a trl that swift cannot work with.
    """
    found = require("ms-swift", "swift", TESTED)
    for name in ("msgspec", "trl"):
        if importlib.util.find_spec(name) is None:
            raise MissingDependencyError(
                f"ms-swift {found} needs {name} for GRPO, which is not installed: pip install 'aworld-gym[swift]'"
            )
    trl = importlib.metadata.version("trl")
    if int(trl.split(".", 1)[0]) >= 1:
        raise ConfigError(
            f"ms-swift {found} works with a trl below 1, and trl {trl} is installed. The adapters for TRL and for "
            "ms-swift need an environment each: pip install 'aworld-gym[swift]' in a fresh one"
        )
    return found


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

    from adapters.hf import SampledLogprobs

    model, tokenizer = trainer.engine.model, trainer.template.tokenizer
    settings = prepare_generation_config(model.generation_config, config, tokenizer)
    settings.eos_token_id, settings.use_cache = sorted(stop_ids), True
    longest = max(map(len, prompts))
    ids = torch.full((len(prompts), longest), tokenizer.pad_token_id)
    mask = torch.zeros_like(ids)
    for k, prompt in enumerate(prompts):
        ids[k, longest - len(prompt) :] = torch.tensor(prompt)
        mask[k, longest - len(prompt) :] = 1
    model.eval()
    with torch.no_grad(), SampledLogprobs(model, trainer.temperature) as watch:
        out = trainer.template.generate(
            model,
            input_ids=ids.to(model.device),
            attention_mask=mask.to(model.device),
            generation_config=settings,
        )
    rows = [_turn(row, stop_ids) for row in out[:, longest:].tolist()]
    logprobs = watch.logprobs(rows)
    return [(row, None if logprobs is None else logprobs[k]) for k, row in enumerate(rows)]


def _turn(ids: list[int], stop_ids: frozenset[int]) -> list[int]:
    return ids[: next((k + 1 for k, token in enumerate(ids) if token in stop_ids), len(ids))]
