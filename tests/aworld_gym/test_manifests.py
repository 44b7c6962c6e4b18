"""Fixed lists of tasks: made, written, read, checked, played and continued."""

import dataclasses
import json
import os
import subprocess
import sys
from types import MappingProxyType

import gymnasium as gym
import pytest
import shaping_functions
from hypothesis import given, settings
from hypothesis import strategies as st

from aworld_gym import Task, manifests
from aworld_gym.env import ToolEnv
from aworld_gym.errors import ConfigError, UnknownTaskError
from aworld_gym.manifests import Manifest, digests, find
from aworld_gym.metrics import summarize
from aworld_gym.policies import OraclePolicy
from aworld_gym.rollout import Item, rollout
from aworld_gym.tasks import TaskList
from aworld_gym.trajectory import read_jsonl

TASKS = tuple(dataclasses.replace(shaping_functions.TASKS[0], id=name, level=k % 2 + 1) for k, name in enumerate("abc"))


class Files(TaskList):
    """Tasks with a file each, in a folder."""

    text = "1,2\n"

    def setup(self, task, workspace):
        (workspace / "sub").mkdir()
        (workspace / "sub" / f"{task.id}.csv").write_text(self.text, encoding="utf-8")


class Evidence(TaskList):
    """Tasks that say themselves what they rest on."""

    said = {"files": "as said", "web": "12 pages"}

    def evidence(self, task):
        return self.said

    def setup(self, task, workspace):
        raise AssertionError("not asked for: the source says what its files are")


class ManifestEnv(ToolEnv):
    """The small env, of two splits with different tasks and a manifest of one of them."""

    manifests = {}

    def __init__(self, *, split="train", level=None, tasks=None, render_mode=None):
        named = [dataclasses.replace(task, id=f"{split}/{task.id}") for task in TASKS]
        super().__init__({"mcpServers": {"small": {"python": "small_toolchain:make_server"}}}, tasks or named)


gym.register("ManifestTest/Small-v0", entry_point=ManifestEnv)
ENV = "ManifestTest/Small-v0"


@pytest.fixture
def small(tmp_path, monkeypatch):
    """The manifest ``held-out`` of the env's split ``test``."""
    env = gym.make(ENV, split="test")
    made = Manifest.of(
        env.unwrapped.tasks,
        ["test/c", "test/a"],
        name="held-out",
        env_id=ENV,
        env_kwargs={"split": "test", "level": None},
    )
    made.save(tmp_path / "held-out.json")
    monkeypatch.setattr(ManifestEnv, "manifests", {"held-out": tmp_path / "held-out.json"})
    return made


# ---- the file -------------------------------------------------------------------------------------------------


def test_a_file_is_what_was_saved(tmp_path, small):
    path = tmp_path / "held-out.json"
    assert Manifest.load(path) == small and Manifest.load(path).hash == small.hash
    first = path.read_bytes()
    Manifest.load(path).save(path)
    assert path.read_bytes() == first
    data = json.loads(first)
    assert data["hash"] == small.hash and len(small.hash) == len("sha256:") + 64
    assert [t["id"] for t in data["tasks"]] == ["test/c", "test/a"]
    assert small.describe() == {"name": "held-out", "hash": small.hash, "tasks": 2, "tasks_by_level": {"1": 2}}


def test_a_file_holds_no_answer_and_equal_answers_do_not_look_equal(tmp_path):
    source = TaskList([Task("a", "?", "Constantinople"), Task("b", "?", "Constantinople")])
    made = Manifest.of(source, "ab", name="m")
    made.save(tmp_path / "m.json")
    assert "onstantinople" not in (tmp_path / "m.json").read_text()
    a, b = (task.digests for task in made.tasks)
    assert a["prompt"] == b["prompt"] and a["answer"] != b["answer"]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text(max_size=8), min_size=1, max_size=6, unique=True), st.text(max_size=8), st.data())
def test_any_ids_and_prompts_survive_the_file(tmp_path_factory, ids, name, data):
    tasks = [
        Task(i, data.draw(st.text(max_size=8)), data.draw(st.none() | st.integers() | st.text(max_size=4))) for i in ids
    ]
    made = Manifest.of(TaskList(tasks), ids, name=name)
    path = tmp_path_factory.mktemp("m") / "m.json"
    made.save(path)
    assert Manifest.load(path) == made
    assert list(made.check(TaskList(tasks))) == ids


