"""Demonstrations as token ids: what the warm start imitates.

A demonstration is a plan played out. Playing one in the env costs several times what a training step on it costs,
and the mini tasks' results are known beforehand (:func:`envs.gaia.mini.shown`), so the dialogue is written down
directly; a test plays plans in the real env and finds the same ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aworld_gym.types import Message, PlanStep
from envs.gaia import mini


def dialogue(task: mini.MiniTask, steps: Sequence[PlanStep]) -> list[Message]:
    """The messages of an episode that follows ``steps``: user, then assistant and tool in turn, assistant last."""
    messages: list[Message] = [{"role": "user", "content": task.prompt}]
    for index, step in enumerate(steps):
        messages.append(call(step, f"call_{index}"))
        if index < len(steps) - 1:
            result = {
                "role": "tool",
                "tool_call_id": f"call_{index}",
                "name": step.tool,
                "content": mini.shown(task, step),
            }
            messages.append(result)
    return messages


def call(step: PlanStep, call_id: str) -> Message:
    """The assistant message that makes one step's call."""
    function = {"name": step.tool, "arguments": dict(step.arguments)}
    calls = [{"id": call_id, "type": "function", "function": function}]
    return {"role": "assistant", "content": step.content, "tool_calls": calls}


def encode(codec: Any, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> tuple[list[int], list[int]]:
    """The ids of a dialogue and, aligned with them, 1 where a model would have sampled the id, else 0."""
    ids = codec.prompt(messages[:1], tools)
    mask = [0] * len(ids)
    for index, message in enumerate(messages):
        if message["role"] == "assistant":
            part, sampled = codec.encode_assistant(message), 1
        elif index > 0:
            part, sampled = codec.extend(ids[-1:], [message]), 0
        else:
            continue
        ids += part
        mask += [sampled] * len(part)
    return ids, mask
