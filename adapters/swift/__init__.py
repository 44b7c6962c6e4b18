"""Train on an env with ms-swift's own GRPOTrainer.

Example:
    >>> from adapters import swift
    >>> result = swift.train("AWorld/Gaia-v0", model="Qwen/Qwen3-0.6B", output_dir="runs/a")  # doctest: +SKIP

People who call ``rlhf_main`` or ``swift rlhf`` themselves: :func:`register` in a plugin file, :func:`write_tasks` for
the data set, and the settings that ``examples/swift_gaia/run.sh`` shows.

swift is imported when something here is used, not before.
"""

from __future__ import annotations

import importlib.metadata
from typing import TYPE_CHECKING

from adapters.common import TrainResult, TurnwiseOptions
from adapters.versions import imports_late, require
from aworld_gym.errors import ConfigError

if TYPE_CHECKING:
    from adapters.swift.plugin import register, write_tasks
    from adapters.swift.run import train
    from adapters.swift.trainer import EnvGRPOTrainer

__all__ = ["EnvGRPOTrainer", "TrainResult", "TurnwiseOptions", "register", "train", "write_tasks"]

TESTED = ("4.6.0",)
"""Versions of ms-swift that the tests of this package pass with."""


def require_swift() -> str:
    """The installed version of ms-swift.

    Raises:
        MissingDependencyError: there is none, or no msgspec, which swift needs and does not declare.
        ConfigError: a trl that swift cannot work with.
    """
    found = require("ms-swift", "swift", TESTED, needs=("msgspec", "trl"))
    trl = importlib.metadata.version("trl")
    if int(trl.split(".", 1)[0]) >= 1:
        raise ConfigError(
            f"ms-swift {found} works with a trl below 1, and trl {trl} is installed. The adapters for TRL and for "
            "ms-swift need an environment each: pip install 'aworld-gym[swift]' in a fresh one"
        )
    return found


PLACES = {"EnvGRPOTrainer": "trainer", "register": "plugin", "train": "run", "write_tasks": "plugin"}
__getattr__ = imports_late(__name__, require_swift, PLACES)
