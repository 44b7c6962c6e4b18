"""What the adapters share whose frameworks train with transformers' Trainer (TRL, ms-swift)."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather_object
from transformers import GenerationConfig, TrainerCallback

from adapters.common import DEFAULT_TASKS, THRESHOLD_FP32, THRESHOLD_LOW_PRECISION, Job, LogprobAlarm, MetricsFile
from adapters.credit import turn_advantages
from aworld_gym.errors import ConfigError
from aworld_gym.generation import Sampled


class MetricsCallback(TrainerCallback):
    """Writes what the trainer logs to a file, one line a time.

    Args:
        path: ``metrics.jsonl``.
    """

    def __init__(self, path: Path):
        self._path = path
        self._file: MetricsFile | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Begin the file; where a run is resumed, after the lines of its steps so far."""
        if state.is_world_process_zero:
            self._file = MetricsFile(self._path, resume_step=state.global_step or None)

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Write the newest line."""
        if self._file is not None and state.log_history:
            self._file.append(state.log_history[-1])  # `logs` itself is emptied in part by other callbacks


def tasks_needed(args: Any) -> int:
    """Rows of a data set from which every group of ``max_steps`` GRPO steps plays a new task."""
    if args.max_steps <= 0:
        return DEFAULT_TASKS
    forwards_per_batch = (args.steps_per_generation or 1) * args.num_iterations
    batches = math.ceil(args.max_steps * args.gradient_accumulation_steps / forwards_per_batch)
    return batches * ((args.generation_batch_size or 1) // (args.num_generations or 1))


def run_seeds(job: Job, args: Any) -> dict[str, list[int]]:
    """By split, the seeds of a run's tasks.

    Raises:
        ConfigError: no batch could be filled: transformers' Trainer would end at once, and say that it has trained.
    """
    seeds = job.seeds(tasks_needed(args), args.seed)
    groups = (args.generation_batch_size or 1) // (args.num_generations or 1)
    if len(seeds["train"]) < groups:
        raise ConfigError(
            f"a batch plays {groups} tasks (generation_batch_size {args.generation_batch_size}, in groups of "
            f"{args.num_generations}), and there are {len(seeds['train'])}: give more tasks, or make the batch smaller"
        )
    return seeds


def logprob_alarm(model: Any, args: Any, threshold: float | None) -> LogprobAlarm:
    """The alarm for a model and how it trains and samples: by default above what rounding explains there (nats)."""
    if threshold is None:
        dtypes = set() if model is None else {p.dtype for p in model.parameters()}
        low = args.bf16 or args.fp16 or args.use_vllm or dtypes != {torch.float32}
        threshold = THRESHOLD_LOW_PRECISION if low else THRESHOLD_FP32
    return LogprobAlarm(threshold)


def context(model: Any, *engine: int | None) -> int | None:
    """How many ids a model, and the engine that samples, can hold; None where nothing says."""
    held = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    return min((bound for bound in (held, *engine) if bound), default=None)


def declared_ends(model: Any) -> int | list[int] | None:
    """Ids that end generation by the model's own word: of a model, or of a folder or a name on a hub."""
    if not isinstance(model, str):
        return getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    try:
        return GenerationConfig.from_pretrained(model).eos_token_id
    except OSError:  # it has none, and then its sampler ends by none
        return None


def own_turn_advantages(
    rewards: Sequence[Sequence[float] | None], accelerator: Any, group_size: int, scale: Any
) -> list[list[float]]:
    """:func:`adapters.credit.turn_advantages` of this process's episodes; their groups may be spread over processes.

    Args:
        rewards: of each episode of this process the rewards of its turns; None for an invalid one.
        accelerator: which process this is.
        group_size: episodes per group.
        scale: as for ``turn_advantages``.
    """
    everyone = turn_advantages(gather_object(list(rewards)), group_size=group_size, scale=scale)
    first = accelerator.process_index * len(rewards)
    return everyone[first : first + len(rewards)]


