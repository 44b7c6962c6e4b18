"""The real data set's format: folders of invented questions, read from every place and kind of file it may stand in."""

import json
import shutil
import subprocess
import sys

import gymnasium as gym
import pandas
import pytest
from gymnasium.envs.registration import EnvSpec
from tool_messages import call

import aworld_gym  # noqa: F401
from aworld_gym.errors import ConfigError, MissingDependencyError, UnknownTaskError
from aworld_gym.policies import FunctionPolicy
from aworld_gym.rollout import rollout
from envs.gaia import dataset
from envs.gaia.dataset import GaiaDataset

NOTES = {"Steps": "1. Look.", "Number of steps": "1", "How long did this take?": "1 minute", "Tools": "None"}


def row(task_id, question, answer, level=1, file=""):
    """A row as the data set has it."""
    return {
        "task_id": task_id,
        "Question": question,
        "Level": level,
        "Final answer": answer,
        "file_name": file,
        "Annotator Metadata": NOTES,
    }


VALIDATION = [
    row("aaaa-1", "How many rows does the attached table of boats have?", "2", 1, "aaaa-1.csv"),
    row("aaaa-2", "Which two lamps burn in the invented harbour of Tol?", "red, green", 2),
    row("aaaa-3", "What is the invented harbour called in capitals?", "TOL", 3),
    row("aaaa-4", "How many thousand crates lie in Tol?", "17,000", 2),
]
TEST = [row("bbbb-1", "Who keeps the lamp of Tol?", "?"), row("bbbb-2", "What does the note say?", "?", 2, "note.txt")]


@pytest.fixture
def gaia(tmp_path):
    """A folder in the data set's format."""
    root = tmp_path / "GAIA"
    for split, rows in (("validation", VALIDATION), ("test", TEST)):
        folder = root / "2023" / split
        folder.mkdir(parents=True)
        (folder / "metadata.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    (root / "2023/validation/aaaa-1.csv").write_bytes(b"boat,crew\nAda,3\nBo,4\n")
    (root / "2023/test/note.txt").write_bytes(b"hello")
    return root


def test_an_episode_of_the_real_data_set(gaia):
    env = gym.make("AWorld/Gaia-v0", dataset=str(gaia), split="validation")
    obs, info = env.reset(options={"task_id": "aaaa-1"})
    assert obs[-1]["content"] == (
        "How many rows does the attached table of boats have?\n\n"
        "A file belongs to this question; it is in your workspace: aaaa-1.csv"
    )
    names = {tool["function"]["name"] for tool in info["tools"]}
    assert {"list_files", "read_table", "run_python", "submit_answer"} <= names
    assert not names & {"search", "open_page", "find_in_page"}, "the generated web knows nothing of real questions"
    assert "web" not in obs[0]["content"] and "submit_answer" in obs[0]["content"]
    assert "Ada" in env.step(call("read_table", path="aaaa-1.csv"))[0][0]["content"]
    _, reward, terminated, _, info = env.step(call("submit_answer", answer="2.0"))
    assert (reward, terminated, info["score"]) == (1.0, True, 1.0)
    assert env.unwrapped.tasks.scorer == "official" and env.unwrapped.limits.max_turns == 60
    shown = json.dumps(env.get_wrapper_attr("episode").to_dict())
    assert NOTES["Steps"] not in shown, "how an annotator solved it stands nowhere"
    env.close()


def parquet(folder, rows, name="metadata.parquet"):
    """The later form of the data set: levels are texts, and files have a path too."""
    split = folder.name
    rows = [
        {**r, "Level": str(r["Level"]), "file_path": f"2023/{split}/{r['file_name']}" if r["file_name"] else ""}
        for r in rows
    ]
    pandas.DataFrame(rows).to_parquet(folder / name)


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "levels"])
@pytest.mark.parametrize("place", [".", "2023", "2023/validation"])
def test_every_kind_of_file_and_every_folder_that_may_be_named(kind, place, gaia):
    folder = gaia / "2023/validation"
    expected = [(t.id, t.prompt, t.level, t.answer) for t in GaiaDataset(gaia, "validation").tasks]
    if kind != "jsonl":
        (folder / "metadata.jsonl").unlink()
    if kind == "parquet":
        parquet(folder, VALIDATION)
    if kind == "levels":
        for level in (1, 2, 3):
            parquet(folder, [r for r in VALIDATION if r["Level"] == level], f"metadata.level{level}.parquet")
    found = GaiaDataset(gaia / place, "validation")
    assert sorted((t.id, t.prompt, t.level, t.answer) for t in found.tasks) == sorted(expected)
    assert [t.id for t in GaiaDataset(gaia / place, "validation", 2).tasks] == ["aaaa-2", "aaaa-4"]
    assert found.get("aaaa-3").level == 3


