"""The manifests that are shipped, the command that makes them, and playing them."""

import collections
import dataclasses
import json
import os
import re
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest

import aworld_gym  # noqa: F401 - registers AWorld/*
from aworld_gym.errors import ConfigError
from aworld_gym.manifests import Manifest, digests, find
from aworld_gym.policies import OraclePolicy
from aworld_gym.rollout import rollout
from envs.gaia import tasks as gaia_tasks
from envs.gaia.manifests import MANIFESTS
from envs.gaia.manifests.__main__ import main
from envs.gaia.manifests.making import FIXED, TASKS, make
from envs.gaia.tasks import GaiaTasks
from envs.gaia.templates import templates

ENV = "AWorld/Gaia-v0"
SPLITS = tuple(MANIFESTS)
STALE = "make the manifests anew: python -m envs.gaia.manifests"


@pytest.fixture(scope="module")
def six():
    """Six tasks of validation."""
    return make("validation", 6)


# ---- what is shipped --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("split", SPLITS)
def test_what_is_shipped_is_even_and_of_one_split(split):
    shipped = Manifest.load(MANIFESTS[split])
    own = {name: one.level for name, one in templates().items() if one.split == split}
    parts = [task.id.split("/") for task in shipped.tasks]
    assert len(shipped.tasks) == TASKS and {part[1] for part in parts} == {split}
    levels = collections.Counter(task.level for task in shipped.tasks)
    assert set(levels) == set(own.values()) and len(set(levels.values())) == 1, levels
    for level in levels:
        cells = collections.Counter(
            (p[3], p[2]) for p, task in zip(parts, shipped.tasks, strict=True) if task.level == level
        )
        assert {name for name, _ in cells} == {name for name in own if own[name] == level}, STALE
        assert {flavour for _, flavour in cells} == {"shifted", "synthetic"}
        assert max(cells.values()) - min(cells.values()) <= 1
    assert shipped.env_kwargs == {"split": split, **FIXED} and shipped.env_id == ENV and shipped.name == split
    first = [task.level for task in shipped.tasks[: len(levels)]]
    assert first == sorted(levels), "an interrupted run has played every level"
    for task in shipped.tasks:
        assert set(task.digests) == {"prompt", "public", "files", "web", "answer"}
        assert all(re.fullmatch("[0-9a-f]{32}", digest) for digest in task.digests.values())
    questions = {(task.digests["prompt"], task.digests["files"]) for task in shipped.tasks}
    assert len(questions) == TASKS, "no question twice"


@pytest.mark.parametrize("split", SPLITS)
def test_a_sample_of_what_is_shipped_is_what_this_code_makes(split):
    shipped = Manifest.load(MANIFESTS[split])
    sample = dataclasses.replace(shipped, tasks=shipped.tasks[::13])
    assert len(list(sample.check(GaiaTasks(split)))) == len(sample.tasks), STALE


@pytest.mark.slow
@pytest.mark.parametrize("split", SPLITS)
def test_all_that_is_shipped_is_what_this_code_makes(split, tmp_path):
    make(split).save(tmp_path / "m.json")
    assert (tmp_path / "m.json").read_bytes() == MANIFESTS[split].read_bytes(), STALE


def test_no_task_is_in_both():
    ids = [task.id for path in MANIFESTS.values() for task in Manifest.load(path).tasks]
    prompts = [task.digests["prompt"] for path in MANIFESTS.values() for task in Manifest.load(path).tasks]
    assert len(set(ids)) == len(ids)
    both = set(prompts[:TASKS]) & set(prompts[TASKS:])
    assert not both


# ---- making them ------------------------------------------------------------------------------------------------


def test_the_same_bytes_in_every_process(tmp_path):
    for seed in ("1", "2"):
        command = [sys.executable, "-m", "envs.gaia.manifests", "--tasks", "12", "--output", str(tmp_path / seed)]
        env = os.environ | {"PYTHONHASHSEED": seed}
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("12 tasks") == len(SPLITS)
    for split in SPLITS:
        assert (tmp_path / "1" / f"{split}.json").read_bytes() == (tmp_path / "2" / f"{split}.json").read_bytes()


