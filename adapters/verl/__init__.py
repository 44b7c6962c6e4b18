"""Train on an env with verl's own PPO/GRPO trainer.

Example:
    >>> from adapters import verl
    >>> result = verl.train("AWorld/Gaia-v0", model="Qwen/Qwen3-0.6B", output_dir="runs/a")  # doctest: +SKIP

``python -m adapters.verl --help`` is the same for clusters (``ray job submit``). With a launcher of your own:
``examples/verl_gaia`` names :class:`adapters.verl.agent_loop.EnvAgentLoop` in an ``agent.yaml``.

verl is imported when something here is used, not before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from adapters.common import TrainResult

if TYPE_CHECKING:
    from adapters.verl.parity import rollout_rows
    from adapters.verl.run import train

__all__ = ["TrainResult", "rollout_rows", "train"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from adapters.verl import parity, run

    return getattr(parity if name == "rollout_rows" else run, name)
