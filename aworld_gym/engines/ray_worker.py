"""What runs in a worker of a Ray cluster: a pool of envs, and many episodes at once.

Plain Python: Ray makes an actor of the class, and nothing here imports it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import sys
from collections.abc import Coroutine
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from aworld_gym.engines.envs import EnvPool, maker
from aworld_gym.engines.travel import Failure, unpack_env, unpack_item, unpack_policy
from aworld_gym.identity import settings_json
from aworld_gym.toolchain import close_idle, loop

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Parcel:
    """All that a worker is told. It is sent by a call and stands in no log: nothing of it is shown."""

    env_id: str
    env: dict[str, str] = field(repr=False)
    policy: dict[str, Any] = field(repr=False)
    size: int
    """Episodes at once."""
    deadline_s: float | None
    variables: dict[str, str] = field(repr=False)
    """Environment variables to set."""
    folder: str
    """To work in, where there is such a one."""
    path: tuple[str, ...]
    """Where modules are looked for, after the worker's own places."""


class EpisodeWorker:
    """Plays attempts. Each method gives its value, or the :class:`Failure` that came instead."""

    def __init__(self) -> None:
        self._pool: EnvPool | None = None
        self._policy: Any = None
        self._deadline_s: float | None = None
        self._playing: set[asyncio.Task[Any]] = set()

    async def start(self, parcel: Parcel) -> dict[str, str] | Failure:
        """Make the policy; what it and this process are, to be compared with those of the rollout."""
        return await _guarded(self._start(parcel))

    async def play(self, item: str, attempt: int) -> str | Failure:
        """Play one attempt; its line of the journal."""
        return await _guarded(self._play(item, attempt))

    async def stop(self) -> None | Failure:
        """End what is played and close everything."""
        return await _guarded(self._stop())

    async def _start(self, parcel: Parcel) -> dict[str, str]:
        os.environ.update(parcel.variables)
        if Path(parcel.folder).is_dir():
            os.chdir(parcel.folder)
        sys.path += [place for place in parcel.path if place not in sys.path and Path(place).exists()]
        self._policy, self._deadline_s = unpack_policy(parcel.policy), parcel.deadline_s
        _, make = maker(unpack_env(parcel.env))
        self._pool = EnvPool(parcel.env_id, make, self._policy, size=parcel.size)
        return about(self._policy)

    async def _play(self, item: str, attempt: int) -> str:
        assert self._pool is not None
        task = asyncio.current_task()
        assert task is not None
        self._playing.add(task)
        try:
            playing = self._pool.play(unpack_item(item), attempt, deadline_s=self._deadline_s)
            return (await loop.call(playing)).to_json()
        finally:
            self._playing.discard(task)

    async def _stop(self) -> None:
        playing = set(self._playing)
        for task in playing:
            task.cancel()
        if playing:
            await asyncio.wait(playing)
        if self._pool is not None:
            await loop.call(self._pool.aclose())
        close_policy = getattr(self._policy, "aclose", None)
        if close_policy is not None:
            await loop.call(close_policy())
        await loop.call(close_idle())


def about(policy: Any) -> dict[str, str]:
    """What must be equal in a rollout and in its workers, lest their episodes are not of one run."""
    try:
        package = version("aworld-gym")
    except PackageNotFoundError:  # a source tree that was not installed
        package = "not installed"
    return {
        "policy": policy.name,
        "policy settings": settings_json(policy),
        "version of aworld-gym": package,
        "version of Python": ".".join(platform.python_version_tuple()[:2]),
    }


async def _guarded(coro: Coroutine[Any, Any, Any]) -> Any:
    """The value, or the failure as one: Ray's own errors are then all about Ray."""
    try:
        return await coro
    except Exception as error:
        return Failure.of(error)
