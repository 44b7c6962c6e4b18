"""The plain entry for clusters: ``python -m adapters.verl ENV --model NAME --output FOLDER [KEY=VALUE ...]``.

It is ``aworld-gym train --trainer verl``. ``KEY=VALUE`` is verl's own way to give settings. Works on one machine, in a
Ray cluster (``RAY_ADDRESS``), and as the entrypoint of ``ray job submit``.
"""

from __future__ import annotations

import sys

import typer

from aworld_gym.cli import train


def main() -> None:
    """Train a model on an env with verl's own trainer."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command(help=__doc__.replace("``", "`"))(train)
    app(args=[*sys.argv[1:], "--trainer", "verl"], prog_name="python -m adapters.verl")


if __name__ == "__main__":
    main()
