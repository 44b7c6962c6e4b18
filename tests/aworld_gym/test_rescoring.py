"""Recorded episodes scored again: the same verdicts as an env gives, and nothing else changed."""

import copy
import dataclasses
import json

import gymnasium as gym
import pytest
from cli_process import in_process, only_json
from episodes import episode

from aworld_gym.errors import ConfigError
from aworld_gym.policies import ScriptedPolicy
from aworld_gym.rescoring import Rescoring
from aworld_gym.rollout import rollout
from aworld_gym.trajectory import read_jsonl, write_jsonl
from aworld_gym.types import Outcome

TYPED = {"text": "1234.5", "type": "float", "unit": "km"}


def answered(submitted, truth, score, seed=0, **fields):
    """A record of an episode that submitted something."""
    return dataclasses.replace(episode(seed, score=score), submitted=submitted, answer=truth, **fields)


@pytest.fixture(scope="module")
def runs():
    """The same 15 episodes under both scorers: right answers, such as one scorer takes, wrong ones and none."""
    said = {}
    env = gym.make("AWorld/Gaia-v0", level=1)
    for seed in range(15):
        env.reset(seed=seed)
        task = env.unwrapped.task
        text = task.answer["text"]
        said[task.prompt] = [text, f" {text} units.", f"${text}", f"{text}5", None][seed % 5]
    env.close()

    def script(transcript, info):
        answer = said[transcript[-1]["content"]]
        return {"role": "assistant", "content": "I give up" if answer is None else f"<answer>{answer}</answer>"}

    played = {}
    for scorer in ("strict", "official"):
        spec = copy.deepcopy(gym.spec("AWorld/Gaia-v0"))
        spec.kwargs |= {"scorer": scorer, "level": 1}
        played[scorer] = rollout(spec, ScriptedPolicy(script), episodes=15)
    return played


@pytest.mark.parametrize(("was", "now"), [("strict", "official"), ("official", "strict")])
def test_the_verdicts_are_those_of_an_env_with_that_scorer(runs, was, now):
    again = Rescoring(now)
    rescored = list(again.of(runs[was]))
    assert [e.score for e in rescored] == [e.score for e in runs[now]]
    changed = [new.key for new, old in zip(runs[now], runs[was], strict=True) if new.score != old.score]
    assert [row["episode"] for row in again.changed] == changed and changed and again.scored == 15
    assert again.before.summary()["pass_at_1"] == sum(e.score == 1 for e in runs[was]) / 15
    assert again.after.summary()["pass_at_1"] == sum(e.score == 1 for e in runs[now]) / 15


def test_only_score_and_the_scorers_name_change(runs):
    for old, new in zip(runs["strict"], Rescoring("official").of(runs["strict"]), strict=True):
        same = dataclasses.replace(new, score=old.score, versions=old.versions)
        assert same == old and new.versions == {**old.versions, "scorer": "official"}


def test_what_is_no_measurement_or_has_no_truth_is_left():
    records = [
        answered("42", "42", 1.0),
        answered("42", None, None),
        episode(2, outcome=Outcome.INFRA_FAILURE, error_kind="server_died"),
        answered(None, "42", 0.0, seed=3),
    ]
    again = Rescoring("exact")
    rescored = list(again.of(records))
    assert [e.score for e in rescored] == [1.0, None, None, 0.0] and rescored[1] is records[1]
    assert again.scored == 2 and dict(again.left) == {"no_truth": 1, "invalid": 1} and not again.changed


def own(truth, answer):
    """A scorer that a test names by import path."""
    return 0.5 if answer in truth["text"] else 0.0


def broken(truth, answer):
    """A scorer with a bug."""
    raise KeyError("a bug")


def test_scorers_of_ones_own():
    record = answered("1234", TYPED, 1.0)
    assert next(Rescoring(own).of([record])).score == 0.5
    with pytest.raises(ConfigError, match="scorer 'broken' cannot judge episode task-0|0|0|0|agent: KeyError"):
        list(Rescoring(broken).of([record]))
    with pytest.raises(ConfigError, match="'offical'.*official"):
        Rescoring("offical")


# ---- on the command line ------------------------------------------------------------------------------------------


@pytest.fixture
def run(capfd):
    return in_process(capfd, "rescore")


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "episodes.jsonl"
    records = [
        answered("1,234.5 km", TYPED, 1.0),
        answered("9", TYPED, 0.0, seed=1),
        answered("1234.5", TYPED, 1.0, seed=2),
    ]
    write_jsonl(path, records)
    return path


def test_old_and_new_success_and_what_changed(run, file):
    before = file.read_bytes()
    code, out, _ = run(file, "--scorer", "official", "--json")
    found = only_json(out)
    assert code == 0 and file.read_bytes() == before and len(list(file.parent.iterdir())) == 1
    assert (found["old"]["pass_at_1"], found["new"]["pass_at_1"]) == (2 / 3, 1 / 3)
    assert [(row["episode"], row["old"], row["new"]) for row in found["changed"]] == [("task-0|0|0|0|agent", 1.0, 0.0)]
    assert found["changed"][0]["submitted"] == "1,234.5 km" and found["rescored"] == 3
    code, out, _ = run(file, "--scorer", "official")
    assert code == 0 and "pass@1 before" in out and "0.667" in out and "0.333" in out
    assert "task-0|0|0|0|agent: 1 -> 0 (compared as numbers), submitted '1,234.5 km'" in out


def test_a_new_file_and_none_that_is_there(run, file, tmp_path):
    place = tmp_path / "new/episodes.jsonl"
    assert run(file, "--scorer", "official", "--output", place)[0] == 0
    assert [e.score for e in read_jsonl(place)] == [0.0, 0.0, 1.0]
    assert json.loads(place.read_text().splitlines()[0])["versions"]["scorer"] == "official"
    for taken in (place, file):
        code, _, err = run(file, "--scorer", "official", "--output", taken)
        assert code == 2 and "nothing is overwritten" in err


def test_what_cannot_work(run, file, tmp_path):
    assert run(tmp_path / "nowhere.jsonl")[0] == 2
    code, _, err = run(file, "--scorer", "offical")
    assert code == 2 and "official" in err
    write_jsonl(tmp_path / "open.jsonl", [answered("42", None, None)])
    code, _, err = run(tmp_path / "open.jsonl")
    assert code == 1 and "no episode could be scored" in err
