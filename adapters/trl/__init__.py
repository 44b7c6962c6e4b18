"""Train on an env with TRL's own GRPOTrainer.

Example:
    >>> from adapters import trl
    >>> result = trl.train("AWorld/Gaia-v0", model="Qwen/Qwen3-0.6B", output_dir="runs/a")  # doctest: +SKIP

People who build the trainer themselves take its parts from :func:`spec`:

    >>> parts = trl.spec("AWorld/Gaia-v0")  # doctest: +SKIP
    >>> GRPOTrainer(  # doctest: +SKIP
    ...     model, parts.reward_funcs, args, parts.train_dataset, rollout_func=parts.rollout_func
    ... )

TRL is imported when something here is used, not before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from adapters.common import RolloutOptions, TrainResult

if TYPE_CHECKING:
    from adapters.trl.parity import rollout_rows
    from adapters.trl.rollouts import TrlSpec
    from adapters.trl.run import spec, train
    from adapters.trl.trainer import EnvGRPOTrainer

__all__ = ["EnvGRPOTrainer", "RolloutOptions", "TrainResult", "TrlSpec", "rollout_rows", "spec", "train"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from adapters.trl import _private

    _private.require_trl()
    from adapters.trl import parity, rollouts, run, trainer

    return getattr({"EnvGRPOTrainer": trainer, "TrlSpec": rollouts, "rollout_rows": parity}.get(name, run), name)