def damaged(text):
    data = json.loads(text)
    data["tasks"][0]["id"] = "test/b"
    return json.dumps(data)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (damaged, "was changed after it was made"),
        (lambda text: text.replace('"split": "test"', '"split": "tset"'), "was changed after it was made"),
        (lambda text: text[: len(text) // 2], "cannot read the manifest"),
        (lambda text: "[]", "not a manifest: expected a JSON object with format 1, got 'list'"),
        (lambda text: text.replace('"format": 1', '"format": 2'), "expected a JSON object with format 1, got 2"),
        (lambda text: '{"format": 1}', "not a manifest: KeyError"),
        (lambda text: '{"format": 1, "name": "x", "hash": "", "tasks": []}', "has no tasks"),
        (lambda text: '{"format": 1, "name": "x", "hash": "", "tasks": ["a"]}', "not a manifest"),
        (
            lambda text: '{"format": 1, "name": "x", "hash": "", "env_kwargs": "k", "tasks": [{"id": "a"}]}',
            "not a manifest",
        ),
        (lambda text: '{"format": 1, "name": "x", "hash": "", "tasks": [{"id": "a"}, {"id": "a"}]}', "more than once"),
        (lambda text: '{"format": 1, "name": "x", "hash": "", "tasks": [{"id": 5}]}', "the ids of its tasks are texts"),
        (lambda text: '{"format": 1, "name": null, "hash": "", "tasks": [{"id": "a"}]}', "its name .* texts"),
        (lambda text: "[" * 100_000, "cannot read the manifest"),
    ],
)
def test_a_damaged_file(tmp_path, small, change, message):
    path = tmp_path / "other.json"
    path.write_text(change((tmp_path / "held-out.json").read_text()))
    with pytest.raises(ConfigError, match=message):
        Manifest.load(path)


def test_the_hash_is_of_the_tasks_their_order_and_the_envs_arguments(small):
    same = dataclasses.replace(small, name="other", made_with="9.9", env_id=None)
    assert same.hash == small.hash
    assert dataclasses.replace(small, tasks=small.tasks[::-1]).hash != small.hash
    assert dataclasses.replace(small, tasks=small.tasks[:1]).hash != small.hash
    assert dataclasses.replace(small, env_kwargs={"split": "train"}).hash != small.hash


def test_the_same_bytes_in_every_process(tmp_path):
    code = """
import sys
from aworld_gym import Task
from aworld_gym.manifests import Manifest
from aworld_gym.tasks import TaskList
answer, public = {"values": ["x", "y"], "type": "list"}, {"b": 1, "a": {"d": 2, "c": [3]}}
tasks = [Task(str(k), f"{k}?", answer, public=public) for k in range(9)]
Manifest.of(TaskList(tasks), "012345678", name="m", env_kwargs={"z": 1, "a": 2}).save(sys.argv[1])
"""
    for seed in ("1", "2"):
        env = os.environ | {"PYTHONHASHSEED": seed}
        subprocess.run([sys.executable, "-c", code, str(tmp_path / seed)], check=True, env=env, timeout=60)
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()


# ---- what a task is made of -------------------------------------------------------------------------------------


def test_digests_of_what_setup_writes(monkeypatch):
    source = Files(TASKS)
    before = digests(source, TASKS[0])
    assert set(before) == {"prompt", "files", "answer"} and all(len(d) == 32 for d in before.values())
    assert digests(source, TASKS[0]) == before
    monkeypatch.setattr(Files, "text", "1,3\n")
    after = digests(source, TASKS[0])
    assert {part for part in before if before[part] != after[part]} == {"files"}


def test_a_source_may_say_what_its_tasks_rest_on():
    found = digests(Evidence(TASKS), TASKS[0])
    assert list(found) == ["prompt", "files", "web", "answer"]


