"""Everything of TRL that is not its public interface, behind a check of the version.

TRL has no public call to generate from token ids inside ``rollout_func``, none to set a trainer's stop ids, and
none to score a batch; these few functions reach for what stands there today. Nothing else in this package uses a
name with an underscore, but for the one method that :mod:`adapters.trl.trainer` overrides.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from adapters import versions
from aworld_gym.errors import MissingDependencyError
from aworld_gym.generation import Sampled

TESTED = ("1.16.0",)
"""Versions of TRL that the tests of this package pass with."""

PRIVATE = ("_generate_single_turn", "_generate_and_score_completions", "_get_per_token_logps_and_entropies")
"""Methods of GRPOTrainer that are used or overridden."""


def require_trl() -> str:
    """The installed version of TRL.

    Raises:
        MissingDependencyError: there is none.
        ConfigError: it lacks what this adapter needs.
    """
    found = versions.require("trl", "trl", TESTED, least="1")  # ms-swift brings an older one
    try:
        from trl import GRPOTrainer
    except ImportError as error:
        raise MissingDependencyError(f"the installed trl {found} does not import: {error}") from error
    versions.require_names(GRPOTrainer, PRIVATE, "trl", TESTED)
    return found


@contextmanager
def without_renaming_notices() -> Iterator[None]:
    """Leave out the notices of transformers that its names for activation checkpointing have changed.

    TRL itself uses the old names, in every run; nobody who calls it can do anything about that.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message=r"`(is_)?gradient_checkpointing\w*` is deprecated", category=FutureWarning
        )
        yield


class TrainerSampler:
    """``generate`` of a token rollout, done by the trainer: transformers, vLLM colocated or a vLLM server alike.

    Args:
        trainer: a GRPOTrainer whose stop ids are those of the codec (:func:`adopt_stop_ids`).

    Log-probabilities come from vLLM; with plain transformers generation they are read off the model's own forward
    passes. They are None where generation cannot be watched (continuous batching).
    """

    def __init__(self, trainer: Any):
        self._trainer = trainer
        self._filler = [tokenizer(trainer).eos_token_id]

    def __call__(self, prompts: list[list[int]], limits: list[int]) -> list[Sampled]:
        """Sample at most ``limits[i]`` ids after ``prompts[i]``, stop id included."""
        from adapters.batches import round_of_all
        from adapters.hf import SampledLogprobs

        trainer, limit = self._trainer, max(limits, default=1)
        if trainer.accelerator.num_processes > 1:
            # A round may be collective: every process takes part, and with a vLLM server by the same number of rows.
            rows, limit = round_of_all(len(prompts), limit)
            rows = rows if trainer.use_vllm else max(len(prompts), 1)
            prompts = prompts + [self._filler] * (rows - len(prompts))
        plain = not (trainer.use_vllm or trainer.use_transformers_continuous_batching)
        model = trainer.accelerator.unwrap_model(trainer.model)
        with _max_new_tokens(trainer, limit), SampledLogprobs(model, trainer.temperature, plain) as watch:
            ids, logprobs = trainer._generate_single_turn(prompts, None, {}, 1)
        if logprobs is None:
            logprobs = watch.logprobs(ids)
        out: list[Sampled] = []
        for k, bound in enumerate(limits):
            row = None if logprobs is None else [float("nan") if x is None else float(x) for x in logprobs[k][:bound]]
            out.append(([int(i) for i in ids[k][:bound]], row))
        return out


def adopt_stop_ids(trainer: Any, stop_ids: Sequence[int]) -> None:
    """Let the trainer's sampler end a turn at exactly these ids."""
    ids = sorted(stop_ids)
    trainer.eos_token_ids = ids
    if trainer.use_vllm:
        trainer.vllm_generation.generation_kwargs = {
            **(trainer.vllm_generation.generation_kwargs or {}),
            "stop_token_ids": ids,
        }
    else:
        trainer.generation_config.eos_token_id = ids
        trainer.generation_kwargs["eos_token_id"] = ids


def trainer_stop_ids(trainer: Any) -> list[int]:
    """The ids at which the trainer's sampler ends by itself."""
    return [int(i) for i in trainer.eos_token_ids]


def needs_logprobs(trainer: Any) -> bool:
    """Must a batch have log-probabilities, be they NaN? vLLM's are corrected; and processes must not differ in this."""
    several = trainer.accelerator.num_processes > 1 and not trainer.use_transformers_continuous_batching
    return bool(trainer.use_vllm or several)


def score(trainer: Any, output: dict[str, Any], rows: int) -> Any:
    """The trainer's log-probabilities (rows, T) of the first rows of a scored batch, with the current weights."""
    import torch

    ids = torch.cat([output["prompt_ids"], output["completion_ids"]], dim=1)[:rows]
    mask = torch.cat([output["prompt_mask"], output["completion_mask"]], dim=1)[:rows]
    with torch.no_grad():
        logps, *_ = trainer._get_per_token_logps_and_entropies(
            trainer.model, ids, mask, output["completion_ids"].size(1), batch_size=rows
        )
    return logps


def log_metric(trainer: Any, name: str, value: float) -> None:
    """Add to the trainer's metrics, which are averaged over a logging step and reported with its own."""
    trainer._metrics["train" if trainer.model.training else "eval"][name].append(value)


def tokenizer(trainer: Any) -> Any:
    """The trainer's tokenizer, of its processor where it has one."""
    return getattr(trainer.processing_class, "tokenizer", trainer.processing_class)


@contextmanager
def _max_new_tokens(trainer: Any, limit: int) -> Iterator[None]:
    """Bound one call of generation; the trainer's own bound is for a whole completion."""
    holder, name = (
        (trainer.vllm_generation, "max_completion_length")
        if trainer.use_vllm
        else (trainer.generation_config, "max_new_tokens")
    )
    before = getattr(holder, name)
    setattr(holder, name, limit)
    try:
        yield
    finally:
        setattr(holder, name, before)
