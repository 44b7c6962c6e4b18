"""``GaiaTasks``: the task source of ``AWorld/Gaia-v0``.

A task id is ``gaia/<split>/<world>/<template>/<number>`` and holds everything: the id seeds the random stream that
draws the task, so that any process rebuilds the same task, files included, from its id alone.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from aworld_gym.errors import ConfigError, UnknownTaskError, did_you_mean
from aworld_gym.types import Score, Task
from envs.gaia import scorers
from envs.gaia.levels import LEVELS, TOOL_KINDS, fits, kinds_of
from envs.gaia.render import render
from envs.gaia.splits import SPLITS, check_split, world_seeds
from envs.gaia.templates import Template, templates
from envs.gaia.terms import Draft, Question, Reject, require
from envs.gaia.world import FLAVOURS, TRAINING_FLAVOURS, World, pages, world

NUMBERS = 1_000_000
"""Tasks of each (split, world, template): their numbers run from 0 to this, exclusive."""
ATTEMPTS = 500
"""Draws after which a template is taken to be broken."""

_ID = re.compile(r"gaia/(?P<split>\w+)/(?P<world>\w+)/(?P<template>[\w-]+)/(?P<number>[0-9]{6})")


class GaiaTasks:
    """Tasks of one split, as many as anyone will draw.

    Args:
        split: ``"train"``, ``"validation"`` or ``"test"``.
        level: 1, 2 or 3; all where None.
        world: ``"shifted"`` or ``"synthetic"``; both where None. Or ``"real"``, whose answers a model may know.
        templates: names of the split's templates to draw from; all where None.
        scorer: ``"strict"`` or ``"official"`` (bit-compatible with the public GAIA scorer, for comparison).

    Raises:
        ConfigError: an argument that is not one of those, or that leaves no template; the message names what there is.

    Example:
        >>> tasks = GaiaTasks("train", level=1)
        >>> task = tasks.sample(np.random.default_rng(0))
        >>> tasks.get(task.id) == task
        True
    """

    def __init__(
        self,
        split: str = "train",
        level: int | None = None,
        world: str | None = None,
        templates: Sequence[str] | None = None,
        scorer: str = "strict",
    ):
        self.split, self.scorer = check_split(split), scorers.check_which(scorer)
        if level is not None and (isinstance(level, bool) or level not in LEVELS):
            raise ConfigError(f"level must be None or one of {list(LEVELS)}, got {level!r}")
        if world is not None and world not in FLAVOURS:
            hint = did_you_mean(str(world), FLAVOURS)
            raise ConfigError(f"world must be None or one of {list(FLAVOURS)}, got {world!r}.{hint}")
        self.templates: tuple[Template, ...] = _chosen(split, level, world, templates)
        self.worlds: tuple[str, ...] = (world,) if world else TRAINING_FLAVOURS

    def sample(self, rng: np.random.Generator) -> Task:
        """A task drawn with ``rng``: template, world and number, each uniformly."""
        chosen = self.templates[int(rng.integers(len(self.templates)))]
        worlds = [flavour for flavour in self.worlds if flavour in chosen.worlds]
        flavour = worlds[int(rng.integers(len(worlds)))]
        return _built(f"gaia/{self.split}/{flavour}/{chosen.name}/{int(rng.integers(NUMBERS)):06d}")[0]

    def get(self, task_id: str) -> Task:
        """The task of that id, of any template and world of this split, whatever is drawn from.

        Raises:
            UnknownTaskError: no such task; the message says which part of the id is wrong, and what is close to it.
        """
        match = _ID.fullmatch(task_id) if isinstance(task_id, str) else None
        if match is None:
            raise UnknownTaskError(
                f"unknown task id {task_id!r}; ids are gaia/<split>/<world>/<template>/<six digits>, "
                f"such as gaia/{self.split}/{self.worlds[0]}/{self.templates[0].name}/000000"
            )
        names = [name for name, one in templates().items() if one.split == self.split]
        for part, known in (("split", (self.split,)), ("world", FLAVOURS), ("template", names)):
            if match[part] not in known:
                raise UnknownTaskError(
                    f"unknown task id {task_id!r}: its {part} {match[part]!r} is not among those of this source, "
                    f"{', '.join(known)}.{did_you_mean(match[part], known)}"
                )
        worlds = templates()[match["template"]].worlds
        if match["world"] not in worlds:
            raise UnknownTaskError(
                f"unknown task id {task_id!r}: template {match['template']!r} is of the worlds {', '.join(worlds)}"
            )
        return _built(task_id)[0]

    def setup(self, task: Task, workspace: Path) -> None:
        """Write the task's files into the workspace."""
        for name, content in _built(task.id)[1].files.items():
            (workspace / name).write_bytes(render(name, content))

    def evidence(self, task: Task) -> Mapping[str, str]:
        """What a task rests on, as text, for a manifest: the contents of its files, and the local web.

        Contents, not bytes: those of spreadsheets or PDFs change with the versions of the libraries that write them.
        """
        files = sorted(_built(task.id)[1].files.items())
        corpus = task.public["corpus"]
        return {"files": repr(files), "web": _web_digest(corpus["world"], corpus["seed"])}

    def score(self, task: Task, answer: str | None) -> Score | None:
        """The verdict of the chosen scorer."""
        return scorers.score(task.answer, answer, which=self.scorer)


