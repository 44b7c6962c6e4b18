"""Rollouts with real envs on real MCP servers, in process and over stdio."""

import _thread
import asyncio
import json
import sys
import threading
import time
from collections import Counter
from contextlib import aclosing, closing
from pathlib import Path

import gymnasium as gym
import psutil
import pytest
from gymnasium.wrappers import TimeLimit, TransformReward
from say_env import all_closed

from aworld_gym import Limits, Task
from aworld_gym.env import ToolEnv
from aworld_gym.errors import ConfigError, InfraError, PolicyError, UnknownTaskError
from aworld_gym.metrics import summarize
from aworld_gym.policies import OraclePolicy, RandomPolicy, ScriptedPolicy
from aworld_gym.policies.base import tool_call
from aworld_gym.rollout import Groups, Item, arollout, iterate, make_items, rollout
from aworld_gym.toolchain import stats
from aworld_gym.trajectory import Journal, read_jsonl
from aworld_gym.types import Outcome, PlanStep
from aworld_gym.wrappers import RewardShaping, TranscriptObservation

IN_PROCESS = {"mcpServers": {"small": {"python": "small_toolchain:make_server"}}}
STDIO = {
    "mcpServers": {
        "small": {"command": sys.executable, "args": [str(Path(__file__).parents[1] / "lib/small_toolchain.py")]}
    }
}
PLAN = (
    PlanStep("echo", {"text": "alpha"}, shows=("alpha",)),
    PlanStep("add", {"a": 40, "b": 2}, shows=("42",)),
    PlanStep("submit_answer", {"answer": "42"}),
)
TASKS = [Task(name, "How much is 40 + 2?", "42", level=k % 2 + 1, plan=PLAN) for k, name in enumerate("abcdef")]

if "RolloutTest/Small-v0" not in gym.registry:
    gym.register("RolloutTest/Small-v0", entry_point="shaping_functions:make_env")


class Factory:
    """Makes envs and knows which are open."""

    def __init__(self, toolchain=IN_PROCESS, wrap=lambda env: env, **kwargs):
        self.toolchain, self.wrap, self.kwargs = toolchain, wrap, kwargs
        self.made = self.closed = 0

    def __call__(self):
        factory = self

        class Counted(ToolEnv):
            async def aclose(self):
                factory.closed += not getattr(self, "counted", False)
                self.counted = True
                await super().aclose()

        self.made += 1
        return self.wrap(Counted(self.toolchain, TASKS, **self.kwargs))


@pytest.fixture(autouse=True)
def nothing_stays_open():
    """Every test: sessions opened are closed, and no server process outlives it."""
    before = stats()
    yield
    all_closed(before)
    after = stats()
    assert after.processes_started - before.processes_started == after.processes_ended - before.processes_ended
    assert not [p for p in psutil.Process().children(recursive=True) if "small_toolchain" in " ".join(p.cmdline())]


def calling(name, **arguments):
    return {"role": "assistant", "content": None, "tool_calls": [tool_call("c", name, arguments)]}


SUBMIT = calling("submit_answer", answer="42")


class Custom:
    """A policy made of a function ``(seed, attempt, turn, messages) -> message``, which may be asynchronous."""

    name = "custom"

    def __init__(self, say):
        self.say = say
        self.observed, self.closed, self.begun = [], Counter(), 0

    def episode(self, *, obs, info, seed, index, attempt, env):
        policy = self
        policy.begun += 1

        class Agent:
            turn = -1

            async def act(self, messages):
                self.turn += 1
                said = policy.say(seed, attempt, self.turn, messages)
                return await said if asyncio.iscoroutine(said) else said

            def observe(self, reward, info, done):
                policy.observed.append((seed, reward, info["outcome"], done))

            def close(self):
                policy.closed[seed, attempt, index] += 1

        return Agent()


def without_times(episode):
    data = episode.to_dict()
    for record in (data, *data["steps"], *(r for s in data["steps"] for r in s["results"])):
        record.pop("duration_s", None)
        record.pop("started_s", None)
    return data


# ---- what comes out -----------------------------------------------------------------------------------------


