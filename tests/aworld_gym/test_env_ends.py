"""How episodes of the env end, what is recorded of them, and the threads, loops and processes they run in."""

import asyncio
import json
import os
import threading

import pytest
from gymnasium.error import ResetNeeded
from small_env import BAD, GOOD, SUBMIT, TASKS, env_fixture, make_fixture  # noqa: F401
from small_toolchain import IN_PROCESS, STDIO
from tool_messages import calling

from aworld_gym.env import ToolEnv
from aworld_gym.errors import InfraError
from aworld_gym.types import Score

# ---- the end ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "score"),
    [
        (SUBMIT, 1.0),
        (calling(("submit_answer", {"answer": "41"})), 0.0),
        (calling(("submit_answer", {"answer": "41"}), ("submit_answer", {"answer": "42"})), 0.0),
        (calling(("submit_answer", {}), ("submit_answer", {"answer": "42"})), 1.0),
        ({"role": "assistant", "content": "<answer>42</answer>"}, 1.0),
        ({"role": "assistant", "content": "FINAL ANSWER: 42"}, 1.0),
    ],
)
def test_an_answer_ends_the_episode(env, action, score):
    _, reward, terminated, truncated, info = env.step(action)
    assert (reward, terminated, truncated) == (score, True, False)
    assert (info["outcome"], info["score"], info["reward_components"]) == ("answered", score, {"task": score})
    with pytest.raises(ResetNeeded, match="answered"):
        env.step(action)


@pytest.mark.parametrize("content", ["42", None, "Let me first look at the file."])
def test_a_message_with_neither_calls_nor_an_answer_ends_the_episode_without_one(env, content):
    _, reward, terminated, truncated, info = env.step({"role": "assistant", "content": content})
    assert (reward, terminated, truncated, info["outcome"], info["score"]) == (0.0, True, False, "no_answer", 0.0)
    assert env.episode.submitted is None and info["valid"]


def test_a_tool_that_echoes_an_answer_tag_does_not_score(env):
    env.step(calling(("echo", {"text": "<answer>42</answer>"})))
    assert env.step({"role": "assistant", "content": "done"})[1] == 0.0


def test_a_task_without_an_answer_has_no_score(make):
    env = make()
    env.reset(options={"task_id": "open"})
    _, reward, terminated, _, info = env.step(SUBMIT)
    assert (reward, terminated, info["score"], info["valid"]) == (0.0, True, None, True)


def test_invalid_turns_in_a_row_end_the_episode(env):
    for action in (BAD, BAD, GOOD, calling(("fail", {"message": "x"})), BAD, BAD):
        assert env.step(action)[2:4] == (False, False)
    _, reward, terminated, _, info = env.step(BAD)
    assert (terminated, info["outcome"], reward, info["valid"], info["score"]) == (
        True,
        "invalid_calls",
        0.0,
        True,
        0.0,
    )


@pytest.mark.parametrize(
    ("limits", "actions", "outcome"),
    [
        ({"max_turns": 2}, [GOOD, GOOD], "max_turns"),
        ({"max_tool_calls": 3}, [GOOD, calling(("count", {}), ("count", {}))], "max_tool_calls"),
        ({"max_tokens": 5}, [GOOD | {"sampled": {"token_ids": [1] * 5}}], "max_tokens"),
        ({"max_seconds": 0.3}, [calling(("wait", {"seconds": 0.35}))], "timeout"),
    ],
)
def test_a_limit_truncates_and_is_a_valid_zero(make, limits, actions, outcome):
    env = make(limits=limits)
    env.reset(options={"task_id": "one"})
    for action in actions[:-1]:
        assert env.step(action)[2:4] == (False, False)
    _, reward, terminated, truncated, info = env.step(actions[-1])
    assert (reward, terminated, truncated) == (0.0, False, True)
    assert (info["outcome"], info["valid"], info["score"]) == (outcome, True, 0.0)


def test_an_answer_in_the_last_turn_counts(make):
    env = make(limits={"max_turns": 1})
    env.reset(options={"task_id": "one"})
    assert env.step(SUBMIT)[1:4] == (1.0, True, False)


def test_calls_beyond_the_limit_are_answered_and_not_run(make):
    env = make(limits={"max_calls_per_turn": 2})
    env.reset(options={"task_id": "one"})
    obs, *_, info = env.step(calling(*[("count", {})] * 4))
    assert info["tool_errors"] == {"call_over_limit": 2}
    assert env.step(calling(("count", {})))[0][0]["content"] == "3"


def test_a_server_that_dies_is_an_infrastructure_failure_and_not_a_reward(make):
    env = make(STDIO)
    env.reset(options={"task_id": "one"})
    obs, reward, terminated, truncated, info = env.step(calling(("die", {}), ("submit_answer", {"answer": "42"})))
    assert (obs, reward, terminated, truncated) == ((), 0.0, False, True)
    assert (info["outcome"], info["valid"], info["score"]) == ("infra_failure", False, None)
    assert info["error"] == "server_died" and "server_died" in env.episode.error and not env.episode.valid
    env.reset(options={"task_id": "one"})
    assert env.step(SUBMIT)[1] == 1.0


