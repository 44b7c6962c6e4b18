"""Raw model text as the action."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium as gym
from gymnasium.utils import RecordConstructorArgs

from aworld_gym.errors import ActionError
from aworld_gym.imports import load
from aworld_gym.spaces import UnicodeText
from aworld_gym.tokens import FORMATS, parse_text
from aworld_gym.types import Message
from aworld_gym.wrappers.base import ToolWrapper


class RawTextAction(ToolWrapper, RecordConstructorArgs):
    """Takes what the model wrote, tool-call markup included, and parses it into an assistant message.

    For loops that decode text. Loops that hold token ids use :class:`~aworld_gym.tokens.ChatCodec`, which also
    tells control tokens from text that merely spells them. A call that cannot be read is answered with a tool
    message that says why.

    Args:
        env: the env to wrap.
        parser: a tool-call format (one of :data:`~aworld_gym.tokens.FORMATS`) or the import path of a function
            ``text -> assistant message``.

    Raises:
        ConfigError: no such parser. ActionError: at a step, where the action is not a string.

    Example:
        >>> import gymnasium as gym, aworld_gym
        >>> from aworld_gym.wrappers import RawTextAction
        >>> env = RawTextAction(gym.make("AWorld/Gaia-v0"), parser="hermes")
        >>> obs, info = env.reset(seed=0)
        >>> text = '<tool_call>{"name": "list_files", "arguments": {}}</tool_call>'
        >>> obs, *_ = env.step(text)
        >>> obs[0]["name"]
        'list_files'
        >>> env.close()
    """

    def __init__(self, env: gym.Env, parser: str = "hermes"):
        RecordConstructorArgs.__init__(self, parser=parser)
        gym.Wrapper.__init__(self, env)
        self._parse = partial(_parse, parser) if parser in FORMATS else load(parser, FORMATS)
        self.action_space = UnicodeText()

    def on_action(self, action: Any) -> Any:
        """The text as an assistant message."""
        if not isinstance(action, str):
            raise ActionError(f"expected the model's text as a string, got {type(action).__name__}")
        return self._parse(action)


def _parse(tool_format: str, text: str) -> Message:
    return parse_text(text, tool_format).message
