"""An independent solver agrees with every answer, and fails where anything that a question needs is missing."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest
from gaia_solver import Solver

from aworld_gym.types import Task
from envs.gaia.splits import SPLITS
from envs.gaia.tasks import GaiaTasks
from envs.gaia.templates import templates
from envs.gaia.world import TRAINING_FLAVOURS as FLAVOURS
from envs.gaia.world import pages

EVERY = [(one.name, flavour) for one in templates().values() for flavour in FLAVOURS]
PER_TEMPLATE_AND_WORLD = 6


def task_of(template: str, flavour: str, number: int) -> Task:
    split = templates()[template].split
    return GaiaTasks(split).get(f"gaia/{split}/{flavour}/{template}/{number:06d}")


def answer_of(task: Task, folder: Path, without: str | None = None) -> str:
    """The solver's answer; ``without`` is a file, a page or an archive's member that is taken away."""
    GaiaTasks(task.metadata["split"]).setup(task, folder)
    web = dict(pages(task.public["corpus"]))
    if without is not None and "://" in without:
        del web[without]
    elif without is not None:
        file, *members = without.split("!")
        path = folder / file
        remaining = _without(path.read_bytes(), members) if members else None
        path.unlink()
        if remaining is not None:
            path.write_bytes(remaining)
    return Solver(task.prompt, folder, web).solve(task.metadata["template"])


def _without(archive: bytes, members: list[str]) -> bytes:
    """The archive but for the member at the end of that path."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as old, zipfile.ZipFile(out, "w") as new:
        assert members[0] in old.namelist()
        for name in old.namelist():
            if name != members[0]:
                new.writestr(name, old.read(name))
            elif len(members) > 1:
                new.writestr(name, _without(old.read(name), members[1:]))
    return out.getvalue()


def test_more_than_two_hundred_tasks_of_every_split_are_solved() -> None:
    assert len(EVERY) * PER_TEMPLATE_AND_WORLD > 200
    assert {templates()[name].split for name, _ in EVERY} == set(SPLITS)


@pytest.mark.parametrize(("template", "flavour"), EVERY)
def test_the_solver_agrees(template: str, flavour: str, tmp_path: Path) -> None:
    source = GaiaTasks(templates()[template].split)
    for number in range(PER_TEMPLATE_AND_WORLD):
        task = task_of(template, flavour, 700_000 + number)
        (folder := tmp_path / str(number)).mkdir()
        found = answer_of(task, folder)
        assert found == task.answer["text"], task.prompt
        verdict = source.score(task, found)
        assert verdict is not None and verdict.value == 1.0


@pytest.mark.parametrize(("template", "flavour"), [pair for pair in EVERY if templates()[pair[0]].level == 2])
def test_nothing_that_is_needed_may_be_missing(template: str, flavour: str, tmp_path: Path) -> None:
    task = task_of(template, flavour, 42)
    assert len(task.metadata["needs"]) >= 2
    for number, need in enumerate(task.metadata["needs"]):
        (folder := tmp_path / str(number)).mkdir()
        with pytest.raises((AssertionError, OSError, ValueError)):
            answer_of(task, folder, without=need)


def test_all_needs_are_named() -> None:
    """What a plan reads is among the task's needs (list_files and pages that only lead on aside)."""
    for template, flavour in EVERY:
        task = task_of(template, flavour, 43)
        needs = {need.split("!")[0] for need in task.metadata["needs"]}
        assert needs >= set(task.metadata["files"])
        read = {step.arguments["url"] for step in task.plan if step.tool == "open_page"}
        assert needs >= read
