"""The tasks of a run: their seeds, the rows that name them in a data set, and the episodes of a batch of rows."""

from __future__ import annotations

import operator
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import Any, TypeVar

from gymnasium.envs.registration import EnvSpec

from adapters.handover import spec_json
from aworld_gym.errors import ConfigError
from aworld_gym.play import Item

T = TypeVar("T")

EVAL_SEEDS = 10**15
"""Where evaluation seeds begin: beyond every training seed."""
SEEDS_PER_RUN = 10**9
"""Training seed s owns the task seeds from s times this on."""
DEFAULT_TASKS = 1000
"""Tasks in an epoch, where neither ``tasks`` nor a number of steps says."""


def task_seeds(tasks: int | Sequence[int], first: int) -> list[int]:
    """The seeds of that many tasks from ``first`` on, or those given.

    Raises:
        ConfigError: neither a positive number nor seeds.
    """
    if isinstance(tasks, int) and not isinstance(tasks, bool) and tasks > 0:
        return list(range(first, first + tasks))
    try:
        seeds = [] if isinstance(tasks, str | int) else [operator.index(seed) for seed in tasks]
    except TypeError:  # no sequence, or not of whole numbers
        seeds = []
    if not seeds or min(seeds) < 0:
        seeds_are = "a list of whole numbers of at least 0"
        raise ConfigError(f"expected a positive number of tasks, or their seeds ({seeds_are}), got {tasks!r}")
    return seeds


def task_message(seed: int, split: str = "train") -> dict[str, str]:
    """What stands in a row for a prompt: trainers tell groups apart by it, and the env makes the real one."""
    return {"role": "user", "content": f"{split} task {seed}"}


def task_rows(spec: EnvSpec, seeds: Sequence[int], split: str = "train") -> list[dict[str, Any]]:
    """What rows of a data set say of their episodes, for trainers that only copy it to whoever plays them.

    Returns:
        Of each task ``env`` (the spec as JSON), ``seed``, ``split`` and ``group`` (another for each row).

    Raises:
        ConfigError: the spec cannot be written as JSON.
    """
    env, seen, rows = spec_json(spec), Counter[int](), []
    for seed in seeds:
        group = f"{seed}/{seen[seed]}" if seen[seed] else str(seed)
        seen[seed] += 1
        rows.append({"env": env, "seed": seed, "split": split, "group": group})
    return rows


def the_one(envs: Iterable[T], known: Collection[T] | None = None) -> T:
    """The env that all rows of a batch name.

    Args:
        envs: of each row.
        known: those that there are.

    Raises:
        ConfigError: they name several, or another one.
    """
    found = set(envs)
    if len(found) != 1 or (known is not None and not found <= set(known)):
        asked = f", of {sorted(map(str, known))}" if known is not None else ""
        raise ConfigError(f"expected the rows of one env in a batch{asked}; got those of {sorted(map(str, found))}")
    return found.pop()


def number_items(seeds: Sequence[int], group_size: int, *, first: int = 0, step: int = 0) -> list[Item]:
    """The episodes of a batch: which of its group's each is, and the group's name, ``step/seed`` and, if need be, more.

    Args:
        seeds: the task seed of each row; rows of a group are consecutive in the whole batch.
        group_size: episodes per group.
        first: the place of the first row in the whole batch, of which this may be one process's part.
        step: the trainer's.
    """
    groups: dict[int, list[int]] = defaultdict(list)  # seed -> its groups in this batch, usually one
    items = []
    for index, seed in enumerate(seeds):
        group, sample = divmod(first + index, group_size)
        if group not in groups[seed]:
            groups[seed].append(group)
        again = groups[seed].index(group)
        group_id = f"{step}/{seed}" + (f"/{again}" if again else "")
        items.append(Item(index, seed, sample + group_size * again, group_id))
    return items
