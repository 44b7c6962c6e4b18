"""The adapters whose framework is installed in this environment: at least one, or there is nothing to test."""

from __future__ import annotations

import importlib
import importlib.metadata

FRAMEWORKS = {"trl": "trl", "verl": "verl", "swift": "ms-swift"}
"""By adapter, the distribution of its framework."""


def here() -> list[str]:
    """Their names.

    Raises:
        RuntimeError: there is none, so that tests over all of them would pass by testing nothing.
    """
    found = [name for name, distribution in FRAMEWORKS.items() if _works(name, distribution)]
    if not found:
        raise RuntimeError(
            f"none of {list(FRAMEWORKS.values())} is installed here: make test-trl, test-verl, test-swift"
        )
    return found


def rollout_rows(name: str):
    """The rollout path of an adapter, over a sampler that is given."""
    return importlib.import_module(f"{name}_rows").rollout_rows


def _works(name: str, distribution: str) -> bool:
    try:
        version = importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return not (name == "trl" and version.startswith("0."))  # ms-swift brings an old one
