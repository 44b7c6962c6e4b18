"""Train on an env with verl's own PPO/GRPO trainer.

Example:
    >>> from adapters import verl
    >>> result = verl.train("AWorld/Gaia-v0", model="Qwen/Qwen3-0.6B", output_dir="runs/a")  # doctest: +SKIP

``python -m adapters.verl --help`` is the same for clusters (``ray job submit``). With a launcher of your own:
``examples/verl_gaia`` names :class:`adapters.verl.agent_loop.EnvAgentLoop` in an ``agent.yaml``.

verl is imported when something here is used, not before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from adapters.common import TrainResult, TurnwiseOptions
from adapters.versions import imports_late, require

if TYPE_CHECKING:
    from adapters.verl.run import train

__all__ = ["TrainResult", "TurnwiseOptions", "train"]

TESTED = ("0.9.1",)
"""Versions of verl that the tests of this package pass with."""
UNDECLARED = ("transfer_queue", "zmq", "msgspec", "cachetools", "uvicorn", "fastapi", "orjson")
"""What verl's trainer imports and verl does not ask for."""


def require_verl() -> str:
    """The installed version of verl.

    Raises:
        MissingDependencyError: there is none, or something is missing that it needs.
    """
    return require("verl", "verl", TESTED, needs=UNDECLARED)


__getattr__ = imports_late(__name__, require_verl, {"train": "run"})
