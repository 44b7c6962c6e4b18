"""One run from start to report: a model, its warm start, measurement, GRPO on the real env, measurement."""

from __future__ import annotations

import copy
import dataclasses
import functools
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium as gym
import torch
from rich.console import Console
from transformers import AutoModelForCausalLM, AutoTokenizer

import aworld_gym  # noqa: F401  (registers the envs)
from adapters import trl
from adapters.common import MetricsFile
from aworld_gym.errors import ConfigError
from aworld_gym.tokens import ChatCodec
from aworld_gym.types import Episode
from aworld_gym.wrappers import RewardShaping
from examples.train_gaia import cache
from examples.train_gaia.evaluation import Measurement, measure
from examples.train_gaia.model import build_model, fold_output_biases
from examples.train_gaia.progress import Bar, GrpoBar, bar
from examples.train_gaia.settings import Settings
from examples.train_gaia.tokenizer import build_tokenizer
from examples.train_gaia.warm import warm_start

log = logging.getLogger(__name__)


@dataclass
class Run:
    """What a run found."""

    settings: Settings
    parameters: int = 0
    warm_from_cache: bool | None = None
    """None where there was no warm start."""
    before: list[Measurement] = field(default_factory=list)
    after: list[Measurement] = field(default_factory=list)
    metrics: list[dict[str, Any]] = field(default_factory=list)
    """What TRL logged, a row per step."""
    counts: dict[str, int] = field(default_factory=dict)
    """How the training episodes ended."""
    checkpoint: Path = Path()
    wall_s: dict[str, float] = field(default_factory=dict)
    cpu_s: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Add what the block takes to a phase's seconds."""
        wall, cpu = time.perf_counter(), time.process_time()
        try:
            yield
        finally:
            self.wall_s[phase] = self.wall_s.get(phase, 0.0) + time.perf_counter() - wall
            self.cpu_s[phase] = self.cpu_s.get(phase, 0.0) + time.process_time() - cpu

    def gain(self, name: str) -> float:
        """How much a measurement rose."""
        (before,) = (m for m in self.before if m.name == name)
        (after,) = (m for m in self.after if m.name == name)
        return after.success - before.success


def run(settings: Settings, console: Console) -> Run:
    """Train, measure, and leave everything but the report in ``settings.output``.

    Raises:
        ConfigError: settings that cannot work, or a folder that holds another run.
    """
    found = Run(settings)
    output = settings.output
    output.mkdir(parents=True, exist_ok=True)
    start = warm_checkpoint(settings, found, console) if settings.model is None else settings.model
    with found.timed("measure before"):
        found.before, found.parameters = measure_checkpoint(start, settings, "before", console)
    with found.timed("GRPO"):
        result = train(start, settings, console)
    found.metrics, found.counts, found.checkpoint = result.metrics, dict(result.counts), result.checkpoint
    if settings.model is None:
        model = AutoModelForCausalLM.from_pretrained(result.checkpoint, dtype=torch.float32)
        fold_output_biases(model)
        model.save_pretrained(result.checkpoint)
    with found.timed("measure after"):
        found.after, _ = measure_checkpoint(result.checkpoint, settings, "after", console)
    return found


def train(start: str | Path, settings: Settings, console: Console) -> Any:
    """GRPO on the env by TRL's trainer, from ``start``; what :func:`adapters.trl.train` returns."""
    env = gym.make("AWorld/Gaia-v0", **settings.env)
    if settings.shaping:
        env = RewardShaping(env, "plan_progress", amount=settings.shaping)
    config = {
        "seed": settings.seed,
        "max_completion_length": settings.limits.max_tokens,
        "logging_steps": 1,
        "report_to": "none",
        "disable_tqdm": True,
        **settings.grpo,
    }
    with bar(console, "GRPO", int(config["max_steps"])) as shown:
        return trl.train(
            env,
            model=start,
            output_dir=settings.output,
            config=config,
            rollout={"max_turn_tokens": settings.limits.max_turn_tokens},
            callbacks=[GrpoBar(shown)],
            resume_from_checkpoint=settings.resume or None,
        )


