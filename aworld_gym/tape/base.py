"""What all tapes share: whom a session serves, what tells one call from another, and how an env gets a tape."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol, TypeVar

import gymnasium as gym

from aworld_gym.actions import canonical_json
from aworld_gym.episode_state import digest
from aworld_gym.errors import ConfigError
from aworld_gym.toolchain import Toolchain
from aworld_gym.toolchain.session import ToolSession
from aworld_gym.types import Task


class Label(NamedTuple):
    """Which episode of a rollout a session serves."""

    seed: int | None
    sample: int
    attempt: int


PLAYING: ContextVar[Label | None] = ContextVar("aworld_gym_playing", default=None)
"""The episode that is being reset; None in loops of one's own."""


class Tape(Protocol):
    """What an env asks for its sessions when it has one."""

    async def open(self, toolchain: Toolchain, task: Task) -> ToolSession:
        """One episode's tools."""


E = TypeVar("E", gym.Env, gym.vector.VectorEnv)


def attach(env: E, tape: Tape | None) -> E:
    """The env, which takes its tools through ``tape`` from its next reset on (None: from its servers alone).

    A vector env does so in all its sub-envs.

    Raises:
        ConfigError: the env is no tool env.

    Example:
        >>> import gymnasium as gym, aworld_gym
        >>> from aworld_gym.tape import Recorder, attach
        >>> env = attach(gym.make("AWorld/Gaia-v0"), Recorder("runs/tape"))  # doctest: +SKIP
    """
    inner: Any = env.unwrapped
    for one in inner.envs if isinstance(inner, gym.vector.VectorEnv) and hasattr(inner, "envs") else (inner,):
        if not hasattr(one.unwrapped, "tape"):
            raise ConfigError(f"only a tool env has tools to be recorded; got {type(one.unwrapped).__name__}")
        one.unwrapped.tape = tape
    return env


def same_task(task: Task) -> str:
    """Equal for tasks that look the same to tools and model: a hash of id, prompt and public data."""
    return digest(canonical_json([task.id, task.prompt, task.public]))


def after(state: str, asked: Mapping[str, Any]) -> str:
    """The state of an episode after a call: a hash of the task and of all calls so far, in order."""
    return digest(f"{state}\n{call_text(asked)}")


def call_text(asked: Mapping[str, Any]) -> str:
    """One text for equal calls: server, tool and arguments."""
    return canonical_json([asked["server"], asked["tool"], asked["arguments"]])


def listings(session: ToolSession) -> dict[str, list[dict[str, Any]]]:
    """Each server's tools, as it lists them."""
    return {name: lease.connection.tools for name, lease in session._grant.leases.items()}
