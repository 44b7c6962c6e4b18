"""What the adapters share: options, results, counts, the log-probability alarm. No framework, no torch.

An adapter turns ``aworld_gym.token_policy`` episodes into its framework's tensors; whatever is the same for all
frameworks stands here once.
"""

from __future__ import annotations

import copy
import json
import logging
import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from aworld_gym.errors import ConfigError, did_you_mean
from aworld_gym.generation import STRAGGLER_S
from aworld_gym.making import make_tool_env
from aworld_gym.token_policy import TokenEpisode
from aworld_gym.trained import RolloutRows as RolloutRows
from aworld_gym.trained import TrainedRow as TrainedRow
from aworld_gym.types import Outcome

log = logging.getLogger(__name__)

EVAL_SEEDS = 10**15
"""Where evaluation seeds begin: beyond every training seed."""
SEEDS_PER_RUN = 10**9
"""Training seed s owns the task seeds from s times this on."""


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
    def of(cls, value: RolloutOptions | Mapping[str, Any] | None) -> RolloutOptions:
        """``value`` as options: as it is, from a mapping of field names, or the defaults."""
        if value is None:
            return cls()
        if isinstance(value, cls):
            return value
        known = [f.name for f in fields(cls)]
        if not isinstance(value, Mapping):
            raise ConfigError(f"rollout options must be a mapping with keys from {known}, got {value!r}")
        for name in value:
            if name not in known:
                raise ConfigError(f"unknown rollout option {name!r}; known are {known}.{did_you_mean(name, known)}")
        return cls(**value)


class EpisodeCounts(Counter[str]):
    """How episodes ended: ``episodes``, ``invalid``, ``retried`` and one count per outcome."""

    def add(self, played: TokenEpisode) -> None:
        """Count one item of a rollout."""
        self["episodes"] += 1
        self["invalid"] += not played.episode.valid
        self["retried"] += played.attempts - 1
        self[str(played.episode.outcome)] += 1

    def warn_of_invalid(self, played: Sequence[TokenEpisode], step: int) -> None:
        """Say aloud, with one cause, where episodes of a batch are not measurements."""
        bad = [p.episode for p in played if not p.episode.valid]
        if bad:
            level = logging.ERROR if len(bad) == len(played) else logging.WARNING
            log.log(
                level,
                "step %d: %d of %d episodes failed with their infrastructure (%d of %d in this run) and are left out "
                "of loss and baseline; for example: %s",
                step,
                len(bad),
                len(played),
                self["invalid"],
                self["episodes"],
                bad[0].error,
            )


@dataclass(frozen=True)
class TrainResult:
    """What a training run leaves."""

    checkpoint: Path
    """The trained model (or its PEFT adapter) and the tokenizer."""
    metrics: list[dict[str, Any]]
    """What the trainer logged, in order; the same lines are in ``metrics.jsonl``."""
    episodes: Path
    """Every training episode, as JSONL, in order of completion."""
    counts: EpisodeCounts = field(default_factory=EpisodeCounts)
    """How the episodes of this run ended."""


def env_spec(env: str | EnvSpec | gym.Env) -> EnvSpec:
    """The spec that ``env`` is rebuilt from, wrappers included; proved by making it once.

    Raises:
        ConfigError: no such env, an env that was not made by ``gym.make``, one that cannot be made, or no tool env.
    """
    named = env.spec if isinstance(env, gym.Env) else env
    if named is None:
        raise ConfigError(
            f"{env!r} has no spec to rebuild it from, and live envs are not shared with a trainer; "
            "register it and make it with gym.make"
        )
    if not isinstance(named, str | EnvSpec):
        raise ConfigError(f"env must be an id, an EnvSpec or an env made by gym.make, got {type(env).__name__}")
    made = make_tool_env(named)
    spec = named if isinstance(named, EnvSpec) else made.spec
    made.close()
    assert spec is not None  # gym.make has just given it one
    return copy.deepcopy(spec)


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


MODELS = (
    "Give a folder written by save_pretrained (`make train` leaves one in runs/gaia/final), or the name of a model on "
    "a hub that this machine can reach."
)


