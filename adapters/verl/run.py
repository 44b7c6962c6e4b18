"""``train``: from an env to verl's trainer, its checkpoint, its metrics and its episodes."""

from __future__ import annotations

import json
import logging
import os
import shutil
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium as gym
import ray
from gymnasium.envs.registration import EnvSpec
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict
from safetensors import safe_open

from adapters.common import (
    DEFAULT_TASKS,
    EVAL_SEEDS,
    MODELS,
    SEEDS_PER_RUN,
    Env,
    EpisodeCounts,
    MetricsFile,
    TrainResult,
    TurnwiseOptions,
    check_model_folder,
    env_spec,
    refuse_mixing,
    say_what_is_trained,
    task_seeds,
)
from adapters.credit import Credit
from adapters.verl.agent_loop import check_prompt, make_codec
from adapters.verl.config import verl_config, write_agent, write_rows
from aworld_gym.errors import AWorldGymError, ConfigError

log = logging.getLogger(__name__)

STALL_S = 7200.0
"""Seconds without an episode, a step or a checkpoint after which a run is given up: verl itself would wait for ever."""


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
    check_model_folder(model)
    output_dir, options = Path(output_dir).resolve(), TurnwiseOptions.of(rollout)
    specs = {"train": env_spec(env)} | ({} if eval_env is None else {"eval": env_spec(eval_env)})
    if resume_from_checkpoint is True:
        overrides["trainer.resume_mode"] = "auto"
    elif resume_from_checkpoint:
        overrides |= {"trainer.resume_mode": "resume_path", "trainer.resume_from_path": str(resume_from_checkpoint)}
    cfg, environment = verl_config(model, output_dir, config, overrides, credit=credit, evaluates="eval" in specs)
    resumes = cfg.trainer.resume_mode != "disable"
    if not resumes:
        refuse_mixing(output_dir)
    output_dir.mkdir(parents=True, exist_ok=True)
    per_step, steps = int(cfg.data.train_batch_size), cfg.trainer.total_training_steps
    seeds = task_seeds(
        tasks if tasks is not None else per_step * int(steps) if steps else max(per_step, DEFAULT_TASKS),
        int(cfg.data.get("seed") or 0) * SEEDS_PER_RUN,
    )
    if len(seeds) < per_step:
        raise ConfigError(f"data.train_batch_size is {per_step} tasks a step, and there are {len(seeds)}")
    _check_first_prompt(specs["train"], seeds[0], cfg)
    write_rows(output_dir / "train.parquet", specs["train"], seeds, "train")
    # verl wants validation rows in any case; without an eval_env they are never played.
    held_out = specs.get("eval", specs["train"]), task_seeds(eval_tasks, EVAL_SEEDS)
    write_rows(output_dir / "eval.parquet", *held_out, "eval")
    write_agent(output_dir / "agent.yaml", options, output_dir)
    OmegaConf.save(cfg, output_dir / "config.yaml")
    rollouts = cfg.actor_rollout_ref.rollout
    say_what_is_trained(specs["train"].id, len(seeds), rollouts.n, cfg.data.max_response_length, credit)
    log_file = output_dir / "verl_metrics.jsonl"
    try:
        with _environment(environment):
            _run(cfg, environment | {"VERL_FILE_LOGGER_PATH": str(log_file)}, output_dir, stall_s)
    finally:
        counts = collect(output_dir)
        metrics = _metrics(log_file, output_dir / "metrics.jsonl", resumes)
    checkpoint = _final(output_dir)
    log.info("trained %d steps; episodes: %s", metrics[-1]["step"] if metrics else 0, dict(sorted(counts.items())))
    return TrainResult(checkpoint, metrics, output_dir / "episodes.jsonl", counts)


