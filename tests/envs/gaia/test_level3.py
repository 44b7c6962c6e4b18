"""Level 3 as GAIA has it: many steps or tools, files and pages that mislead, values that contradict each other."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from pathlib import Path

import gymnasium as gym
import pytest
from gaia_evidence import UNSOLVED
from gaia_solver import Solver

import aworld_gym  # noqa: F401
from aworld_gym.policies import OraclePolicy
from aworld_gym.rollout import rollout
from aworld_gym.types import Task
from envs.gaia.env import LIMITS
from envs.gaia.levels import MOST_STEPS, kinds_of
from envs.gaia.operators_versions import DOCUMENTS
from envs.gaia.render import Doc
from envs.gaia.splits import SPLITS
from envs.gaia.tasks import GaiaTasks, _built
from envs.gaia.templates import templates
from envs.gaia.world import TRAINING_FLAVOURS, pages

NAMES = [name for name, one in templates().items() if one.level == 3]
EVERY = [(name, flavour) for name in NAMES for flavour in TRAINING_FLAVOURS]


def tasks_of(name: str, flavour: str, count: int, first: int = 0) -> list[Task]:
    split = templates()[name].split
    return [GaiaTasks(split).get(f"gaia/{split}/{flavour}/{name}/{i:06d}") for i in range(first, first + count)]


def spare(task: Task) -> set[str]:
    """The files that nobody needs."""
    needed = {need.partition("!")[0] for need in task.metadata["needs"]}
    return set(task.metadata["files"]) - needed


def test_every_split_has_templates_of_level_3_in_both_worlds() -> None:
    assert len(NAMES) >= 12
    for split, flavour in itertools.product(SPLITS, TRAINING_FLAVOURS):
        assert sum(templates()[name].split == split and flavour in templates()[name].worlds for name in NAMES) >= 3


@pytest.mark.parametrize(("name", "flavour"), EVERY)
def test_plans_are_long_or_take_many_tools_and_fit_well_into_an_episode(name: str, flavour: str) -> None:
    for task in tasks_of(name, flavour, 10):
        assert 9 <= len(task.plan) <= MOST_STEPS <= LIMITS.max_turns // 2
        assert len(task.plan) > 10 or len(kinds_of(task.plan)) >= 4
        assert len(task.metadata["needs"]) >= 3


@pytest.mark.parametrize(("name", "flavour"), EVERY)
def test_attachments_that_nobody_needs_are_listed_among_the_others(name: str, flavour: str) -> None:
    for task in tasks_of(name, flavour, 10):
        assert len(spare(task)) >= 2
        listed = task.prompt.rpartition("Attached files: ")[2].split(", ")
        assert listed == sorted(task.metadata["files"])


@pytest.mark.parametrize(("name", "flavour"), EVERY)
def test_the_answer_is_the_same_without_what_nobody_needs(name: str, flavour: str, tmp_path: Path) -> None:
    """But for the other versions of a document: a reader looks for them, and needs them to tell which counts."""
    for task in tasks_of(name, flavour, 2):
        (folder := tmp_path / task.id.rpartition("/")[2]).mkdir()
        GaiaTasks(task.metadata["split"]).setup(task, folder)
        files = _built(task.id)[1].files
        for one in spare(task):
            content = files[one]
            if not (isinstance(content, Doc) and content.title.lower() in DOCUMENTS):
                (folder / one).unlink()
        assert Solver(task.prompt, folder, pages(task.public["corpus"])).solve() == task.answer["text"]


@pytest.mark.parametrize(("name", "flavour"), EVERY)
def test_no_single_file_is_enough(name: str, flavour: str, tmp_path: Path) -> None:
    (task,) = tasks_of(name, flavour, 1, first=77)
    for i, kept in enumerate(task.metadata["files"]):
        (folder := tmp_path / str(i)).mkdir()
        GaiaTasks(task.metadata["split"]).setup(task, folder)
        for path in folder.iterdir():
            if path.name != kept:
                path.unlink()
        with pytest.raises(UNSOLVED):
            Solver(task.prompt, folder, pages(task.public["corpus"])).solve()


def test_contradictions_and_indirection_are_everywhere() -> None:
    """Revisions or versions in every template, and hops, nicknames and references in many tasks of level 3."""
    seen: Counter[str] = Counter()
    for name, flavour in EVERY:
        tasks = tasks_of(name, flavour, 15)
        files = [_built(task.id)[1].files.values() for task in tasks]
        needs = ["\n".join(task.metadata["needs"]) for task in tasks]
        versions = [any(isinstance(c, Doc) and c.title.lower() in DOCUMENTS for c in one) for one in files]
        revisions = ["/revisions/" in one for one in needs]
        if name != "finalists":  # there, three chains
            assert any(versions) or all(revisions), name
        seen["versions"] += sum(versions)
        seen["revisions"] += sum(revisions)
        seen["nicknames"] += sum("/nicknames/" in one for one in needs)
        seen["lists"] += sum("-by-" in one for one in needs)
        seen["archives"] += sum("!" in one for one in needs)
    total = 15 * len(EVERY)
    assert seen["versions"] > 0.3 * total and seen["revisions"] > 0.3 * total
    assert min(seen["nicknames"], seen["lists"], seen["archives"]) > 0.05 * total, seen


def test_outdated_pages_mislead() -> None:
    """For some revised entities a page of news quotes what no longer holds, and a search for the name finds it."""
    found = 0
    for name, flavour in EVERY:
        for task in tasks_of(name, flavour, 5):
            web = pages(task.public["corpus"])
            for need in task.metadata["needs"]:
                found += need.replace("/revisions/", "/news/") in web and "/revisions/" in need
    assert found > 10


@pytest.mark.parametrize("split", SPLITS)
def test_the_oracle_is_right_within_the_default_limits(split: str) -> None:
    env = gym.make("AWorld/Gaia-v0", split=split, level=3)
    try:
        episodes = rollout(env, OraclePolicy(), episodes=6, seed=random.Random(split).randrange(1000))
    finally:
        env.close()
    assert [episode.score for episode in episodes] == [1.0] * 6
