"""``train`` and ``spec``: from an env to TRL's trainer, its checkpoint, its metrics and its episodes."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import TrainerCallback
from transformers.trainer_utils import IntervalStrategy
from trl import GRPOConfig

from adapters import common
from adapters.common import Credit, Env, Job, Journals, RolloutOptions, TrainResult
from adapters.hf import MetricsCallback, for_evaluation, on_this_machine, run_seeds
from adapters.settings import checked
from adapters.trl import _private
from adapters.trl.rollouts import EnvRollouts, TrlSpec, dataset
from adapters.trl.trainer import EnvGRPOTrainer
from aworld_gym.errors import ConfigError
from aworld_gym.tokens import ChatCodec


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
    job = Job.of(env, eval_env, model, output_dir, credit, tasks, eval_tasks, takes_objects=True)
    args, options = arguments(config, job.output_dir, rollout, overrides, evaluates=job.evaluates)
    if not resume_from_checkpoint:
        common.refuse_mixing(job.output_dir)
    rollouts = EnvRollouts(job.specs, options, Journals.into(job.output_dir), codec)
    parts = _parts(rollouts, run_seeds(job, args))
    with job.loading():
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
    rollouts.prepare(trainer)
    job.say(len(parts.train_dataset), args.num_generations or 1, args.max_completion_length)
    trainer.add_callback(MetricsCallback(job.output_dir / "metrics.jsonl"))
    checkpoint = resume_from_checkpoint
    try:
        trainer.train(resume_from_checkpoint=str(checkpoint) if isinstance(checkpoint, Path) else checkpoint)
    finally:
        rollouts.close()
    trainer.save_model(str(job.output_dir / "final"))
    return job.result(trainer.state.log_history, rollouts.batches.counts["train"])


def spec(
    env: Env,
    *,
    tasks: int | Sequence[int] = common.DEFAULT_TASKS,
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
    specs = {"train": common.env_spec(env)}
    if eval_env is not None:
        specs["eval"] = common.env_spec(eval_env)
    journals = Journals({} if episodes is None else {"train": Path(episodes)})
    rollouts = EnvRollouts(specs, RolloutOptions.of(rollout), journals, codec)
    train_seeds = common.task_seeds(tasks, seed * common.SEEDS_PER_RUN)
    return _parts(rollouts, {"train": train_seeds, "eval": common.task_seeds(eval_tasks, common.EVAL_SEEDS)})


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
    overrides = checked(overrides or {}, GRPOConfig, train)
    if isinstance(config, GRPOConfig):
        if overrides:
            raise ConfigError(f"set {sorted(overrides)} in the GRPOConfig itself, or give a mapping instead of it")
        args = copy.copy(config)
        ours = for_evaluation(vars(args)) if evaluates and args.eval_strategy == "no" else {}
        if args.output_dir is None or Path(args.output_dir) != output_dir:
            ours["output_dir"] = str(output_dir)
        for name, value in ours.items():
            setattr(args, name, IntervalStrategy(value) if name == "eval_strategy" else value)
        args.do_eval = args.do_eval or evaluates
        if ours:
            common.say(ours)
        return args, RolloutOptions.of(rollout)
    given = {**common.read_config(config), **overrides}
    options = RolloutOptions.of(common.take_rollout(given, rollout))
    given = checked(given, GRPOConfig, train)
    ours = {"output_dir": str(output_dir), **(for_evaluation(given) if evaluates else {}), **on_this_machine(given)}
    common.say(ours)
    try:
        return GRPOConfig(**{**given, **ours}), options
    except (TypeError, ValueError) as error:
        raise ConfigError(f"GRPOConfig refuses these settings: {error}") from error


def _parts(rollouts: EnvRollouts, seeds: Mapping[str, Sequence[int]]) -> TrlSpec:
    rows = {split: dataset(split, seeds[split]) for split in rollouts.envs}
    return TrlSpec(rows["train"], rollouts, eval_dataset=rows.get("eval"))
