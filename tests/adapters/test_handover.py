"""What goes from a process to its workers, and from a batch to its episodes."""

from functools import partial

import gymnasium as gym
import numpy as np
import pytest
import tiny_model
from say_env import ENV_ID, SESSIONS

from adapters.common import (
    EpisodeCounts,
    Journals,
    checked_codec,
    env_spec,
    lost_episode,
    number_items,
    prompt_length,
    spec_json,
    spec_of,
    task_rows,
    task_seeds,
    the_one,
)
from aworld_gym.errors import ConfigError
from aworld_gym.play import Item
from aworld_gym.tokens import ChatCodec, UnsupportedTemplateError
from aworld_gym.trajectory import read_jsonl
from aworld_gym.types import Episode, Outcome
from aworld_gym.wrappers import RewardShaping


def test_groups_of_equal_tasks_stay_apart():
    items = number_items([4, 4, 9, 9, 4, 4], 2, first=6, step=7)
    assert [(i.seed, i.sample, i.group_id) for i in items] == [
        (4, 0, "7/4"),
        (4, 1, "7/4"),
        (9, 0, "7/9"),
        (9, 1, "7/9"),
        (4, 2, "7/4/1"),
        (4, 3, "7/4/1"),
    ]


def test_a_process_may_have_part_of_a_group():
    items = number_items([4, 4], 4, first=2)
    assert [(i.index, i.sample, i.group_id) for i in items] == [(0, 2, "0/4"), (1, 3, "0/4")]


def test_specs_survive_as_json_with_their_wrappers():
    spec = env_spec(RewardShaping(gym.make(ENV_ID, limits={"max_turns": 3}), "step_penalty", amount=0.5))
    again = spec_of(spec_json(spec))
    assert again.kwargs == spec.kwargs and again.additional_wrappers == spec.additional_wrappers
    assert spec_of(spec_json(spec)) is again, "many rows, one spec"


def test_a_spec_that_json_cannot_hold():
    spec = env_spec(ENV_ID)
    spec.kwargs["limits"] = {"max_turns": object()}
    with pytest.raises(ConfigError, match="no worker can rebuild it"):
        spec_json(spec)


def test_a_codec_ends_where_the_model_ends():
    tokenizer = tiny_model.tokenizer()
    own = ChatCodec(tokenizer).stop_ids
    assert checked_codec(tokenizer).stop_ids == checked_codec(tokenizer, min(own)).stop_ids == own
    assert checked_codec(tokenizer, [5]).stop_ids == own | {5} == checked_codec(tokenizer, 5).stop_ids
    assert checked_codec(tokenizer, [5], stop_ids=own).stop_ids == own, "who says which, means them"
    with pytest.raises(UnsupportedTemplateError):
        checked_codec(tokenizer, template="{{ messages[0].content }}")


def test_journals_open_when_they_are_needed(tmp_path):
    journals = Journals.into(tmp_path)
    assert journals.get("test") is None and not list(tmp_path.iterdir())
    assert journals.get("train") is journals.get("train") and journals.get("eval", rank=2) is not None
    journals.close()
    assert sorted(p.name for p in tmp_path.iterdir() if p.suffix == ".jsonl") == [
        "episodes.jsonl",
        "eval_episodes.rank2.jsonl",
    ]


def test_processes_without_a_rank_write_files_of_their_own(tmp_path):
    one, other = Journals.into(tmp_path), Journals.into(tmp_path)
    for k, (journals, sample) in enumerate([(one, 0), (other, 1), (one, 0)]):
        why = "it broke" if k < 2 else "again"
        lost_episode(Item(0, 7, sample, "1/7"), why, attempts=1 + k // 2, journal=partial(journals.free, "train"))
    one.free("train").append(Episode("env", "t", 8, group_id="1/8", outcome=Outcome.ANSWERED))
    one.close()
    other.close()
    assert [len(list(read_jsonl(tmp_path / f"episodes.{k}.jsonl"))) for k in range(2)] == [3, 1]
    with (tmp_path / "episodes.1.jsonl").open("a") as torn:
        torn.write('{"env_id": "a kill')
    copies = [f"episodes.{name}.jsonl" for name in ("rank1", "2nd", "2026-11-30", "0.copy")]
    for name in copies:
        (tmp_path / name).touch()
    one.collect()
    assert {p.name for p in tmp_path.iterdir() if p.suffix == ".jsonl"} == {"episodes.jsonl", *copies}
    counts = EpisodeCounts.of_journal(tmp_path / "episodes.jsonl")
    assert counts == {"episodes": 3, "invalid": 2, "retried": 1, "answered": 1, "infra_failure": 2}
    one.collect()
    assert EpisodeCounts.of_journal(tmp_path / "episodes.jsonl") == counts
    assert EpisodeCounts.of_journal(tmp_path / "none.jsonl") == {}


def test_a_journal_that_cannot_be_written_loses_no_episode(tmp_path, caplog):
    (tmp_path / "file").touch()
    journals = Journals.into(tmp_path / "file")
    lost = lost_episode(Item(0, 7, 0, "1/7"), "it broke", 1, partial(journals.free, "train"))
    assert lost.episode.error == "it broke" and "could not be written down: it broke" in caplog.text


def test_rows_of_a_data_set_tell_equal_tasks_apart():
    rows = task_rows(env_spec(ENV_ID), [4, 4, 9], "eval")
    assert [(row["seed"], row["group"], row["split"]) for row in rows] == [
        (4, "4", "eval"),
        (4, "4/1", "eval"),
        (9, "9", "eval"),
    ]
    assert spec_of(rows[0]["env"]).id == ENV_ID


def test_seeds_of_tasks():
    assert task_seeds(3, 10) == [10, 11, 12] and task_seeds([7, 7], 10) == [7, 7]
    assert task_seeds(np.arange(2), 10) == [0, 1] and task_seeds(range(4, 6), 0) == [4, 5]
    for tasks in (0, -1, True, "12", 2.0, [], [1.5], [-1], ["3"], None):
        with pytest.raises(ConfigError, match="expected a positive number of tasks, or their seeds"):
            task_seeds(tasks, 0)


def test_a_batch_is_of_one_env():
    assert the_one(["a", "a"]) == "a" == the_one(["a"], {"a": 1, "b": 2})
    for envs, known in ((["a", "b"], None), (["c"], ["a", "b"])):
        with pytest.raises(ConfigError, match="expected the rows of one env in a batch"):
            the_one(envs, known)


def test_the_length_of_a_prompt(caplog):
    codec = ChatCodec(tiny_model.tokenizer())
    assert prompt_length(env_spec(ENV_ID), codec, 0) > 5
    SESSIONS.reset(broken=lambda number: True)
    assert prompt_length(env_spec(ENV_ID), codec, 0) is None and "could not be reset" in caplog.text
    SESSIONS.reset()
