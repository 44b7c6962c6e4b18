"""What verl is given: its configuration, the environment of its processes, rows of a dataset, an agent.yaml."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from gymnasium.envs.registration import EnvSpec
from hydra import compose, initialize_config_module
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict

from adapters import common
from adapters.ray_session import module_path
from adapters.settings import leaves
from aworld_gym.errors import ConfigError

log = logging.getLogger(__name__)

AGENT = "aworld"
"""The name of the agent loop in rows and in agent.yaml."""
VERLS_TRAINERS = ("sync", "colocate_async", "separate_async")
"""verl's own trainers, by ``trainer.v1.trainer_mode``."""
MODULES = "VERL_USE_EXTERNAL_MODULES"
"""The environment variable that says what verl loads in each of its processes."""


def verl_config(
    model: str | Path,
    output_dir: Path,
    config: Mapping[str, Any] | Sequence[str] | str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    *,
    credit: common.Credit = "episode",
    evaluates: bool = False,
) -> tuple[DictConfig, dict[str, str]]:
    """The configuration for verl, and the environment variables of its processes. What the adapter sets is logged.

    Raises:
        ConfigError: unknown settings, or such that cannot work.
    """
    from adapters.verl import plugin

    strings = list(config) if isinstance(config, Sequence) and not isinstance(config, str) else []
    try:
        with initialize_config_module("verl.trainer.config", version_base=None):
            cfg = compose("ppo_trainer", overrides=strings)
    except HydraException as error:
        raise ConfigError(f"verl's configuration refuses these overrides: {error}") from error
    given = {} if strings else common.read_config(config)  # type: ignore[arg-type]
    defaults: Any = OmegaConf.to_container(cfg, resolve=True)
    asked = [*leaves(given, defaults), *leaves(overrides or {}, defaults)]
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
        f"{rollout}.name": "vllm",  # verl has no default
        f"{rollout}.calculate_log_probs": True,
        "actor_rollout_ref.actor.checkpoint.save_contents": ["model", "optimizer", "extra", "hf_model"],
    }
    environment, plugins = {}, ["adapters.verl.plugin"]
    if not torch.accelerator.is_available():
        from adapters.verl import cpu

        ours |= cpu.settings()
        environment, plugins = dict(cpu.ENVIRONMENT), ["adapters.verl.cpu"]  # which loads the other
    ours = {key: value for key, value in ours.items() if key.lstrip("+") not in names}
    fixed = {
        "actor_rollout_ref.model.path": str(Path(model).resolve() if Path(model).is_dir() else model),
        "data.train_files": str(output_dir / "train.parquet"),
        "data.val_files": str(output_dir / "eval.parquet"),
        "data.filter_overlong_prompts": False,  # verl's filter does not see the prompts of an env
        f"{rollout}.agent.agent_loop_config_path": str(output_dir / "agent.yaml"),
        f"{trainer}.default_local_dir": str(output_dir / "checkpoints"),
    }
    with open_dict(cfg):
        for key, value in [*leaves(ours, defaults), *asked, *leaves(fixed, defaults)]:
            OmegaConf.update(cfg, key.lstrip("+"), value, merge=False, force_add=True)
    if "file" not in cfg.trainer.logger:  # metrics.jsonl is made of it
        cfg.trainer.logger = fixed[f"{trainer}.logger"] = [*cfg.trainer.logger, "file"]
    common.say({**ours, **fixed})
    if not cfg.trainer.use_v1:
        raise ConfigError("trainer.use_v1=False moves every reward to an episode's last token; leave it True")
    if (estimator := cfg.algorithm.adv_estimator) not in plugin.ESTIMATORS.values():
        log.warning("adv_estimator=%s: invalid episodes have no loss, but count in its baseline as reward 0", estimator)
    if (mode := cfg.trainer.v1.trainer_mode) in VERLS_TRAINERS:
        log.warning("trainer_mode=%s: nothing is logged of the env, and log-probabilities are not compared", mode)
    known = [name for name in os.environ.get(MODULES, "").split(",") if name]
    environment |= {MODULES: ",".join(dict.fromkeys([*plugins, *known])), "PYTHONPATH": module_path()}
    return cfg, environment


def write_rows(path: Path, env: EnvSpec, seeds: Sequence[int], split: str) -> None:
    """A parquet file of one row per task, as verl's dataset reads it.

    Raises:
        ConfigError: the env's spec cannot be written as JSON.
    """
    rows = [
        {
            "data_source": env.id,
            "agent_name": AGENT,
            "prompt": [common.task_message(row["seed"], split)],
            "reward_model": {"style": "rule", "ground_truth": ""},
            "extra_info": {"index": index, **row},
        }
        for index, row in enumerate(common.task_rows(env, seeds, split))
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    Dataset.from_list(rows).to_parquet(str(path))


def write_agent(path: Path, options: common.TurnwiseOptions, output_dir: Path) -> None:
    """The agent.yaml that names the agent loop."""
    agent = {"name": AGENT, "_target_": "adapters.verl.agent_loop.EnvAgentLoop", "output_dir": str(output_dir)}
    OmegaConf.save(OmegaConf.create([agent | {"rollout": vars(options)}]), path)
