"""Shaping functions of a user's own, named by import path in tests."""

from aworld_gym import Task
from aworld_gym.env import ToolEnv
from aworld_gym.types import PlanStep
from aworld_gym.wrappers.shapers import Progress

PLAN = (
    PlanStep("echo", {"text": "alpha"}, shows=("alpha",)),
    PlanStep("add", {"a": 40, "b": 2}, shows=("42",)),
    PlanStep("submit_answer", {"answer": "42"}),
)
TASKS = [Task("one", "How much is 40 + 2?", "42", plan=PLAN)]


def make_env(**kwargs):
    """The env of the tests, as an entry point that a spec can name."""
    return ToolEnv({"mcpServers": {"small": {"python": "small_toolchain:make_server"}}}, TASKS, **kwargs)


def by_length(obs, action, reward, info, *, weight):
    """``weight`` for each new message."""
    return weight * len(obs)


def returns(obs, action, reward, info, *, value):
    """Whatever it is told."""
    return value


class Offset(Progress):
    """The plan's progress above an offset, so that the first state has a potential too."""

    def __init__(self, offset):
        self.offset = offset

    def __call__(self, obs, action, info):
        return self.offset + super().__call__(obs, action, info)
