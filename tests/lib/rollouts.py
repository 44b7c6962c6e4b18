"""What tests of rollouts play with: counted envs, policies made of functions, and the look for what is left."""

from __future__ import annotations

import asyncio
from collections import Counter

import gymnasium as gym
import pytest
from leaks import living_children
from say_env import all_closed
from shaping_functions import PLAN
from small_toolchain import IN_PROCESS
from tool_messages import call

from aworld_gym import Task
from aworld_gym.env import ToolEnv
from aworld_gym.toolchain import stats

if "RolloutTest/Small-v0" not in gym.registry:
    gym.register("RolloutTest/Small-v0", entry_point="shaping_functions:make_env")

TASKS = [Task(name, "How much is 40 + 2?", "42", level=k % 2 + 1, plan=PLAN) for k, name in enumerate("abcdef")]


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


SUBMIT = call("submit_answer", answer="42")


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


@pytest.fixture(autouse=True)
def nothing_stays_open():
    """Every test: sessions opened are closed, and no server process outlives it."""
    before, children = stats(), living_children()
    yield
    all_closed(before)
    after = stats()
    assert after.processes_started - before.processes_started == after.processes_ended - before.processes_ended
    assert not living_children() - children
