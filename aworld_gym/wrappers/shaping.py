"""Step-wise reward shaping, named by import path so that an env's spec carries it."""

from __future__ import annotations

import inspect
import math
from typing import Any, SupportsFloat

import gymnasium as gym
from gymnasium.utils import RecordConstructorArgs

from aworld_gym.errors import ConfigError
from aworld_gym.imports import load
from aworld_gym.wrappers.base import Step, ToolWrapper
from aworld_gym.wrappers.shapers import SHAPERS


class RewardShaping(ToolWrapper, RecordConstructorArgs):
    """Adds to each step's reward what a function makes of (observation, action, reward, info).

    The function is one of the short names in :data:`~aworld_gym.wrappers.shapers.SHAPERS`, or an import path to

    * a function ``f(obs, action, reward, info, **kwargs) -> float``, or
    * a class whose ``C(**kwargs)`` has ``reset(env, obs, info)`` and ``__call__(obs, action, reward, info) -> float``,
      for shaping that remembers the episode.

    What it returns is added to the reward and shown in ``info["reward_components"]`` under ``name``. Steps of an
    episode that is not valid stay at reward 0 and are not shown to the function.

    Args:
        env: the env to wrap.
        fn: short name or import path.
        name: the component's name; by default the function's.
        **kwargs: JSON arguments of the function.

    Raises:
        ConfigError: no such function, or arguments that it does not take.
        ValueError: at a step, where the function returned something other than a finite number.

    Example:
        >>> import gymnasium as gym, aworld_gym
        >>> from aworld_gym.wrappers import RewardShaping
        >>> env = RewardShaping(gym.make("AWorld/Gaia-v0"), "step_penalty", amount=0.01)
        >>> obs, info = env.reset(seed=0)
        >>> obs, reward, terminated, truncated, info = env.step({"role": "assistant", "content": "no idea"})
        >>> info["reward_components"]
        {'task': 0.0, 'step_penalty': -0.01}
        >>> env.close()
    """

    def __init__(self, env: gym.Env, fn: str, name: str | None = None, **kwargs: Any):
        RecordConstructorArgs.__init__(self, fn=fn, name=name, **kwargs)
        gym.Wrapper.__init__(self, env)
        if not isinstance(fn, str):
            raise ConfigError(
                f"fn must be an import path or one of {', '.join(sorted(SHAPERS))} (a spec must rebuild it), got {fn!r}"
            )
        self._shape, self._kwargs = load(fn, SHAPERS), kwargs
        self.name = name or fn.rpartition(":")[2]
        self._stateful = inspect.isclass(self._shape)
        try:
            if self._stateful:
                self._shape, self._kwargs = self._shape(**kwargs), {}
            else:
                inspect.signature(self._shape).bind((), {}, 0.0, {}, **kwargs)
        except TypeError as error:
            form = "C(**kwargs)" if self._stateful else "f(obs, action, reward, info, **kwargs)"
            raise ConfigError(f"{fn!r} cannot be called as {form} with {kwargs}: {error}") from error

    def on_reset(self, obs: Any, info: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Show a stateful shaper the new episode."""
        if self._stateful:
            self._shape.reset(self.env, obs, info)
        return obs, info

    def on_step(self, action: Any, step: Step) -> Step:
        """Add the function's value as a component."""
        obs, reward, terminated, truncated, info = step
        if not info.get("valid", True):
            return step
        action = self.env.get_wrapper_attr("last_step").action  # as the env read it, whatever form it came in
        seen = {**info, "ended": terminated or truncated}
        extra = self._shape(obs, action, reward, seen, **self._kwargs)
        if isinstance(extra, str | bytes) or not isinstance(extra, SupportsFloat) or not math.isfinite(extra):
            raise ValueError(f"shaping function {self.name!r} must return a finite number, got {extra!r}")
        extra = float(extra)
        components = {**info.get("reward_components", {"task": reward})}
        name, k = self.name, 2
        while name in components:
            name, k = f"{self.name}_{k}", k + 1
        components[name] = extra
        return obs, float(reward) + extra, terminated, truncated, {**info, "reward_components": components}
