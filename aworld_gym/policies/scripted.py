"""Policies made of fixed messages, or of a function that also sees the info of reset: for tests and demonstrations."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import gymnasium as gym

from aworld_gym.actions import canonical_json
from aworld_gym.episode_state import digest
from aworld_gym.errors import ConfigError
from aworld_gym.policies.base import Recipe
from aworld_gym.types import Message

Turn = Callable[[list[Message], Mapping[str, Any]], "Message | None | Awaitable[Message | None]"]
"""``(transcript so far, info of reset) -> the next assistant message, or None``; may be asynchronous."""


class ScriptedPolicy:
    """Plays the same messages in every episode, or asks a function for each.

    Args:
        script: assistant messages in order, or a function of (transcript, info of reset) that gives the next one.
            The transcript ends with the newest messages. A synchronous function must not block.
        name: for logs and records.

    Raises:
        ConfigError: when an episode outlives a list of messages: end it with a submission, or without calls.

    Example:
        >>> policy = ScriptedPolicy([{"role": "assistant", "content": "<answer>42</answer>"}])
        >>> policy.name
        'scripted'
    """

    def __init__(self, script: Sequence[Message] | Turn, *, name: str = "scripted"):
        self.name = name
        self._script = script if callable(script) else tuple(script)
        self.settings = {"script": _identified(self._script)}
        self.recipe: Recipe | None = None
        if not callable(self._script):
            options = {"script": list(self._script), "name": name}
            self.recipe = Recipe("aworld_gym.policies:ScriptedPolicy", options)

    def episode(
        self, *, obs: Any, info: Mapping[str, Any], seed: int | None, index: int, attempt: int, env: gym.Env
    ) -> ScriptedAgent:
        """An agent at the start of the script."""
        return ScriptedAgent(self._script, info)


class ScriptedAgent:
    """Plays one episode of a script."""

    def __init__(self, script: Sequence[Message] | Turn, info: Mapping[str, Any]):
        self._script, self._info = script, info
        self._turn, self._transcript = 0, []  # type: int, list[Message]

    async def act(self, messages: tuple[Message, ...]) -> Message | None:
        """The script's next message."""
        turn, self._turn = self._turn, self._turn + 1
        if not callable(self._script):
            if turn >= len(self._script):
                raise ConfigError(
                    f"the script has {turn} messages and the episode asks for another; "
                    "let its last one submit an answer or make no tool calls"
                )
            return dict(self._script[turn])
        self._transcript.extend(messages)
        said = self._script(list(self._transcript), self._info)
        message = await said if inspect.isawaitable(said) else said
        if message is not None:
            self._transcript.append(message)
        return message

    def follow(self, messages: tuple[Message, ...], action: Message) -> None:
        """Count a turn of the script as played."""
        self._turn += 1
        self._transcript.extend((*messages, action))


def _identified(script: Sequence[Message] | Turn) -> str:
    """What tells one script from another in every process: a function's name, or a hash of the messages."""
    if callable(script):
        return f"{getattr(script, '__module__', '')}:{getattr(script, '__qualname__', type(script).__qualname__)}"
    return digest(canonical_json(script))
