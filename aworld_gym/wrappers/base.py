"""The base of this package's wrappers: one set of hooks behind both the sync and the async path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym

from aworld_gym import aio

Step = tuple[Any, float, bool, bool, dict[str, Any]]


class ToolWrapper(gym.Wrapper):
    """A wrapper that overrides hooks instead of ``reset`` and ``step``, so that it works in both worlds.

    Subclasses also derive from :class:`gymnasium.utils.RecordConstructorArgs` and record JSON arguments, as
    Gymnasium's own wrappers do; then ``env.spec`` carries them.
    """

    def on_reset(self, obs: Any, info: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """What reset returns, from what the env below returned."""
        return obs, info

    def on_action(self, action: Any) -> Any:
        """The action for the env below."""
        return action

    def on_step(self, action: Any, step: Step) -> Step:
        """What step returns; ``action`` is what the env below was given, ``step`` what it returned."""
        return step

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the env below, then :meth:`on_reset`."""
        return self.on_reset(*self.env.reset(seed=seed, options=None if options is None else dict(options)))

    def step(self, action: Any) -> Step:
        """:meth:`on_action`, step the env below, :meth:`on_step`."""
        action = self.on_action(action)
        obs, reward, terminated, truncated, info = self.env.step(action)
        return self.on_step(action, (obs, float(reward), terminated, truncated, info))

    async def areset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """As :meth:`reset`, awaited."""
        return self.on_reset(*await aio.areset(self.env, seed=seed, options=None if options is None else dict(options)))

    async def astep(self, action: Any) -> Step:
        """As :meth:`step`, awaited."""
        action = self.on_action(action)
        return self.on_step(action, await aio.astep(self.env, action))

    async def aclose(self) -> None:
        """As :meth:`close`, awaited."""
        await aio.aclose(self.env)
