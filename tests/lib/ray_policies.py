"""Policies that tests on Ray name by import path, and an env factory."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from aworld_gym.errors import InfraError
from aworld_gym.policies import FunctionPolicy, ScriptedPolicy


def _said(text: str) -> dict:
    return {"role": "assistant", "content": f"<answer>{text}</answer>"}


def place(seconds: float = 0.0, meet: str | None = None, of: int = 0):
    """Answers with the process and the node that it is played in, once ``of`` processes are known in a folder."""

    async def where(messages, tools):
        import ray

        if meet is not None:
            Path(meet, str(os.getpid())).touch()
            deadline = time.monotonic() + 90.0
            while len(list(Path(meet).iterdir())) < of and time.monotonic() < deadline:
                await asyncio.sleep(0.05)
        await asyncio.sleep(seconds)
        return _said(f"{os.getpid()} {ray.get_runtime_context().get_node_id()}")

    return FunctionPolicy(where, name="place")


class PerSeed:
    """Does by seed what :meth:`say` says."""

    def __init__(self, name: str, say):
        self.name, self.say = name, say

    def episode(self, *, obs, info, seed, index, attempt, env):
        policy = self

        class Agent:
            async def act(self, messages):
                said = policy.say(seed, attempt)
                return _said(await said if asyncio.iscoroutine(said) else said)

        return Agent()


def fatal(seeds: list[int]):
    """Ends its worker's process in the episodes of some seeds."""

    def say(seed, attempt):
        if seed in seeds:
            os._exit(7)
        return "fine"

    return PerSeed("fatal", say)


def failing():
    """A bug at seed 3, after the others had time to finish."""

    async def say(seed, attempt):
        if seed == 3:
            await asyncio.sleep(1.0)
            raise KeyError("lost")
        return "fine"

    return PerSeed("failing", say)


def spoiled():
    """An endpoint that fails the first attempt of seed 1."""

    def say(seed, attempt):
        if seed == 1 and attempt == 0:
            raise InfraError("host_refused", "429", server="llm")
        return "fine"

    return PerSeed("spoiled", say)


def hanging(pids: str, most: int = 3):
    """Answers the first seeds, hangs in the others, and leaves the number of its process in a folder."""

    async def say(seed, attempt):
        Path(pids, str(os.getpid())).touch()
        if seed >= most:
            await asyncio.sleep(600)
        return "fine"

    return PerSeed("hanging", say)


def secret(name: str):
    """Answers whether the environment variable is there."""
    return ScriptedPolicy(lambda transcript, info: _said("there" if os.environ.get(name) else "missing"), name="secret")


def answer(messages, tools):
    """A policy function."""
    return _said("42")


def other():
    """A policy whose name is another in every process."""
    return FunctionPolicy(answer, name=f"other-{os.getpid()}")


class Slotted:
    """A policy that takes no attributes, and so keeps no recipe."""

    __slots__ = ("name",)

    def __init__(self):
        self.name = "slotted"

    def episode(self, **kwargs):
        raise AssertionError("it is not played")


def make_env():
    """A factory."""
    from say_env import make_env as made

    return made()
