"""The plain entry for clusters: ``python -m adapters.verl ENV --model NAME --output FOLDER [verl's overrides ...]``.

Works on one machine, in a Ray cluster (``RAY_ADDRESS``), and as the entrypoint of ``ray job submit``.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


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
    env_kwargs: Annotated[str, typer.Option(help="The env's arguments as one JSON object.")] = "{}",
    credit: Annotated[str, typer.Option(help="episode or step.")] = "episode",
    tasks: Annotated[int | None, typer.Option(help="Tasks an epoch.")] = None,
    eval_env: Annotated[str | None, typer.Option(help="An env for verl's validation.")] = None,
    eval_kwargs: Annotated[str, typer.Option(help="Its arguments.")] = "{}",
    rollout: Annotated[str, typer.Option(help="How episodes are played: options as one JSON object.")] = "{}",
) -> None:
    """Train a model on an env with verl's own trainer."""
    import gymnasium as gym

    import aworld_gym  # noqa: F401 - registers envs
    from adapters import verl
    from aworld_gym.errors import AWorldGymError

    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    try:
        if settings and config:
            raise typer.BadParameter("give verl's settings in a file or as overrides, not both")
        evaluated = None if eval_env is None else gym.make(eval_env, **json.loads(eval_kwargs))
        result = verl.train(
            gym.make(env, **json.loads(env_kwargs)),
            model=model,
            output_dir=output,
            config=config or settings,
            eval_env=evaluated,
            credit=credit,
            tasks=tasks,
            rollout=json.loads(rollout),
        )
    except (AWorldGymError, gym.error.Error) as error:
        raise SystemExit(f"error: {error}") from error
    print(json.dumps({"checkpoint": str(result.checkpoint), "episodes": str(result.episodes), **result.counts}))


if __name__ == "__main__":
    app()
