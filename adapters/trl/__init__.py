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

from typing import TYPE_CHECKING

from adapters.common import RolloutOptions, TrainResult
from adapters.trl._private import require_trl
from adapters.versions import imports_late

if TYPE_CHECKING:
    from adapters.trl.rollouts import TrlSpec
    from adapters.trl.run import spec, train
    from adapters.trl.trainer import EnvGRPOTrainer

__all__ = ["EnvGRPOTrainer", "RolloutOptions", "TrainResult", "TrlSpec", "spec", "train"]

PLACES = {"EnvGRPOTrainer": "trainer", "TrlSpec": "rollouts", "spec": "run", "train": "run"}
__getattr__ = imports_late(__name__, require_trl, PLACES)
