"""The rollout path as a plain function, beside the package's own token rollout."""

import gymnasium as gym
import pytest
import tiny_model
import verl_rows
from say_env import ENV_ID, SESSIONS
from scripted_sampler import ScriptedSampler, echo_then_submit

from adapters.common import TrainedRow
from aworld_gym.play import Item
from aworld_gym.token_policy import token_rollout
from aworld_gym.tokens import ChatCodec
from aworld_gym.wrappers import RewardShaping


@pytest.fixture(scope="module")
def codec():
    return ChatCodec(tiny_model.tokenizer())


def shaped():
    return RewardShaping(gym.make(ENV_ID), "say_env:by_answer", scale=1.0)


def test_rows_are_those_of_a_token_rollout(codec):
    def script(word, turn):
        ids = codec.encode_assistant(echo_then_submit(word, turn))
        text = codec.tokenizer.decode(ids[:-1])  # letter by letter: ids that no tokenizer would give
        return [i for letter in text for i in codec.tokenizer.encode(letter)] + ids[-1:]

    items = [Item(k, k // 2, k % 2) for k in range(4)]
    expected = token_rollout(shaped(), codec, ScriptedSampler(codec, script), items, max_tokens=400)
    rows = verl_rows.rollout_rows(shaped(), codec, ScriptedSampler(codec, script), items, max_tokens=400)
    assert rows == [TrainedRow.of(one, filler=0) for one in expected] and all(len(r.turn_ends) == 2 for r in rows)


def test_what_is_no_measurement(codec):
    SESSIONS.reset(broken=lambda number: True)
    (row,) = verl_rows.rollout_rows(
        ENV_ID, codec, ScriptedSampler(codec, echo_then_submit), [Item(0, 0)], max_tokens=400
    )
    assert not row.valid and row.mask == (0,) and row.turn_rewards == ()
