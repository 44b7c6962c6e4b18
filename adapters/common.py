"""What the adapters share, in one place to import from. No framework, no torch.

An adapter turns ``aworld_gym.token_policy`` episodes into its framework's tensors; whatever is the same for all
frameworks stands once, in the modules beside this one: ``settings``, ``handover``, ``results``, ``alarm``,
``credit``, ``versions``, and ``hf`` for those that train with transformers' Trainer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from adapters.alarm import THRESHOLD_FP32, THRESHOLD_LOW_PRECISION, LogprobAlarm
from adapters.handover import Journals, checked_codec, env_spec, number_items, spec_json, spec_of
from adapters.results import EpisodeCounts, MetricsFile, TrainResult, episode_metrics, refuse_mixing
from adapters.settings import read_config, say, say_what_is_trained, take_rollout, task_seeds
from aworld_gym.errors import ConfigError, did_you_mean
from aworld_gym.generation import STRAGGLER_S
from aworld_gym.trained import RolloutRows, TrainedRow

__all__ = [
    "DEFAULT_TASKS",
    "EVAL_SEEDS",
    "MODELS",
    "SEEDS_PER_RUN",
    "SETTLE_S",
    "THRESHOLD_FP32",
    "THRESHOLD_LOW_PRECISION",
    "Env",
    "EpisodeCounts",
    "Journals",
    "LogprobAlarm",
    "MetricsFile",
    "RolloutOptions",
    "RolloutRows",
    "TrainResult",
    "TrainedRow",
    "TurnwiseOptions",
    "check_model_folder",
    "checked_codec",
    "env_spec",
    "episode_metrics",
    "number_items",
    "read_config",
    "refuse_mixing",
    "say",
    "say_what_is_trained",
    "spec_json",
    "spec_of",
    "take_rollout",
    "task_seeds",
]

Env = str | EnvSpec | gym.Env
"""What ``train`` takes: an id, a spec, or an env made by ``gym.make``, whose spec is rebuilt."""

EVAL_SEEDS = 10**15
"""Where evaluation seeds begin: beyond every training seed."""
SEEDS_PER_RUN = 10**9
"""Training seed s owns the task seeds from s times this on."""
DEFAULT_TASKS = 1000
"""Tasks in an epoch, where neither ``tasks`` nor a number of steps says."""
SETTLE_S = 60.0
"""Seconds that ending and closing an episode may take beyond its deadlines."""
MODELS = (
    "Give a folder written by save_pretrained (`make train` leaves one in runs/gaia/final), or the name of a model on "
    "a hub that this machine can reach."
)


@dataclass(frozen=True)
class RolloutOptions:
    """How an adapter plays episodes, whatever the trainer."""

    max_turn_tokens: int | None = None
    """Ids sampled in one turn; by default only the episode's budget bounds a turn."""
    retries: int = 1
    """Further tries, each in a fresh env, of an episode that infrastructure spoiled."""
    concurrency: int = 256
    """Episodes at once."""
    straggler_s: float = STRAGGLER_S
    """Seconds without an arrival after which a generation batch goes without episodes still with their tools."""

    @classmethod
    def of(cls, value: RolloutOptions | Mapping[str, Any] | None) -> Self:
        """``value`` as options of this kind: as it is, from a mapping of field names, or the defaults."""
        if isinstance(value, cls):
            return value
        if isinstance(value, RolloutOptions):
            value = vars(value)
        known = [f.name for f in fields(cls)]
        if value is not None and not isinstance(value, Mapping):
            raise ConfigError(f"rollout options must be a mapping with keys from {known}, got {value!r}")
        for name in value or ():
            if name not in known:
                raise ConfigError(f"unknown rollout option {name!r}; known are {known}.{did_you_mean(name, known)}")
        return cls(**(value or {}))


@dataclass(frozen=True)
class TurnwiseOptions(RolloutOptions):
    """For frameworks that ask for one episode, or one turn, at a time; ``straggler_s`` is not used: no batches wait."""

    deadline_s: float = 1800.0
    """Seconds for one attempt at an episode, sampling included; it then ends as ``timeout``."""


def check_model_folder(model: Any) -> None:
    """Raises ConfigError where ``model`` is a path and no model is there; a name may still be one of a hub."""
    if not isinstance(model, str | Path):
        return
    path = Path(model)
    if path.is_dir():
        if not any((path / name).is_file() for name in ("config.json", "adapter_config.json")):
            raise ConfigError(f"the folder {str(model)!r} holds no model (no config.json). {MODELS}")
    elif isinstance(model, Path) or model.startswith((".", "/", "~")) or model.count("/") > 1:
        raise ConfigError(f"there is no folder {str(model)!r} (seen from {Path.cwd()}). {MODELS}")
