"""The same start, tasks and settings through each trainer: ``python -m benchmarks.trainers``.

TRL, verl and ms-swift each run GRPO in the environment that ``make`` gives them (``.venv``, ``.venv-verl``,
``.venv-swift``), through its adapter, from the same warm-started small model and over the same task seeds. Writes
``trainers.md``, ``trainers.png`` and ``trainers.json`` to ``benchmarks/results``: reward by step, and where a step's
wall time goes. A trainer whose run stands in the work folder already is not run again.

Samples differ between trainers (each has its own generator of random numbers), so the curves are alike and not equal.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import typer

ROOT = Path(__file__).resolve().parents[1]
VENVS = {"trl": ".venv", "verl": ".venv-verl", "swift": ".venv-swift"}
FRAMEWORKS = {"trl": "trl", "verl": "verl", "swift": "ms-swift"}
START = ROOT / "tests" / "data" / "warm_start"
"""The warm start that the tests use (``tests/data/make_warm_start.py``)."""
GROUP, LR, BETA2 = 8, 5e-4, 0.99
MAX_TOKENS, MAX_TURN_TOKENS, MAX_PROMPT = 400, 48, 1024
SEED = 11


def main(
    steps: Annotated[int, typer.Option(help="GRPO steps.")] = 10,
    tasks: Annotated[int, typer.Option(help=f"Tasks a step, of {GROUP} episodes each.")] = 8,
    trainers: Annotated[str, typer.Option(help="Comma-separated.")] = ",".join(VENVS),
    model: Annotated[Path, typer.Option(help="The model to start from.")] = START,
    work: Annotated[Path, typer.Option(help="Where the runs are kept.")] = Path("runs/benchmark-trainers"),
    output: Annotated[Path, typer.Option(help="Where the results go.")] = ROOT / "benchmarks" / "results",
    note: Annotated[str, typer.Option(help="A sentence for the page, on what else the machine did, say.")] = "",
    worker: Annotated[str, typer.Option(hidden=True)] = "",
) -> None:
    """Run each trainer in its own environment, and write table, plot and numbers."""
    if worker:
        run_here(worker, steps=steps, tasks=tasks, model=model, folder=work)
        return
    chosen = [name.strip() for name in trainers.split(",")]
    if unknown := set(chosen) - set(VENVS):
        raise typer.BadParameter(f"unknown trainers {sorted(unknown)}; known are {', '.join(VENVS)}")
    found = []
    for name in chosen:
        folder = work.absolute() / f"{name}-{steps}x{tasks}"
        if not (folder / "result.json").exists():
            python = ROOT / VENVS[name] / "bin" / "python"
            if not python.exists():
                raise typer.BadParameter(f"{python} is not there: make {VENVS[name]}/.done")
            options = [
                "--worker",
                name,
                "--steps",
                steps,
                "--tasks",
                tasks,
                "--model",
                model.absolute(),
                "--work",
                folder,
            ]
            typer.echo(f"{name}: {steps} steps of {tasks} tasks ...", err=True)
            subprocess.run(
                [python, "-m", "benchmarks.trainers", *map(str, options)], cwd=ROOT, check=True, stdout=sys.stderr
            )
        found.append(json.loads((folder / "result.json").read_text(encoding="utf-8")))
    output.mkdir(parents=True, exist_ok=True)
    about = {"steps": steps, "tasks": tasks, "group": GROUP, "machine": machine(), "note": note}
    about["command"] = command(steps, tasks)
    text = json.dumps({"about": about, "runs": found}, indent=1)
    (output / "trainers.json").write_text(text + "\n", encoding="utf-8")
    (output / "trainers.md").write_text(page(found, about), encoding="utf-8")
    plot(found, output / "trainers.png")
    typer.echo(table(found))


def command(steps: int, tasks: int) -> str:
    """How the page's numbers are made again."""
    return f"python -m benchmarks.trainers --steps {steps} --tasks {tasks}"


def machine() -> str:
    """What the numbers were measured on."""
    return f"{os.cpu_count()} CPU cores ({platform.machine()}), Python {platform.python_version()}, no GPU"


# ---- one run, in the trainer's own environment -----------------------------------------------------------------------


