"""What a rollout asks of whatever plays its episodes.

A :class:`Policy` is one object for a whole rollout (it may hold a client or a model); it makes one
:class:`Agent` per episode, which holds that episode's conversation. Agents run on the package's event loop: they
await what is slow and never block.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import gymnasium as gym

from aworld_gym.types import Message


@runtime_checkable
class Agent(Protocol):
    """Plays one episode. ``act`` is a coroutine function.

    Optional methods are called where they exist: ``observe(reward: float, info: dict, done: bool)`` after each step;
    ``close()`` exactly once when the episode is over, for whatever reason; and in a fork ``follow(messages, action)``,
    for each step that is taken over: what ``act`` would have been given, and the action that it is to have returned.
    An agent without ``follow`` is given those steps' messages, its own among them, with its first ``act``.
    """

    async def act(self, messages: tuple[Message, ...]) -> Message | None:
        """The next action.

        Args:
            messages: the messages that are new since the last action; system and user messages at first.

        Returns:
            An assistant message, or None where the agent's own token budget is used up: the episode then ends
            with outcome ``max_tokens``.

        Raises:
            InfraError: what it samples from failed, retries included. The episode is then not a measurement.
            Exception: anything else is taken for the policy's bug and stops the rollout.
        """


@dataclass(frozen=True)
class Recipe:
    """How to make a policy in another process: ``aworld_gym.policies.make(name, **options)``."""

    name: str
    """A short name, or the import path of a factory or a policy function."""
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """JSON values; secrets may be among them, so they are not shown."""


@runtime_checkable
class Policy(Protocol):
    """Makes agents.

    Optional: ``settings``, a mapping of JSON values that say how it plays (a temperature, say). They are recorded in
    every episode, and a journal is not continued with others. ``recipe``, a :class:`Recipe`, for engines that play in
    other processes; what ``aworld_gym.policies.make`` makes gets one. ``stays``, a text instead, that says why it
    cannot be made there. ``async astart()`` is awaited before the first episode of a rollout in this process,
    ``async aclose()`` when a rollout ends; the policy may be used again.
    """

    name: str
    """Short, for logs and records."""

    def episode(
        self, *, obs: Any, info: Mapping[str, Any], seed: int | None, index: int, attempt: int, env: gym.Env
    ) -> Agent:
        """An agent for the episode that was just reset.

        Args:
            obs: the observation of reset, which the first ``act`` is given too.
            info: the info of reset; ``info["tools"]`` are the OpenAI tool schemas.
            seed: the seed of reset; None where the task was chosen otherwise.
            index: the episode's place in the rollout: episodes of a group differ in it, attempts do not.
            attempt: 0 for the first try.
            env: the env, for policies that know more than a model may (the oracle reads the task).
        """


def tool_call(call_id: str, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """An OpenAI tool call."""
    text = json.dumps(arguments, ensure_ascii=False)
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": text}}
