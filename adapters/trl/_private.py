"""Everything of TRL that is not its public interface, behind a check of the version.

TRL has no public call to generate from token ids inside ``rollout_func``, none to set a trainer's stop ids, and
none to score a batch; these few functions reach for what stands there today. Nothing else in this package uses a
name with an underscore, but for the one method that :mod:`adapters.trl.trainer` overrides.
"""

from __future__ import annotations

import importlib.metadata
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from aworld_gym.errors import ConfigError, MissingDependencyError
from aworld_gym.generation import Sampled

log = logging.getLogger(__name__)

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
    try:
        import trl

        found = importlib.metadata.version("trl")
        trainer = trl.GRPOTrainer
    except ImportError as error:
        raise MissingDependencyError(
            f"the TRL adapter needs trl {TESTED[-1]}: pip install 'aworld-gym[trl]' ({error})"
        ) from error
    missing = [name for name in PRIVATE if not hasattr(trainer, name)]
    if missing:
        raise ConfigError(
            f"trl {found} lacks GRPOTrainer.{missing[0]}; this adapter is tested with {', '.join(TESTED)}"
        )
    if found not in TESTED:
        log.warning("trl %s is not among the versions this adapter is tested with (%s)", found, ", ".join(TESTED))
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
        self._filler = [_tokenizer(trainer).eos_token_id]
        self.distributed = trainer.accelerator.num_processes > 1

    def __call__(self, prompts: list[list[int]], limits: list[int]) -> list[Sampled]:
        """Sample at most ``limits[i]`` ids after ``prompts[i]``, stop id included."""
        trainer, count = self._trainer, len(prompts)
        limit = max(limits, default=1)
        if self.distributed:
            # A round may be collective: every process takes part, and with a vLLM server by the same number of rows.
            rounds = _gather([(count, limit)])
            limit = max(limit for _, limit in rounds)
            rows = max(count for count, _ in rounds) if trainer.use_vllm else max(count, 1)
            prompts = prompts + [self._filler] * (rows - count)
        with _max_new_tokens(trainer, limit), _Watch(trainer) as watch:
            ids, logprobs = trainer._generate_single_turn(prompts, None, {}, 1)
        if logprobs is None:
            logprobs = watch.logprobs(ids)
        out: list[Sampled] = []
        for k, bound in enumerate(limits):
            row = None if logprobs is None else [float("nan") if x is None else float(x) for x in logprobs[k][:bound]]
            out.append(([int(i) for i in ids[k][:bound]], row))
        return out

    def rendezvous(self, alive: bool, waiting: bool) -> tuple[bool, bool]:
        """Of all processes: is any alive, does any wait for a batch?"""
        flags = _gather([(alive, waiting)])
        return any(a for a, _ in flags), any(w for _, w in flags)


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


def _tokenizer(trainer: Any) -> Any:
    return getattr(trainer.processing_class, "tokenizer", trainer.processing_class)


def _gather(values: list[Any]) -> list[Any]:
    from accelerate.utils import gather_object

    return list(gather_object(values))


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


class _Watch:
    """Reads the log-probabilities of sampled ids off a transformers model while it generates.

    ``generate`` feeds each sampled id back in the next forward pass, so at that pass the logits of the one before
    are known to have given it: one step of logits is held, never the sequence's. What is read is the policy's own
    distribution at the trainer's temperature, before top-k, top-p or penalties: the one that the loss scores.
    """

    def __init__(self, trainer: Any):
        self._on = not (trainer.use_vllm or trainer.use_transformers_continuous_batching)
        self._temperature = trainer.temperature
        model = trainer.accelerator.unwrap_model(trainer.model)
        self._model = model.get_base_model() if hasattr(model, "get_base_model") else model
        self._logits: Any = None
        self._steps: list[Any] = []
        self._hook: Any = None

    def __enter__(self) -> _Watch:
        if self._on:
            self._hook = self._model.register_forward_hook(self._saw, with_kwargs=True)
        return self

    def __exit__(self, *exc: object) -> None:
        if self._hook is not None:
            self._hook.remove()

    def _saw(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        ids = kwargs.get("input_ids", args[0] if args else None)
        if ids is not None and ids.size(1) == 1 and self._logits is not None:
            self._steps.append(self._of(ids[:, -1]))
        self._logits = output.logits[:, -1]

    def _of(self, ids: Any) -> Any:
        """The log-probability (B,) of each row's id under the logits held."""
        logits = self._logits.float() / self._temperature
        return logits.gather(1, ids[:, None])[:, 0] - logits.logsumexp(-1)

    def logprobs(self, ids: Sequence[Sequence[int]]) -> list[list[float]] | None:
        """Aligned with the sampled ids; None where generation did not go one id at a time."""
        if not self._on or self._logits is None:
            return None
        import torch

        longest = max(map(len, ids))
        if len(self._steps) != longest - 1 or self._logits.size(0) != len(ids):
            return None
        last = torch.tensor([row[-1] for row in ids], device=self._logits.device)
        table = torch.stack([*self._steps, self._of(last)], dim=1).tolist()
        return [table[k][: len(row)] for k, row in enumerate(ids)]
