"""Gymnasium environments for training language-model agents that use tools.

Importing this package registers the ``AWorld/*`` environments; nothing heavy is imported until one is made.
"""

from importlib.metadata import PackageNotFoundError, version

import gymnasium

from aworld_gym.types import Episode, EpisodeContext, Limits, Outcome, Score, StepRecord, Task, ToolResult

try:
    __version__ = version("aworld-gym")
except PackageNotFoundError:  # a source tree that was not installed
    __version__ = "0.0.0"

__all__ = ["Episode", "EpisodeContext", "Limits", "Outcome", "Score", "StepRecord", "Task", "ToolResult"]

if "AWorld/Gaia-v0" not in gymnasium.registry:
    gymnasium.register(id="AWorld/Gaia-v0", entry_point="envs.gaia.env:GaiaEnv")
