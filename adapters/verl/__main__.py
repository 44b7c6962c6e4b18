"""The plain entry for clusters: ``python -m adapters.verl ENV --model NAME --output FOLDER [verl's overrides ...]``.

Works on one machine, in a Ray cluster (``RAY_ADDRESS``), and as the entrypoint of ``ray job submit``.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


def _json(text: str) -> typer.models.OptionInfo:
    return typer.Option(parser=json.loads, metavar="JSON", help=text)


@app.command(context_settings={"ignore_unknown_options": True})
def main(
    env: Annotated[str, typer.Argument(metavar="ENV", help="An env id, such as AWorld/Gaia-v0.")],
    model: Annotated[str, typer.Option(help="A folder or a hub name.")],
    output: Annotated[Path, typer.Option(help="A folder that every node sees.")],
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE...", help="verl's own settings, as hydra overrides of its ppo_trainer."),
    ] = None,
    config: Annotated[Path | None, typer.Option(help="A YAML file of verl's settings, instead of overrides.")] = None,
    credit: Annotated[str, typer.Option(help="episode or step.")] = "episode",
    tasks: Annotated[int | None, typer.Option(help="Tasks an epoch.")] = None,
    eval_env: Annotated[str | None, typer.Option(help="An env for verl's validation.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint.")] = False,
    env_kwargs: Annotated[dict, _json("The env's arguments.")] = "{}",  # type: ignore[assignment]  # typer parses it
    eval_kwargs: Annotated[dict, _json("Those of the eval env.")] = "{}",  # type: ignore[assignment]
    rollout: Annotated[dict, _json("How episodes are played.")] = "{}",  # type: ignore[assignment]
) -> None:
    """Train a model on an env with verl's own trainer."""
    import gymnasium as gym

    import aworld_gym  # noqa: F401 - registers envs
    from adapters import verl
    from aworld_gym.errors import AWorldGymError

    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    if settings and config:
        raise typer.BadParameter("give verl's settings in a file or as overrides, not both")
    more: dict[str, Any] = {"credit": credit, "tasks": tasks, "rollout": rollout, "resume_from_checkpoint": resume}
    try:
        if eval_env is not None:
            more["eval_env"] = gym.make(eval_env, **eval_kwargs)
        made = gym.make(env, **env_kwargs)
        result = verl.train(made, model=model, output_dir=output, config=config or settings, **more)
    except (AWorldGymError, gym.error.Error) as error:
        raise SystemExit(f"error: {error}") from error
    print(json.dumps({"checkpoint": str(result.checkpoint), "episodes": str(result.episodes), **result.counts}))


if __name__ == "__main__":
    app()
