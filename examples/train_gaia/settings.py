"""What a run does: the recipe for the small model, and settings for a model from a hub or a folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from examples.train_gaia.evaluation import Limits, TaskSet
from examples.train_gaia.warm import WarmSettings

MINI = {"preset": "mini"}
"""Env arguments of the small model."""


@dataclass(frozen=True)
class Settings:
    """One run."""

    output: Path
    seed: int = 11
    model: str | None = None
    """A folder or a hub name; None builds and warms up the small model."""
    env: Mapping[str, Any] = field(default_factory=lambda: dict(MINI))
    """Arguments of ``gym.make("AWorld/Gaia-v0")`` for training."""
    shaping: float = 0.0
    """What the facts of the oracle plan pay in all (``plan_progress`` shaping); 0: the task's score alone."""
    warm: WarmSettings = field(default_factory=WarmSettings)
    grpo: Mapping[str, Any] = field(default_factory=dict)
    """Fields of TRL's GRPOConfig."""
    limits: Limits = field(default_factory=Limits)
    held_out: tuple[TaskSet, ...] = ()
    """Measured before and after, sampled and greedy."""
    use_cache: bool = True
    """Take the warm start from the cache where it has it, and keep it there."""
    resume: bool = False
    """Go on from the last checkpoint in ``output``."""


def small_model(output: Path, *, seed: int = 11, steps: int = 40, tasks: int = 200, split: str = "test") -> Settings:
    """The recipe that two cores finish in minutes.

    Args:
        output: the run's folder.
        seed: of everything: weights, demonstrations, training tasks and sampling.
        steps: of GRPO.
        tasks: held-out tasks for each measurement.
        split: where they come from; ``"validation"`` for choosing a recipe.
    """
    return Settings(
        output=output,
        seed=seed,
        warm=WarmSettings(seed=seed),
        grpo={
            "max_steps": steps,
            "per_device_train_batch_size": 64,
            "num_generations": 8,
            "learning_rate": 5e-4,
            "lr_scheduler_type": "constant",
            "temperature": 1.0,
            "beta": 0.0,
            "adam_beta2": 0.99,
            "gradient_checkpointing": False,
            "bf16": False,
            "save_steps": 10,
            "save_total_limit": 1,
        },
        held_out=(
            TaskSet("held-out tasks", {**MINI, "split": split, "world": "seen"}, tasks),
            TaskSet("unseen words", {**MINI, "split": split, "world": "unseen"}, tasks),
        ),
    )


def given_model(
    output: Path, model: str, *, seed: int = 11, steps: int = 200, tasks: int = 100, preset: str | None = None
) -> Settings:
    """A model that exists already: no warm start, its own chat template, full tool schemas.

    Meant for a GPU. The defaults are those of common GRPO recipes for models of this size, not tuned here; any
    field of GRPOConfig can be given over them.

    Args:
        output: the run's folder.
        model: a folder or a hub name.
        seed: of training tasks and sampling.
        steps: of GRPO.
        tasks: held-out tasks for each measurement.
        preset: ``"mini"`` for the small tables; None for the whole world's level-1 tasks.
    """
    env: dict[str, Any] = dict(MINI) if preset == "mini" else {"level": 1}
    limits = Limits(max_tokens=1024, max_turn_tokens=256) if preset == "mini" else Limits(4096, 768)
    return Settings(
        output=output,
        seed=seed,
        model=model,
        env=env,
        grpo={
            "max_steps": steps,
            "per_device_train_batch_size": 8,
            "gradient_accumulation_steps": 8,
            "num_generations": 8,
            "learning_rate": 2e-6,
            "lr_scheduler_type": "constant_with_warmup",
            "warmup_steps": 5,
            "temperature": 1.0,
            "beta": 0.0,
            "chat_template_kwargs": {"enable_thinking": False},
            "save_steps": 50,
            "save_total_limit": 2,
        },
        limits=limits,
        held_out=(TaskSet("held-out tasks", {**env, "split": "test"}, tasks),),
    )
