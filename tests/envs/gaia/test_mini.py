"""The mini tasks: rebuilt from their ids, the same everywhere, solvable only the long way, split by vocabulary."""

import csv
import os
import random
import re
import subprocess
import sys
from collections import Counter

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tool_messages import call

from aworld_gym.errors import ConfigError, UnknownTaskError
from aworld_gym.tasks import TaskSource
from envs.gaia import mini

VOCABULARIES = [
    ("train", "seen"),
    ("validation", "seen"),
    ("validation", "unseen"),
    ("test", "seen"),
    ("test", "unseen"),
]


def draw(split: str, world: str, count: int) -> list[mini.MiniTask]:
    source = mini.MiniTasks(split, world=world)
    return [source.sample(np.random.default_rng(seed)) for seed in range(count)]


@given(
    where=st.sampled_from(VOCABULARIES),
    kind=st.sampled_from(mini.KINDS),
    number=st.integers(min_value=0, max_value=10**9 - 1),
)
@settings(max_examples=150, deadline=None)
def test_every_id_is_a_well_formed_task(tmp_path_factory, where, kind, number):
    source, task_id = mini.MiniTasks(), f"gaia-mini/{where[0]}/{where[1]}/{kind}/{number:09d}"
    task = source.get(task_id)
    assert task == source.get(task_id) and task.id == task_id and task.kind == kind
    assert list(task.tables) == sorted(task.tables) and len(task.tables) == mini.FILES
    syllables = [part for path in task.tables for part in (path[:3], path[3:6])]
    syllables += [part for name in task.tables[task.path].rows for part in (name[:3], name[3:])]
    assert len(set(syllables)) == 2 * (mini.FILES + mini.ROWS), "two names of a task share a syllable"
    for table in task.tables.values():
        assert len({value // 10 for value in table.rows.values()}) == mini.ROWS, "two values share a first digit"
    assert len({path[7] for path in task.tables}) == mini.FILES
    assert [step.tool for step in task.plan][:2] == ["list_files", "read_table"]
    assert task.plan[-1].arguments == {"answer": task.answer["text"]}
    assert task.answer["type"] == "int" and 2 <= len(task.plan) <= 4
    for step in task.plan[:-1]:
        assert step.shows and all(fact in mini.shown(task, step) for fact in step.shows)


@pytest.mark.parametrize(("split", "world"), VOCABULARIES)
def test_an_independent_solver_agrees(tmp_path, split, world):
    """Answers read from the question and the files alone equal the tasks' own."""
    source = mini.MiniTasks(split, world=world)
    for number, task in enumerate(draw(split, world, 60)):
        workspace = tmp_path / str(number)
        workspace.mkdir()
        source.setup(task, workspace)
        topic, question = re.fullmatch(r"In the table (\w+), what is the (.*)\?", task.prompt).groups()
        (path,) = workspace.glob(f"{topic}_*.csv")
        rows = list(csv.DictReader(path.open()))
        column = next(key for key in rows[0] if key != "name")
        values = {row["name"]: int(row[column]) for row in rows}
        if question == f"highest {column}":
            truth = max(values.values())
        elif found := re.fullmatch(rf"{column} of (\w+)", question):
            truth = values[found[1]]
        else:
            a, sign, b = re.fullmatch(rf"{column} of (\w+) (plus|minus) (\w+)", question).groups()
            truth = values[a] + values[b] if sign == "plus" else values[a] - values[b]
        assert str(truth) == task.answer["text"]


def test_vocabularies_are_disjoint_and_every_part_is_trained_on():
    vocabularies = [mini._vocabulary(split) for split in mini.SPLITS]
    for words, columns, numbers in vocabularies:
        assert len(words) >= 80 and len(columns) >= 6 and len(numbers) >= 8
    for kind in range(3):
        everything = [item for vocabulary in vocabularies for item in vocabulary[kind]]
        assert len(set(everything)) == len(everything)
    words = mini._vocabulary("train")[0]
    assert {w[:3] for w in words} == {w[3:] for w in words} == set(mini.SYLLABLES)


def test_splits_draw_different_tasks_for_one_seed():
    drawn = [draw(split, world, 50) for split, world in VOCABULARIES]
    prompts = [{(t.prompt, t.answer["text"]) for t in tasks} for tasks in drawn]
    assert not any(a & b for i, a in enumerate(prompts) for b in prompts[:i])
    assert {task.id.split("/")[1] for task in drawn[0]} == {"train"}


def test_no_short_cut_pays():
    """Neither a fixed answer nor the first file listed gives much."""
    tasks = draw("test", "seen", 2000)
    answers = Counter(task.answer["text"] for task in tasks)
    assert answers.most_common(1)[0][1] / len(tasks) < 0.03
    assert 0.3 < sum(next(iter(task.tables)) == task.path for task in tasks) / len(tasks) < 0.37
    assert not any(re.search(rf"\b{task.answer['text']}\b", task.prompt) for task in tasks)


def test_the_hurried_demonstrator_is_no_oracle():
    rng, tasks = random.Random(0), draw("train", "seen", 2000)
    plans = [mini.hurried(task, rng) for task in tasks]
    right = [plan[-1].arguments["answer"] == task.answer["text"] for plan, task in zip(plans, tasks, strict=True)]
    assert 0.4 < sum(right) / len(right) < 0.55
    patient = [mini.hurried(task, rng, first=0.0, skip=0.0) for task in tasks[:50]]
    assert patient == [task.plan for task in tasks[:50]]


def test_one_seed_one_task_whatever_the_hash_seed():
    code = "from envs.gaia import mini; import numpy as np; print(mini.MiniTasks().sample(np.random.default_rng(5)))"
    runs = [
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert runs[0] == runs[1] and "gaia-mini/train/seen/" in runs[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"split": "tset"}, "did you mean 'test'"),
        ({"split": "train", "world": "unseen"}, "no unseen words"),
        ({"split": "test", "world": "shifted"}, r"one of \('seen', 'unseen'\)"),
        ({"kinds": ["sums"]}, "did you mean 'sum'"),
        ({"kinds": []}, "at least one kind"),
    ],
)
def test_bad_arguments_name_the_fix(arguments, message):
    with pytest.raises(ConfigError, match=f"(?i){message}"):
        mini.MiniTasks(**arguments)