def test_the_oracle_succeeds_and_episodes_come_back_in_order():
    factory = Factory()
    episodes = rollout(factory, OraclePolicy(), episodes=12, seed=100, concurrency=5)
    assert [e.seed for e in episodes] == list(range(100, 112))
    assert all(e.score == 1.0 and e.outcome is Outcome.ANSWERED and len(e.steps) == 3 for e in episodes)
    assert all(e.task["level"] in (1, 2) and e.duration_s > 0 for e in episodes)
    assert episodes[0].versions["policy"] == "oracle" and episodes[0].versions["gymnasium"]
    assert 1 <= factory.made <= 5 and factory.made == factory.closed
    assert {e.task_id for e in episodes} > {"a", "b"}


def test_groups_share_seed_task_and_name():
    episodes = rollout(Factory(), OraclePolicy(), episodes=12, seed=3, group_size=4)
    for k, group in enumerate([episodes[0:4], episodes[4:8], episodes[8:12]]):
        assert {(e.seed, e.group_id) for e in group} == {(3 + k, str(3 + k))}
        assert len({e.task_id for e in group}) == 1
        assert [e.sample for e in group] == [0, 1, 2, 3]
    assert len({e.key for e in episodes}) == 12


def test_groups_are_put_together_whole_as_they_complete():
    async def say(seed, attempt, turn, messages):
        await asyncio.sleep(0.3 if seed == 0 else 0.0)
        if seed == 2 or (seed == 1 and attempt == 0):
            raise InfraError("host_refused", "429", server="llm")
        return SUBMIT

    groups, whole = Groups(3), []
    with closing(iterate(Factory(), Custom(say), episodes=9, group_size=3, concurrency=9)) as episodes:
        for episode in episodes:
            group = groups.add(episode)
            if group is not None:
                whole.append([(e.seed, e.sample, e.attempt) for e in group])
    assert sorted(whole) == [[(0, s, 0) for s in range(3)], [(1, s, 1) for s in range(3)]]
    assert groups.open == {"2": {}}
    with pytest.raises(ConfigError, match="size must be"):
        Groups(0)


def test_the_seed_decides_and_concurrency_does_not():
    def play(concurrency):
        factory = Factory(limits=Limits(max_turns=6), tools=["echo", "add", "count", "write", "list_files"])
        return [without_times(e) for e in rollout(factory, RandomPolicy(), episodes=8, concurrency=concurrency)]

    alone, together = play(1), play(8)
    assert alone == together
    assert len({json.dumps(e["steps"]) for e in alone}) == 8


def test_items_pick_tasks():
    items = [Item(k, seed=7, options={"task_id": name}, group_id=name) for k, name in enumerate("fab")]
    episodes = rollout(Factory(), OraclePolicy(), items=items)
    assert [(e.task_id, e.group_id, e.seed) for e in episodes] == [("f", "f", 7), ("a", "a", 7), ("b", "b", 7)]
    with pytest.raises(UnknownTaskError, match="unknown task id 'g'"):
        rollout(Factory(), OraclePolicy(), items=[Item(0, seed=1, options={"task_id": "g"})])


@pytest.mark.parametrize("what", ["id", "spec", "env", "wrapped"])
def test_an_env_by_id_by_spec_or_as_made(what):
    env = gym.make("RolloutTest/Small-v0", limits={"max_turns": 9})
    wrapped = RewardShaping(env, fn="step_penalty", amount=0.25) if what == "wrapped" else env
    source = {"id": "RolloutTest/Small-v0", "spec": env.spec, "env": env, "wrapped": wrapped}[what]
    (episode,) = rollout(source, OraclePolicy(), episodes=1)
    assert episode.env_id == "RolloutTest/Small-v0" and episode.score == 1.0
    spec = json.loads(episode.spec)
    assert spec["kwargs"] == ({} if what == "id" else {"limits": {"max_turns": 9}})
    assert len(spec["additional_wrappers"]) == (what == "wrapped")
    if what == "wrapped":
        assert episode.total_reward == pytest.approx(1.0 - 3 * 0.25)
    assert env.unwrapped.episode is None  # the env that was given is not played in
    env.close()


# ---- rewards and observations as the outermost wrapper gives them -------------------------------------------


def test_shaped_rewards_are_recorded_and_the_score_is_not_touched():
    factory = Factory(
        wrap=lambda env: TransformReward(RewardShaping(env, fn="step_penalty", amount=0.5), lambda r: 2 * r)
    )
    (episode,) = rollout(factory, OraclePolicy(), episodes=1)
    assert [s.reward for s in episode.steps] == [-1.0, -1.0, 1.0]
    assert episode.score == 1.0
    last = episode.steps[-1].components
    assert last["task"] == 1.0 and last["other_wrappers"] == pytest.approx(0.5)
    assert all(sum(s.components.values()) == pytest.approx(s.reward) for s in episode.steps)


