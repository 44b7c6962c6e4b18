"""``AWorld/Gaia-v0`` at its public edge: Gymnasium's contract, determinism, oracle and random play, leaks."""

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
import warnings

import gymnasium as gym
import psutil
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env

import aworld_gym  # noqa: F401
from aworld_gym import aio, toolchain
from aworld_gym.errors import ConfigError
from aworld_gym.metrics import summarize
from aworld_gym.policies import OraclePolicy, RandomPolicy
from aworld_gym.rollout import rollout
from aworld_gym.toolchain import loop
from aworld_gym.wrappers import RewardShaping

LIST_FILES = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c", "type": "function", "function": {"name": "list_files", "arguments": "{}"}}],
}


def oracle(env):
    """The actions of the running task's plan."""
    for k, step in enumerate(env.get_wrapper_attr("task").plan):
        call = {"name": step.tool, "arguments": json.dumps(dict(step.arguments))}
        yield {"role": "assistant", "content": None, "tool_calls": [{"id": f"c{k}", "function": call}]}


@pytest.mark.parametrize("kwargs", [{}, {"preset": "mini"}, {"level": 2, "split": "test"}], ids=str)
def test_gymnasiums_checker_passes_with_warnings_as_errors(kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = gym.make("AWorld/Gaia-v0", **kwargs)
        check_env(env.unwrapped)
        env.close()


@pytest.mark.parametrize("world", [None, "synthetic"])
def test_a_vector_of_envs(world):
    envs = gym.make_vec("AWorld/Gaia-v0", num_envs=3, vectorization_mode="sync", world=world)
    obs, info = envs.reset(seed=5)
    assert len(obs) == 3 and obs in envs.observation_space and len(set(info["task_id"])) == 3
    obs, rewards, terminated, truncated, info = envs.step((LIST_FILES,) * 3)
    assert [m[0]["name"] for m in obs] == ["list_files"] * 3 and rewards.tolist() == [0.0] * 3
    assert not terminated.any() and not truncated.any()
    obs, _, terminated, *_ = envs.step([{"role": "assistant", "content": "no idea"}] * 3)
    assert terminated.all()
    obs, *_ = envs.step((LIST_FILES,) * 3)  # Gymnasium's next-step autoreset
    assert obs[0][-1]["role"] == "user"
    envs.close()


def test_a_vector_of_envs_in_processes_of_their_own():
    kwargs = {"shared_memory": False}  # messages are no arrays
    envs = gym.make_vec("AWorld/Gaia-v0", 2, vectorization_mode="async", vector_kwargs=kwargs, preset="mini")
    _, info = envs.reset(seed=0)
    assert len(set(info["task_id"])) == 2
    obs, *_ = envs.step([LIST_FILES] * 2)
    assert [m[0]["name"] for m in obs] == ["list_files"] * 2
    envs.close()


def test_stock_wrappers():
    env = gym.make("AWorld/Gaia-v0")
    env = gym.wrappers.TransformReward(env, lambda r: r * 2)
    env = gym.wrappers.RecordEpisodeStatistics(gym.wrappers.TimeLimit(env, 2))
    env.reset(seed=0)
    assert env.step(LIST_FILES)[2:4] == (False, False)
    _, _, terminated, truncated, info = env.step(LIST_FILES)
    assert (terminated, truncated) == (False, True) and info["episode"]["l"] == 2
    env.close()


def test_a_spec_rebuilds_the_env_with_its_shaping():
    tools = ["list_files", "submit_answer"]
    env = gym.make("AWorld/Gaia-v0", level=1, world="synthetic", limits={"max_turns": 7}, tools=tools)
    env = RewardShaping(RewardShaping(env, "step_penalty", amount=0.01), "plan_progress", amount=0.5)
    rebuilt = gym.make(EnvSpec.from_json(env.spec.to_json()))
    outcomes = []
    for each in (env, rebuilt):
        obs, info = each.reset(seed=11)
        outcomes.append((obs, info, each.step(LIST_FILES)))
        assert [t["function"]["name"] for t in info["tools"]] == tools
        assert each.unwrapped.limits.max_turns == 7
        each.close()
    assert outcomes[0] == outcomes[1]
    assert set(outcomes[0][2][-1]["reward_components"]) == {"task", "step_penalty", "plan_progress"}


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"split": "valid"}, "valid"),
        ({"level": 7}, "level"),
        ({"world": "shiftd"}, "shifted"),
        ({"preset": "minni"}, "Did you mean 'mini'"),
        ({"preset": "mini", "level": 2}, "preset='mini' has its own"),
        ({"templates": ["no-such"]}, "no-such"),
        ({"sandbox": "firejail"}, "firejail"),
        ({"scorer": "offical"}, "Did you mean 'official'"),
        ({"preset": "mini", "scorer": "lax"}, "strict"),
    ],
)
def test_arguments_that_cannot_work_are_refused_when_the_env_is_made(kwargs, message):
    with pytest.raises(ConfigError, match=message):
        gym.make("AWorld/Gaia-v0", **kwargs)


@pytest.mark.parametrize(("scorer", "score"), [("strict", 0.0), ("official", 1.0)])
def test_the_scorer_can_be_chosen(scorer, score):
    env = gym.make("AWorld/Gaia-v0", preset="mini", scorer=scorer)
    env.reset(seed=0)
    answer = "$" + env.unwrapped.task.answer["text"]  # the public scorer takes signs of money off
    call = {"id": "c", "function": {"name": "submit_answer", "arguments": {"answer": answer}}}
    assert env.step({"role": "assistant", "content": None, "tool_calls": [call]})[1] == score
    env.close()


