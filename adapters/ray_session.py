"""Ray, for the run of a framework that lives on it: the environment of its processes, and its end."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import ray

from aworld_gym.errors import ConfigError

PATH = "PYTHONPATH"


def module_path() -> str:
    """``PYTHONPATH`` with which workers find envs, and functions that specs name, where this process does."""
    outside = [p for p in sys.path if p and not p.startswith((sys.prefix, sys.base_prefix))]
    return os.pathsep.join(dict.fromkeys(os.path.abspath(p) for p in [os.getcwd(), *outside]))


@contextmanager
def ray_session(variables: Mapping[str, str], *, name: str, holds: str) -> Iterator[None]:
    """Ray's own processes inherit these variables of this one; a Ray that was started meanwhile is shut down.

    Args:
        variables: the environment of the framework's processes; this process has its path to modules already.
        name: a variable by which a Ray that runs already shows that its workers were started with them,
        holds: namely by this part of it.

    Raises:
        ConfigError: Ray runs in this process already, and its workers lack the variables.
    """
    runs = ray.is_initialized()
    if runs:
        there = (ray.get_runtime_context().runtime_env or {}).get("env_vars", {})
        if holds not in there.get(name, ""):
            raise ConfigError(
                "Ray runs in this process already, and its workers would not load this adapter: call ray.shutdown() "
                f"first, or start it with ray.init(runtime_env={{'env_vars': {dict(variables)!r}}})"
            )
    ours = {name: value for name, value in variables.items() if name != PATH}
    before = {name: os.environ[name] for name in ours if name in os.environ}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name in ours:
            del os.environ[name]
        os.environ.update(before)
        if not runs:
            ray.shutdown()