@pytest.mark.parametrize("wrap", [lambda env: env, TranscriptObservation, lambda env: TimeLimit(env, 50)])
def test_agents_get_each_message_once_whatever_the_wrapper(wrap):
    got = []

    def say(seed, attempt, turn, messages):
        got.append([m["role"] for m in messages])
        return [calling("echo", text="a"), calling("echo", text="b"), SUBMIT][turn]

    rollout(Factory(wrap=wrap, system_prompt="S"), Custom(say), episodes=1)
    assert got == [["system", "user"], ["tool"], ["tool"]]


def test_a_wrapper_that_cuts_the_episode():
    (episode,) = rollout(
        Factory(wrap=lambda env: TimeLimit(env, 2)), Custom(lambda *_: calling("echo", text="x")), episodes=1
    )
    assert episode.outcome is Outcome.MAX_TURNS and episode.score == 0.0 and len(episode.steps) == 2


def test_the_agents_token_budget_ends_an_episode():
    policy = Custom(lambda seed, attempt, turn, messages: calling("echo", text="x") if turn < 2 else None)
    (episode,) = rollout(Factory(), policy, episodes=1)
    assert episode.outcome is Outcome.MAX_TOKENS and episode.valid and episode.score == 0.0
    assert len(episode.steps) == 2


def test_hooks():
    policy = Custom(lambda seed, attempt, turn, messages: [calling("echo", text="x"), SUBMIT][turn])
    rollout(Factory(), policy, episodes=4, group_size=2)
    assert sorted(policy.observed) == sorted(
        [(0, 0.0, None, False), (0, 1.0, "answered", True)] * 2
        + [(1, 0.0, None, False), (1, 1.0, "answered", True)] * 2
    )
    assert policy.closed == {(0, 0, 0): 1, (0, 0, 1): 1, (1, 0, 2): 1, (1, 0, 3): 1}


# ---- infrastructure -----------------------------------------------------------------------------------------


def test_a_dying_server_is_retried_in_a_fresh_env_and_both_attempts_are_recorded(tmp_path):
    def say(seed, attempt, turn, messages):
        return calling("die") if seed in (1, 2) and (attempt == 0 or seed == 2) else SUBMIT

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
        return [calling("echo", text="x"), SUBMIT][turn]

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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"episodes": 0}, "episodes must be a whole number of at least 1, got 0"),
        ({"episodes": 3, "group_size": 2}, "multiple of group_size"),
        ({"seed": -1}, "seed must be"),
        ({"concurrency": 0}, "concurrency must be"),
        ({"retries": -1}, "retries must be"),
        ({"retries": True}, "retries must be"),
        ({"deadline_s": 0}, "deadline_s must be positive"),
        ({"resume": True}, "needs the journal"),
        ({"episodes": 1, "items": [Item(0, 0)]}, "either episodes or items"),
        ({"concurency": 2}, r"a rollout takes no argument 'concurency'.*Did you mean 'concurrency'\?"),
    ],
)
def test_bad_arguments(options, message):
    with pytest.raises(ConfigError, match=message):
        rollout(Factory(), OraclePolicy(), **options)


def test_bad_envs():
    with pytest.raises(ConfigError, match="has no spec"):
        rollout(Factory()(), OraclePolicy(), episodes=1)
    with pytest.raises(ConfigError, match="NoSuchEnv"):
        rollout("NoSuchEnv-v0", OraclePolicy(), episodes=1)
    with pytest.raises(ConfigError, match="got int"):
        rollout(3, OraclePolicy(), episodes=1)
    for env in ("CartPole-v1", lambda: gym.make("CartPole-v1"), lambda: None):
        with pytest.raises(ConfigError, match="is not a tool env"):
            rollout(env, OraclePolicy(), episodes=2)


# ---- time -----------------------------------------------------------------------------------------------------


def test_a_hung_tool_delays_nobody():
    limits = Limits(call_timeout_s=5.0)

    def say(seed, attempt, turn, messages):
        return calling("wait", seconds=60) if seed == 0 and turn == 0 else SUBMIT

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
                return calling("wait", seconds=60)
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


