"""What verl is given: its configuration, the environment of its processes, rows of a dataset, an agent.yaml."""

from __future__ import annotations

import logging
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from gymnasium.envs.registration import EnvSpec
from hydra import compose, initialize_config_module
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from adapters.common import TurnwiseOptions, read_config, say, spec_json
from adapters.credit import Credit
from aworld_gym.errors import ConfigError, did_you_mean

log = logging.getLogger(__name__)

AGENT = "aworld"
"""The name of the agent loop in rows and in agent.yaml."""


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
        f"{rollout}.name": "vllm",  # verl has no default
        f"{rollout}.calculate_log_probs": True,
        "actor_rollout_ref.actor.checkpoint.save_contents": ["model", "optimizer", "extra", "hf_model"],
    }
    environment, plugins = {}, ["adapters.verl.plugin"]
    if not torch.accelerator.is_available():
        from adapters.verl import cpu

        ours |= cpu.SETTINGS
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
        kind = type(OmegaConf.select(cfg, name))
        if isinstance(value, str) and kind in (int, float):
            value = kind(float(value))  # YAML reads 1e-6 (without a dot) as text
        with open_dict(cfg):
            OmegaConf.update(cfg, name, value, merge=False, force_add=True)
    except (OmegaConfBaseException, ValueError) as error:
        raise ConfigError(f"verl's configuration refuses {name}={value!r}: {error}") from error