class BrokenTasks:
    """Fails where it is told to."""

    def __init__(self, where):
        self.where = where

    def _fail(self, where):
        if where == self.where:
            raise OSError("disk full")

    def sample(self, rng):
        self._fail("sample")
        return TASKS[0]

    def get(self, task_id):
        return TASKS[0]

    def setup(self, task, workspace):
        self._fail("setup")

    def score(self, task, answer):
        self._fail("score")
        return Score(1.0)


@pytest.mark.parametrize(
    ("where", "what"), [("sample", "no task could be had"), ("setup", "the files of task .* could not be placed")]
)
def test_a_task_that_cannot_be_set_up_is_an_infrastructure_failure(make, where, what):
    env = make(tasks=BrokenTasks(where))
    with pytest.raises(InfraError, match=f"env_failed: {what}: OSError: disk full"):
        env.reset(seed=0)


def test_a_scorer_that_raises_is_no_zero_reward(make):
    env = make(tasks=BrokenTasks("score"))
    env.reset(seed=0)
    _, _, _, truncated, info = env.step(SUBMIT)
    assert truncated and info["outcome"] == "infra_failure" and not info["valid"]


# ---- records ---------------------------------------------------------------------------------------------------


def test_the_record_holds_the_episode_whole(env):
    sampled = {"token_ids": [5, 6], "logprobs": [-0.5, -0.25], "model_version": "m1"}
    env.step(calling(("add", {"a": 40, "b": 2}), sampled=sampled))
    env.step(SUBMIT)
    episode = env.episode
    assert (episode.task_id, episode.outcome, episode.score, episode.submitted, episode.answer) == (
        "one", "answered", 1.0, "42", "42",
    )  # fmt: skip
    assert episode.valid and episode.total_reward == 1.0 and len(episode.steps) == 2
    assert episode.steps[0].sampled == sampled and episode.steps[0].results[0].text == "42"
    assert type(episode).from_dict(json.loads(json.dumps(episode.to_dict()))).to_dict() == episode.to_dict()


def test_equal_states_share_a_key_and_others_do_not(make):
    def key_after(*actions, task="one"):
        env = make()
        info = env.reset(options={"task_id": task})[1]
        for action in actions:
            info = env.step(action)[-1]
        return info["state_key"]

    one, two = calling(("echo", {"text": "a"})), calling(("add", {"a": 1, "b": 2}))
    reordered = calling(("add", {"b": 2, "a": 1}))
    assert key_after(one, two) == key_after(reordered, one)
    assert len({key_after(), key_after(one), key_after(two), key_after(one, one), key_after(task="two")}) == 5


# ---- threads, loops and processes ---------------------------------------------------------------------------------


async def test_the_facade_works_inside_a_running_loop(make):
    env = make()
    env.reset(options={"task_id": "one"})
    assert env.step(SUBMIT)[1] == 1.0


async def test_the_core_works_from_any_loop(make):
    env = make()
    await env.areset(options={"task_id": "one"})
    assert (await env.astep(SUBMIT))[1] == 1.0
    await env.aclose()


def test_an_env_may_be_used_from_several_threads_in_turn(env):
    rewards = []
    thread = threading.Thread(target=lambda: rewards.append(env.step(SUBMIT)[1]))
    thread.start()
    thread.join(20)
    assert rewards == [1.0]


async def test_one_env_runs_one_step_at_a_time(env):
    slow = asyncio.create_task(env.astep(calling(("wait", {"seconds": 0.5}))))
    await asyncio.sleep(0.1)
    with pytest.raises(RuntimeError, match="in the middle of a reset or step"):
        await env.astep(GOOD)
    assert (await slow)[0][0]["content"] == "waited 0.5"


async def test_a_cancelled_step_ends_the_episode_and_the_env_can_go_on(env):
    slow = asyncio.create_task(env.astep(calling(("wait", {"seconds": 30}))))
    await asyncio.sleep(0.2)
    slow.cancel()
    with pytest.raises(asyncio.CancelledError):
        await slow
    assert env.episode.outcome == "cancelled" and not env.episode.valid
    env.reset(options={"task_id": "one"})
    assert env.step(SUBMIT)[1] == 1.0


def in_child(work):
    """Run ``work`` in a forked child; its return value must be true."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if work() else 2
        finally:
            os._exit(code)
    for _ in range(600):
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        threading.Event().wait(0.1)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return "hung"


def test_after_fork_the_copy_can_be_reset_and_the_original_goes_on(env):
    env.step(GOOD)

    def child():
        _, _, _, truncated, info = env.step(GOOD)
        lost = truncated and info["outcome"] == "infra_failure"
        env.reset(options={"task_id": "one"})
        return lost and env.step(SUBMIT)[1] == 1.0

    assert in_child(child) == 0
    assert env.step(SUBMIT)[1] == 1.0


def test_an_env_that_is_dropped_closes_its_session(make):
    import gc

    from aworld_gym import toolchain

    def settled():
        gc.collect()
        for _ in range(100):
            now = toolchain.stats()
            if now.opened == now.closed:
                break
            threading.Event().wait(0.05)
        return now

    before = settled()  # after what earlier tests dropped
    env = ToolEnv(IN_PROCESS, TASKS)
    env.reset(seed=0)
    assert toolchain.stats().opened == before.opened + 1
    del env
    now = settled()
    assert now.opened - before.opened == now.closed - before.closed == 1
