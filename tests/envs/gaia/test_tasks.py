"""``GaiaTasks``: ids that rebuild tasks, splits and levels as promised, and no answer that pays without work."""

from __future__ import annotations

import hashlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from aworld_gym.errors import ConfigError, UnknownTaskError
from aworld_gym.tasks import TaskSource
from aworld_gym.types import Task
from envs.gaia import scorers
from envs.gaia.levels import LEVELS, fits
from envs.gaia.splits import SPLITS
from envs.gaia.tasks import GaiaTasks
from envs.gaia.templates import templates
from envs.gaia.world import TRAINING_FLAVOURS as FLAVOURS
from envs.gaia.world import pages

ROOT = Path(__file__).parents[3]
EVERY = [(one.name, flavour) for one in templates().values() for flavour in FLAVOURS]


def tasks_of(template: str, flavour: str, count: int, first: int = 0) -> list[Task]:
    """The first tasks of a template in a flavour."""
    split = templates()[template].split
    source = GaiaTasks(split)
    return [source.get(f"gaia/{split}/{flavour}/{template}/{number:06d}") for number in range(first, first + count)]


def files_of(task: Task, folder: Path) -> dict[str, bytes]:
    """The task's files."""
    GaiaTasks(task.metadata["split"]).setup(task, folder)
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_it_is_a_task_source() -> None:
    assert isinstance(GaiaTasks(), TaskSource)


@pytest.mark.parametrize("split", SPLITS)
def test_a_sampled_task_is_rebuilt_from_its_id(split: str) -> None:
    source, rng = GaiaTasks(split), np.random.default_rng(3)
    for _ in range(40):
        task = source.sample(rng)
        assert GaiaTasks(split, level=task.level % 2 + 1).get(task.id) == task  # whatever that source draws from
        assert json.loads(json.dumps(task.metadata)) == task.metadata
        assert json.loads(json.dumps(task.public)) == {"corpus": task.public["corpus"]}
        assert pages(task.public["corpus"])


def test_sampling_is_decided_by_the_generator_alone() -> None:
    ids = [[source.sample(rng).id for _ in range(20)] for source, rng in ((GaiaTasks(), np.random.default_rng(5)),) * 2]
    again = [GaiaTasks().sample(np.random.default_rng(seed)).id for seed in (5, 5, 6)]
    assert ids[0] != ids[1]  # one generator goes on
    assert again[0] == again[1] == ids[0][0] != again[2]


