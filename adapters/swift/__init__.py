"""Train on an env with ms-swift's own GRPOTrainer.

Example:
    >>> from adapters import swift
    >>> result = swift.train("AWorld/Gaia-v0", model="Qwen/Qwen3-0.6B", output_dir="runs/a")  # doctest: +SKIP

People who call ``rlhf_main`` or ``swift rlhf`` themselves: :func:`register` in a plugin file, :func:`write_tasks` for
the data set, and the settings that ``examples/swift_gaia/run.sh`` shows.

swift is imported when something here is used, not before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from adapters.common import TrainResult, TurnwiseOptions

if TYPE_CHECKING:
    from adapters.swift.parity import rollout_rows
    from adapters.swift.run import register, train, write_tasks
    from adapters.swift.trainer import EnvGRPOTrainer

__all__ = ["EnvGRPOTrainer", "TrainResult", "TurnwiseOptions", "register", "rollout_rows", "train", "write_tasks"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    from adapters.swift import _private

    _private.require_swift()
    place = {"EnvGRPOTrainer": "trainer", "rollout_rows": "parity"}.get(name, "run")
    return getattr(importlib.import_module(f"adapters.swift.{place}"), name)
