"""Rollouts in which something breaks, hangs or is stopped, with real envs on real MCP servers."""

import _thread
import asyncio
import sys
import threading
import time
from contextlib import aclosing, closing

import psutil
import pytest
from gymnasium.wrappers import TransformReward
from rollouts import SUBMIT, TASKS, Custom, Factory, nothing_stays_open  # noqa: F401
from small_toolchain import IN_PROCESS, STDIO
from tool_messages import call

from aworld_gym import Limits
from aworld_gym.env import ToolEnv
from aworld_gym.errors import InfraError, PolicyError
from aworld_gym.metrics import summarize
from aworld_gym.policies import OraclePolicy, ScriptedPolicy
from aworld_gym.rollout import arollout, iterate, rollout
from aworld_gym.trajectory import Journal, read_jsonl
from aworld_gym.types import Outcome

# ---- infrastructure -----------------------------------------------------------------------------------------


def test_a_dying_server_is_retried_in_a_fresh_env_and_both_attempts_are_recorded(tmp_path):
    def say(seed, attempt, turn, messages):
        return call("die") if seed in (1, 2) and (attempt == 0 or seed == 2) else SUBMIT

    factory, policy, seen = Factory(STDIO), Custom(say), []
    episodes = rollout(factory, policy, episodes=3, concurrency=2, journal=tmp_path / "e.jsonl", on_episode=seen.append)
    assert [(e.seed, e.attempt, e.outcome.value, e.valid) for e in episodes] == [
        (0, 0, "answered", True),
        (1, 0, "infra_failure", False),
        (1, 1, "answered", True),
        (2, 0, "infra_failure", False),
        (2, 1, "infra_failure", False),
    ]
    assert all("server_died" in e.error and e.score is None for e in episodes if not e.valid)
    assert all(e.error_kind == (None if e.valid else "server_died") for e in episodes)
    assert factory.made == factory.closed >= 4
    assert [e.key for e in read_jsonl(tmp_path / "e.jsonl")] == [e.key for e in seen]
    assert sorted(e.key for e in seen) == sorted(e.key for e in episodes)
    assert policy.closed == {(e.seed, e.attempt, e.seed): 1 for e in episodes}
    found = summarize(episodes)
    assert (found["valid"], found["invalid"], found["retried"], found["success_rate"]) == (2, 1, 2, 1.0)


def test_a_server_that_does_not_start_spoils_the_episode_and_not_the_run():
    broken = {"mcpServers": {"small": {"command": sys.executable, "args": ["-c", "raise SystemExit('no licence')"]}}}
    episodes = rollout(Factory(broken), OraclePolicy(), episodes=2, retries=0)
    assert [e.outcome for e in episodes] == [Outcome.INFRA_FAILURE] * 2
    assert all("server_start_failed" in e.error and "no licence" in e.error for e in episodes)
    assert {e.error_kind for e in episodes} == {"server_start_failed"}


def test_an_env_that_cannot_be_made():
    tries = []

    def factory():
        tries.append(1)
        if len(tries) == 1:
            raise InfraError("host_unreachable", "no host")
        return Factory()()

    first, second = rollout(factory, OraclePolicy(), episodes=1)
    assert first.error == "host_unreachable: no host" and first.env_id == "factory" and not first.steps
    assert second.attempt == 1 and second.score == 1.0


def test_a_policy_that_cannot_sample_spoils_the_episode():
    def say(seed, attempt, turn, messages):
        if turn == 1 and attempt == 0:
            raise InfraError("host_refused", "429", server="llm")
        return [call("echo", text="x"), SUBMIT][turn]

    first, second = rollout(Factory(), Custom(say), episodes=1)
    assert first.outcome is Outcome.INFRA_FAILURE and first.error == "host_refused [llm]: 429" and len(first.steps) == 1
    assert first.score is None and second.score == 1.0 and second.attempt == 1
    assert (first.error_kind, second.error_kind) == ("host_refused", None)


def test_what_spoils_every_episode_is_said_aloud_once(caplog):
    def say(seed, attempt, turn, messages):
        raise InfraError("host_refused", "429" if seed else "403", server="llm")

    with caplog.at_level("INFO", logger="aworld_gym.rollout"):
        rollout(Factory(), Custom(say), episodes=5, retries=0)
    aloud = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert len(aloud) == 2 and sum("429" in text for text in aloud) == 1
    assert len(caplog.records) == 5


