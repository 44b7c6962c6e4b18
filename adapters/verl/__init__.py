"""Train on an env with verl's own PPO/GRPO trainer.

Example:
    >>> from adapters import verl
    >>> result = verl.train("AWorld/Gaia-v0", model="Qwen/Qwen3-0.6B", output_dir="runs/a")  # doctest: +SKIP

``python -m adapters.verl --help`` is the same for clusters (``ray job submit``). With a launcher of your own:
``examples/verl_gaia`` names :class:`adapters.verl.agent_loop.EnvAgentLoop` in an ``agent.yaml``.

verl is imported when something here is used, not before.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

from adapters.common import TrainResult, TurnwiseOptions
from adapters.versions import require
from aworld_gym.errors import MissingDependencyError

if TYPE_CHECKING:
    from adapters.verl.parity import rollout_rows
    from adapters.verl.run import train

__all__ = ["TrainResult", "TurnwiseOptions", "rollout_rows", "train"]

TESTED = ("0.9.1",)
"""Versions of verl that the tests of this package pass with."""
UNDECLARED = ("transfer_queue", "zmq", "msgspec", "cachetools", "uvicorn", "fastapi", "orjson")
"""What verl's trainer imports and verl does not ask for."""


def require_verl() -> str:
    """The installed version of verl.

    Raises:
        MissingDependencyError: there is none, or something is missing that it needs.
    """
    found = require("verl", "verl", TESTED)
    missing = [name for name in UNDECLARED if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingDependencyError(
            f"verl {found} needs {', '.join(missing)}, which it does not declare: pip install 'aworld-gym[verl]'"
        )
    return found


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    require_verl()
    from adapters.verl import parity, run

    return getattr(parity if name == "rollout_rows" else run, name)
