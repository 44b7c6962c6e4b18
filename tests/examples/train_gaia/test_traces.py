"""Demonstrations written down directly are, id for id, what the real env would have given."""

import random

import gymnasium as gym
import pytest

import aworld_gym  # noqa: F401
from aworld_gym.tokens import ChatCodec, TrajectoryBuilder
from envs.gaia import mini
from examples.train_gaia.tokenizer import build_tokenizer
from examples.train_gaia.traces import call, dialogue, encode


@pytest.fixture(scope="module")
def env():
    env = gym.make("AWorld/Gaia-v0", preset="mini")
    yield env
    env.close()


@pytest.fixture(scope="module")
def tools(env):
    return list(env.reset(seed=0)[1]["tools"])


@pytest.fixture(scope="module")
def codec(tools):
    return ChatCodec(build_tokenizer(tools))


def played(env, codec, seed: int, plan_of) -> tuple[mini.MiniTask, list[int], list[int]]:
    """Ids and mask of a plan played in the env by a model that samples exactly the plan's calls."""
    observation, info = env.reset(seed=seed)
    task, built = mini.MiniTasks().get(info["task_id"]), TrajectoryBuilder()
    built.prompt(codec.prompt(list(observation), info["tools"]))
    for index, step in enumerate(plan_of(task)):
        sampled = codec.encode_assistant(call(step, f"call_{index}"))
        built.sampled(sampled, None)
        parsed = codec.parse(sampled)
        assert not parsed.errors and parsed.closed
        observation, _, terminated, truncated, _ = env.step(parsed.message)
        if terminated or truncated:
            break
        built.appended(codec.extend(sampled, observation))
    whole = built.build()
    return task, list(whole.prompt_ids) + list(whole.response_ids), [0] * len(whole.prompt_ids) + list(whole.mask)


@pytest.mark.parametrize("kind", ["oracle", "hurried"])
def test_the_same_ids_as_the_real_env(env, codec, tools, kind):
    for seed in range(30):
        plan_of = (
            (lambda task: task.plan) if kind == "oracle" else lambda task, s=seed: mini.hurried(task, random.Random(s))
        )
        task, ids, mask = played(env, codec, seed, plan_of)
        assert (ids, mask) == encode(codec, dialogue(task, plan_of(task)), tools)


def test_only_the_demonstrator_s_tokens_are_trained(codec, tools):
    task = mini.MiniTasks().get("gaia-mini/train/seen/sum/000000001")
    ids, mask = encode(codec, dialogue(task, task.plan), tools)
    trained = codec.tokenizer.decode([i for i, m in zip(ids, mask, strict=True) if m])
    assert trained.count("<|im_end|>") == len(task.plan) and "<|im_start|>" not in trained
    assert task.prompt not in trained and task.plan[1].arguments["path"] in trained