# ---- the caller's bugs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("bug", ["raises", "no message", "no agent", "stray cancellation"])
def test_a_policys_bug_is_reported_and_finished_episodes_are_kept(bug, tmp_path):
    async def say(seed, attempt, turn, messages):
        if seed < 3:
            return SUBMIT
        await asyncio.sleep(0.3)
        if bug == "raises":
            raise KeyError("lost")
        if bug == "stray cancellation":
            raise asyncio.CancelledError
        return {"role": "user"}

    class Broken(Custom):
        def episode(self, *, seed, **kwargs):
            if bug == "no agent" and seed == 3:
                raise KeyError("lost")
            return super().episode(seed=seed, **kwargs)

    factory = Factory()
    with pytest.raises(PolicyError, match="policy 'custom'") as error:
        rollout(factory, Broken(say), episodes=20, concurrency=4, journal=tmp_path / "e.jsonl")
    told = "\n".join([str(error.value), *error.value.__notes__])
    assert "seed" in told and "attempt 0" in told
    if bug in ("raises", "no agent"):
        assert isinstance(error.value.__cause__, KeyError) and "lost" in told
    assert factory.made == factory.closed
    kept = {e.seed for e in error.value.finished}
    assert kept == {e.seed for e in read_jsonl(tmp_path / "e.jsonl")} and (kept == {0, 1, 2} or bug == "no agent")


def test_an_act_that_is_not_asynchronous_is_told_so():
    class Plain:
        name = "plain"

        def __init__(self, agent):
            self.agent = agent

        def episode(self, **kwargs):
            return self.agent

    class Agent:
        def act(self, messages):
            return SUBMIT

    with pytest.raises(PolicyError, match=r"act\(\) must be asynchronous .*and it returned a dict"):
        rollout(Factory(), Plain(Agent()), episodes=1)
    with pytest.raises(PolicyError, match=r"episode\(\) gave a NoneType, which is no agent"):
        rollout(Factory(), Plain(None), episodes=1)


def test_a_bug_in_a_wrapper_or_callback_stops_the_rollout_with_its_own_error():
    def fails(reward):
        raise ZeroDivisionError("in the wrapper")

    with pytest.raises(ZeroDivisionError, match="in the wrapper") as error:
        rollout(Factory(wrap=lambda env: TransformReward(env, fails)), OraclePolicy(), episodes=2)
    assert "seed" in error.value.__notes__[0]
    with pytest.raises(ZeroDivisionError):
        rollout(Factory(), OraclePolicy(), episodes=2, on_episode=lambda episode: 1 / 0)


# ---- time -----------------------------------------------------------------------------------------------------


def test_a_hung_tool_delays_nobody():
    limits = Limits(call_timeout_s=5.0)

    def say(seed, attempt, turn, messages):
        return call("wait", seconds=60) if seed == 0 and turn == 0 else SUBMIT

    began, done = time.monotonic(), []
    with closing(iterate(Factory(limits=limits), Custom(say), episodes=24, concurrency=4)) as episodes:
        for episode in episodes:
            done.append((time.monotonic() - began, episode))
    assert done[-1][1].seed == 0 and len(done) == 24
    assert done[-2][0] < 5.0 <= done[-1][0] < 20.0
    assert done[-1][1].steps[0].results[0].error == "tool_timeout" and done[-1][1].score == 1.0


def test_episodes_run_at_the_same_time():
    async def say(seed, attempt, turn, messages):
        await asyncio.sleep(1.0)
        return SUBMIT

    began = time.monotonic()
    assert len(rollout(Factory(), Custom(say), episodes=32, concurrency=32)) == 32
    assert time.monotonic() - began < 16.0  # one after another: 32


def test_never_more_at_once_than_asked_for():
    at_once, most = 0, 0

    async def say(seed, attempt, turn, messages):
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.02)
        at_once -= 1
        return SUBMIT

    factory = Factory()
    rollout(factory, Custom(say), episodes=20, concurrency=3)
    assert most == 3 and factory.made == 3


def test_an_env_that_hangs_as_it_closes_delays_nobody_and_nothing_for_good(monkeypatch):
    monkeypatch.setattr("aworld_gym.engines.envs.CLOSE_TIMEOUT_S", 4.0)
    hung = []

    class Hangs(ToolEnv):
        async def aclose(self):
            if not hung and self.episode is not None and not self.episode.outcome:  # the one that was spoiled
                hung.append(self)
                await super().aclose()
                await asyncio.sleep(600)
            await super().aclose()

    def say(seed, attempt, turn, messages):
        if seed == 0 and attempt == 0:
            raise InfraError("host_refused", "429", server="llm")
        return SUBMIT

    began, done = time.monotonic(), []
    with closing(iterate(lambda: Hangs(IN_PROCESS, TASKS), Custom(say), episodes=12, concurrency=3)) as episodes:
        for episode in episodes:
            done.append((episode.seed, episode.attempt, time.monotonic() - began))
        assert hung
    assert time.monotonic() - began < 60.0
    spoiled = next(when for seed, attempt, when in done if (seed, attempt) == (0, 0))
    assert len(done) == 13 and spoiled < 4.0  # its record did not wait for its env
    assert all(when < 4.0 for seed, _, when in done if seed != 0)