def for_evaluation(given: Mapping[str, Any]) -> dict[str, Any]:
    """When to evaluate, and one episode a task, where that is not said."""
    ours: dict[str, Any] = {}
    if given.get("eval_strategy", "no") == "no":
        steps = int(given.get("max_steps", -1))
        every = int(given.get("eval_steps") or 0) or (max(1, steps // 10) if steps > 0 else 100)
        ours = {"eval_strategy": "steps", "eval_steps": every}
    return ours if given.get("num_generations_eval") else {**ours, "num_generations_eval": 1}


def on_this_machine(given: Mapping[str, Any], **also: Any) -> dict[str, Any]:
    """Settings for a machine without an accelerator, but for those given; none for one with."""
    if torch.accelerator.is_available():
        return {}
    ours = {"use_cpu": True, "bf16": False, "dataloader_pin_memory": False, **also}
    return {name: value for name, value in ours.items() if name not in given}


class SampledLogprobs:
    """Reads the log-probabilities of sampled ids off a transformers model while it generates.

    ``generate`` feeds each sampled id back in the next forward pass, so at that pass the logits of the one before
    are known to have given it: one step of logits is held, never the sequence's. What is read is the policy's own
    distribution at the trainer's temperature, before top-k, top-p or penalties: the one that the loss scores.
    Passes beyond the last id are no harm: where weights are spread over processes (ZeRO-3, FSDP), all of them go on
    until the last is done.

    Args:
        model: the model that generates, unwrapped.
        temperature: the trainer's.
        on: False watches nothing, and gives None.
    """

    def __init__(self, model: Any, temperature: float, on: bool = True):
        self._on, self._temperature = on, temperature or 1.0
        self._model = model.get_base_model() if hasattr(model, "get_base_model") else model
        self._logits: Any = None
        self._steps: list[Any] = []
        self._hook: Any = None

    def __enter__(self) -> SampledLogprobs:
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

    def logprobs(self, ids: Any) -> list[list[float]] | None:
        """Of the ids that were fed (one list a row); None where generation did not go one id at a time.

        Where these are not the sampled ones, rows were mixed up: the alarm then finds log-probabilities that differ.
        """
        if not self._on or self._logits is None or self._logits.size(0) != len(ids):
            return None
        longest = max(map(len, ids))
        steps = self._steps[:longest]
        if len(steps) == longest - 1:  # the last id was not fed back
            steps.append(self._of(torch.tensor([row[-1] for row in ids], device=self._logits.device)))
        if len(steps) < longest:
            return None
        table = torch.stack(steps, dim=1).tolist()
        return [table[k][: len(row)] for k, row in enumerate(ids)]


def sample(
    model: Any,
    prompts: Sequence[Sequence[int]],
    stop_ids: Collection[int],
    *,
    pad: int,
    temperature: float,
    generate: Callable[..., torch.Tensor] | None = None,
    **settings: Any,
) -> list[Sampled]:
    """Sample one continuation for each prompt with a transformers model, one batch of all.

    Args:
        model: the model.
        prompts: their ids.
        stop_ids: a turn ends with the first of them, which is part of it.
        pad: an id to pad with; it may be sampled too.
        temperature: the trainer's, of the log-probabilities.
        generate: takes the model and what ``model.generate`` takes, in its place.
        **settings: of generation.
    """
    longest = max(map(len, prompts))
    ids = torch.tensor([[pad] * (longest - len(prompt)) + list(prompt) for prompt in prompts], device=model.device)
    mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts], device=model.device)
    model.eval()
    with torch.no_grad(), SampledLogprobs(model, temperature) as watch:
        call = type(model).generate if generate is None else generate
        out = call(model, input_ids=ids, attention_mask=mask, **settings)[:, longest:].tolist()
    rows = []
    for row in out:
        end = next((k + 1 for k, token in enumerate(row) if token in stop_ids), len(row))
        rows.append(row[:end])
    return list(zip(rows, watch.logprobs(rows) or [None] * len(rows), strict=True))
