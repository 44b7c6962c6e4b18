"""Envs to play in: made when they are needed, used for one episode after another, closed whatever happens.

An env that an episode failed in, or was cut off in the middle of something in, plays no further one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from aworld_gym import aio
from aworld_gym.errors import ConfigError, InfraError, describe
from aworld_gym.making import check_tool_env, make_tool_env
from aworld_gym.play import Item, failed, play
from aworld_gym.policies.base import Policy
from aworld_gym.tape import Tape, attach
from aworld_gym.types import Episode, Outcome

log = logging.getLogger(__name__)

EnvLike = str | EnvSpec | gym.Env | Callable[[], gym.Env]
"""An env id, a spec, an env made by ``gym.make`` (its spec is rebuilt), or a function that makes an env."""

CLOSE_TIMEOUT_S = 60.0
"""Seconds an env may take to close before it is given up, with a warning."""


def maker(env: EnvLike) -> tuple[str, Callable[[], gym.Env]]:
    """The env's id, and a function that makes a fresh one.

    Raises:
        ConfigError: it is none of what an env may be named by, or an env without a spec.
    """
    if isinstance(env, gym.Env):
        if env.spec is None:
            raise ConfigError(
                "an env that was not made by gym.make has no spec to rebuild it from; "
                "pass a function that makes the env, or register it and pass its id"
            )
        return env.spec.id, partial(make_tool_env, env.spec)
    if isinstance(env, EnvSpec):
        return env.id, partial(make_tool_env, env)
    if isinstance(env, str):
        return env, partial(make_tool_env, env)
    if callable(env):
        name = getattr(env, "__name__", type(env).__name__)
        return name, lambda: check_tool_env(env(), name)
    raise ConfigError(f"expected an env id, a spec, an env or a function that makes one, got {type(env).__name__}")


class EnvPool:
    """At most ``size`` envs at once, each for one episode at a time. All methods run on the package's loop.

    Args:
        env_id: for the records of episodes whose env could not be made.
        make: makes a fresh env; called in a thread, one call at a time.
        policy: makes the agents.
        size: how many envs may be open, those that are closing included.
        tape: given to each env.
    """

    def __init__(
        self, env_id: str, make: Callable[[], gym.Env], policy: Policy, *, size: int, tape: Tape | None = None
    ):
        self._env_id, self._make, self._policy, self._tape = env_id, make, policy, tape
        self._slots, self._making = asyncio.Semaphore(size), asyncio.Lock()
        self._spare: list[gym.Env] = []
        self._closing: set[asyncio.Task[None]] = set()

    async def play(self, item: Item, attempt: int, *, deadline_s: float | None = None) -> Episode:
        """Play one attempt and return its record; an env that cannot be made for lack of infrastructure spoils it.

        Raises:
            Whatever :func:`aworld_gym.play.play` does, and ConfigError for an env that cannot be made at all.
        """
        env, fit = await self.take(), False
        try:
            if isinstance(env, InfraError):
                return failed(self._env_id, self._policy, item, env, attempt=attempt)
            episode = await play(env, self._policy, item, attempt=attempt, deadline_s=deadline_s)
            fit = episode.valid and episode.outcome is not Outcome.TIMEOUT
            return episode
        finally:
            if not isinstance(env, InfraError):
                self.put(env, fit=fit)

    async def take(self) -> gym.Env | InfraError:
        """An env of one's own until it is put back; or why infrastructure has none."""
        await self._slots.acquire()
        try:
            return self._spare.pop() if self._spare else await self._made()
        except InfraError as error:
            self._slots.release()
            return error
        except BaseException:
            self._slots.release()
            raise

    def put(self, env: gym.Env, *, fit: bool = True) -> None:
        """Give an env back; one that is not fit for another episode is closed beside the caller."""
        if fit:
            self._spare.append(env)
            self._slots.release()
        else:
            self._close(env).add_done_callback(lambda _: self._slots.release())

    def close_one(self) -> None:
        """Close an env that nobody uses, if there is one, beside the caller."""
        if self._spare:
            self._close(self._spare.pop())

    async def aclose(self) -> None:
        """Close all envs, once nobody uses any. The pool may be used again."""
        while self._spare:
            self.close_one()
        while self._closing:
            await asyncio.wait(self._closing)

    def _close(self, env: gym.Env) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(_close(env))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        return task

    async def _made(self) -> gym.Env:
        # In a thread, because the first one imports much; one at a time, because factories need not be thread-safe.
        async with self._making:
            making = asyncio.ensure_future(asyncio.to_thread(self._make))
            try:
                env = await asyncio.shield(making)
                return env if self._tape is None else attach(env, self._tape)
            except asyncio.CancelledError:
                await asyncio.wait((making,))
                if making.exception() is None:
                    await _close(making.result())
                raise


async def _close(env: gym.Env) -> None:
    """Close an env. A failure to close cannot undo what was measured, so it is logged and not raised."""
    try:
        async with asyncio.timeout(CLOSE_TIMEOUT_S):
            await aio.aclose(env)
    except Exception as error:
        log.warning("an env did not close cleanly: %s", describe(error), exc_info=error)
