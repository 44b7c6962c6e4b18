"""``train``: from an env to verl's trainer, its checkpoint, its metrics and its episodes."""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import ray
import torch
from gymnasium.envs.registration import EnvSpec
from hydra import compose, initialize_config_module
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException
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
    read_config,
    refuse_mixing,
    say,
    say_what_is_trained,
    spec_json,
    task_seeds,
)
from adapters.credit import Credit
from adapters.verl.agent_loop import check_prompt, make_codec
from aworld_gym.errors import AWorldGymError, ConfigError, did_you_mean

log = logging.getLogger(__name__)

AGENT = "aworld"
"""The name of the agent loop in rows and in agent.yaml."""
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
        tasks if tasks is not None else per_step * int(steps) if steps else DEFAULT_TASKS,
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
        _run(cfg, environment | {"VERL_FILE_LOGGER_PATH": str(log_file)}, output_dir, stall_s)
    finally:
        counts = collect(output_dir)
        metrics = _metrics(log_file, output_dir / "metrics.jsonl", resumes)
    checkpoint = _final(output_dir)
    log.info("trained %d steps; episodes: %s", metrics[-1]["step"] if metrics else 0, dict(sorted(counts.items())))
    return TrainResult(checkpoint, metrics, output_dir / "episodes.jsonl", counts)


# ---- what verl is given ----------------------------------------------------------------------------------------------


def verl_config(
    model: str | Path,
    output_dir: Path,
    config: Mapping[str, Any] | Sequence[str] | str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    *,
    credit: Credit = "episode",
    evaluates: bool = False,
) -> tuple[DictConfig, dict[str, str]]:
    """The configuration for verl, and the environment variables of its processes. What the adapter sets is logged.

    Raises:
        ConfigError: unknown settings, or such that cannot work.
    """
    from adapters.verl import plugin

    if credit not in plugin.ESTIMATORS:
        raise ConfigError(f"credit must be 'episode' or 'step', got {credit!r}")
    strings = list(config) if isinstance(config, Sequence) and not isinstance(config, str) else []
    try:
        with initialize_config_module("verl.trainer.config", version_base=None):
            cfg = compose("ppo_trainer", overrides=strings)
    except HydraException as error:
        raise ConfigError(f"verl's configuration refuses these overrides: {error}") from error
    given = {} if strings else read_config(config)  # type: ignore[arg-type]
    asked = [(key, value) for tree in (given, overrides or {}) for key, value in _leaves(tree, cfg)]
    names = {key.lstrip("+") for key, _ in asked} | {s.partition("=")[0].lstrip("+~") for s in strings}
    trainer, rollout = "trainer", "actor_rollout_ref.rollout"
    ours: dict[str, Any] = {
        "algorithm.adv_estimator": plugin.ESTIMATORS[credit],
        f"{trainer}.v1.trainer_mode": plugin.TRAINER,
        f"{trainer}.resume_mode": "disable",
        f"{trainer}.logger": ["console", "file"],
        f"{trainer}.val_before_train": False,
        f"{trainer}.save_freq": 1_000_000_000,  # after the last step
        f"{trainer}.test_freq": 1_000_000_000 if evaluates else -1,
        f"{rollout}.calculate_log_probs": True,
        "actor_rollout_ref.actor.checkpoint.save_contents": ["model", "optimizer", "extra", "hf_model"],
    }
    environment, plugins = {}, ["adapters.verl.plugin"]
    if not torch.accelerator.is_available():
        from adapters.verl import cpu

        ours |= {key: value for key, value in cpu.SETTINGS.items()}
        environment, plugins = dict(cpu.ENVIRONMENT), ["adapters.verl.cpu"]  # which loads the other
        if "RAY_ADDRESS" not in os.environ:
            ours |= {"ray_kwargs.ray_init.num_cpus": cpu.RAY_CPUS, "+ray_kwargs.ray_init.num_gpus": 1}
            ours["+ray_kwargs.ray_init.include_dashboard"] = False
    ours = {key: value for key, value in ours.items() if key.lstrip("+") not in names}
    fixed = {
        "actor_rollout_ref.model.path": str(Path(model).resolve() if Path(model).is_dir() else model),
        "data.train_files": str(output_dir / "train.parquet"),
        "data.val_files": str(output_dir / "eval.parquet"),
        "data.filter_overlong_prompts": False,  # verl's filter does not see the prompts of an env
        f"{rollout}.agent.agent_loop_config_path": str(output_dir / "agent.yaml"),
        f"{trainer}.default_local_dir": str(output_dir / "checkpoints"),
    }
    for key, value in [*ours.items(), *asked, *fixed.items()]:
        _set(cfg, key, value)
    if "file" not in cfg.trainer.logger:
        fixed[f"{trainer}.logger"] = [*cfg.trainer.logger, "file"]
        _set(cfg, f"{trainer}.logger", fixed[f"{trainer}.logger"])
    say({**ours, **fixed})
    if not cfg.trainer.use_v1:
        raise ConfigError("trainer.use_v1=False moves every reward to an episode's last token; leave it True")
    if cfg.algorithm.adv_estimator not in plugin.ESTIMATORS.values():
        log.warning(
            "algorithm.adv_estimator=%s: invalid episodes are out of the loss, but count in its baseline as reward 0",
            cfg.algorithm.adv_estimator,
        )
    known = [name for name in os.environ.get("VERL_USE_EXTERNAL_MODULES", "").split(",") if name]
    environment["VERL_USE_EXTERNAL_MODULES"] = ",".join(dict.fromkeys([*plugins, *known]))
    # Workers find envs, and functions that specs name, where this process does.
    outside = [p for p in sys.path if p and not p.startswith((sys.prefix, sys.base_prefix))]
    environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(os.path.abspath(p) for p in [os.getcwd(), *outside]))
    return cfg, environment


