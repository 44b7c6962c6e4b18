"""The oracle: plays each task's own plan. For tests of envs and tasks, demonstrations, and as an upper bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym

from aworld_gym.errors import ConfigError, did_you_mean
from aworld_gym.policies.base import Recipe, tool_call
from aworld_gym.types import Message, PlanStep, Task

SUBMISSION = "submit_answer"
"""What plans call their submission, in envs too that take answers by a tool of another name, or in text."""


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
        """An agent that plays the plan of the env's current task.

        Raises:
            ConfigError: the task has none, or it calls a tool that the env does not offer.
        """
        task: Task = env.get_wrapper_attr("task")
        if not task.plan:
            raise ConfigError(f"task {task.id!r} has no plan for the oracle to play; choose another policy")
        offered = [tool["function"]["name"] for tool in info["tools"]]
        submit_tool = env.get_wrapper_attr("submit_tool")
        for number, step in enumerate(task.plan, 1):
            if step.tool not in offered and not _submits(step):
                raise ConfigError(
                    f"step {number} of the plan of task {task.id!r} calls {step.tool!r}, which this env does not "
                    f"offer; it offers {', '.join(offered)}.{did_you_mean(step.tool, offered)}"
                )
        if SUBMISSION not in offered:  # by a tool of another name, or in text
            return OracleAgent(task.plan, submit_tool if submit_tool in offered else None)
        return OracleAgent(task.plan)


class OracleAgent:
    """Plays one plan; after it, should the episode still run, says so without an answer.

    Args:
        plan: the calls.
        submit_tool: by which tool an answer is submitted; None: in text.
    """

    def __init__(self, plan: Sequence[PlanStep], submit_tool: str | None = SUBMISSION):
        self._plan, self._submit_tool, self._turn = plan, submit_tool, 0

    async def act(self, messages: tuple[Message, ...]) -> Message:
        """The plan's next call."""
        turn, self._turn = self._turn, self._turn + 1
        if turn >= len(self._plan):
            return {"role": "assistant", "content": "The plan is played and the episode goes on: the plan is wrong."}
        step = self._plan[turn]
        tool = self._submit_tool if _submits(step) else step.tool
        if tool is None:
            answer = f"<answer>{step.arguments.get('answer', '')}</answer>"
            return {"role": "assistant", "content": f"{step.content}\n{answer}" if step.content else answer}
        call = tool_call(f"call_{turn}", tool, step.arguments)
        return {"role": "assistant", "content": step.content or None, "tool_calls": [call]}

    def follow(self, messages: tuple[Message, ...], action: Message) -> None:
        """A step of the plan was taken already."""
        self._turn += 1


def _submits(step: PlanStep) -> bool:
    return step.tool == SUBMISSION
