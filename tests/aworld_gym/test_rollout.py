"""Rollouts with real envs on real MCP servers: what comes out, in which order, and what a journal keeps of it."""

import asyncio
import json
from collections import Counter
from contextlib import closing

import gymnasium as gym
import pytest
from episodes import without_times
from gymnasium.wrappers import TimeLimit, TransformReward
from rollouts import SUBMIT, Custom, Factory, nothing_stays_open  # noqa: F401
from tool_messages import call

from aworld_gym import Limits
from aworld_gym.errors import ConfigError, InfraError, UnknownTaskError
from aworld_gym.policies import OraclePolicy, RandomPolicy, ScriptedPolicy
from aworld_gym.rollout import Groups, Item, iterate, make_items, rollout
from aworld_gym.trajectory import Journal, read_jsonl
from aworld_gym.types import Outcome
from aworld_gym.wrappers import RewardShaping, TranscriptObservation

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
        return [call("echo", text="a"), call("echo", text="b"), SUBMIT][turn]

    rollout(Factory(wrap=wrap, system_prompt="S"), Custom(say), episodes=1)
    assert got == [["system", "user"], ["tool"], ["tool"]]


def test_a_wrapper_that_cuts_the_episode():
    (episode,) = rollout(
        Factory(wrap=lambda env: TimeLimit(env, 2)), Custom(lambda *_: call("echo", text="x")), episodes=1
    )
    assert episode.outcome is Outcome.MAX_TURNS and episode.score == 0.0 and len(episode.steps) == 2


def test_the_agents_token_budget_ends_an_episode():
    policy = Custom(lambda seed, attempt, turn, messages: call("echo", text="x") if turn < 2 else None)
    (episode,) = rollout(Factory(), policy, episodes=1)
    assert episode.outcome is Outcome.MAX_TOKENS and episode.valid and episode.score == 0.0
    assert len(episode.steps) == 2


def test_hooks():
    policy = Custom(lambda seed, attempt, turn, messages: [call("echo", text="x"), SUBMIT][turn])
    rollout(Factory(), policy, episodes=4, group_size=2)
    assert sorted(policy.observed) == sorted(
        [(0, 0.0, None, False), (0, 1.0, "answered", True)] * 2
        + [(1, 0.0, None, False), (1, 1.0, "answered", True)] * 2
    )
    assert policy.closed == {(0, 0, 0): 1, (0, 0, 1): 1, (1, 0, 2): 1, (1, 0, 3): 1}


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