def write_rows(path: Path, env: EnvSpec, seeds: Sequence[int], split: str) -> None:
    """A parquet file of one row per task, as verl's dataset reads it.

    Raises:
        ConfigError: the env's spec cannot be written as JSON.
    """
    from datasets import Dataset

    seen: Counter[int] = Counter()
    rows = []
    for index, seed in enumerate(seeds):
        group = f"{seed}/{seen[seed]}" if seen[seed] else str(seed)
        seen[seed] += 1
        rows.append(
            {
                "data_source": env.id,
                "agent_name": AGENT,
                "prompt": [{"role": "user", "content": f"{split} task {seed}"}],  # the env makes the real one
                "reward_model": {"style": "rule", "ground_truth": ""},
                "extra_info": {"index": index, "split": split, "seed": seed, "group": group, "env": spec_json(env)},
            }
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    Dataset.from_list(rows).to_parquet(str(path))


def write_agent(path: Path, options: TurnwiseOptions, output_dir: Path) -> None:
    """The agent.yaml that names the agent loop."""
    agent = {"name": AGENT, "_target_": "adapters.verl.agent_loop.EnvAgentLoop", "output_dir": str(output_dir)}
    OmegaConf.save(OmegaConf.create([agent | {"rollout": vars(options)}]), path)


def _leaves(tree: Mapping[str, Any], cfg: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys and values, as deep as verl's configuration has sections."""
    for key, value in tree.items():
        dotted = f"{prefix}{key}"
        section = OmegaConf.select(cfg, dotted) if not dotted.startswith("+") else None
        if isinstance(value, Mapping) and isinstance(section, DictConfig) and len(section):
            yield from _leaves(value, cfg, dotted + ".")
        else:
            yield dotted, value


def _set(cfg: DictConfig, key: str, value: Any) -> None:
    name = key.lstrip("+")
    parent, _, leaf = name.rpartition(".")
    section = OmegaConf.select(cfg, parent) if parent else cfg
    free = isinstance(section, DictConfig) and not len(section)  # an empty section takes any name
    if not (key.startswith("+") or free) and (not isinstance(section, DictConfig) or leaf not in section.keys()):
        near = list(section) if isinstance(section, DictConfig) else list(cfg)
        raise ConfigError(
            f"verl's configuration has no {name!r} (write '+{name}' to add it).{did_you_mean(leaf, map(str, near))}"
        )
    try:
        with open_dict(cfg):
            OmegaConf.update(cfg, name, value, merge=False, force_add=True)
    except OmegaConfBaseException as error:
        raise ConfigError(f"verl's configuration refuses {name}={value!r}: {error}") from error


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


def _run(cfg: DictConfig, environment: dict[str, str], output_dir: Path, stall_s: float) -> None:
    """Run verl's ``run_ppo``, given up where nothing happens any more."""
    os.environ.update({name: value for name, value in environment.items() if name != "PYTHONPATH"})
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
    except (AssertionError, ValueError) as error:
        raise ConfigError(f"verl refuses this configuration: {error}") from error
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