def run_here(trainer: str, *, steps: int, tasks: int, model: Path, folder: Path) -> None:
    """Train with one trainer in this process; leaves ``result.json``."""
    import importlib
    import logging
    import shutil

    import gymnasium as gym

    import aworld_gym  # noqa: F401 - registers the envs
    from adapters.common import SEEDS_PER_RUN

    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    first = SEED * SEEDS_PER_RUN
    options: dict[str, Any] = {"tasks": list(range(first, first + steps * tasks)), "output_dir": folder / "run"}
    clock, config = Clock(folder / "run"), CONFIGS[trainer](steps, tasks)
    began = time.perf_counter()
    with clock, tempfile.TemporaryDirectory(prefix="r", dir="/tmp", ignore_cleanup_errors=True) as short:
        if trainer == "verl":  # Ray's sockets lie there, and their paths must be short
            config["+ray_kwargs.ray_init._temp_dir"] = short
        result = importlib.import_module(f"adapters.{trainer}").train(
            gym.make("AWorld/Gaia-v0", preset="mini"),
            model=str(model),
            config=config,
            rollout={"max_turn_tokens": MAX_TURN_TOKENS},
            **options,
        )
    wall = time.perf_counter() - began
    row = {
        "trainer": trainer,
        "versions": versions(trainer),
        "wall_s": wall,
        "counts": dict(result.counts),
        "rewards": rewards(result.episodes, steps),
        "times": TIMES[trainer](result.metrics, folder / "run", clock.times),
    }
    (folder / "result.json").write_text(json.dumps(row) + "\n", encoding="utf-8")


def trl_config(steps: int, tasks: int) -> dict[str, Any]:
    """TRL's GRPOConfig."""
    return {
        "max_steps": steps,
        "per_device_train_batch_size": tasks * GROUP,
        "num_generations": GROUP,
        "max_completion_length": MAX_TOKENS,
        "learning_rate": LR,
        "lr_scheduler_type": "constant",
        "adam_beta2": BETA2,
        "weight_decay": 0.0,
        "beta": 0.0,
        "temperature": 1.0,
        "loss_type": "dapo",
        "shuffle_dataset": False,
        "gradient_checkpointing": False,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "seed": SEED,
    }


def swift_config(steps: int, tasks: int) -> dict[str, Any]:
    """RLHFArguments of ms-swift."""
    config = trl_config(steps, tasks)
    for name in ("shuffle_dataset", "report_to", "disable_tqdm"):
        del config[name]
    return config | {
        "report_to": ["none"],
        "gradient_accumulation_steps": 1,
        "warmup_ratio": 0.0,
        "top_p": 1.0,
        "top_k": -1,
        "tuner_type": "full",
        "dataset_num_proc": 1,
        "dataset_shuffle": False,
        "train_dataloader_shuffle": False,
    }


def verl_config(steps: int, tasks: int) -> dict[str, Any]:
    """Settings of verl's ppo_trainer."""
    return {
        "data": {
            "train_batch_size": tasks,
            "max_prompt_length": MAX_PROMPT,
            "max_response_length": MAX_TOKENS,
            "seed": SEED,
            "shuffle": False,
        },
        "actor_rollout_ref": {
            "rollout": {"n": GROUP, "log_prob_micro_batch_size_per_gpu": tasks * GROUP, "temperature": 1.0},
            "actor": {
                "ppo_mini_batch_size": tasks,
                "ppo_micro_batch_size_per_gpu": tasks * GROUP,
                "optim": {"lr": LR, "weight_decay": 0.0, "betas": [0.9, BETA2]},
            },
        },
        "trainer": {"total_training_steps": steps},
    }


CONFIGS = {"trl": trl_config, "swift": swift_config, "verl": verl_config}
"""The same settings in each framework's words: GRPO, one update a batch, a mean over tokens, no KL term."""


class Clock:
    """Notes when lines are added to a run's ``metrics.jsonl``: frameworks' own clocks do not all cover a whole step."""

    def __init__(self, folder: Path):
        self._file, self._stop = folder / "metrics.jsonl", threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.times: list[float] = []
        """Seconds (of a monotonic clock) at which the file grew, the first of them when the watch began."""

    def __enter__(self) -> Clock:
        self.times = [time.monotonic()]
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        size = 0
        while not self._stop.wait(0.02):
            now = self._file.stat().st_size if self._file.exists() else 0
            if now > size:
                self.times.append(time.monotonic())
            size = now


def rewards(episodes: Path, steps: int) -> list[float]:
    """The mean return of each step's valid episodes. The name of a group begins with its step."""
    by_step: dict[int, list[float]] = defaultdict(list)
    for line in episodes.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        if record["valid"]:
            by_step[int(record["group_id"].partition("/")[0])].append(record["return"])
    found = [sum(values) / len(values) for _, values in sorted(by_step.items())]
    if len(found) != steps:
        raise RuntimeError(f"expected episodes of {steps} steps, got {len(found)}")
    return found


def hf_times(metrics: Sequence[Mapping[str, Any]], folder: Path, clock: Sequence[float]) -> list[dict[str, float]]:
    """Of TRL and ms-swift: the adapter times generation and envs; a step is from one logged line to the next."""
    rows = [row for row in metrics if "loss" in row and "time/generate_s" in row]
    ends = clock[
        1 : len(rows) + 1
    ]  # the first line waits for the model to load, and the step that it is of is left out
    return [
        split(after - before, row["time/generate_s"], row["time/env_s"])
        for row, before, after in zip(rows[1:], ends, ends[1:], strict=False)
    ]