def test_choices_are_kept() -> None:
    rng = np.random.default_rng(0)
    source = GaiaTasks("train", level=2, world="synthetic", templates=["zip-final", "csv-top-web", "csv-total"])
    drawn = [source.sample(rng) for _ in range(40)]
    assert {task.metadata["template"] for task in drawn} == {"zip-final", "csv-top-web"}
    assert {(task.level, task.metadata["world"]) for task in drawn} == {(2, "synthetic")}


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_every_combination_of_choices_has_tasks(split: str, level: int, flavour: str) -> None:
    task = GaiaTasks(split, level=level, world=flavour).sample(np.random.default_rng(1))
    assert (task.metadata["split"], task.level, task.metadata["world"]) == (split, level, flavour)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"split": "valid"}, "Did you mean 'validation'"),
        ({"level": 4}, r"level must be None or one of \[1, 2, 3\], got 4"),
        ({"world": "shift"}, "Did you mean 'shifted'"),
        ({"templates": ["csv-totals"]}, "Did you mean 'csv-total'"),
        ({"templates": ["docx-rank"]}, "It belongs to split 'validation'"),
        ({"templates": "csv-total"}, r"write \['csv-total'\]"),
        ({"templates": []}, "no template of split 'train' is left"),
        ({"templates": ["csv-total"], "level": 2}, "no template of split 'train' is left"),
    ],
)
def test_choices_that_cannot_work_are_refused(arguments: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        GaiaTasks(**arguments)


@pytest.mark.parametrize(
    ("task_id", "message"),
    [
        ("gaia/train/shifted/csv-totl/000001", "template 'csv-totl'.*Did you mean 'csv-total'"),
        ("gaia/train/shiftd/csv-total/000001", "world 'shiftd'.*Did you mean 'shifted'"),
        ("gaia/trian/shifted/csv-total/000001", "split 'trian'.*Did you mean 'train'"),
        ("gaia/validation/shifted/docx-rank/000001", "split 'validation' is not among those of this source, train"),
        ("gaia/train/shifted/docx-rank/000001", "template 'docx-rank'"),
        ("gaia/train/shifted/csv-total/1", "six digits>, such as gaia/train/"),
        ("gaia/train/shifted/csv-total/0000001", "six digits"),
        ("gaia/train/shifted/csv-total/00000١", "six digits"),
        ("", "ids are gaia/"),
        (None, "ids are gaia/"),
    ],
)
def test_unknown_ids_say_what_is_wrong(task_id: str, message: str) -> None:
    with pytest.raises(UnknownTaskError, match=message):
        GaiaTasks("train").get(task_id)


@pytest.mark.parametrize(("template", "flavour"), EVERY)
def test_plans_fit_their_level(template: str, flavour: str) -> None:
    for task in tasks_of(template, flavour, 12):
        assert fits(task.level, task.plan) and task.metadata["tool_kinds"]
        assert [level for level in LEVELS if fits(level, task.plan)] == [task.level]
        assert task.level == 1 or len(task.metadata["needs"]) >= 2
        assert task.plan[-1].tool == "submit_answer"
        assert task.plan[-1].arguments == {"answer": task.answer["text"]}
        assert all(step.shows for step in task.plan[:-1])
        calls = [json.dumps([step.tool, dict(step.arguments)]) for step in task.plan]
        assert len(set(calls)) == len(calls)


@pytest.mark.parametrize(("template", "flavour"), EVERY)
def test_answers_are_safe_to_score_and_not_in_the_question(template: str, flavour: str) -> None:
    source = GaiaTasks(templates()[template].split)
    for task in tasks_of(template, flavour, 12):
        text = task.answer["text"]
        assert text.isascii() and text.strip() == text
        for name in scorers.SCORERS:
            assert scorers.score(task.answer, text, name).value == 1.0
            assert scorers.score(task.answer, "no idea", name).value == 0.0
        verdict = source.score(task, text)
        assert verdict is not None and verdict.value == 1.0
        refused = source.score(task, None)
        assert refused is not None and refused.value == 0.0
        words = task.prompt.replace(",", " ").replace("?", " ").replace(". ", " ").lower().split()
        assert text.lower() not in " ".join(words).split() or not text.isalnum()
        assert all(file in task.prompt for file in task.metadata["files"])


@pytest.mark.parametrize("template", list(templates()))
def test_no_answer_is_common(template: str) -> None:
    answers: Counter[str] = Counter()
    for flavour in FLAVOURS:
        answers.update(task.answer["text"] for task in tasks_of(template, flavour, 100, first=5000))
    (answer, times), *_ = answers.most_common(1)
    assert times / answers.total() <= 0.05, f"{answer!r} is right in {times} of {answers.total()}"


def test_no_task_comes_twice() -> None:
    """Of thousands, none has the question, files and answer of another."""
    from envs.gaia.tasks import _built

    seen: Counter[str] = Counter()
    for split in SPLITS:
        source, rng = GaiaTasks(split), np.random.default_rng(11)
        for _ in range(700):
            task = source.sample(rng)
            content = repr((task.prompt, sorted(_built(task.id)[1].files.items()), task.answer["text"]))
            seen[hashlib.sha256(content.encode()).hexdigest()] += 1
    assert max(seen.values()) == 1


def test_wordings_differ() -> None:
    """With names and numbers masked, a template still has many wordings."""
    import re

    for template in templates():
        tasks = [task for flavour in FLAVOURS for task in tasks_of(template, flavour, 20)]
        masked = {re.sub(r"\S*[\d_./A-Z]\S*", "#", task.prompt.split("\n\n")[0]) for task in tasks}
        assert len(masked) > 20, template


_DIGEST = """
import hashlib, pathlib, sys, tempfile
import numpy as np
from envs.gaia.splits import SPLITS
from envs.gaia.tasks import GaiaTasks
from envs.gaia.templates import templates
from envs.gaia.world import TRAINING_FLAVOURS as FLAVOURS
from envs.gaia.world import pages
webs = set()
for one in templates().values():
    for flavour in FLAVOURS:
        source = GaiaTasks(one.split)
        task = source.get(f"gaia/{one.split}/{flavour}/{one.name}/000777")
        with tempfile.TemporaryDirectory() as folder:
            source.setup(task, pathlib.Path(folder))
            for path in sorted(pathlib.Path(folder).iterdir()):
                print(task.id, path.name, hashlib.sha256(path.read_bytes()).hexdigest())
        print(hashlib.sha256(repr(task).encode()).hexdigest())
        if (one.split, flavour) not in webs:  # making a world's pages takes long
            webs.add((one.split, flavour))
            web = pages(task.public["corpus"])
            print(hashlib.sha256(repr(list(web.items())).encode()).hexdigest())
for split in SPLITS:
    rng = np.random.default_rng(9)
    print([GaiaTasks(split).sample(rng).id for _ in range(5)])
"""


def test_two_processes_with_other_hash_seeds_make_the_same_bytes() -> None:
    running = [
        subprocess.Popen(
            [sys.executable, "-c", _DIGEST],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT), "TZ": zone},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed, zone in (("1", "UTC"), ("4242", "Asia/Tokyo"))
    ]
    one, other = (process.communicate(timeout=120)[0] for process in running)
    assert all(process.returncode == 0 for process in running)
    assert len(one.splitlines()) > 140
    assert one == other


