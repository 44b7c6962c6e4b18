"""What a model says when it calls tools: assistant messages for tests that play its part."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aworld_gym.policies.base import tool_call


def calling(*calls: tuple[str, Mapping[str, Any]], **extra: Any) -> dict[str, Any]:
    """A message that makes these calls, (tool, arguments) each, with whatever else it carries."""
    made = [tool_call(f"c{k}", name, arguments) for k, (name, arguments) in enumerate(calls)]
    return {"role": "assistant", "content": None, "tool_calls": made, **extra}


def call(name: str, **arguments: Any) -> dict[str, Any]:
    """A message that makes one call."""
    return calling((name, arguments))