def verl_times(metrics: Sequence[Mapping[str, Any]], folder: Path, clock: Sequence[float]) -> list[dict[str, float]]:
    """Of verl: its own timers; generation and envs share its rollout's time as they share their mean over episodes."""
    out = []
    for row in [row for row in metrics if "timing_s/step" in row][1:]:
        generation, env = row["time/generate_s"], row["time/env_s"]
        rollout = row["timing_s/gen"]
        share = generation / ((generation + env) or 1.0)
        out.append(split(row["timing_s/step"], rollout * share, rollout * (1 - share)))
    return out


def split(step: float, generation: float, env: float) -> dict[str, float]:
    """A step's wall seconds by what they were spent on; the update is all that is neither sampling nor env."""
    return {"step_s": step, "generation_s": generation, "env_s": env, "update_s": max(0.0, step - generation - env)}


TIMES = {"trl": hf_times, "swift": hf_times, "verl": verl_times}


def versions(trainer: str) -> dict[str, str]:
    """Of the framework, and of what it stands on."""
    return {name: metadata.version(name) for name in (FRAMEWORKS[trainer], "transformers", "torch")}


# ---- page and plot ---------------------------------------------------------------------------------------------------


def mean(row: Mapping[str, Any], name: str) -> float:
    """Mean seconds of a step; nan where a run had one step, which is not timed."""
    return _mean([each[name] for each in row["times"]])


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """A line for each trainer."""
    head = ("trainer", "reward, first 3 steps", "last 3 steps", "step", "generation", "env", "update", "whole run")
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for row in rows:
        name, curve = FRAMEWORKS[row["trainer"]], row["rewards"]
        cells = [f"{name} {row['versions'][name]}", f"{_mean(curve[:3]):.3f}", f"{_mean(curve[-3:]):.3f}"]
        cells += [f"{mean(row, key):.2f} s" for key in ("step_s", "generation_s", "env_s", "update_s")]
        cells.append(f"{row['wall_s']:.0f} s")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def page(rows: Sequence[Mapping[str, Any]], about: Mapping[str, Any]) -> str:
    """The results as Markdown."""
    counts = "; ".join(
        f"{FRAMEWORKS[row['trainer']]}: {row['counts']['episodes']} episodes, {row['counts'].get('invalid', 0)} invalid"
        for row in rows
    )
    versions = "; ".join(", ".join(f"{k} {v}" for k, v in row["versions"].items()) for row in rows)
    machine = about["machine"] + (f". {about['note'].rstrip('.')}" if about["note"] else "")
    text = f"""{about["steps"]} GRPO steps of {about["tasks"]} tasks in groups of {about["group"]} on
`gym.make("AWorld/Gaia-v0", preset="mini")`, from the same warm-started model of 0.44 million parameters, over the same
task seeds, with the same settings in each framework's words. Samples are each framework's own, so that rewards differ
by chance. Made by `{about["command"]}` on {machine}."""
    times = """Seconds are wall time a step, means over all steps but the first. For TRL and ms-swift the adapter times
sampling and waiting for envs; for verl, whose episodes run at once, the rollout's wall time is shared between the two
as their sums over episodes are. "update" is the rest of a step: scoring, loss, optimiser, and passing weights on.
"whole run" has the start of the framework in it: for verl, Ray and its workers."""
    parts = ["# Three trainers, one env", _wrapped(text), table(rows), _wrapped(times)]
    parts += [_wrapped(f"{counts}. Versions: {versions}."), "![reward by step](trainers.png)"]
    return "\n\n".join(parts) + "\n"


def plot(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Reward by step, a line for each trainer; beside it, where a step's time goes."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4), width_ratios=(3, 2))
    for row in rows:
        left.plot(range(1, len(row["rewards"]) + 1), row["rewards"], marker="o", label=FRAMEWORKS[row["trainer"]])
    left.set(xlabel="GRPO step", ylabel="mean reward of the step's episodes", ylim=(0, 1))
    left.legend()
    names, base = [FRAMEWORKS[row["trainer"]] for row in rows], [0.0] * len(rows)
    for key, label in (("generation_s", "generation"), ("env_s", "env"), ("update_s", "update")):
        values = [mean(row, key) for row in rows]
        right.bar(names, values, bottom=base, label=label)
        base = [a + b for a, b in zip(base, values, strict=True)]
    right.set(ylabel="wall seconds a step")
    right.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _wrapped(text: str) -> str:
    return textwrap.fill(" ".join(text.split()), 120, break_long_words=False, break_on_hyphens=False)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else float("nan")


if __name__ == "__main__":
    typer.run(main)
