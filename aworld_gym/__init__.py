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

for _id, _module, _name in (
    ("AWorld/Gaia-v0", "envs.gaia.env", "GaiaEnv"),
    ("AWorld/Mcp-v0", "envs.mcp.env", "McpEnv"),
):
    if _id not in gymnasium.registry:
        gymnasium.register(id=_id, entry_point=f"{_module}:{_name}", vector_entry_point=f"{_module}:make_vec")