def test_setup_needs_nothing_but_the_id(tmp_path: Path) -> None:
    from envs.gaia.tasks import _built

    (task,) = tasks_of("zip-final", "shifted", 1)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    before = files_of(task, tmp_path / "a")
    _built.cache_clear()
    assert files_of(task, tmp_path / "b") == before
    assert sorted(before) == task.metadata["files"]


def test_a_new_task_is_made_and_rendered_in_time(tmp_path: Path) -> None:
    source, rng = GaiaTasks(), np.random.default_rng(21)
    for number in range(10):  # imports, worlds
        (tmp_path / f"w{number}").mkdir()
        source.setup(source.sample(rng), tmp_path / f"w{number}")
    spent = []
    for number in range(60):
        folder = tmp_path / str(number)
        folder.mkdir()
        start = time.process_time()
        source.setup(source.sample(rng), folder)
        spent.append(time.process_time() - start)
    assert statistics.median(spent) < 0.05


@pytest.mark.parametrize("split", SPLITS)
def test_no_task_speaks_of_another_splits_entities(split: str) -> None:
    """Neither its question nor its files do. Names of one word, or within own names, could stand there by chance."""
    from envs.gaia.splits import world_seeds
    from envs.gaia.tasks import _built
    from envs.gaia.world import world

    names = {
        each: {
            row["name"]
            for flavour in FLAVOURS
            for table in world(flavour, world_seeds(each)[0]).tables.values()
            for row in table.rows
        }
        for each in SPLITS
    }
    own = "\n".join(names[split])
    others = {name for each in SPLITS if each != split for name in names[each] if " " in name and name not in own}
    assert len(others) > 500
    source, rng = GaiaTasks(split), np.random.default_rng(17)
    for _ in range(60):
        task = source.sample(rng)
        said = task.prompt + repr(_built(task.id)[1].files)
        assert not [name for name in others if name in said]