def episode_metrics(played: TokenEpisode) -> dict[str, float]:
    """What to log of an episode; means over a batch are meaningful. Invalid ones only count as such."""
    episode = played.episode
    out = {"env/invalid": float(not episode.valid), "env/retried": float(played.attempts - 1)}
    if not episode.valid:
        return out
    results = [result for step in episode.steps for result in step.results]
    out |= {
        "env/return": episode.total_reward,
        "env/turns": float(len(episode.steps)),
        "env/tool_calls": float(len(results)),
        "env/tool_errors": float(sum(result.error is not None for result in results)),
        "env/sampled_tokens": float(played.trajectory.sampled_count if played.trajectory else 0),
    }
    if episode.score is not None:
        out["env/score"] = episode.score
    for outcome in Outcome:
        if outcome.valid:
            out[f"env/outcome/{outcome}"] = float(episode.outcome is outcome)
    for step in episode.steps:
        for name, value in step.components.items():
            out[f"env/reward/{name}"] = out.get(f"env/reward/{name}", 0.0) + value
    return out


class LogprobAlarm:
    """Compares the log-probabilities of sampling with the trainer's own, for the same ids and weights.

    They are equal up to rounding if the trainer scores the context that was sampled from, with the weights that
    sampled. A server that kept old weights, a shifted row, dropout, another temperature: all show here.

    Args:
        threshold: mean absolute difference (nats per sampled id) above which it warns.
    """

    def __init__(self, threshold: float):
        if not threshold > 0:
            raise ConfigError(f"the log-probability threshold must be positive, got {threshold!r}")
        self.threshold, self.warnings = threshold, 0

    def check(self, mean: float, largest: float, *, step: int) -> bool:
        """True, and a warning, where the mean difference is above the threshold (or not a number)."""
        if mean <= self.threshold:
            return False
        self.warnings += 1
        log.warning(
            "step %d: log-probabilities of sampling and of the trainer differ by %.3g on average (largest %.3g; "
            "expected below %.3g). The trainer does not see what was sampled: look for weights that did not reach the "
            "sampler, dropout, sampling options that change the distribution, or lower precision.",
            step,
            mean,
            largest,
            self.threshold,
        )
        return True


class MetricsFile:
    """``metrics.jsonl``: one JSON object per logging step, written at once.

    Args:
        path: the file.
        resume_step: lines after this step are dropped: the resumed run writes them again.
    """

    def __init__(self, path: Path, resume_step: int | None = None):
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = [row for row in self.read(path) if resume_step is not None and row.get("step", 0) <= resume_step]
        partial = path.with_name(path.name + ".partial")
        partial.write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="utf-8")
        os.replace(partial, path)

    def append(self, row: Mapping[str, Any]) -> None:
        """Write one row; numbers that JSON lacks become null."""
        clean = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(clean) + "\n")

    @staticmethod
    def read(path: Path) -> list[dict[str, Any]]:
        """The rows of a file; a torn last line is left out; none where there is no file."""
        if not path.exists():
            return []
        lines = path.read_text(encoding="utf-8").split("\n")
        return [json.loads(line) for line in lines[:-1] if line]


def task_seeds(tasks: int | Sequence[int], first: int) -> list[int]:
    """The seeds of that many tasks from ``first`` on, or those given."""
    seeds = range(first, first + tasks) if isinstance(tasks, int) else tasks
    if len(seeds) == 0 or isinstance(tasks, bool):
        raise ConfigError(f"expected a positive number of tasks or a list of seeds, got {tasks!r}")
    return [int(seed) for seed in seeds]


def read_config(config: Mapping[str, Any] | str | Path | None) -> dict[str, Any]:
    """A trainer's settings from a mapping, or a YAML or JSON file.

    Raises:
        ConfigError: no such file, or not a mapping in it.
    """
    if config is None:
        return {}
    if isinstance(config, Mapping):
        return dict(config)
    import yaml  # every framework brings it; the package itself does not need it

    path = Path(config)
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"the config file {path} cannot be read: {error}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"the config file {path} is not YAML or JSON: {error}") from error
    if not isinstance(found, dict):
        raise ConfigError(f"the config file {path} must hold a mapping of settings, got {type(found).__name__}")
    return found


def refuse_mixing(output_dir: Path) -> None:
    """Raises ConfigError where a folder holds another run's episodes."""
    for path in sorted(output_dir.glob("*episodes*.jsonl")):
        if path.stat().st_size:
            raise ConfigError(
                f"{path} is of an earlier run; pass resume_from_checkpoint=True to continue that run, or another "
                "output_dir"
            )