def _chosen(split: str, level: int | None, world: str | None, names: Sequence[str] | None) -> tuple[Template, ...]:
    own = [one for one in templates().values() if one.split == split]
    if names is not None:
        if isinstance(names, str):
            raise ConfigError(f"templates is a list of names, got the text {names!r}: write [{names!r}]")
        for name in names:
            if name not in {one.name for one in own}:
                other = templates().get(name)
                where = f" It belongs to split {other.split!r}." if other else ""
                hint = did_you_mean(str(name), templates())
                known = ", ".join(one.name for one in own)
                raise ConfigError(f"split {split!r} has no template {name!r}; it has {known}.{where}{hint}")
        own = [one for one in own if one.name in names]
    found = tuple(one for one in own if level in (None, one.level) and (world is None or world in one.worlds))
    if not found:
        asked = f"templates={names!r} with level={level!r}, world={world!r}"
        raise ConfigError(f"no template of split {split!r} is left: {asked}")
    return found


@lru_cache(maxsize=512)  # more than a manifest has: its tasks are checked, then played
def _built(task_id: str) -> tuple[Task, Question]:
    """The task of a well-formed id, and the question it was made from."""
    _, split, flavour, name, _ = task_id.split("/")
    chosen = templates()[name]
    seeds = world_seeds(split)
    where = world(flavour, seeds[int.from_bytes(hashlib.sha256(task_id.encode()).digest()[:8], "big") % len(seeds)])
    question = _draw(task_id, chosen, where)
    task = Task(
        id=task_id,
        prompt=question.prompt,
        answer=question.answer,
        public={"corpus": where.corpus},
        level=chosen.level,
        plan=question.plan,
        metadata={
            "template": name,
            "split": split,
            "world": flavour,
            "world_digest": where.digest,
            "tool_kinds": kinds_of(question.plan),
            "files": sorted(question.files),
            "needs": sorted(question.needs),
        },
    )
    return task, question


@lru_cache(maxsize=64)
def _web_digest(flavour: str, seed: int) -> str:
    found = hashlib.sha256()
    for address, page in pages({"world": flavour, "seed": seed}).items():
        found.update(f"{address}\x1f{page.title}\x1f{page.text}\x1e".encode())
    return found.hexdigest()


def _draw(task_id: str, chosen: Template, where: World) -> Question:
    for attempt in range(ATTEMPTS):
        draft = Draft(random.Random(f"{task_id}#{attempt}"), where)
        try:
            question = chosen.make(draft)
            require(fits(chosen.level, question.plan), f"not of level {chosen.level}")
            return question
        except Reject:
            continue
    raise RuntimeError(f"template {chosen.name!r} made no task for {task_id!r} in {ATTEMPTS} attempts")


__all__ = ["LEVELS", "NUMBERS", "SPLITS", "TOOL_KINDS", "GaiaTasks"]
