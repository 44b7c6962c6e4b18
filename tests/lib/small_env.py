"""An env of the small toolchain whose tasks ask for sums, as fixtures that close what they made."""

from __future__ import annotations

import pytest
from small_toolchain import IN_PROCESS
from tool_messages import call

from aworld_gym import Task
from aworld_gym.env import ToolEnv

TASKS = [Task("one", "How much is 40 + 2?", "42"), Task("two", "How much is 1 + 1?", "2"), Task("open", "Write.", None)]
SUBMIT, GOOD, BAD = call("submit_answer", answer="42"), call("echo", text="x"), call("nope")


@pytest.fixture(name="make")
def make_fixture():
    """Makes an env, which is closed in the end."""
    made = []

    def make(toolchain=IN_PROCESS, tasks=TASKS, **kwargs):
        made.append(ToolEnv(toolchain, tasks, **kwargs))
        return made[-1]

    yield make
    for env in made:
        env.close()


@pytest.fixture(name="env")
def env_fixture(make):
    """One that has been reset to the first task."""
    env = make(system_prompt="Be brief.")
    env.reset(seed=0, options={"task_id": "one"})
    return env