@pytest.mark.parametrize("where", ["policy", "tool"])
def test_the_deadline_ends_what_hangs_and_the_worker_goes_on(where):
    async def say(seed, attempt, turn, messages):
        if seed == 0:
            if where == "tool":
                return call("wait", seconds=60)
            await asyncio.sleep(60)
        return SUBMIT

    factory = Factory()
    slow, fine = rollout(factory, Custom(say), episodes=2, concurrency=1, deadline_s=3.0)
    assert slow.outcome is Outcome.TIMEOUT and slow.valid and slow.score == 0.0 and slow.steps == ()
    assert fine.score == 1.0 and factory.made == factory.closed == 2


def test_results_come_in_order_of_completion_on_any_loop():
    async def say(seed, attempt, turn, messages):
        await asyncio.sleep(0.5 if seed == 0 else 0.0)
        return SUBMIT

    async def consume():
        return [e.seed async for e in arollout(Factory(), Custom(say), episodes=4)]

    seeds = asyncio.run(consume())
    assert seeds[-1] == 0 and sorted(seeds) == [0, 1, 2, 3]


def test_the_facade_works_inside_a_running_loop_and_from_threads():
    async def inside():
        return rollout(Factory(), OraclePolicy(), episodes=2)

    assert [e.score for e in asyncio.run(inside())] == [1.0, 1.0]
    scores = []
    threads = [
        threading.Thread(
            target=lambda: scores.extend(e.score for e in rollout(Factory(), OraclePolicy(), episodes=3)), daemon=True
        )
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert scores == [1.0] * 9


# ---- cancellation ---------------------------------------------------------------------------------------------


async def hangs_from_three_on(seed, attempt, turn, messages):
    if seed >= 3:
        await asyncio.sleep(600)
    return SUBMIT


@pytest.mark.parametrize("toolchain", [IN_PROCESS, STDIO], ids=["in process", "stdio"])
def test_a_cancelled_consumer_leaves_nothing_open(toolchain, tmp_path):
    factory, policy = Factory(toolchain), Custom(hangs_from_three_on)

    async def consume():
        got = []
        stream = arollout(factory, policy, episodes=20, concurrency=4, journal=tmp_path / "e.jsonl")

        async def all_of_it():
            async with aclosing(stream):
                async for episode in stream:
                    got.append(episode.seed)

        task = asyncio.create_task(all_of_it())
        while (len(got) < 3 or policy.begun < 4) and not task.done():
            await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return got

    assert sorted(asyncio.run(consume())) == [0, 1, 2]
    assert factory.made == factory.closed
    assert sorted(e.seed for e in read_jsonl(tmp_path / "e.jsonl")) == [0, 1, 2]
    Journal(tmp_path / "e.jsonl").close()  # the lock is free
    assert all(count == 1 for count in policy.closed.values()) and len(policy.closed) >= 4


def test_leaving_the_iteration_stops_the_rest():
    factory = Factory()
    with closing(iterate(factory, Custom(hangs_from_three_on), episodes=20, concurrency=4)) as episodes:
        assert next(episodes).valid
    assert factory.made == factory.closed


def test_an_asynchronous_iteration_may_be_left_too():
    factory = Factory()

    async def consume():
        async for episode in arollout(factory, Custom(hangs_from_three_on), episodes=20, concurrency=4):
            return episode.valid

    assert asyncio.run(consume())
    assert factory.made == factory.closed


def test_an_interrupt_leaves_nothing_open_and_what_was_finished_on_disk(tmp_path):
    factory, path = Factory(STDIO), tmp_path / "e.jsonl"

    def interrupt():
        while not path.exists() or path.read_bytes().count(b"\n") < 3:
            time.sleep(0.02)
        _thread.interrupt_main()

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        rollout(factory, Custom(hangs_from_three_on), episodes=20, concurrency=3, journal=path)
    assert factory.made == factory.closed
    assert sorted(e.seed for e in read_jsonl(path)) == [0, 1, 2]


# ---- no growth ------------------------------------------------------------------------------------------------


def test_64_at_once_in_several_rounds_grow_nothing():
    process = psutil.Process()
    factory, policy = Factory(), ScriptedPolicy([SUBMIT])
    rollout(factory, policy, episodes=64, concurrency=64)

    def size():
        return process.num_fds(), len(process.children(recursive=True)), len(asyncio_tasks())

    before = size()
    for k in range(3):
        episodes = rollout(factory, policy, episodes=64, concurrency=64, seed=64 * k)
        assert len(episodes) == 64 and all(e.score == 1.0 for e in episodes)
    after = size()
    assert after[0] <= before[0] + 2 and after[1] == before[1] and after[2] <= before[2]
    assert factory.made == factory.closed == 4 * 64


def asyncio_tasks():
    from aworld_gym.toolchain import loop

    async def tasks():
        return asyncio.all_tasks()

    return loop.run(tasks())
