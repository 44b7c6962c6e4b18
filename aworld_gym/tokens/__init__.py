"""Token-exact chat for training: what consumers of an env use to speak ids.

An env speaks messages and never tokenises. :class:`ChatCodec` turns messages into ids and sampled ids into
messages; :class:`TokenTrajectory` is the record a trainer receives. Importing this package loads no tokenizer
library.
"""

from __future__ import annotations

from aworld_gym.tokens.codec import ChatCodec
from aworld_gym.tokens.errors import UnsupportedTemplateError
from aworld_gym.tokens.parsers import FORMATS, Parsed, parse_text
from aworld_gym.tokens.pieces import ERROR_KINDS, ToolFormat
from aworld_gym.tokens.trajectory import TokenTrajectory, TrajectoryBuilder

__all__ = [
    "ERROR_KINDS",
    "FORMATS",
    "ChatCodec",
    "Parsed",
    "TokenTrajectory",
    "ToolFormat",
    "TrajectoryBuilder",
    "UnsupportedTemplateError",
    "parse_text",
]
