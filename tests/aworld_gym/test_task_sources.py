"""What a task source may do: wait, fail, and write files for longer than anybody waits for it."""

import asyncio
import threading
import time

import gymnasium as gym
import pytest
from small_env import TASKS
from small_toolchain import IN_PROCESS
from tool_messages import calling
from waits import until

from aworld_gym import Task, aio
from aworld_gym.env import ToolEnv
from aworld_gym.errors import ConfigError, InfraError
from aworld_gym.policies import ScriptedPolicy
from aworld_gym.rollout import rollout
from aworld_gym.tasks import TaskList
from aworld_gym.toolchain import loop

ANSWER = ScriptedPolicy([{"role": "assistant", "content": "<answer>42</answer>"}])


def test_scorers_that_wait_do_so_side_by_side_and_not_on_the_loop():
    together = threading.Barrier(3)

    def judge(truth, answer):
        together.wait(30)  # until three are here: one after another none would ever leave
        assert not loop.on_loop()
        return 1.0

    played = rollout(lambda: ToolEnv(IN_PROCESS, TaskList(TASKS[:1], judge)), ANSWER, episodes=3, concurrency=3)
    assert [episode.score for episode in played] == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("method", ["sample", "get", "setup", "score"])
@pytest.mark.parametrize("error", [StopIteration, ZeroDivisionError])
def test_a_source_that_fails_is_infrastructure_and_nobody_waits_for_ever(method, error):
    def fails(*args):
        raise error("no more")

    source = TaskList(TASKS)
    setattr(source, method, fails)
    env = ToolEnv(IN_PROCESS, source)
    try:
        if method == "score":
            env.reset(options={"task_id": "one"})
            *_, truncated, info = env.step({"role": "assistant", "content": "<answer>42</answer>"})
            assert truncated and info["outcome"] == "infra_failure" and "no more" in env.episode.error
        else:
            with pytest.raises(InfraError, match="no more"):
                env.reset(options={"task_id": "one"} if method == "get" else None)
    finally:
        env.close()


@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        (None, "a scorer gives a number from 0 to 1 or a Score, got None"),
        ({"score": 1}, "a scorer gives a number from 0 to 1 or a Score, got {'score': 1}"),
        (1.5, "a score is a finite number in [0, 1], got 1.5"),
        (float("nan"), "a score is a finite number in [0, 1], got nan"),
    ],
)
def test_a_scorer_that_gives_no_score_is_said_to(verdict, said):
    (played,) = rollout(
        lambda: ToolEnv(IN_PROCESS, TaskList(TASKS[:1], lambda truth, answer: verdict)), ANSWER, episodes=1, retries=0
    )
    assert played.outcome == "infra_failure" and said in played.error
    assert "the answer to task 'one' could not be scored" in played.error


def test_ids_that_are_not_unique_are_named():
    with pytest.raises(ConfigError, match="'two' is there more than once"):
        TaskList([*TASKS, TASKS[1]])


class SlowFiles(TaskList):
    """Writes its tasks' files for a while, each into a folder that it makes anew."""

    def __init__(self):
        super().__init__([Task("slow", "Which files are there?", "x"), Task("quick", "Which files are there?", "x")])
        self.places, self.written = [], threading.Event()

    def setup(self, task, workspace):
        self.places.append(workspace)
        if task.id == "slow":
            for k in range(40):
                (workspace / "of_the_slow_task").mkdir(parents=True, exist_ok=True)
                (workspace / "of_the_slow_task" / str(k)).write_text("x")
                time.sleep(0.02)
            self.written.set()


def test_files_of_a_reset_that_was_given_up_reach_no_other_episode():
    source = SlowFiles()
    env = ToolEnv(IN_PROCESS, source)
    env.reset(options={"task_id": "quick"})  # the servers have started

    async def given_up():
        reset = asyncio.create_task(env.areset(options={"task_id": "slow"}))
        while len(source.places) < 2:
            await asyncio.sleep(0.005)
        reset.cancel()
        await asyncio.wait((reset,))
        return reset.cancelled()

    try:
        assert loop.run(given_up(), timeout=30)
        env.reset(options={"task_id": "quick"})
        assert source.written.wait(30)
        obs, *_ = env.step(calling(("list_files", {})))
        assert obs[0]["content"] == "(empty)"
    finally:
        env.close()
    until(lambda: not any(place.exists() for place in source.places))


def test_a_foreign_wrapper_that_raises_what_ends_iterations_does_not_hang_its_caller():
    class Ends(gym.Wrapper):
        def step(self, action):
            raise StopIteration("no more")

    env = Ends(ToolEnv(IN_PROCESS, TASKS))
    env.reset(seed=0)
    try:
        with pytest.raises(RuntimeError, match="no more"):
            loop.run(aio.astep(env, {"role": "assistant", "content": "x"}), timeout=20)
    finally:
        env.close()
