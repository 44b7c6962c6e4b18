"""Rows for verl's dataset: ``python examples/verl_gaia/make_rows.py OUT [--tasks N] [--env ID] [--kwargs JSON]``."""

import argparse
import json
from pathlib import Path

import gymnasium as gym

import aworld_gym  # noqa: F401 - registers envs
from adapters.common import EVAL_SEEDS, env_spec
from adapters.verl.config import write_rows


def main() -> None:
    """Write ``train.parquet`` and ``eval.parquet``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--tasks", type=int, default=4096)
    parser.add_argument("--eval-tasks", type=int, default=128)
    parser.add_argument("--seed", type=int, default=0, help="the first task's")
    parser.add_argument("--env", default="AWorld/Gaia-v0")
    parser.add_argument("--kwargs", type=json.loads, default={}, help="the env's arguments, as JSON")
    parser.add_argument(
        "--eval-kwargs", type=json.loads, help="those of the eval env; by default the same with split=validation"
    )
    options = parser.parse_args()
    held_out = {**options.kwargs, "split": "validation"} if options.eval_kwargs is None else options.eval_kwargs
    for split, kwargs, seeds in (
        ("train", options.kwargs, range(options.seed, options.seed + options.tasks)),
        ("eval", held_out, range(EVAL_SEEDS, EVAL_SEEDS + options.eval_tasks)),
    ):
        write_rows(options.out / f"{split}.parquet", env_spec(gym.make(options.env, **kwargs)), seeds, split)


if __name__ == "__main__":
    main()
