"""Success on held-out tasks: sampled as in training, greedy, and on words that no training task had.

Episodes are played in the real env, one per task. Invalid ones are counted and left out of the numbers.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import gymnasium as gym

from aworld_gym.metrics import summarize
from aworld_gym.play import Item
from aworld_gym.policies.transformers import TransformersGenerator
from aworld_gym.token_policy import token_rollout
from aworld_gym.tokens import ChatCodec
from aworld_gym.types import Episode

SEED = 20_000
"""Seed of the first held-out task: every model that is measured on a set plays the same tasks."""


@dataclass(frozen=True)
class TaskSet:
    """Tasks to measure on."""

    name: str
    env: Mapping[str, Any]
    """Arguments of ``gym.make("AWorld/Gaia-v0")``."""
    tasks: int = 200

    def spec(self) -> Any:
        """The env's spec with these arguments."""
        spec = copy.deepcopy(gym.spec("AWorld/Gaia-v0"))
        spec.kwargs.update(self.env)
        return spec


@dataclass(frozen=True)
class Limits:
    """What an episode may sample; the same in training and measurement."""

    max_tokens: int = 400
    """Ids of an episode after its prompt, observations included."""
    max_turn_tokens: int | None = 48
    """Ids sampled in one turn."""


@dataclass(frozen=True)
class Measurement:
    """The success of one model on one set of tasks, sampled or greedy."""

    tasks: str
    """The set's name."""
    sampled: bool
    """At temperature 1; else greedy."""
    valid: int
    invalid: int
    success: float
    ci95: tuple[float, float]
    turns: float
    outcomes: Mapping[str, int]
    cpu_s: float

    @property
    def name(self) -> str:
        """For tables."""
        return f"{self.tasks}, {'sampled' if self.sampled else 'greedy'}"

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def measure(
    model: Any,
    codec: ChatCodec,
    tasks: TaskSet,
    *,
    sampled: bool,
    limits: Limits,
    on_episode: Callable[[Episode], None] | None = None,
) -> Measurement:
    """Play one episode on each task of a set.

    Args:
        model: a transformers causal language model.
        codec: for its tokenizer.
        tasks: the set.
        sampled: temperature 1, as GRPO samples, or greedy.
        limits: as in training.
        on_episode: called with each record as it ends.
    """
    began = time.process_time()
    generate = TransformersGenerator(
        model,
        stop_ids=codec.stop_ids,
        pad_id=codec.tokenizer.pad_token_id,
        temperature=1.0 if sampled else 0.0,
        max_new_tokens=limits.max_turn_tokens or limits.max_tokens,
        seed=SEED,
    )
    played = token_rollout(
        tasks.spec(),
        codec,
        generate,
        [Item(index, SEED + index) for index in range(tasks.tasks)],
        max_tokens=limits.max_tokens,
        max_turn_tokens=limits.max_turn_tokens,
        on_episode=on_episode,
    )
    summary = summarize(one.episode for one in played)
    return Measurement(
        tasks=tasks.name,
        sampled=sampled,
        valid=summary["valid"],
        invalid=summary["invalid"],
        success=summary["success_rate"],
        ci95=tuple(summary["success_ci95"] or (0.0, 1.0)),  # of fewer than two tasks: nothing is known
        turns=summary["mean_turns"],
        outcomes=summary["outcomes"],
        cpu_s=time.process_time() - began,
    )
