"""What a run leaves for people: a learning curve and a page that says what was done and what came of it."""

from __future__ import annotations

import dataclasses
import json
import platform
import random
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from envs.gaia import mini
from examples.train_gaia.evaluation import Measurement

if TYPE_CHECKING:
    from examples.train_gaia.train import Run
    from examples.train_gaia.warm import WarmSettings

SMOOTH = 5
"""Steps of the running mean in the curve."""


def write(run: Run) -> Path:
    """Write ``evaluation.json``, ``learning_curve.png`` and ``report.md``; the path of the last."""
    output = run.settings.output
    evaluation = {when: [m.to_dict() for m in getattr(run, when)] for when in ("before", "after")}
    (output / "evaluation.json").write_text(json.dumps(evaluation, indent=2) + "\n", encoding="utf-8")
    plot(run, output / "learning_curve.png")
    path = output / "report.md"
    path.write_text(page(run), encoding="utf-8")
    return path


def plot(run: Run, path: Path) -> None:
    """Success of the training episodes by step, and of the measurements before and after."""
    from matplotlib.figure import Figure

    rows = [row for row in run.metrics if "env/score" in row]
    steps, success = [row["step"] for row in rows], [row["env/score"] for row in rows]
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    axes.plot(steps, success, color="0.75", label="training episodes (each step new tasks, sampled)")
    axes.plot(steps, smooth(success), color="C0", label=f"their running mean over {SMOOTH} steps")
    ends = (0, max(steps, default=1))
    for k, (before, after) in enumerate(zip(run.before, run.after, strict=True)):
        style = "o-" if before.sampled else "s--"
        axes.plot(ends, (before.success, after.success), style, color=f"C{1 + k // 2}", label=before.name, alpha=0.8)
    axes.set(xlabel="GRPO step", ylabel="success", ylim=(0, 1), title=f"AWorld/Gaia-v0, seed {run.settings.seed}")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small", loc="lower right")
    figure.savefig(path, dpi=120)


def smooth(values: Sequence[float], width: int = SMOOTH) -> list[float]:
    """The mean of each value and those before it, ``width`` at most."""
    return [float(np.mean(values[max(0, k - width + 1) : k + 1])) for k in range(len(values))]


def page(run: Run) -> str:
    """The report as Markdown."""
    settings = run.settings
    small = settings.model is None
    what = f"a model of {run.parameters:,} parameters built here" if small else f"`{settings.model}`"
    steps = settings.grpo.get("max_steps")
    lines = [
        f"# Training report: {settings.output.name}",
        "",
        f"TRL's GRPOTrainer trained {what} for {steps} steps on `AWorld/Gaia-v0` "
        f"({_arguments(settings.env)}), seed {settings.seed}. Every episode, in training and in measurement, called "
        "its tools through the MCP server.",
        "",
        "## Success before and after",
        "",
        table(run.before, run.after),
        "",
        "One episode per task; the tasks stand in no training set. Sampled: temperature 1, as in training. In "
        "brackets the 95 % bootstrap interval over tasks.",
        "",
        "![Learning curve](learning_curve.png)",
        "",
        "## What the model knew before GRPO",
        "",
        _warm_start(run) if small else "Whatever it was given with: there was no warm start.",
        "",
        "## How it was trained",
        "",
        _training(run),
        "",
        "## Time",
        "",
        "| phase | wall s | CPU s |",
        "|---|---|---|",
        *(f"| {phase} | {wall:.0f} | {run.cpu_s[phase]:.0f} |" for phase, wall in run.wall_s.items()),
        f"| all | {sum(run.wall_s.values()):.0f} | {sum(run.cpu_s.values()):.0f} |",
        "",
        "## Settings",
        "",
        "```json",
        json.dumps(_settings(run), indent=2, default=str),
        "```",
        "",
        "## Files",
        "",
        f"`{_relative(run.checkpoint, settings.output)}` the trained model and its tokenizer; `metrics.jsonl` what the "
        "trainer logged, by step; `episodes.jsonl` every training episode (`aworld_gym.trajectory.read_jsonl` reads "
        "it); `evaluation.json` the measurements"
        + ("; `start/` the model before GRPO; `warm_start.jsonl` its loss by step." if small else "."),
        "",
    ]
    return "\n".join(lines)