# ---- resume ---------------------------------------------------------------------------------------------------


def test_resume_plays_what_is_missing_and_nothing_twice(tmp_path):
    path, played = tmp_path / "e.jsonl", []

    def say(seed, attempt, turn, messages):
        played.append((seed, attempt))
        if seed == 1 and attempt < 2:
            raise InfraError("host_refused", "down", server="llm")
        return SUBMIT

    rollout(Factory(), Custom(say), episodes=4, group_size=2, seed=0, retries=0, journal=path)
    assert Counter(played) == {(0, 0): 2, (1, 0): 2}
    path.write_bytes(path.read_bytes() + b'{"env_id": "torn')
    played.clear()
    episodes = rollout(Factory(), Custom(say), episodes=6, group_size=2, seed=0, journal=path, resume=True)
    assert Counter(played) == {(1, 1): 2, (1, 2): 2, (2, 0): 2}
    assert [(e.seed, e.sample, e.attempt) for e in episodes] == [
        (0, 0, 0),
        (0, 1, 0),
        *((1, sample, attempt) for sample in (0, 1) for attempt in (0, 1, 2)),
        (2, 0, 0),
        (2, 1, 0),
    ]
    assert sorted(e.key for e in read_jsonl(path)) == sorted(e.key for e in episodes)
    played.clear()
    again = rollout(Factory(), Custom(say), episodes=6, group_size=2, seed=0, journal=path, resume=True)
    assert not played and [e.key for e in again] == [e.key for e in episodes]


def test_resume_by_task(tmp_path):
    def items(names):
        return [Item(k, seed=0, options={"task_id": name}) for k, name in enumerate(names)]

    path, factory = tmp_path / "e.jsonl", Factory()
    rollout(factory, OraclePolicy(), items=items("ab"), journal=path)
    episodes = rollout(factory, OraclePolicy(), items=items("bca"), journal=path, resume=True)
    assert [e.task_id for e in episodes] == ["b", "c", "a"]
    assert [e.task_id for e in read_jsonl(path)].count("c") == 1 and len(list(read_jsonl(path))) == 3


def test_a_journal_of_something_else_is_refused(tmp_path):
    path = tmp_path / "e.jsonl"
    rollout("RolloutTest/Small-v0", OraclePolicy(), episodes=1, journal=path)
    before = path.read_bytes()
    changed = OraclePolicy()
    changed.settings = {"style": "terse"}
    other = gym.make("RolloutTest/Small-v0", limits={"max_turns": 5})
    for env, policy, resume, message in (
        ("RolloutTest/Small-v0", OraclePolicy(), False, "already has episodes"),
        ("RolloutTest/Small-v0", ScriptedPolicy([SUBMIT]), True, "its policy is 'oracle', this one's is 'scripted'"),
        (other, OraclePolicy(), True, "its env spec is"),
        (Factory(), OraclePolicy(), True, "its env is 'RolloutTest/Small-v0'"),
        ("RolloutTest/Small-v0", changed, True, "its policy settings is {}, this one's is {'style': 'terse'}"),
    ):
        for episodes in (1, 2):  # whether anything is left to play or not
            with pytest.raises(ConfigError, match=message):
                rollout(env, policy, episodes=episodes, journal=path, resume=resume)
    assert path.read_bytes() == before
    other.close()


def test_several_rollouts_may_share_an_open_journal(tmp_path):
    with Journal(tmp_path / "e.jsonl") as journal:
        for seed in (0, 10):
            rollout(Factory(), OraclePolicy(), episodes=2, seed=seed, journal=journal)
        assert not journal.closed
    assert sorted(e.seed for e in read_jsonl(tmp_path / "e.jsonl")) == [0, 1, 10, 11]


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


def test_make_items():
    items = make_items(4, seed=5, group_size=2)
    assert [(i.index, i.seed, i.sample, i.group_id) for i in items] == [
        (0, 5, 0, "5"),
        (1, 5, 1, "5"),
        (2, 6, 0, "6"),
        (3, 6, 1, "6"),
    ]


def test_progress_goes_to_stderr(capfd):
    rollout(Factory(), OraclePolicy(), episodes=3, progress=True)
    out, err = capfd.readouterr()
    assert out == "" and "3/3" in err and "success 1.00" in err
