"""Whole transcripts, raw text and recording: what each wrapper shows, and that specs carry it."""

import json

import gymnasium as gym
import pytest
from gymnasium.envs.registration import EnvSpec
from small_toolchain import IN_PROCESS

from aworld_gym import Task, aio
from aworld_gym.errors import ActionError, ConfigError
from aworld_gym.spaces import UnicodeText
from aworld_gym.tasks import TaskList
from aworld_gym.trajectory import read_jsonl
from aworld_gym.wrappers import RawTextAction, RecordEpisodes, RewardShaping, TranscriptObservation

ADD = '<tool_call>\n{"name": "add", "arguments": {"a": 40, "b": 2}}\n</tool_call>'
SUBMIT = '<tool_call>\n{"name": "submit_answer", "arguments": {"answer": "42"}}\n</tool_call>'


@pytest.fixture(autouse=True)
def env():
    gym.register("Test/Wrapped-v0", entry_point="shaping_functions:make_env")
    made = gym.make("Test/Wrapped-v0")
    yield made
    made.close()
    del gym.registry["Test/Wrapped-v0"]


def rebuilt(env):
    return gym.make(EnvSpec.from_json(env.spec.to_json()))


def test_the_transcript_is_the_observation(env):
    env = rebuilt(TranscriptObservation(RawTextAction(env)))
    obs, _ = env.reset(seed=0)
    assert [m["role"] for m in obs] == ["user"]
    obs, *_ = env.step(ADD)
    assert [m["role"] for m in obs] == ["user", "assistant", "tool"] and obs in env.observation_space
    obs[0]["content"] = "changed"
    assert env.step(SUBMIT)[0][0]["content"] == "How much is 40 + 2?"
    env.close()


def test_raw_text_is_parsed(env):
    env = rebuilt(RawTextAction(env, parser="hermes"))
    assert env.action_space == UnicodeText()
    env.reset(seed=0)
    obs, *_ = env.step("Let me see. " + ADD)
    assert obs[0]["content"] == "42"
    obs, _, terminated, _, info = env.step('<tool_call>\n{"name": "add", "arguments": {"a": \n</tool_call>')
    assert info["tool_errors"] == {"call_invalid_json": 1} and not terminated
    assert env.step(SUBMIT)[1] == 1.0
    env.close()


def test_raw_text_that_is_no_text_or_no_parser(env):
    wrapped = RawTextAction(env)
    wrapped.reset(seed=0)
    with pytest.raises(ActionError, match="expected the model's text as a string, got dict"):
        wrapped.step({"role": "assistant", "content": "x"})
    with pytest.raises(ConfigError, match="Did you mean 'hermes'"):
        RawTextAction(env, parser="hermse")


def test_sampled_actions_are_playable(env):
    wrapped = RawTextAction(env)
    for seed in range(5):
        wrapped.reset(seed=seed)
        wrapped.action_space.seed(seed)
        text = wrapped.action_space.sample()
        obs, reward, *_ = wrapped.step(text)
        assert obs in wrapped.observation_space and reward == 0.0
        assert wrapped.get_wrapper_attr("messages")[-1 - len(obs)]["role"] == "assistant"


def test_episodes_are_recorded_with_the_rewards_that_were_returned(env, tmp_path):
    path = tmp_path / "new" / "episodes.jsonl"
    env = RecordEpisodes(RewardShaping(RawTextAction(env), "step_penalty", amount=0.5), str(path))
    env.reset(seed=0)
    env.step(ADD)
    assert not path.exists()
    env.step(SUBMIT)
    (episode,) = read_jsonl(path)
    assert [s.reward for s in episode.steps] == [-0.5, 0.5] and episode.outcome == "answered" and episode.score == 1.0
    assert json.loads(episode.spec)["id"] == "Test/Wrapped-v0"
    env.reset(seed=1)
    env.step(ADD)
    env.reset(seed=2)
    env.step(ADD)
    env.close()
    assert [e.outcome for e in read_jsonl(path)] == ["answered", "cancelled", "cancelled"]


async def test_recording_on_the_async_path(env, tmp_path):
    path = tmp_path / "episodes.jsonl"
    env = rebuilt(RecordEpisodes(RawTextAction(env), str(path)))
    await aio.areset(env, seed=0)
    await aio.astep(env, ADD)
    await aio.aclose(env)
    assert [e.outcome for e in read_jsonl(path)] == ["cancelled"]


def test_an_episode_cut_by_a_stock_wrapper_is_written(env, tmp_path):
    path = tmp_path / "episodes.jsonl"
    env = RecordEpisodes(gym.wrappers.TimeLimit(RawTextAction(env), 1), str(path))
    env.reset(seed=0)
    env.step(ADD)
    assert [e.outcome for e in read_jsonl(path)] == ["max_turns"]


def test_an_env_whose_spec_json_cannot_hold_is_recorded_without_it(tmp_path):
    env = gym.make("AWorld/Mcp-v0", mcp_config=IN_PROCESS, submit_tool=None, tasks=TaskList([Task("a", "?", "1")]))
    env = RecordEpisodes(env, str(tmp_path / "a.jsonl"))
    env.reset(seed=0)
    env.step({"role": "assistant", "content": "<answer>1</answer>"})
    env.close()
    (episode,) = read_jsonl(tmp_path / "a.jsonl")
    assert (episode.score, episode.spec) == (1.0, None)
