"""Conformance: what an env, or an adapter for a trainer, has to keep to, as checks that run on yours.

Example:
    >>> from aworld_gym.testing import check_toolchain_env
    >>> rules = check_toolchain_env("AWorld/Gaia-v0")  # doctest: +SKIP

Both raise a :class:`ConformanceError` (an AssertionError) that names the rule which does not hold, and what was
expected and found. Importing this package loads no trainer and no tokenizer.
"""

from __future__ import annotations

from aworld_gym.testing.adapter import ADAPTER_RULES, check_adapter
from aworld_gym.testing.environment import ENV_RULES, check_toolchain_env
from aworld_gym.testing.rules import AdapterError, ConformanceError, EnvError

__all__ = [
    "ADAPTER_RULES",
    "ENV_RULES",
    "AdapterError",
    "ConformanceError",
    "EnvError",
    "check_adapter",
    "check_toolchain_env",
]
