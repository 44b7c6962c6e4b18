"""Make the manifests of validation and test: ``python -m envs.gaia.manifests``.

They change whenever a template, a world or a wording does. ``--check`` writes nothing and says what has changed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from aworld_gym.errors import AWorldGymError
from aworld_gym.manifests import Manifest
from envs.gaia.manifests import MANIFESTS
from envs.gaia.manifests.making import TASKS, make


def main(arguments: list[str] | None = None) -> int:
    """The command; returns its exit status: 1 where ``--check`` finds a difference."""
    parser = argparse.ArgumentParser(prog="python -m envs.gaia.manifests", description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare with the files that are there; write nothing")
    parser.add_argument("--output", type=Path, default=None, help="a folder; by default that of the package")
    parser.add_argument("--tasks", type=int, default=TASKS, help=f"tasks of each manifest ({TASKS} by default)")
    chosen = parser.parse_args(arguments)
    try:
        same = [_one(split, chosen.output, chosen.tasks, chosen.check) for split in MANIFESTS]
    except AWorldGymError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return int(chosen.check and not all(same))


def _one(split: str, folder: Path | None, tasks: int, check: bool) -> bool:
    path = MANIFESTS[split] if folder is None else folder / f"{split}.json"
    made = make(split, tasks)
    if check:
        there = Manifest.load(path)
        changed = sum(a != b for a, b in zip(there.tasks, made.tasks, strict=False))
        changed += abs(len(there.tasks) - len(made.tasks))
        print(f"{path}: {'as made here' if there.hash == made.hash else f'{changed} tasks differ'} ({made.hash})")
        return there.hash == made.hash
    made.save(path)
    levels = ", ".join(f"{count} of level {level}" for level, count in made.describe()["tasks_by_level"].items())
    print(f"{path}: {len(made.tasks)} tasks ({levels}), {made.hash}")
    return True


if __name__ == "__main__":
    sys.exit(main())