def _check_first_prompt(spec: EnvSpec, seed: int, cfg: DictConfig) -> None:
    """One reset in this process: a prompt that does not fit would spoil every episode of the run."""
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(cfg.actor_rollout_ref.model.path)
    except OSError as error:
        why = str(error).strip().split("\n")[0]
        raise ConfigError(f"no tokenizer of {cfg.actor_rollout_ref.model.path!r}: {why}. {MODELS}") from error
    codec = make_codec(tokenizer, cfg)
    env = gym.make(spec)
    try:
        messages, info = env.reset(seed=seed)
    except AWorldGymError as error:
        log.warning("the env could not be reset before the run, so its prompts were not measured: %s", error)
    else:
        check_prompt(len(codec.prompt(messages, info["tools"])), int(cfg.data.max_prompt_length))
    finally:
        env.close()


# ---- the run, and what it leaves -------------------------------------------------------------------------------------


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """This process's environment, which Ray's own processes inherit; but for the path to modules, which it has."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update({name: value for name, value in variables.items() if name != "PYTHONPATH"})
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _run(cfg: DictConfig, environment: dict[str, str], output_dir: Path, stall_s: float) -> None:
    """Run verl's ``run_ppo``, given up where nothing happens any more."""
    from verl.trainer.main_ppo import TaskRunnerV1, auto_set_device, need_critic, need_reference_policy, run_ppo
    from verl.utils.config import validate_config

    if ray.is_initialized():
        there = (ray.get_runtime_context().runtime_env or {}).get("env_vars", {})
        if "adapters.verl." not in there.get("VERL_USE_EXTERNAL_MODULES", ""):
            raise ConfigError(
                "Ray runs in this process already, and its workers would not load this adapter: call ray.shutdown() "
                f"first, or start it with ray.init(runtime_env={{'env_vars': {environment!r}}})"
            )
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
    ours, failure = not ray.is_initialized(), []

    def run() -> None:
        try:
            run_ppo(cfg, TaskRunnerV1)
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=run, name="verl", daemon=True)
    thread.start()
    try:
        seen, since = None, time.monotonic()
        while thread.is_alive():
            thread.join(1.0)
            now = sorted((str(p), p.stat().st_size) for p in output_dir.glob("*.jsonl"))
            if now != seen:
                seen, since = now, time.monotonic()
            elif time.monotonic() - since > stall_s:
                raise RuntimeError(
                    f"verl did nothing for {stall_s:g} s: no episode and no step. With too few CPUs or GPUs in Ray it "
                    "waits for ever for workers that cannot start; else look into Ray's logs"
                )
        if failure:
            raise RuntimeError(f"verl's run failed: {failure[0]}") from failure[0]
    finally:
        if ours:
            ray.shutdown()


def collect(output_dir: Path) -> EpisodeCounts:
    """Put the workers' files together (``episodes.jsonl``, ``eval_episodes.jsonl``, ``rows.jsonl``), and count.

    Episodes stand in each file in order of completion; the files one after the other.
    """
    counts = EpisodeCounts()
    for name in ("episodes", "eval_episodes", "rows"):
        parts = sorted(output_dir.glob(f"{name}.*.jsonl"), key=lambda path: int(path.name.split(".")[1]))
        if not parts and name != "episodes":
            continue
        with (output_dir / f"{name}.jsonl").open("ab") as whole:
            for part in parts:
                with part.open("rb") as file:
                    shutil.copyfileobj(file, whole)
                part.unlink()
    for row in MetricsFile.read(output_dir / "rows.jsonl"):
        if row["split"] == "train":
            counts.update(
                {"episodes": 1, "invalid": not row["valid"], "retried": row["attempts"] - 1, row["outcome"]: 1}
            )
    return counts


def _metrics(source: Path, target: Path, resumes: bool) -> list[dict[str, Any]]:
    """What verl logged, in the form of ``metrics.jsonl``; a resumed run's after that of the run before."""
    logged = [{"step": row["step"], **row["data"]} for row in MetricsFile.read(source)]
    first = min((row["step"] for row in logged), default=0)
    file = MetricsFile(target, resume_step=first - 1 if resumes else None)
    for row in logged:
        file.append(row)
    return MetricsFile.read(target)


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
    settings = json.loads((final / "config.json").read_text(encoding="utf-8"))
    with safe_open(weights[0], "pt") as file:
        settings["dtype"] = str(file.get_tensor(min(file.keys())).dtype).removeprefix("torch.")
    (final / "config.json").write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    return final
