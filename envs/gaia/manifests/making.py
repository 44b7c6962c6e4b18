"""Which tasks a manifest lists: drawn by a fixed seed, evenly over levels, and in each over templates and worlds."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from aworld_gym.errors import ConfigError
from aworld_gym.manifests import Manifest, digests
from envs.gaia.tasks import NUMBERS, GaiaTasks
from envs.gaia.world import TRAINING_FLAVOURS

TASKS = 300
"""Of each manifest."""
ENV_ID = "AWorld/Gaia-v0"
FIXED: Mapping[str, Any] = MappingProxyType(
    {"level": None, "world": None, "templates": None, "preset": None, "dataset": None}
)
"""Arguments of the env that choose tasks: with a manifest they are left out."""


def make(split: str, tasks: int = TASKS) -> Manifest:
    """The manifest of a split: the same for the same code.

    Args:
        split: ``"validation"`` or ``"test"``; ``"train"`` works too.
        tasks: how many, a multiple of the number of levels that the split's templates have.

    Raises:
        ConfigError: the tasks cannot be shared out evenly.
    """
    source = GaiaTasks(split)
    levels = sorted({one.level for one in source.templates})
    if tasks < 1 or tasks % len(levels):
        raise ConfigError(f"tasks must be a multiple of the {len(levels)} levels of split {split!r}, got {tasks}")
    by_level = [list(itertools.islice(_ids(source, level), tasks // len(levels))) for level in levels]
    # Level by level in turn, so that what an interrupted run has played is of every level.
    order = itertools.chain.from_iterable(zip(*by_level, strict=True))
    return Manifest.of(source, order, name=split, env_id=ENV_ID, env_kwargs={"split": split, **FIXED})


def _ids(source: GaiaTasks, level: int) -> Iterator[str]:
    """Ids of one level without end: every template in each of its worlds in turn, no question twice."""
    rng = random.Random(f"manifest/{source.split}/{level}")
    own = sorted(GaiaTasks(source.split, level=level).templates, key=lambda one: one.name)
    cells = [(one.name, flavour) for one in own for flavour in TRAINING_FLAVOURS if flavour in one.worlds]
    seen: set[tuple[str, str]] = set()
    for name, flavour in itertools.cycle(cells):
        while True:
            task = source.get(f"gaia/{source.split}/{flavour}/{name}/{rng.randrange(NUMBERS):06d}")
            parts = digests(source, task)
            if (question := (parts["prompt"], parts["files"])) not in seen:
                break
        seen.add(question)
        yield task.id