def table(before: Sequence[Measurement], after: Sequence[Measurement]) -> str:
    """Measurements side by side, as Markdown."""
    rows = ["| measured on | tasks | before | after | gain |", "|---|---|---|---|---|"]
    for old, new in zip(before, after, strict=True):
        gain = f"{new.success - old.success:+.3f}"
        rows.append(f"| {old.name} | {new.valid} | {_with_interval(old)} | {_with_interval(new)} | {gain} |")
    return "\n".join(rows)


def _warm_start(run: Run) -> str:
    warm = run.settings.warm
    made = {
        True: "taken from the cache, made earlier with the same settings",
        False: "made in this run",
        None: "made before this run was resumed",
    }[run.warm_from_cache]
    return (
        f"The model began from noise. Its warm start ({made}) was {warm.drill_steps} steps of a copying drill on "
        f"random strings, then {warm.imitation_steps} steps of imitation, {warm.batch} demonstrations each, all on "
        "training tasks.\n\n"
        "What it imitated was not a good policy but a script in a hurry: it lists the files, then with probability "
        f"{warm.first:g} opens the first one listed instead of the one asked for; it notes the rows it needs, then "
        f"with probability {warm.skip:g} submits the first value noted where it should calculate. That script succeeds "
        f"on {script_success(warm):.0%} of tasks; a perfect imitation of it, sampled, would do the same. So the format "
        "of a call and the pieces of a solution were learnt from the script; that the long way pays was found by "
        "reinforcement learning, from the reward alone."
    )


def script_success(warm: WarmSettings, tasks: int = 2000) -> float:
    """The share of training tasks on which the demonstrator's submission is right."""
    source, draw, rng = mini.MiniTasks("train"), np.random.default_rng(0), random.Random(0)
    right = 0
    for _ in range(tasks):
        task = source.sample(draw)
        plan = mini.hurried(task, rng, first=warm.first, skip=warm.skip)
        right += plan[-1].arguments["answer"] == task.answer["text"]
    return right / tasks


def _training(run: Run) -> str:
    settings = run.settings
    grpo = settings.grpo
    reward = (
        f"the task's score plus, as step rewards, up to {settings.shaping:g} for facts of the oracle plan that tool "
        "results showed (`RewardShaping`, `plan_progress`)"
        if settings.shaping
        else "the task's score alone: 1 for the right answer, else 0"
    )
    size = grpo.get("per_device_train_batch_size", 8) * grpo.get("gradient_accumulation_steps", 1)
    counts = ", ".join(f"{name} {count}" for name, count in sorted(run.counts.items()))
    return (
        f"`adapters.trl.train`: {size} episodes a step in groups of {grpo.get('num_generations', 8)}, learning rate "
        f"{grpo.get('learning_rate')}, at most {settings.limits.max_tokens} tokens an episode after its prompt and "
        f"{settings.limits.max_turn_tokens} a turn. The reward was {reward}.\n\nTraining episodes: {counts}."
    )


def _settings(run: Run) -> dict[str, Any]:
    packages = ("torch", "transformers", "trl", "gymnasium", "mcp")
    settings = dataclasses.asdict(run.settings)
    if run.settings.model is not None:
        del settings["warm"]
    return settings | {
        "versions": {package: version(package) for package in packages} | {"python": platform.python_version()}
    }


def _with_interval(m: Measurement) -> str:
    return f"{m.success:.3f} [{m.ci95[0]:.2f}, {m.ci95[1]:.2f}]"


def _arguments(env: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in env.items()) or "no arguments"


def _relative(path: Path, folder: Path) -> str:
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)
