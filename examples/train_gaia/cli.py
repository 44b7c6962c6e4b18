"""Command line of the training script."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import warnings
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.logging import RichHandler
from rich.markup import escape
from rich.table import Table

from aworld_gym.errors import AWorldGymError, ConfigError


def main() -> None:
    """Run the command."""
    typer.run(command)


def command(
    name: Annotated[str, typer.Option(help="The run's name: its folder below runs/.")] = "gaia",
    output: Annotated[Path | None, typer.Option(help="The run's folder, instead of runs/NAME.")] = None,
    seed: Annotated[int, typer.Option(help="Decides weights, tasks and sampling.")] = 11,
    model: Annotated[
        str | None, typer.Option(help="A folder or hub name; by default a small model is built and warmed up here.")
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help="With --model: 'mini' for the small tables, else the whole world's level 1.")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="GRPO steps: 40 for the small model, 200 for a given one.")] = None,
    tasks: Annotated[
        int | None, typer.Option(help="Held-out tasks a measurement: 200, or 100 for a given one.")
    ] = None,
    shaping: Annotated[float, typer.Option(help="What the facts of the oracle plan pay, as step rewards.")] = 0.0,
    warm_steps: Annotated[int | None, typer.Option(help="Imitation steps of the small model's warm start.")] = None,
    config: Annotated[Path | None, typer.Option(help="YAML or JSON of GRPOConfig fields, over the recipe's.")] = None,
    cache: Annotated[bool, typer.Option(help="Use and keep the warm start under ~/.cache/aworld-gym.")] = True,
    resume: Annotated[bool, typer.Option(help="Go on from the last checkpoint in the run's folder.")] = False,
) -> None:
    """Train a language model on the embedded GAIA world with TRL's GRPOTrainer; on two cores it takes minutes.

    Leaves checkpoint, metrics.jsonl, episodes.jsonl, learning_curve.png and report.md in the run's folder.
    """
    console = Console(stderr=True)
    logging.basicConfig(level=logging.WARNING, format="%(message)s", handlers=[RichHandler(console=console)])
    console.print("loading torch, transformers and trl ...")
    try:
        from examples.train_gaia import report, settings, train

        quiet()
        target = folder(output, name, resume)
        given: dict[str, Any] = {"seed": seed}
        given |= {key: value for key, value in (("steps", steps), ("tasks", tasks)) if value is not None}
        if model is None:
            if preset not in (None, "mini"):
                raise ConfigError(f"the small model knows preset 'mini' only, got {preset!r}; name a --model")
            chosen = settings.small_model(target, **given)
            if warm_steps is not None:
                warm = dataclasses.replace(chosen.warm, imitation_steps=warm_steps)
                chosen = dataclasses.replace(chosen, warm=warm)
        else:
            chosen = settings.given_model(target, model, preset=preset, **given)
        grpo = {**chosen.grpo, **read(config)}
        most = grpo.pop("max_completion_length", chosen.limits.max_tokens)
        limits = dataclasses.replace(chosen.limits, max_tokens=most)
        chosen = dataclasses.replace(chosen, grpo=grpo, limits=limits, shaping=shaping, use_cache=cache, resume=resume)
        target.mkdir(parents=True, exist_ok=True)
        # TRL prints what it logs; the same is in metrics.jsonl.
        with (target / "train.log").open("a", encoding="utf-8") as log, contextlib.redirect_stdout(log):
            found = train.run(chosen, console)
        page = report.write(found)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("adapters", "aworld_gym", "envs", "examples"):
            raise  # a module of our own, whose absence is a fault
        _refuse(console, f"training needs: pip install 'aworld-gym[gaia,trl]' ({error})", error)
    except AWorldGymError as error:
        _refuse(console, str(error), error)
    _show(found, page)


def _refuse(console: Console, why: str, error: Exception) -> NoReturn:
    console.print(f"[red]error:[/red] {escape(why)}", highlight=False)
    raise typer.Exit(2) from error


def _show(found: Any, page: Path) -> None:
    table = Table("measured on", "before", "after", "gain")
    for before, after in zip(found.before, found.after, strict=True):
        gain = f"{after.success - before.success:+.3f}"
        table.add_row(before.name, f"{before.success:.3f}", f"{after.success:.3f}", gain)
    console = Console()
    console.print(table)
    console.print(f"{sum(found.wall_s.values()):.0f} s. Report: {page}", soft_wrap=True)


def folder(output: Path | None, name: str, resume: bool) -> Path:
    """The run's folder. A name that is taken gets a number; a folder that was asked for must be free."""
    if output is not None:
        if not resume and (output / "episodes.jsonl").exists():
            raise ConfigError(f"{output} holds another run; choose another --output, or go on with it: --resume")
        return output
    runs = Path("runs")
    if resume or not (runs / name).exists():
        return runs / name
    return next(path for k in range(2, 10**6) if not (path := runs / f"{name}-{k}").exists())


def read(config: Path | None) -> dict[str, Any]:
    if config is None:
        return {}
    import yaml  # here, so that --help needs no more than the package

    try:
        found = yaml.safe_load(config.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"--config {config} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise ConfigError(f"--config {config} must hold GRPOConfig fields (name: value), got {type(found).__name__}")
    return found


def quiet() -> None:
    """Leave the screen to the bars: no bars of transformers for a model of 2 MB, no notices of renamed arguments."""
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"(transformers|trl)\.")