@pytest.mark.parametrize(
    ("field", "value", "part"),
    [
        ("prompt", "How much is 40 + 3?", "prompt"),
        ("answer", "43", "answer"),
        ("level", 3, "level"),
        ("public", {"x": 1}, "public"),
    ],
)
def test_a_task_that_differs_is_named_with_the_part(field, value, part):
    made = Manifest.of(TaskList(TASKS), "abc", name="m")
    assert list(made.check(TaskList(TASKS))) == ["a", "b", "c"]
    changed = (TASKS[0], dataclasses.replace(TASKS[1], **{field: value}), TASKS[2])
    with pytest.raises(
        ConfigError, match=rf"task 'b' \(2 of 3\) of manifest 'm' .* differs in its {part}\. .*version"
    ) as error:
        list(made.check(TaskList(changed)))
    assert "install the version" in str(error.value)


@pytest.mark.parametrize(
    ("made_with", "here"), [("9.9", r"here is \d"), (None, "here is another state of that version")]
)
def test_a_manifest_of_other_tasks_says_of_which_version_it_is(made_with, here):
    made = Manifest.of(TaskList(TASKS), "abc", name="m")
    made = dataclasses.replace(made, made_with=made_with or made.made_with)
    changed = (dataclasses.replace(TASKS[0], answer="43"), *TASKS[1:])
    with pytest.raises(ConfigError, match=rf"made with version {made.made_with} of aworld-gym, {here}"):
        list(made.check(TaskList(changed)))


def test_a_task_that_is_not_there_is_named():
    made = Manifest.of(TaskList(TASKS), "abc", name="m")
    with pytest.raises(ConfigError, match=r"task 'c' \(3 of 3\) .* is not among this env's tasks: unknown task id 'c'"):
        list(made.check(TaskList(TASKS[:2])))


def test_making_one_of_unknown_or_no_tasks():
    with pytest.raises(UnknownTaskError, match="unknown task id 'z'"):
        Manifest.of(TaskList(TASKS), "az", name="m")
    with pytest.raises(ConfigError, match="has no tasks"):
        Manifest.of(TaskList(TASKS), "", name="m")
    with pytest.raises(ConfigError, match="'a' more than once"):
        Manifest.of(TaskList(TASKS), "aba", name="m")


# ---- which one, and for which env -------------------------------------------------------------------------------


def test_finding_one_by_name_by_file_or_as_it_is(tmp_path, small):
    for env in (gym.spec(ENV), ManifestEnv):
        assert find(env, "held-out") == small
        assert find(env, tmp_path / "held-out.json") == find(env, str(tmp_path / "held-out.json")) == small
        assert find(env, small) is small
        with pytest.raises(
            ConfigError, match=r"no manifest 'heldout' of this env \(it has held-out\).*Did you mean 'held-out'"
        ):
            find(env, "heldout")
    with pytest.raises(ConfigError, match="it has none"):
        find(ToolEnv, "validation")


def test_the_env_is_made_with_what_the_manifest_asks_for(small):
    spec = gym.spec(ENV)
    assert small.applied(spec).kwargs == {"split": "test"} and spec.kwargs == {}
    spec = gym.make(ENV, split="test").spec
    assert small.applied(spec).kwargs == {"split": "test"}
    with pytest.raises(
        ConfigError, match="is played with split='test', and this env has split='train'; leave split out"
    ):
        small.applied(gym.make(ENV, split="train").spec)
    with pytest.raises(ConfigError, match="is played with level left out"):
        small.applied(gym.make(ENV, level=1).spec)


def test_values_are_digested_by_what_they_say_and_not_by_their_kind():
    plain = dataclasses.replace(TASKS[0], answer=[0, 1], public={"k": {"a": [0, 1]}})
    other = dataclasses.replace(
        TASKS[0], answer=range(2), public=MappingProxyType({"k": MappingProxyType({"a": (0, 1)})})
    )
    assert digests(TaskList([plain]), plain) == digests(TaskList([plain]), other)
    with pytest.raises(TypeError, match="are JSON values, got set"):
        digests(TaskList([plain]), dataclasses.replace(plain, answer={1}))


# ---- playing ----------------------------------------------------------------------------------------------------


