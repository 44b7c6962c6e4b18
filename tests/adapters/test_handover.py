"""What goes from a process to its workers, and from a batch to its episodes."""

import gymnasium as gym
import pytest
import tiny_model
from say_env import ENV_ID

from adapters.common import Journals, checked_codec, env_spec, number_items, spec_json, spec_of
from aworld_gym.errors import ConfigError
from aworld_gym.tokens import ChatCodec, UnsupportedTemplateError
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