def test_the_command_says_what_has_changed(tmp_path, capsys):
    args = ["--tasks", "6", "--output", str(tmp_path)]
    assert main(args) == 0 and main([*args, "--check"]) == 0
    assert "as made here" in capsys.readouterr().out
    path = tmp_path / "test.json"
    old = Manifest.load(path)
    dataclasses.replace(old, tasks=(old.tasks[0], *old.tasks[:0:-1])).save(path)
    before = path.read_bytes()
    assert main([*args, "--check"]) == 1 and re.search(r"test\.json: [1-9]\d* tasks differ", capsys.readouterr().out)
    assert path.read_bytes() == before
    path.write_text("{}")
    assert main([*args, "--check"]) == 2 and "not a manifest" in capsys.readouterr().err
    assert main(["--tasks", "7", "--output", str(tmp_path)]) == 2
    assert "multiple of the" in capsys.readouterr().err


def test_contents_are_named_by_what_they_hold():
    """No address of an object, no order of a set: what stands for a file's content is the same in every process."""
    for split in SPLITS:
        source, rng = GaiaTasks(split), np.random.default_rng(0)
        for _ in range(40):
            said = source.evidence(source.sample(rng))
            assert set(said) == {"files", "web"} and " at 0x" not in said["files"]
            assert not re.search(r"frozenset\(|\{'[^']*'(, |\})", said["files"])


@pytest.mark.parametrize("part", ["files", "web", "prompt", "answer"])
def test_a_change_of_any_part_is_noticed(six, part, monkeypatch):
    source = GaiaTasks("validation")
    assert len(list(six.check(source))) == 6
    wanted = next(entry for entry in six.tasks if source.get(entry.id).metadata["files"])
    task, question = gaia_tasks._built(wanted.id)
    if part == "web":
        changed = task, question
        monkeypatch.setattr(gaia_tasks, "_web_digest", lambda flavour, seed: "another")
    elif part == "files":
        changed = task, dataclasses.replace(question, files={**question.files, "more.txt": "x"})
    elif part == "prompt":
        changed = dataclasses.replace(task, prompt=task.prompt + " "), question
    else:
        changed = dataclasses.replace(task, answer={**task.answer, "text": "another"}), question
    monkeypatch.setattr(gaia_tasks, "_built", lambda task_id: changed)
    found = digests(source, source.get(wanted.id))
    assert [name for name in found if found[name] != wanted.digests[name]] == [part]
    with pytest.raises(ConfigError, match=rf"manifest 'validation' .* differs in its {part}\."):
        list(dataclasses.replace(six, tasks=(wanted,)).check(source))


# ---- playing them -----------------------------------------------------------------------------------------------


def test_the_env_has_them_by_name():
    for split in SPLITS:
        found = find(gym.spec(ENV), split)
        assert found.name == split and found.applied(gym.spec(ENV)).kwargs == {"split": split}
    with pytest.raises(ConfigError, match=r"it has validation, test.*Did you mean 'validation'"):
        find(gym.spec(ENV), "validaton")


def test_the_oracle_plays_one(six, tmp_path):
    six.save(tmp_path / "six.json")
    played = rollout(ENV, OraclePolicy(), manifest=tmp_path / "six.json", concurrency=4)
    assert [e.task_id for e in played] == [task.id for task in six.tasks]
    assert all(e.score == 1.0 and e.versions["manifest"] == six.hash for e in played)
    assert {json.loads(e.spec)["kwargs"]["split"] for e in played} == {"validation"}


@pytest.mark.parametrize(
    "kwargs", [{"split": "train"}, {"level": 1}, {"world": "shifted"}, {"preset": "mini"}, {"templates": ["web-chain"]}]
)
def test_arguments_that_choose_other_tasks_are_refused(six, kwargs):
    spec = gym.spec(ENV)
    spec = dataclasses.replace(spec, kwargs={**spec.kwargs, **kwargs})
    with pytest.raises(ConfigError, match=f"this env has {next(iter(kwargs))}="):
        rollout(spec, OraclePolicy(), manifest=six)


def test_other_arguments_are_free(six):
    spec = dataclasses.replace(gym.spec(ENV), kwargs={"scorer": "official"})
    assert six.applied(spec).kwargs == {"scorer": "official", "split": "validation"}
