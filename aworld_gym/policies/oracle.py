"""The oracle: plays each task's own plan. For tests of envs and tasks, demonstrations, and as an upper bound."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym

from aworld_gym.errors import ConfigError
from aworld_gym.policies.base import Recipe, tool_call
from aworld_gym.types import Message, Task


class OraclePolicy:
    """Plays ``task.plan``, one call a turn; it reads the task from the env, through any wrappers.

    Example:
        >>> OraclePolicy().name
        'oracle'
    """

    name = "oracle"
    recipe = Recipe("oracle")

    def episode(
        self, *, obs: Any, info: Mapping[str, Any], seed: int | None, index: int, attempt: int, env: gym.Env
    ) -> OracleAgent:
        """An agent that plays the plan of the env's current task; ConfigError where the task has none."""
        task: Task = env.get_wrapper_attr("task")
        if not task.plan:
            raise ConfigError(f"task {task.id!r} has no plan for the oracle to play; choose another policy")
        return OracleAgent(task)


class OracleAgent:
    """Plays one plan; after it, should the episode still run, says so without an answer."""

    def __init__(self, task: Task):
        self._task, self._turn = task, 0

    async def act(self, messages: tuple[Message, ...]) -> Message:
        """The plan's next call."""
        turn, self._turn = self._turn, self._turn + 1
        if turn >= len(self._task.plan):
            return {"role": "assistant", "content": "The plan is played and the episode goes on: the plan is wrong."}
        step = self._task.plan[turn]
        call = tool_call(f"call_{turn}", step.tool, step.arguments)
        return {"role": "assistant", "content": step.content or None, "tool_calls": [call]}

    def follow(self, messages: tuple[Message, ...], action: Message) -> None:
        """A step of the plan was taken already."""
        self._turn += 1
