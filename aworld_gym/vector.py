"""Many tool envs stepped at once: a ``gymnasium.vector.VectorEnv`` in one process, on the package's event loop.

What Gymnasium's ``SyncVectorEnv`` returns, this returns, for every autoreset mode; but all sub-envs reset and step
concurrently, so a step takes as long as its slowest tool call, and a sub-env whose next episode cannot be set up does
not take the others' results with it. Nothing grows with the length of an episode: observations are the new messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from aworld_gym import aio
from aworld_gym.episode_state import json_copy
from aworld_gym.errors import ActionError, ConfigError, InfraError
from aworld_gym.toolchain import loop

Batch = tuple[Any, ...]
VectorStep = tuple[Batch, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]


class ToolVectorEnv(VectorEnv[Batch, Sequence[Any], np.ndarray]):
    """Steps its sub-envs concurrently. ``gym.make_vec`` uses it for this package's envs.

    **Actions**: a sequence of ``num_envs`` actions. **Observations**: a tuple of ``num_envs`` observations. Rewards
    are float64, ``terminations`` and ``truncations`` bool, each (num_envs,); infos are merged as Gymnasium does,
    with ``score`` an object array (it may be None).

    **Options of reset** are given to each sub-env. A list or tuple of ``num_envs`` values gives each its own, None
    meaning the sub-env's default: ``options={"task_id": ["a", "b", None]}``. ``options={"reset_mask": mask}``, a
    bool array of shape (num_envs,), resets only those sub-envs; of the others the last observation is returned again.

    **Autoreset modes** are Gymnasium's. ``NEXT_STEP``: the step after an episode's end ignores that sub-env's action
    and resets it. ``SAME_STEP``: it is reset at once; ``infos["final_obs"]`` and ``infos["final_info"]`` hold what
    the episode ended with. ``DISABLED``: reset it yourself, with ``reset_mask``.

    Where infrastructure keeps a sub-env from being reset automatically, its part of the step is an empty observation,
    truncated and with outcome ``infra_failure`` (``valid`` false), and it is tried again at the next step. In an
    explicit ``reset`` the failure is raised.

    Args:
        env_fns: functions that make the sub-envs, wrapped as you like.
        autoreset_mode: an AutoresetMode or its value.

    Raises:
        ConfigError: no sub-envs, or sub-envs of different spaces.

    Example:
        >>> import gymnasium as gym, aworld_gym
        >>> envs = gym.make_vec("AWorld/Gaia-v0", num_envs=2)
        >>> obs, infos = envs.reset(seed=0)
        >>> obs, rewards, *_ = envs.step([{"role": "assistant", "content": "no idea"}] * 2)
        >>> rewards.tolist()
        [0.0, 0.0]
        >>> envs.close()
    """

    def __init__(
        self,
        env_fns: Sequence[Callable[[], gym.Env]],
        *,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    ):
        if not env_fns:
            raise ConfigError("a vector of envs needs at least one: num_envs must be 1 or more")
        try:
            self.autoreset_mode = AutoresetMode(autoreset_mode)
        except ValueError as error:
            known = ", ".join(repr(mode.value) for mode in AutoresetMode)
            raise ConfigError(
                f"autoreset_mode must be an AutoresetMode or one of {known}, got {autoreset_mode!r}"
            ) from error
        self.envs = [make() for make in env_fns]
        self.num_envs = len(self.envs)
        first = self.envs[0]
        self.metadata = {**first.metadata, "autoreset_mode": self.autoreset_mode}
        self.render_mode = first.render_mode
        self.single_observation_space, self.single_action_space = first.observation_space, first.action_space
        for number, env in enumerate(self.envs):
            for name in ("observation_space", "action_space"):
                one, other = getattr(first, name), getattr(env, name)
                if one != other:
                    raise ConfigError(f"sub-envs share one {name}: sub-env 0 has {one}, sub-env {number} has {other}")
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._last: list[Any] = [()] * self.num_envs
        self._ended = np.ones(self.num_envs, dtype=np.bool_)  # what never began has to be reset, too
        self._began = np.zeros(self.num_envs, dtype=np.bool_)

    # ---- resetting ---------------------------------------------------------------------------------------------------

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> tuple[Batch, dict[str, Any]]:
        """Begin an episode in each sub-env, or in those of ``options["reset_mask"]``.

        Args:
            seed: sub-env i gets ``seed + i``; or one seed (or None) for each.
            options: see the class. Not changed.

        Raises:
            ConfigError: seeds, options or a mask that do not fit.
            InfraError: a sub-env could not be set up; the error's note says which. The others were.
            ClosedEnvironmentError: it was closed.
        """
        self._check_open()
        seeds = self._seeds(seed)
        given = dict(options or {})
        mask = self._mask(given.pop("reset_mask", None))
        each = self._options(given)
        # A sub-env that ended, or failed, in what follows may not be stepped; one that is set up may.
        self._ended[mask] = True
        places = [i for i in range(self.num_envs) if mask[i]]
        work = [aio.areset(self.envs[i], seed=seeds[i], options=each[i]) for i in places]
        results = loop.run(_all(work))
        infos: dict[str, Any] = {}
        for i, result in zip(places, results, strict=True):
            if not isinstance(result, BaseException):
                self._last[i], info = result
                self._ended[i], self._began[i] = False, True
                infos = self._add_info(infos, info, i)
        self._raise(places, results)
        fresh = set(places)
        return tuple(obs if i in fresh else json_copy(obs) for i, obs in enumerate(self._last)), infos

    def _check_open(self) -> None:
        """What would start now would be left open: a second close does nothing."""
        if self.closed:
            raise gym.error.ClosedEnvironmentError("this vector env was closed; make another")

    def _seeds(self, seed: int | Sequence[int | None] | None) -> list[int | None]:
        if seed is None:
            return [None] * self.num_envs
        if isinstance(seed, int | np.integer):
            return [int(seed) + i for i in range(self.num_envs)]
        if len(seed) != self.num_envs:
            raise ConfigError(f"seeds are one for each of the {self.num_envs} sub-envs, got {len(seed)}")
        return [int(one) if isinstance(one, np.integer) else one for one in seed]

    def _mask(self, mask: Any) -> np.ndarray:
        if mask is None:
            return np.ones(self.num_envs, dtype=np.bool_)
        if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_ or mask.shape != (self.num_envs,):
            shape = f"{mask.dtype} of shape {mask.shape}" if isinstance(mask, np.ndarray) else type(mask).__name__
            raise ConfigError(f"reset_mask is a NumPy array of bool and of shape ({self.num_envs},), got {shape}")
        if not mask.any():
            raise ConfigError("reset_mask names no sub-env to reset")
        return mask

    def _options(self, options: Mapping[str, Any]) -> list[dict[str, Any] | None]:
        """The options of each sub-env."""
        each: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for name, value in options.items():
            own = isinstance(value, list | tuple)
            if own and len(value) != self.num_envs:
                raise ConfigError(
                    f"option {name!r} has {len(value)} values for {self.num_envs} sub-envs: give one value, or a list "
                    "of one for each"
                )
            for i in range(self.num_envs):
                mine = value[i] if own else value
                if mine is not None:
                    each[i][name] = mine
        return [chosen or None for chosen in each]

    # ---- stepping ----------------------------------------------------------------------------------------------------

    def step(self, actions: Sequence[Any]) -> VectorStep:
        """Take an action in each sub-env, all at once.

        Args:
            actions: ``num_envs`` actions; that of a sub-env which is reset at this step is not looked at.

        Raises:
            ConfigError: not one action for each; or (``DISABLED``) an episode that has ended was not reset.
            ActionError: an action that is none, or whatever else a sub-env raises; the error's note says which
                sub-env, and the others have stepped.
            ClosedEnvironmentError: it was closed.
        """
        self._check_open()
        if not hasattr(actions, "__len__") or isinstance(actions, str | Mapping) or len(actions) != self.num_envs:
            got = f"{len(actions)} of them" if isinstance(actions, list | tuple) else type(actions).__name__
            raise ActionError(f"expected a sequence of {self.num_envs} actions, one for each sub-env, got {got}")
        if not self._began.all():
            raise gym.error.ResetNeeded(f"call reset() before step(): sub-envs {_named(~self._began)} never began")
        if self.autoreset_mode is AutoresetMode.DISABLED and self._ended.any():
            raise gym.error.ResetNeeded(
                f"the episodes of sub-envs {_named(self._ended)} have ended, and autoreset is disabled: reset them "
                'with options={"reset_mask": ...} before the next step'
            )
        work = [self._one(i, actions[i]) for i in range(self.num_envs)]
        results = loop.run(_all(work))
        for i, result in enumerate(results):
            if not isinstance(result, BaseException):
                self._last[i], self._ended[i] = result[0], result[-1]
        self._raise(range(self.num_envs), results)
        rewards = np.zeros(self.num_envs, dtype=np.float64)
        terminations, truncations = np.zeros((2, self.num_envs), dtype=np.bool_)
        infos: dict[str, Any] = {}
        for i, (_, reward, terminated, truncated, info, final, _) in enumerate(results):
            rewards[i], terminations[i], truncations[i] = reward, terminated, truncated
            if final is not None:
                infos = self._add_info(infos, {"final_obs": final[0], "final_info": final[1]}, i)
            infos = self._add_info(infos, info, i)
        return tuple(self._last), rewards, terminations, truncations, infos

    async def _one(self, i: int, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any], Any, bool]:
        """One sub-env's part of a step; the last two: what its episode ended with, and whether it must be reset."""
        env = self.envs[i]
        if self._ended[i]:
            obs, info, failed = await self._next_episode(env)
            return obs, 0.0, False, failed, info, None, failed
        obs, reward, terminated, truncated, info = await aio.astep(env, action)
        ended = bool(terminated or truncated)
        if not ended or self.autoreset_mode is not AutoresetMode.SAME_STEP:
            return obs, float(reward), bool(terminated), bool(truncated), info, None, ended
        final = (obs, info)
        obs, info, failed = await self._next_episode(env)
        return obs, float(reward), bool(terminated), bool(truncated), info, final, failed

    async def _next_episode(self, env: gym.Env) -> tuple[Any, dict[str, Any], bool]:
        """The next episode's first observation and info; an empty one where it could not be set up."""
        try:
            return *await aio.areset(env), False
        except InfraError as error:
            return (), {"outcome": "infra_failure", "valid": False, "error": error.kind, "score": None}, True

    def _raise(self, places: Sequence[int] | range, results: Sequence[Any]) -> None:
        """Raise the first failure, with a note of where it was."""
        for i, result in zip(places, results, strict=True):
            if isinstance(result, BaseException):
                result.add_note(f"In sub-env {i} of {self.num_envs}.")
                raise result

    def _add_info(self, vector_infos: dict[str, Any], env_info: dict[str, Any], env_num: int) -> dict[str, Any]:
        # Gymnasium takes an array's type from the first value: whether a score comes before a None must not matter.
        if "score" in env_info and "score" not in vector_infos:
            vector_infos["score"] = np.full(self.num_envs, None, dtype=object)
        return super()._add_info(vector_infos, env_info, env_num)

    # ---- what else a vector env has ------------------------------------------------------------------------------

    @property
    def np_random_seed(self) -> tuple[int | None, ...]:  # type: ignore[override]
        """Each sub-env's seed."""
        return self.get_attr("np_random_seed")

    @property  # type: ignore[misc]
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]
        """Each sub-env's generator."""
        return self.get_attr("np_random")

    def render(self) -> tuple[Any, ...]:
        """Each sub-env's rendering."""
        return tuple(env.render() for env in self.envs)

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Each sub-env's method ``name`` called, or its attribute."""
        found = [env.get_wrapper_attr(name) for env in self.envs]
        return tuple(one(*args, **kwargs) if callable(one) else one for one in found)

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Each sub-env's attribute."""
        return self.call(name)

    def set_attr(self, name: str, values: Any) -> None:
        """Set an attribute in each sub-env: a list or tuple of one value for each, or one value for all.

        Raises:
            ConfigError: a list of another length.
        """
        each = values if isinstance(values, list | tuple) else [values] * self.num_envs
        if len(each) != self.num_envs:
            raise ConfigError(f"expected one value for each of the {self.num_envs} sub-envs, got {len(each)}")
        for env, value in zip(self.envs, each, strict=True):
            env.set_wrapper_attr(name, value)

    def close_extras(self, **kwargs: Any) -> None:
        """Close all sub-envs, side by side."""
        results = loop.run(_all([aio.aclose(env) for env in getattr(self, "envs", ())]))
        self._raise(range(len(results)), results)


def vector_of(
    env_id: str, num_envs: int, *, autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP, **kwargs: Any
) -> ToolVectorEnv:
    """``num_envs`` of ``gym.make(env_id, **kwargs)``: what the ``vector_entry_point`` of a registration calls.

    Example:
        >>> def make_vec(num_envs, **kwargs):
        ...     return vector_of("My/Env-v0", num_envs, **kwargs)
    """
    return ToolVectorEnv([lambda: gym.make(env_id, **kwargs)] * num_envs, autoreset_mode=autoreset_mode)


def _named(mask: np.ndarray) -> str:
    return ", ".join(map(str, np.flatnonzero(mask)))


async def _all(work: Sequence[Awaitable[Any]]) -> list[Any]:
    """What each comes to, failures included: nobody is left running when one fails."""
    return await asyncio.gather(*work, return_exceptions=True)
