"""The fixed lists of tasks on which scores are compared: 300 for validation and 300 for test, as many of each level.

Files beside this one, made by ``python -m envs.gaia.manifests`` and played by
``aworld-gym eval AWorld/Gaia-v0 --manifest validation`` (:mod:`aworld_gym.manifests`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

MANIFESTS: Mapping[str, Path] = MappingProxyType(
    {split: Path(__file__).with_name(f"{split}.json") for split in ("validation", "test")}
)
"""Name, which is the split's, to file. Nothing is read before it is asked for."""
