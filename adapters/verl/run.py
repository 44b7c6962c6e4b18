"""``train``: from an env to verl's trainer, its checkpoint, its metrics and its episodes."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict
from safetensors import safe_open
from transformers import AutoConfig, AutoTokenizer

from adapters import common
from adapters.common import Credit, Env, EpisodeCounts, Job, Journals, MetricsFile, TrainResult, TurnwiseOptions
from adapters.ray_session import ray_session
from adapters.verl.agent_loop import check_prompt, make_codec
from adapters.verl.config import MODULES, verl_config, write_agent, write_rows
from adapters.watch import run_watched
from aworld_gym.errors import ConfigError

log = logging.getLogger(__name__)

STALL_S = 7200.0
"""Seconds without an episode or a step after which a run is given up: verl itself would wait for ever."""


def train(
    env: Env,
    *,
    model: str | Path,
    output_dir: str | Path,
    config: Mapping[str, Any] | Sequence[str] | str | Path | None = None,
    eval_env: Env | None = None,
    credit: Credit = "episode",
    tasks: int | Sequence[int] | None = None,
    eval_tasks: int | Sequence[int] = 64,
    rollout: TurnwiseOptions | Mapping[str, Any] | None = None,
    resume_from_checkpoint: bool | str | Path | None = None,
    stall_s: float = STALL_S,
    **overrides: Any,
) -> TrainResult:
    """Train ``model`` on ``env`` with verl's PPO trainer (GRPO by default).

    A group is ``actor_rollout_ref.rollout.n`` episodes of one task; ``data.max_response_length`` bounds a whole
    episode after its prompt, tool results included. An episode that infrastructure spoiled is played again in a fresh
    env, and if that fails too it is out of the loss and out of its group's baseline.

    Args:
        env: an id, an EnvSpec or an env made by ``gym.make``, whose spec (wrappers included) is rebuilt in workers.
        model: a path or a hub name.
        output_dir: gets ``final/`` (model and tokenizer), verl's ``checkpoints/``, ``metrics.jsonl``,
            ``episodes.jsonl``, ``eval_episodes.jsonl`` for ``eval_env``, and what verl was given: ``config.yaml``,
            ``agent.yaml``, ``train.parquet``, ``eval.parquet``. All nodes must see it.
        config: verl's settings over its ``ppo_trainer``: a mapping (nested, or with dotted keys), a YAML or JSON file
            of one, or a list of hydra overrides. A key that verl's configuration lacks begins with ``+``.
        eval_env: played by verl's validation (``trainer.test_freq`` says when; by default after the last step).
        credit: ``"episode"``: GRPO's advantage, from the sum of an episode's rewards. ``"step"``: each turn has its
            own, from its reward and the later ones (:func:`adapters.credit.turn_advantages`).
        tasks: how many tasks an epoch has, or their seeds; by default as many as ``trainer.total_training_steps``
            needs, each new; without that, 1000. They follow ``data.seed``.
        eval_tasks: how many tasks a validation has, or their seeds; always the same.
        rollout: how episodes are played.
        resume_from_checkpoint: True for the last checkpoint in ``output_dir``, or a checkpoint's path.
        stall_s: see :data:`STALL_S`.
        **overrides: further settings, over those of ``config``.

    Raises:
        ConfigError: settings that cannot work, an env or model that cannot be had, a template that cannot be used
            token-exactly, or an ``output_dir`` that holds another run's episodes.
        RuntimeError: verl's run failed, or nothing happened for ``stall_s`` seconds.
    """
    folder, options = Path(output_dir).resolve(), TurnwiseOptions.of(rollout)
    job = Job.of(env, eval_env, model, folder, credit, tasks, eval_tasks)
    if resume_from_checkpoint:
        place = None if resume_from_checkpoint is True else str(resume_from_checkpoint)
        overrides |= {"trainer.resume_mode": "resume_path" if place else "auto", "trainer.resume_from_path": place}
    cfg, environment = verl_config(model, folder, config, overrides, credit=credit, evaluates=job.evaluates)
    resumes = cfg.trainer.resume_mode != "disable"
    if not resumes:
        common.refuse_mixing(folder)
    folder.mkdir(parents=True, exist_ok=True)
    per_step, steps = int(cfg.data.train_batch_size), cfg.trainer.total_training_steps
    needed = per_step * int(steps) if steps else max(per_step, common.DEFAULT_TASKS)
    seeds = job.seeds(needed, int(cfg.data.get("seed") or 0))
    if len(seeds["train"]) < per_step:
        raise ConfigError(f"data.train_batch_size is {per_step} tasks a step, and there are {len(seeds['train'])}")
    with job.loading("tokenizer of"):
        codec = make_codec(AutoTokenizer.from_pretrained(cfg.actor_rollout_ref.model.path), cfg)
    # One that does not fit would spoil every episode of the run.
    first_prompt = common.prompt_length(job.specs["train"], codec, seeds["train"][0])
    check_prompt(first_prompt or 0, int(cfg.data.max_prompt_length))
    for split in ("train", "eval"):  # verl wants rows of both; without an eval_env the latter are never played
        write_rows(folder / f"{split}.parquet", job.specs.get(split, job.specs["train"]), seeds[split], split)
    write_agent(folder / "agent.yaml", options, folder)
    OmegaConf.save(cfg, folder / "config.yaml")
    job.say(len(seeds["train"]), cfg.actor_rollout_ref.rollout.n, cfg.data.max_response_length)
    logged, metrics_file = folder / "verl_metrics.jsonl", folder / "metrics.jsonl"
    MetricsFile.move(logged, metrics_file, resumes=resumes)  # of an earlier run that was killed: verl begins its anew
    environment["VERL_FILE_LOGGER_PATH"] = str(logged)
    try:
        with ray_session(environment, name=MODULES, holds="adapters.verl."):
            _run(cfg, environment, folder, stall_s)
    finally:
        Journals.into(folder).collect()
        metrics = MetricsFile.move(logged, metrics_file, resumes=True)
    return job.result(metrics, EpisodeCounts.of_journal(folder / "episodes.jsonl"), _final(folder))


def _run(cfg: DictConfig, environment: dict[str, str], folder: Path, stall_s: float) -> None:
    """Run verl's ``run_ppo``, given up where nothing happens any more."""
    from verl.trainer.main_ppo import TaskRunnerV1, auto_set_device, need_critic, need_reference_policy, run_ppo
    from verl.utils.config import validate_config

    if cfg.trainer.device != "cpu":  # this process may have asked for the platform before there was one for CPUs
        auto_set_device(cfg)
    try:
        validate_config(cfg, use_reference_policy=need_reference_policy(cfg), use_critic=need_critic(cfg))
    except (AssertionError, ValueError, HydraException) as error:
        why = error.__cause__ or error  # hydra's own words are about itself
        raise ConfigError(f"verl refuses this configuration: {why}") from error
    with open_dict(cfg):
        init = cfg.ray_kwargs.ray_init
        given = OmegaConf.select(init, "runtime_env.env_vars") or {}
        OmegaConf.update(init, "runtime_env.env_vars", {**environment, **given}, force_add=True)
    advice = "With too few CPUs or GPUs Ray waits for ever for workers that cannot start; else look into Ray's logs"
    run_watched("verl", lambda: run_ppo(cfg, TaskRunnerV1), folder, stall_s, advice)


def _final(output_dir: Path) -> Path:
    """``final/``: what verl's last checkpoint holds in Hugging Face's form; else the folder of checkpoints."""
    checkpoints, final = output_dir / "checkpoints", output_dir / "final"
    tracker = checkpoints / "latest_checkpointed_iteration.txt"
    step = tracker.read_text().strip() if tracker.exists() else None
    weights = sorted((checkpoints / f"global_step_{step}" / "actor" / "huggingface").glob("*.safetensors"))
    if not weights:
        log.warning(
            "there is no final/: verl wrote no checkpoint in Hugging Face's form (trainer.save_freq, "
            "actor_rollout_ref.actor.checkpoint.save_contents); `python -m verl.model_merger` makes one of its own"
        )
        return checkpoints
    shutil.rmtree(final, ignore_errors=True)
    shutil.copytree(weights[0].parent, final)
    # verl's config.json says bfloat16 whatever the weights are, and loading would round them.
    settings = AutoConfig.from_pretrained(final)
    with safe_open(weights[0], "pt") as file:
        settings.dtype = file.get_tensor(min(file.keys())).dtype
    settings.save_pretrained(final)
    return final