def warm_checkpoint(settings: Settings, found: Run, console: Console) -> Path:
    """The small model after its warm start, from the cache where that has it.

    Leaves it in ``start/`` of the run's folder, with its loss by step in ``warm_start.jsonl``.
    """
    target = settings.output / "start"
    if settings.resume and (target / "config.json").exists():
        return target
    tools = offered_tools(settings)
    name = cache.key(settings.warm, tools)
    kept = cache.find(name) if settings.use_cache else None
    found.warm_from_cache = kept is not None
    with found.timed("warm start"):
        if kept is not None:
            console.print(f"warm start: taken from {kept} (--no-cache makes it anew)")
            tokenizer, model = AutoTokenizer.from_pretrained(kept), load(kept)
        else:
            tokenizer = build_tokenizer(tools)
            model = build_model(tokenizer, seed=settings.warm.seed)
            codec, losses = ChatCodec(tokenizer), MetricsFile(settings.output / "warm_start.jsonl")
            with bar(console, "warm start", settings.warm.steps) as shown:

                def on_step(step: int, loss: float) -> None:
                    losses.append({"step": step, "loss": loss})
                    shown.advance(f"loss {loss:.3f}")

                warm_start(model, codec, tools, settings.warm, on_step)
        model.save_pretrained(target)
        tokenizer.save_pretrained(target)
    if kept is None and settings.use_cache:
        try:
            cache.keep(target, name)
        except OSError as error:
            log.warning("the warm start is not kept for later runs: %s", error)
    return target


def imitate_longer(start: Path, settings: Settings, cpu_s: float, console: Console) -> Path:
    """The control for GRPO: the same CPU seconds spent on further imitation, from the same start.

    Args:
        start: a warm checkpoint.
        settings: of the run; the demonstrations follow those of its warm start's next seed.
        cpu_s: what GRPO took.
        console: for the bar.

    Returns:
        The checkpoint, below ``settings.output``.
    """
    tools, tokenizer = offered_tools(settings), AutoTokenizer.from_pretrained(start)
    codec, model, began = ChatCodec(tokenizer), load(start), time.process_time()
    fresh = dataclasses.replace(settings.warm, seed=settings.warm.seed + 10**6, drill_steps=0)
    rehearsal = dataclasses.replace(fresh, imitation_steps=10)
    warm_start(copy.deepcopy(model), codec, tools, rehearsal)  # to learn what a step costs
    per_step = (time.process_time() - began) / rehearsal.steps
    more = dataclasses.replace(fresh, imitation_steps=max(1, round(cpu_s / per_step)))
    with bar(console, "more imitation", more.steps) as shown:
        warm_start(model, codec, tools, more, lambda step, loss: shown.advance(f"loss {loss:.3f}"))
    target = settings.output / "final"
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)
    return target


def measure_checkpoint(
    start: str | Path, settings: Settings, when: str, console: Console
) -> tuple[list[Measurement], int]:
    """Every measurement of the settings on one checkpoint, and its number of parameters."""
    model, tokenizer = load(start), AutoTokenizer.from_pretrained(start)
    codec = ChatCodec(tokenizer, template_kwargs=settings.grpo.get("chat_template_kwargs"))
    results = []
    for tasks in settings.held_out:
        for sampled in (True, False):
            phase = f"{when}: {tasks.name}, {'sampled' if sampled else 'greedy'}"
            with bar(console, phase, tasks.tasks) as shown:
                advance = functools.partial(_advance, shown)
                results.append(
                    measure(model, codec, tasks, sampled=sampled, limits=settings.limits, on_episode=advance)
                )
    return results, sum(p.numel() for p in model.parameters())


def _advance(shown: Bar, episode: Episode) -> None:
    if episode.valid:
        shown.advance()


def offered_tools(settings: Settings) -> list[dict[str, Any]]:
    """The tool schemas of the training env."""
    env = gym.make("AWorld/Gaia-v0", **settings.env)
    try:
        return list(env.reset(seed=0)[1]["tools"])
    finally:
        env.close()


def load(checkpoint: str | Path) -> Any:
    """A causal language model: on the accelerator in its own precision where there is one, else in float32.

    Raises:
        ConfigError: the model cannot be had.
    """
    gpu = torch.accelerator.is_available()
    try:
        model: Any = AutoModelForCausalLM.from_pretrained(checkpoint, dtype="auto" if gpu else torch.float32)
    except OSError as error:
        raise ConfigError(
            f"the model {str(checkpoint)!r} cannot be loaded: {error}. Give a folder written by save_pretrained, or "
            "the name of a model on the hub that this machine can reach."
        ) from error
    return model.to(torch.accelerator.current_accelerator()) if gpu else model