@pytest.mark.parametrize(
    ("task_id", "message"),
    [
        ("nonsense", "expected gaia-mini/"),
        ("gaia-mini/test/seen/sum/42", "nine digits"),
        ("gaia-mini/test/seen/summ/000000042", "did you mean 'sum'"),
        ("gaia-mini/train/unseen/sum/000000042", "no unseen words"),
    ],
)
def test_unknown_ids_name_the_fix(task_id, message):
    with pytest.raises(UnknownTaskError, match=f"(?i){message}"):
        mini.MiniTasks().get(task_id)


def test_it_is_a_task_source():
    assert isinstance(mini.MiniTasks(), TaskSource)


def test_the_real_tools_show_what_the_plans_say():
    """Every result of the real server, character for character, on the oracle's and the hurried plans."""
    env, rng, source = (
        gym.make("AWorld/Gaia-v0", preset="mini", split="test", world="seen"),
        random.Random(1),
        mini.MiniTasks(),
    )
    try:
        for number in range(40):
            _, info = env.reset(seed=number)
            task = source.get(info["task_id"])
            assert task.id.startswith("gaia-mini/test/seen/")
            assert tuple(tool["function"]["name"] for tool in info["tools"]) == mini.TOOLS
            plan = task.plan if number % 2 else mini.hurried(task, rng)
            for step in plan:
                observation, reward, terminated, truncated, info = env.step(call(step.tool, **step.arguments))
                if step is not plan[-1]:
                    assert [m["content"] for m in observation] == [mini.shown(task, step)]
                    assert (reward, terminated, truncated) == (0.0, False, False)
            assert terminated and info["outcome"] == "answered"
            assert reward == info["score"] == float(plan[-1].arguments["answer"] == task.answer["text"])
    finally:
        env.close()
