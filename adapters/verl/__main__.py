"""The plain entry for clusters: ``python -m adapters.verl ENV --model NAME --output FOLDER [KEY=VALUE ...]``.

It is ``aworld-gym train --trainer verl``, in which ``KEY=VALUE``, verl's own way to give settings, stands for ``--set
KEY=VALUE``. Works on one machine, in a Ray cluster (``RAY_ADDRESS``), and as the entrypoint of ``ray job submit``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence

import typer

from aworld_gym.cli import train

FLAGS = ("--json",)
"""Options of ``aworld-gym train`` that take no value."""


def arguments(given: Sequence[str]) -> Iterator[str]:
    """Those of ``aworld-gym train``."""
    for before, argument in zip(["", *given], given, strict=False):
        of_an_option = before.startswith("-") and before not in FLAGS
        if re.match(r"\+?[\w.]+=", argument) and not of_an_option:
            yield "--set"
        yield argument
    yield from ("--trainer", "verl")


def main() -> None:
    """Train a model on an env with verl's own trainer."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command(help=__doc__.replace("``", "`"))(train)
    app(args=list(arguments(sys.argv[1:])), prog_name="python -m adapters.verl")


if __name__ == "__main__":
    main()
