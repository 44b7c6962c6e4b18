"""Episodes written to a file as they end."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
from gymnasium.utils import RecordConstructorArgs

from aworld_gym.episode_state import as_returned
from aworld_gym.making import spec_json
from aworld_gym.trajectory import append
from aworld_gym.types import Outcome
from aworld_gym.wrappers.base import Step, ToolWrapper


class RecordEpisodes(ToolWrapper, RecordConstructorArgs):
    """Appends each episode to a JSONL file when it ends, with the rewards that this wrapper returned.

    For loops of one's own; :func:`aworld_gym.rollout.rollout` keeps a journal itself. An episode that is given up
    (by a reset or close in its middle) is written as ``cancelled``. The file is opened for each episode, so that envs
    of any number of processes may write to one.

    Args:
        env: the env to wrap; put it outermost, so that it sees the rewards that your loop sees.
        path: the file; it is made, with its folder, when the first episode ends.

    Raises:
        ConfigError: at an episode's end, where another process holds the file (a rollout whose journal it is).

    Example:
        >>> import gymnasium as gym, aworld_gym
        >>> from aworld_gym.wrappers import RecordEpisodes
        >>> env = RecordEpisodes(gym.make("AWorld/Gaia-v0"), "runs/mine/episodes.jsonl")  # doctest: +SKIP
    """

    def __init__(self, env: gym.Env, path: str):
        RecordConstructorArgs.__init__(self, path=str(path))
        gym.Wrapper.__init__(self, env)
        self.path = str(path)
        self._steps: list[Any] = []
        self._spec = spec_json(env)

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Write an episode that was not played to its end, then reset."""
        self._write(Outcome.CANCELLED)
        return super().reset(seed=seed, options=options)

    async def areset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """As :meth:`reset`, awaited."""
        self._write(Outcome.CANCELLED)
        return await super().areset(seed=seed, options=options)

    def on_step(self, action: Any, step: Step) -> Step:
        """Keep the step; write the episode if this was its last."""
        _, reward, terminated, truncated, info = step
        self._steps.append(as_returned(self.env.get_wrapper_attr("last_step"), float(reward), info))
        if terminated or truncated:
            # A wrapper such as TimeLimit may have ended it, of which the env knows nothing.
            self._write(Outcome.MAX_TURNS)
        return step

    def close(self) -> None:
        """Write an episode that was not played to its end, then close."""
        self._write(Outcome.CANCELLED)
        super().close()

    async def aclose(self) -> None:
        """As :meth:`close`, awaited."""
        self._write(Outcome.CANCELLED)
        await super().aclose()

    def _write(self, otherwise: Outcome) -> None:
        steps, self._steps = tuple(self._steps), []
        if not steps:
            return
        episode = self.env.get_wrapper_attr("episode")
        append(
            self.path,
            dataclasses.replace(episode, steps=steps, outcome=episode.outcome or otherwise, spec=self._spec),
        )