def test_items(small):
    items = small.items(group_size=2, seed=7)
    assert [(i.index, i.seed, i.sample, i.task_id) for i in items] == [
        (0, 7, 0, "test/c"),
        (1, 7, 1, "test/c"),
        (2, 8, 0, "test/a"),
        (3, 8, 1, "test/a"),
    ]
    assert {i.manifest for i in items} == {small.hash} and [i.group_id for i in items[1:3]] == ["test/c", "test/a"]
    assert [(i.seed, i.sample) for i in small.items()] == [(0, 0), (1, 0)]
    for wrong in ({"group_size": 0}, {"seed": -1}, {"seed": True}):
        with pytest.raises(ConfigError, match="must be a whole number"):
            small.items(**wrong)


@pytest.mark.parametrize("what", ["id", "spec", "env", "factory"])
def test_a_rollout_plays_exactly_the_manifest(small, what):
    env = gym.make(ENV)
    source = {"id": ENV, "spec": env.spec, "env": env, "factory": lambda: ManifestEnv(split="test")}[what]
    played = rollout(source, OraclePolicy(), manifest=small if what == "factory" else "held-out", group_size=2)
    assert [e.task_id for e in played] == ["test/c", "test/c", "test/a", "test/a"]
    assert {e.versions["manifest"] for e in played} == {small.hash}
    found = summarize(played)
    assert (found["k"], found["tasks"], found["pass_at_k"]) == (2, 2, 1.0)
    env.close()


def test_another_task_stops_the_run_before_the_first_episode(small, tmp_path):
    begun = []

    class Watching(OraclePolicy):
        def episode(self, **kwargs):
            begun.append(kwargs)
            return super().episode(**kwargs)

    other = [{"id": f"test/{name}", "prompt": "Another question", "answer": "42"} for name in "abc"]
    with pytest.raises(ConfigError, match=r"task 'test/c' \(1 of 2\)"):
        rollout(lambda: ManifestEnv(tasks=other), Watching(), manifest=small)
    with pytest.raises(ConfigError, match=r"not among this env's tasks"):
        rollout(lambda: ManifestEnv(split="train"), Watching(), manifest=small)
    assert not begun


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"episodes": 3}, "give either episodes or manifest, not both; a manifest is played whole"),
        ({"items": [Item(0, 0)]}, "give either items or manifest"),
        ({"group_size": 0}, "group_size must be a whole number"),
        ({"seed": -3}, "seed must be a whole number"),
    ],
)
def test_what_does_not_go_with_a_manifest(small, options, message):
    with pytest.raises(ConfigError, match=message):
        rollout(ENV, OraclePolicy(), manifest="held-out", **options)


def test_bad_envs_with_a_manifest(small):
    with pytest.raises(ConfigError, match="no env 'NoSuchEnv-v0'"):
        rollout("NoSuchEnv-v0", OraclePolicy(), manifest=small)
    with pytest.raises(ConfigError, match="has no spec"):
        rollout(ManifestEnv(), OraclePolicy(), manifest=small)


def test_a_journal_is_not_continued_with_another_manifest(small, tmp_path):
    journal = tmp_path / "e.jsonl"
    rollout(ENV, OraclePolicy(), manifest=small, journal=journal)
    assert len(rollout(ENV, OraclePolicy(), manifest=small, journal=journal, resume=True)) == 2
    grown = rollout(ENV, OraclePolicy(), manifest=small, journal=journal, resume=True, group_size=2)
    assert len(grown) == len(list(read_jsonl(journal))) == 4
    before = journal.read_bytes()
    other = dataclasses.replace(small, tasks=small.tasks[::-1])
    with pytest.raises(ConfigError, match=f"its manifest is '{small.hash}', this one's is '{other.hash}'"):
        rollout(ENV, OraclePolicy(), manifest=other, journal=journal, resume=True)
    with pytest.raises(ConfigError, match=f"its manifest is '{small.hash}', this one's is None"):
        rollout(gym.make(ENV, split="test").spec, OraclePolicy(), episodes=2, journal=journal, resume=True)
    assert journal.read_bytes() == before
    plain = tmp_path / "plain.jsonl"
    rollout(gym.make(ENV, split="test").spec, OraclePolicy(), episodes=2, journal=plain)
    with pytest.raises(ConfigError, match=f"its manifest is None, this one's is '{small.hash}'"):
        rollout(ENV, OraclePolicy(), manifest=small, journal=plain, resume=True)


def test_an_env_may_have_no_manifests():
    assert manifests.names(gym.spec("ManifestTest/Small-v0")) == {} and manifests.names(object()) == {}
