"""The whole transcript as the observation."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from gymnasium.utils import RecordConstructorArgs

from aworld_gym.wrappers.base import Step, ToolWrapper


class TranscriptObservation(ToolWrapper, RecordConstructorArgs):
    """Observes the whole transcript so far instead of the new messages.

    For code that keeps no history of its own. Each observation is a copy, so an episode of T steps costs O(T^2).

    Example:
        >>> import gymnasium as gym, aworld_gym
        >>> from aworld_gym.wrappers import TranscriptObservation
        >>> env = TranscriptObservation(gym.make("AWorld/Gaia-v0"))
        >>> obs, info = env.reset(seed=0)
        >>> call = {"type": "function", "function": {"name": "list_files", "arguments": "{}"}}
        >>> obs, *_ = env.step({"role": "assistant", "content": None, "tool_calls": [call]})
        >>> [m["role"] for m in obs][-3:]
        ['user', 'assistant', 'tool']
        >>> env.close()
    """

    def __init__(self, env: gym.Env):
        RecordConstructorArgs.__init__(self)
        gym.Wrapper.__init__(self, env)

    def on_reset(self, obs: Any, info: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """The transcript instead of the first messages."""
        return self._transcript(), info

    def on_step(self, action: Any, step: Step) -> Step:
        """The transcript instead of the new messages."""
        return (self._transcript(), *step[1:])

    def _transcript(self) -> tuple[dict[str, Any], ...]:
        return tuple(self.env.get_wrapper_attr("messages"))
