"""``train`` and ``spec``: from an env to TRL's trainer, its checkpoint, its metrics and its episodes."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import logging
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import torch
from gymnasium.envs.registration import EnvSpec
from transformers import TrainerCallback
from transformers.trainer_utils import IntervalStrategy
from trl import GRPOConfig

from adapters.common import (
    EVAL_SEEDS,
    MODELS,
    SEEDS_PER_RUN,
    MetricsFile,
    RolloutOptions,
    TrainResult,
    check_model_folder,
    env_spec,
    read_config,
    refuse_mixing,
    task_seeds,
)
from adapters.credit import Credit
from adapters.trl import _private
from adapters.trl.rollouts import EnvRollouts, TrlSpec, dataset
from adapters.trl.trainer import EnvGRPOTrainer
from aworld_gym.errors import ConfigError, did_you_mean
from aworld_gym.tokens import ChatCodec

log = logging.getLogger(__name__)

Env = str | EnvSpec | gym.Env

DEFAULT_TASKS = 1000
"""Tasks in an epoch, where neither ``tasks`` nor ``max_steps`` says."""


@_private.without_renaming_notices()
def train(
    env: Env,
    *,
    model: Any,
    output_dir: str | Path,
    config: GRPOConfig | Mapping[str, Any] | str | Path | None = None,
    eval_env: Env | None = None,
    credit: Credit = "episode",
    tasks: int | Sequence[int] | None = None,
    eval_tasks: int | Sequence[int] = 64,
    rollout: RolloutOptions | Mapping[str, Any] | None = None,
    logprob_threshold: float | None = None,
    resume_from_checkpoint: bool | str | Path | None = None,
    processing_class: Any = None,
    codec: ChatCodec | None = None,
    peft_config: Any = None,
    callbacks: Sequence[TrainerCallback] = (),
    optimizers: tuple[Any, Any] = (None, None),
    **overrides: Any,
) -> TrainResult:
    """Train ``model`` on ``env`` with TRL's GRPOTrainer.

    Rows of a batch that belong to one group (``num_generations`` in a row) play the same task; the episodes of a
    batch run concurrently. ``max_completion_length`` bounds a whole episode after its prompt, tool results
    included. An episode that infrastructure spoiled is played again in a fresh env, and if that fails too it is
    out of the loss and out of its group's baseline.

    Args:
        env: an id, an EnvSpec or an env made by ``gym.make``, whose spec (wrappers included) is rebuilt.
        model: a path, a hub name or a transformers model, as GRPOTrainer takes it.
        output_dir: gets ``final/`` (model and tokenizer), TRL's ``checkpoint-*``, ``metrics.jsonl`` and
            ``episodes.jsonl`` (``eval_episodes.jsonl`` for ``eval_env``).
        config: a GRPOConfig, a mapping of its fields, or a YAML or JSON file of them, passed through untouched. A
            mapping or file may have a section ``rollout`` with :class:`RolloutOptions`.
        eval_env: played by TRL's evaluation; its metrics are logged with the prefix ``eval_``. ``eval_strategy``
            and ``eval_steps`` of the config say when (by default ten times in a run).
        credit: ``"episode"``: GRPO's advantage, from the plain sum of an episode's rewards. ``"step"``: each turn
            has its own, from its reward and the later ones (:func:`adapters.credit.turn_advantages`).
        tasks: how many tasks an epoch has, or their seeds. By default as many as ``max_steps`` needs, each new;
            without ``max_steps``, 1000. They follow the config's ``seed``.
        eval_tasks: how many tasks an evaluation has, or their seeds; always the same.
        rollout: how episodes are played.
        logprob_threshold: see :class:`adapters.trl.trainer.EnvGRPOTrainer`.
        resume_from_checkpoint: True for the last checkpoint in ``output_dir``, or a checkpoint's path.
        processing_class: the tokenizer; by default the model's.
        codec: tokenises and parses, for templates that need settings; by default made for the tokenizer.
        peft_config: trains an adapter (LoRA, ...) instead of the whole model.
        callbacks: transformers callbacks.
        optimizers: as GRPOTrainer's.
        **overrides: further GRPOConfig fields, over those of a mapping or file.

    Raises:
        ConfigError: settings that cannot work, an env or model that cannot be had, a template that cannot be used
            token-exactly, or an ``output_dir`` that holds another run's episodes.
    """
    check_model_folder(model)
    output_dir, specs = Path(output_dir), {"train": env_spec(env)}
    if eval_env is not None:
        specs["eval"] = env_spec(eval_env)
    args, options = arguments(config, output_dir, rollout, overrides, evaluates=eval_env is not None)
    if not resume_from_checkpoint:
        refuse_mixing(output_dir)
    journals = {"train": output_dir / "episodes.jsonl", "eval": output_dir / "eval_episodes.jsonl"}
    rollouts = EnvRollouts(specs, options, journals, codec)
    seeds = task_seeds(tasks if tasks is not None else tasks_needed(args), args.seed * SEEDS_PER_RUN)
    parts = _parts(rollouts, seeds, task_seeds(eval_tasks, EVAL_SEEDS))
    try:
        trainer = EnvGRPOTrainer(
            str(model) if isinstance(model, Path) else model,
            parts.reward_funcs,
            args,
            parts.train_dataset,
            parts.eval_dataset,
            processing_class=processing_class,
            callbacks=list(callbacks),
            optimizers=optimizers,
            peft_config=peft_config,
            rollout_func=rollouts,
            credit=credit,
            logprob_threshold=logprob_threshold,
        )
    except OSError as error:
        why = str(error).strip().split("\n")[0].rstrip(".")
        raise ConfigError(f"the model {str(model)!r} cannot be loaded: {why}. {MODELS}") from error
    rollouts.prepare(trainer)
    log.info(
        "training on %s: %d tasks an epoch, %d episodes a group, at most %d tokens an episode after its prompt; "
        "the reward of %s",
        specs["train"].id,
        len(seeds),
        args.num_generations,
        args.max_completion_length,
        "an episode is the sum of its steps' rewards" if credit == "episode" else "each turn is its own and the later",
    )
    trainer.add_callback(_Metrics(output_dir / "metrics.jsonl"))
    checkpoint = resume_from_checkpoint
    try:
        trainer.train(resume_from_checkpoint=str(checkpoint) if isinstance(checkpoint, Path) else checkpoint)
    finally:
        rollouts.close()
    trainer.save_model(str(output_dir / "final"))
    counts = rollouts.counts["train"]
    log.info("trained %d steps; episodes: %s", trainer.state.global_step, dict(sorted(counts.items())))
    return TrainResult(output_dir / "final", trainer.state.log_history, journals["train"], counts)


def spec(
    env: Env,
    *,
    tasks: int | Sequence[int] = DEFAULT_TASKS,
    seed: int = 0,
    eval_env: Env | None = None,
    eval_tasks: int | Sequence[int] = 64,
    rollout: RolloutOptions | Mapping[str, Any] | None = None,
    episodes: str | Path | None = None,
    codec: ChatCodec | None = None,
) -> TrlSpec:
    """The parts of a GRPOTrainer for ``env``: ``train_dataset``, ``rollout_func``, ``reward_funcs``.

    Pass them to a GRPOTrainer, or to :class:`adapters.trl.EnvGRPOTrainer` for ``credit="step"`` and the
    log-probability alarm. Do not pass ``tools`` too: TRL then ignores the mask of sampled ids.

    Args:
        env: as for :func:`train`.
        tasks: how many tasks, or their seeds.
        seed: where task seeds begin, where ``tasks`` is a number.
        eval_env: adds an ``eval_dataset``.
        eval_tasks: how many, or their seeds.
        rollout: how episodes are played.
        episodes: a file to write training episodes to as they finish.
        codec: as for :func:`train`.
    """
    specs = {"train": env_spec(env)}
    if eval_env is not None:
        specs["eval"] = env_spec(eval_env)
    journals = {} if episodes is None else {"train": Path(episodes)}
    rollouts = EnvRollouts(specs, RolloutOptions.of(rollout), journals, codec)
    return _parts(rollouts, task_seeds(tasks, seed * SEEDS_PER_RUN), task_seeds(eval_tasks, EVAL_SEEDS))


def arguments(
    config: GRPOConfig | Mapping[str, Any] | str | Path | None,
    output_dir: Path,
    rollout: RolloutOptions | Mapping[str, Any] | None = None,
    overrides: Mapping[str, Any] | None = None,
    *,
    evaluates: bool = False,
) -> tuple[GRPOConfig, RolloutOptions]:
    """TRL's arguments, and the adapter's own.

    Set besides what the caller gave, and logged: ``output_dir``; with an ``eval_env``, when to evaluate and one
    episode per task; on a machine without an accelerator, ``use_cpu`` and full precision.

    Raises:
        ConfigError: unknown or contradictory settings.
    """
    overrides = dict(overrides or {})
    known = {f.name: f for f in dataclasses.fields(GRPOConfig)}
    _check_names(overrides, known)
    if isinstance(config, GRPOConfig):
        if overrides:
            raise ConfigError(f"set {sorted(overrides)} in the GRPOConfig itself, or give a mapping instead of it")
        args, given = copy.copy(config), {}
        if evaluates and args.eval_strategy == IntervalStrategy.NO:
            args.eval_strategy, args.do_eval, args.eval_steps = IntervalStrategy.STEPS, True, _eval_steps(vars(args))
            args.num_generations_eval = args.num_generations_eval or 1
            _say({"eval_strategy": "steps", "eval_steps": args.eval_steps})
        if args.output_dir is None or Path(args.output_dir) != output_dir:
            args.output_dir = str(output_dir)
            _say({"output_dir": args.output_dir})
        return args, RolloutOptions.of(rollout)
    given = {**read_config(config), **overrides}
    section = given.pop("rollout", None)
    if section is not None and rollout is not None:
        raise ConfigError("rollout options are given twice: in the config and as an argument")
    _check_names(given, known)
    # YAML reads 1e-6 (without a dot) as text.
    given = {name: _number(value, known[name]) for name, value in given.items()}
    given.pop("output_dir", None)
    ours: dict[str, Any] = {"output_dir": str(output_dir)}
    if evaluates:
        if given.get("eval_strategy", "no") == "no":
            ours |= {"eval_strategy": "steps", "eval_steps": _eval_steps(given)}
        if given.get("num_generations_eval") is None:
            ours["num_generations_eval"] = 1
    if not torch.accelerator.is_available():
        ours |= {
            name: value
            for name, value in (("use_cpu", True), ("bf16", False), ("dataloader_pin_memory", False))
            if name not in given
        }
    _say(ours)
    options = RolloutOptions.of(section if rollout is None else rollout)
    try:
        return GRPOConfig(**{**given, **ours}), options
    except (TypeError, ValueError) as error:
        raise ConfigError(f"GRPOConfig refuses these settings: {error}") from error


def tasks_needed(args: GRPOConfig) -> int:
    """Rows of a dataset from which every group of ``max_steps`` steps plays a new task."""
    if args.max_steps <= 0:
        return DEFAULT_TASKS
    forwards_per_batch = (args.steps_per_generation or 1) * args.num_iterations
    batches = math.ceil(args.max_steps * args.gradient_accumulation_steps / forwards_per_batch)
    return batches * ((args.generation_batch_size or 1) // (args.num_generations or 1))


class _Metrics(TrainerCallback):
    """Writes what the trainer logs to ``metrics.jsonl``, one line a time."""

    def __init__(self, path: Path):
        self._path = path
        self._file: MetricsFile | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.is_world_process_zero:
            self._file = MetricsFile(self._path, resume_step=state.global_step or None)

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._file is not None and state.log_history:
            self._file.append(state.log_history[-1])  # `logs` itself is emptied in part by other callbacks


def _parts(rollouts: EnvRollouts, seeds: Sequence[int], eval_seeds: Sequence[int]) -> TrlSpec:
    evaluates = "eval" in rollouts.envs
    return TrlSpec(
        train_dataset=dataset("train", seeds),
        rollout_func=rollouts,
        eval_dataset=dataset("eval", eval_seeds) if evaluates else None,
    )


def _check_names(given: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    own = [name for name, p in inspect.signature(train).parameters.items() if p.kind is p.KEYWORD_ONLY]
    for name in given:
        if name not in known and name in own:
            raise ConfigError(
                f"{name!r} is an argument of train(), not a field of GRPOConfig: pass it to train() "
                f"(on the command line: --set {name}=...)"
            )
        if name not in known:
            hint = did_you_mean(name, [*known, *own])
            raise ConfigError(f"GRPOConfig has no field {name!r}, and train() no such argument.{hint}")


def _number(value: Any, field: dataclasses.Field[Any]) -> Any:
    if not isinstance(value, str) or "float" not in str(field.type):
        return value
    try:
        return float(value)
    except ValueError:
        return value  # the field takes text too; GRPOConfig judges it


def _eval_steps(given: Mapping[str, Any]) -> int:
    if given.get("eval_steps"):
        return int(given["eval_steps"])
    return max(1, int(given.get("max_steps", -1)) // 10) if int(given.get("max_steps", -1)) > 0 else 100


def _say(settings: Mapping[str, Any]) -> None:
    log.info("set by the adapter: %s", ", ".join(f"{name}={value!r}" for name, value in settings.items()))