def test_a_tool_that_is_not_there_is_refused_at_reset():
    env = gym.make("AWorld/Gaia-v0", tools=["list_file"])
    with pytest.raises(ConfigError, match="Did you mean 'list_files'"):
        env.reset(seed=0)
    env.close()


PLAY = """
import hashlib, json, sys
import gymnasium as gym, aworld_gym
digest = hashlib.sha256()
for kwargs in ({}, {"preset": "mini"}, {"split": "test"}):
    env = gym.make("AWorld/Gaia-v0", **kwargs)
    for seed in range(6):
        obs, info = env.reset(seed=seed)
        seen = [obs, info]
        for path in sorted(env.unwrapped.workspace.rglob("*")):
            seen.append([path.name, hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None])
        for k, step in enumerate(env.unwrapped.task.plan):
            call = {"id": f"c{k}", "function": {"name": step.tool, "arguments": dict(step.arguments)}}
            seen.append(env.step({"role": "assistant", "content": None, "tool_calls": [call]}))
        digest.update(json.dumps(seen, sort_keys=True).encode())
    env.close()
print(digest.hexdigest())
"""


def test_the_same_seed_gives_the_same_bytes_in_two_processes_with_different_hash_seeds():
    digests = set()
    for hash_seed in ("1", "2"):
        env = os.environ | {"PYTHONHASHSEED": hash_seed, "TZ": "UTC" if hash_seed == "1" else "Asia/Tokyo"}
        done = subprocess.run([sys.executable, "-c", PLAY], env=env, capture_output=True, text=True, timeout=200)
        assert done.returncode == 0, done.stderr
        digests.add(done.stdout.strip())
    assert len(digests) == 1


def test_the_answer_is_in_no_info():
    env = gym.make("AWorld/Gaia-v0", level=1)
    for seed in range(10):
        obs, info = env.reset(seed=seed)
        shown = json.dumps([obs, info])
        assert "answer" not in info and "plan" not in info
        assert json.dumps(env.unwrapped.task.answer) not in shown
    env.close()


@pytest.mark.slow
@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_the_oracle_always_succeeds(split):
    env = gym.make("AWorld/Gaia-v0", split=split)
    episodes = rollout(env, OraclePolicy(), episodes=70, concurrency=8)
    report = summarize(episodes)
    assert (report["success_rate"], report["valid"], report["tool_errors"]) == (1.0, 70, 0)


@pytest.mark.slow
def test_random_play_does_not_succeed():
    report = summarize(rollout("AWorld/Gaia-v0", RandomPolicy(), episodes=200, concurrency=8))
    assert report["valid"] == 200 and report["success_rate"] < 0.02


@pytest.mark.parametrize("kwargs", [{}, {"split": "validation"}, {"split": "test"}, {"preset": "mini"}], ids=str)
def test_the_oracle_earns_all_progress_and_guesses_earn_none(kwargs):
    env = RewardShaping(gym.make("AWorld/Gaia-v0", **kwargs), "plan_progress", amount=1.0)
    digits = " ".join(map(str, range(10, 2000)))
    code = "print(*range(10, 10000))"
    calls = [
        (digits, {}),
        ("list_files", {digits: 1}),
        ("read_table", {"path": digits}),
        ("run_python", {"code": code}),
    ]
    calls += [("calculate", {"expression": str(n)}) for n in range(10, 14)]
    spam = [{"id": f"c{k}", "function": {"name": n, "arguments": a}} for k, (n, a) in enumerate(calls)]
    for seed in range(12):
        env.reset(seed=seed)
        paid = [env.step(action)[-1]["reward_components"]["plan_progress"] for action in oracle(env)]
        assert sum(paid) == pytest.approx(1.0), env.unwrapped.task.id
        env.reset(seed=seed)
        info = env.step({"role": "assistant", "content": None, "tool_calls": spam})[-1]
        # A program to run is all there is to some tasks: then its output can be guessed, and nothing else.
        first = next(s.tool for s in env.unwrapped.task.plan if s.shows)
        assert info["reward_components"]["plan_progress"] == 0.0 or first == "run_python", env.unwrapped.task.id
    env.close()


def settled(before, seconds=20):
    """The process's file descriptors, threads and children, once no more than ``before``, or after ``seconds``."""
    me, end = psutil.Process(), time.monotonic() + seconds
    while True:
        now = (me.num_fds(), len(me.children(recursive=True)))
        if all(n <= b for n, b in zip(now, before, strict=True)) or time.monotonic() > end:
            return now
        time.sleep(0.1)


@pytest.mark.slow
def test_sixty_four_concurrent_episodes_twenty_times_leave_nothing():
    envs = [gym.make("AWorld/Gaia-v0", preset="mini") for _ in range(64)]

    async def one_round(number):
        async def play(k, env):
            await aio.areset(env, seed=1000 * number + k)
            for action in oracle(env):
                *_, terminated, _, info = await aio.astep(env, action)
            assert terminated and info["score"] == 1.0

        async with asyncio.TaskGroup() as group:
            for k, env in enumerate(envs):
                group.create_task(play(k, env))

    me, unclosed = psutil.Process(), toolchain.stats().opened - toolchain.stats().closed
    loop.run(one_round(0))
    before = (me.num_fds(), len(me.children(recursive=True)))
    threads, opened = threading.active_count(), toolchain.stats().opened
    for number in range(1, 20):
        loop.run(one_round(number))
    assert toolchain.stats().opened - opened == 64 * 19
    # Pools of threads grow with how many calls happen to meet, up to a bound that 19 rounds of 64 would pass by far.
    assert settled(before) <= before and threading.active_count() <= threads + 16
    places = [env.unwrapped.workspace for env in envs]
    for env in envs:
        env.close()
    assert not any(place.exists() for place in places)
    assert toolchain.stats().opened - toolchain.stats().closed == unclosed
