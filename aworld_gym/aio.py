"""Reset, step and close any wrapped env without blocking the event loop.

:class:`~aworld_gym.env.ToolEnv` and this package's wrappers are asynchronous all the way down. Gymnasium's two
pass-through wrappers, which ``gym.make`` always adds, only check what passes, so they are stepped around. Every
other wrapper is synchronous code by others: its ``step`` runs in a thread, where the env's sync facade works.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker

from aworld_gym.toolchain.threads import Threads

PASS_THROUGH = (OrderEnforcing, PassiveEnvChecker)
THREADS = 1024
"""Upper bound of episodes that may be inside a foreign wrapper's step at once; threads start as needed."""
_threads = Threads(THREADS, "aworld-gym-wrapper")


async def areset(env: gym.Env, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict]:
    """``env.reset(seed=seed, options=options)``, awaited."""
    inner = _inner(env)
    if hasattr(inner, "areset"):
        return await inner.areset(seed=seed, options=options)
    return await _threads.run(inner.reset, seed=seed, options=options)


async def astep(env: gym.Env, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
    """``env.step(action)``, awaited."""
    inner = _inner(env)
    if hasattr(inner, "astep"):
        return await inner.astep(action)
    return await _threads.run(inner.step, action)


async def aclose(env: gym.Env) -> None:
    """``env.close()``, awaited."""
    inner = _inner(env)
    if hasattr(inner, "aclose"):
        await inner.aclose()
    else:
        await _threads.run(inner.close)


def _inner(env: Any) -> Any:
    # type, not isinstance: a subclass may do more than pass through.
    while type(env) in PASS_THROUGH:
        env._has_reset = True  # OrderEnforcing's flag, so that a later sync step is in order
        env = env.env
    return env