def test_one_level_needs_no_file_of_another(gaia):
    folder = gaia / "2023/validation"
    (folder / "metadata.jsonl").unlink()
    parquet(folder, [VALIDATION[2]], "metadata.level3.parquet")
    (folder / "aaaa-1.csv").unlink()
    assert [t.id for t in GaiaDataset(gaia, "validation", 3).tasks] == ["aaaa-3"]
    with pytest.raises(ConfigError, match="no tasks of level 1"):
        GaiaDataset(gaia, "validation", 1)


@pytest.mark.parametrize(
    ("scorer", "task_id", "answer", "value"),
    [
        ("official", "aaaa-2", "red, green", 1.0),
        ("official", "aaaa-2", "red and green", 0.0),
        ("strict", "aaaa-2", "Red and green", 1.0),
        ("strict", "aaaa-2", "green, red", 0.0),
        ("official", "aaaa-3", "t o l", 1.0),
        ("strict", "aaaa-3", "t o l", 0.0),
        ("strict", "aaaa-4", "17000", 1.0),
        ("official", "aaaa-4", "17000", 0.0),
        ("official", "aaaa-4", None, 0.0),
    ],
)
def test_scorers(scorer, task_id, answer, value, gaia):
    tasks = GaiaDataset(gaia, "validation", scorer=scorer)
    assert tasks.score(tasks.get(task_id), answer).value == value


def test_the_test_split_gives_no_reward_and_says_so(gaia, caplog):
    dataset._warned.clear()
    env = gym.make("AWorld/Gaia-v0", dataset=str(gaia), split="test")
    gym.make("AWorld/Gaia-v0", dataset=str(gaia), split="test").close()
    said = [r.getMessage() for r in caplog.records if r.name == "envs.gaia.dataset"]
    assert said == [
        "the answers of GAIA's test split are not public: its episodes get no reward, and their score is None"
    ]
    env.reset(options={"task_id": "bbbb-2"})
    assert (env.unwrapped.workspace / "note.txt").read_bytes() == b"hello"
    _, reward, terminated, _, info = env.step(call("submit_answer", answer="?"))
    assert (reward, terminated, info["score"], info["valid"]) == (0.0, True, None, True)
    assert not env.unwrapped.tasks.scored
    env.close()


def test_a_rollout_over_the_data_set_in_workers_that_rebuild_it(gaia):
    env = gym.make("AWorld/Gaia-v0", dataset=str(gaia), split="validation", level=3)
    assert EnvSpec.from_json(env.spec.to_json()).kwargs["dataset"] == str(gaia)
    policy = FunctionPolicy(lambda messages, tools: {"role": "assistant", "content": "FINAL ANSWER: tol"})
    episodes = rollout(env, policy, episodes=2)
    assert [(e.score, e.task["split"], e.task["level"]) for e in episodes] == [(1.0, "validation", 3)] * 2
    env.close()


@pytest.mark.parametrize(
    "name", ["/etc/hostname", "../secret", "..", "sub/file.csv", "a\\b", "a\0b", "a\nb", ".", 7.5], ids=repr
)
def test_names_of_files_that_lead_elsewhere_are_refused(name, gaia):
    (gaia / "2023/secret").write_text("s")
    with (gaia / "2023/validation/metadata.jsonl").open("a") as file:
        file.write(json.dumps(row("x", "?", "1", 1, name)) + "\n")
    if name == 7.5:  # a number is a name like any other: the file is just not there
        with pytest.raises(ConfigError, match=r"1 of 2 attached files are not in .*: 7.5"):
            GaiaDataset(gaia, "validation")
    else:
        with pytest.raises(ConfigError, match=r"metadata.jsonl, line 5, column 'file_name'"):
            GaiaDataset(gaia, "validation")


@pytest.mark.parametrize("name", ["metadata.jsonl", "metadata.parquet", "metadata.level1.parquet"])
def test_the_list_of_answers_is_attached_to_no_question(name, gaia):
    folder = gaia / "2023/validation"
    (folder / "metadata.jsonl").write_text(json.dumps(row("aaaa-1", "How many?", "2", 1, name)) + "\n")
    with pytest.raises(ConfigError, match="line 1, column 'file_name'.*lists the answers"):
        GaiaDataset(gaia, "validation")


@pytest.mark.parametrize("target", ["../../../secret", "aaaa-1-real.csv", "/etc/hostname"])
def test_links_are_not_followed(target, gaia):
    folder = gaia / "2023/validation"
    (gaia.parent / "secret").write_text("s")
    (folder / "aaaa-1.csv").rename(folder / "aaaa-1-real.csv")
    (folder / "aaaa-1.csv").symlink_to(target)
    with pytest.raises(ConfigError, match="'aaaa-1.csv' .* is a link that leads elsewhere"):
        GaiaDataset(gaia, "validation")


def test_a_download_cache_whose_files_are_links_to_its_blobs(gaia, tmp_path):
    cache = tmp_path / "cache/datasets--x--GAIA"
    (cache / "blobs").mkdir(parents=True)
    root = cache / "snapshots/0123"
    shutil.copytree(gaia, root)
    for number, path in enumerate(sorted(p for p in root.rglob("*") if p.is_file())):
        blob = cache / "blobs" / str(number)
        path.rename(blob)
        path.symlink_to(blob)
    tasks = GaiaDataset(root, "validation")
    (tmp_path / "w").mkdir()
    tasks.setup(tasks.get("aaaa-1"), tmp_path / "w")
    copy = tmp_path / "w/aaaa-1.csv"
    assert copy.read_bytes().startswith(b"boat") and not copy.is_symlink()
    (root / "2023/validation/aaaa-1.csv").unlink()
    (root / "2023/validation/aaaa-1.csv").symlink_to("/etc/hostname")
    with pytest.raises(ConfigError, match="leads elsewhere"):
        GaiaDataset(root, "validation")


def test_attachments_that_are_missing_are_named(gaia):
    path = gaia / "2023/validation/metadata.jsonl"
    with path.open("a") as file:
        for number in range(7):
            file.write(json.dumps(row(f"x{number}", "?", "1", 1, f"none{number}.pdf")) + "\n")
    with pytest.raises(ConfigError, match=r"7 of 8 attached files are not in .*none0.pdf, .*none4.pdf and 2 more"):
        GaiaDataset(gaia, "validation")
    assert len(GaiaDataset(gaia, "validation", 2).tasks) == 2, "only those of the chosen level are asked for"


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({}, "has the splits validation and test, got 'train': pass split='validation'"),
        ({"split": "validaton"}, "Did you mean 'validation'"),
        ({"split": "validation", "level": 4}, "level must be None or one of"),
        ({"split": "validation", "scorer": "offical"}, "Did you mean 'official'"),
        ({"split": "validation", "world": "shifted"}, "leave world, templates and preset out"),
        ({"split": "validation", "preset": "mini"}, "leave world, templates and preset out"),
    ],
)
def test_arguments_that_cannot_work(kwargs, message, gaia):
    with pytest.raises(ConfigError, match=message):
        gym.make("AWorld/Gaia-v0", dataset=str(gaia), **kwargs)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"task_id": "a"}], r"line 1 has no column 'Question'; it has task_id"),
        ([row("a", "?", "1", 4)], "line 1, column 'Level': expected 1, 2 or 3, got 4"),
        ([row("a", "", "1")], "line 1, column 'Question': expected text, got ''"),
        ([row(3, "?", "1")], "line 1, column 'task_id': expected text, got 3"),
        ([row("a", "?", "1"), row("a", "?", "1")], "line 2: the id 'a' stands there twice"),
        (["x"], "line 1 must be a mapping"),
        ([], "has no tasks"),
    ],
)
def test_rows_that_are_broken_are_named(rows, message, gaia):
    (gaia / "2023/validation/metadata.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    with pytest.raises(ConfigError, match=message):
        GaiaDataset(gaia, "validation")


def test_folders_that_hold_no_data_set(gaia, tmp_path):
    with pytest.raises(ConfigError, match="there is no folder"):
        GaiaDataset(tmp_path / "none", "validation")
    with pytest.raises(ConfigError, match=r"expected it in 2023/validation/"):
        GaiaDataset(tmp_path, "validation")
    with pytest.raises(ConfigError, match="is the folder of another split than 'test'"):
        GaiaDataset(gaia / "2023/validation", "test")


def test_parquet_without_pyarrow_names_what_to_install_and_jsonl_does_without(gaia, monkeypatch):
    code = f"import sys; from envs.gaia.dataset import GaiaDataset; GaiaDataset({str(gaia)!r}, 'validation'); "
    code += "print('pyarrow' in sys.modules, 'pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout == b"False False\n"
    folder = gaia / "2023/validation"
    parquet(folder, VALIDATION)
    (folder / "metadata.jsonl").unlink()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingDependencyError, match="pip install pyarrow"):
        GaiaDataset(gaia, "validation")


def test_an_unknown_task_is_named_with_close_ones(gaia):
    with pytest.raises(UnknownTaskError, match="'aaaa-9'; there are 4 tasks. Did you mean"):
        GaiaDataset(gaia, "validation").get("aaaa-9")
