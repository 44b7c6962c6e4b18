"""What every engine does: items to records, by attempts, into the journal and to the consumer.

An engine says only how one attempt is played (:meth:`Engine.play`) and what has to be there for that
(:meth:`Engine.open`, :meth:`Engine.close`). This module knows no model and no trainer, and computes no metrics.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from aworld_gym.engines.envs import EnvLike, EnvPool, maker
from aworld_gym.errors import ConfigError, InfraError
from aworld_gym.identity import check_same_run
from aworld_gym.manifests import Manifest
from aworld_gym.play import Item
from aworld_gym.policies import Policy, PolicyFunction, as_policy
from aworld_gym.tape import Tape
from aworld_gym.trajectory import Journal, Resume
from aworld_gym.types import Episode

log = logging.getLogger("aworld_gym.rollout")  # whichever engine: its user knows a rollout

PolicyLike = Policy | PolicyFunction
"""A policy, or a plain function ``(messages so far, tools) -> assistant message``, synchronous or asynchronous."""

RETRY_WAIT_S, RETRY_WAIT_MAX_S = 0.25, 10.0
"""Seconds before the first retry of an episode (doubled for each further one), and at most."""
MOST_LOSSES = 3
"""How often an episode is played again because its worker was lost, besides ``retries``: the worker was not its fault,
unless it was."""


class Played(NamedTuple):
    """One attempt's record."""

    episode: Episode
    line: str | None = None
    """Its line of the journal, where that was made already."""


class Engine:
    """Plays items, ``concurrency`` at once.

    All methods run on the package's loop, but the constructor and ``settle``. The arguments are those of
    :func:`aworld_gym.rollout.arollout`.

    Raises:
        ConfigError: arguments that cannot work.
    """

    def __init__(
        self,
        env: EnvLike,
        policy: PolicyLike,
        items: Sequence[Item],
        *,
        manifest: Manifest | None = None,
        concurrency: int = 16,
        retries: int = 1,
        deadline_s: float | None = None,
        journal: str | os.PathLike[str] | Journal | None = None,
        resume: bool = False,
        on_episode: Callable[[Episode], None] | None = None,
        tape: Tape | None = None,
    ):
        for name, value, least in (("concurrency", concurrency, 1), ("retries", retries, 0)):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ConfigError(f"{name} must be a whole number of at least {least}, got {value!r}")
        if deadline_s is not None and not deadline_s > 0:
            raise ConfigError(f"deadline_s must be positive, got {deadline_s!r}")
        if resume and journal is None:
            raise ConfigError("resume=True needs the journal to resume from")
        self.env_id, make = maker(env)
        self.policy, self.deadline_s, self.total = as_policy(policy), deadline_s, len(items)
        self.pool = EnvPool(self.env_id, make, self.policy, size=concurrency, tape=tape)
        self._items, self._manifest = items, manifest
        self._concurrency, self._retries = concurrency, retries
        self._place, self._resume, self._on_episode = journal, resume, on_episode
        self._journal: Journal | None = None
        self._todo: deque[tuple[Item, int]] = deque()
        self._queue: asyncio.Queue[tuple[int, Episode] | None] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self._said: set[str] = set()

    # ---- what an engine is ----------------------------------------------------------------------------------------

    async def open(self, at_once: int) -> None:
        """Prepare to play that many attempts at once."""
        raise NotImplementedError

    def settle(self) -> None:
        """Put right what ``open`` changed in this process; called on its user's thread, not on the loop's."""

    async def play(self, item: Item, attempt: int) -> Played:
        """Play one attempt. What infrastructure spoiled is a record too."""
        raise NotImplementedError

    def fewer(self) -> None:
        """From now on, one attempt fewer is played at once."""

    async def close(self) -> None:
        """Give back all that ``open`` took, and whatever attempts left behind."""
        raise NotImplementedError

    # ---- what its user sees ---------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the journal, hand over what it already has, and start the workers."""
        done = self._open_journal()
        for item in self._items:
            fork = None if item.prefix is None else item.group_id
            records = done.records(item.seed, item.sample, item.task_id, fork)
            for episode in records:
                self._queue.put_nowait((item.index, episode))
            if not any(episode.valid for episode in records):
                self._todo.append((item, done.next_attempt(item.seed, item.sample, item.task_id, fork)))
        await self._check(done)
        at_once = min(self._concurrency, len(self._todo))
        if at_once:
            await self.open(at_once)
        self._task = asyncio.create_task(self._work(at_once), name="aworld-gym-rollout")

    async def next(self) -> tuple[int, Episode] | None:
        """The next finished episode; None after the last. Raises what ended the rollout, after what had finished."""
        pair = await self._queue.get()
        if pair is None and self._task is not None:
            await self._task
        return pair

    async def aclose(self) -> None:
        """Stop what runs and close everything; idempotent, and complete even where the caller is cancelled."""
        await asyncio.shield(asyncio.create_task(self._aclose()))

    # ---- how --------------------------------------------------------------------------------------------------------

    async def _aclose(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait((task,))
            if not task.cancelled():
                task.exception()  # it was raised by next(), or the consumer left before it could be
        close_policy = getattr(self.policy, "aclose", None)
        try:
            try:
                await self.close()
            finally:
                await self.pool.aclose()
                if close_policy is not None:
                    await close_policy()
        finally:
            if self._journal is not None and self._journal is not self._place:
                self._journal.close()

    async def _check(self, done: Resume) -> None:
        """Whether the journal is of this run, and all tasks those of the manifest, before anything is spent."""
        if not (done.episodes or self._manifest is not None):
            return
        env = await self.pool.take()
        if isinstance(env, InfraError):
            raise env
        try:
            if done.episodes and self._journal is not None:
                listed = None if self._manifest is None else self._manifest.hash
                where = str(self._journal.path)
                check_same_run(done.episodes, env, self.policy, where=where, also=self.env_id, manifest=listed)
            if self._manifest is not None:
                # Task by task, so that an interrupt is not kept waiting.
                checked = self._manifest.check(env.get_wrapper_attr("tasks"))
                while await asyncio.to_thread(next, checked, None) is not None:
                    pass
        finally:
            self.pool.put(env)

    def _open_journal(self) -> Resume:
        if self._place is None:
            return Resume()
        # Opened before it is read: that takes the lock and mends a torn end.
        self._journal = self._place if isinstance(self._place, Journal) else Journal(self._place)
        if self._resume:
            return Resume.of(self._journal.path)
        if self._journal is not self._place and self._journal.path.stat().st_size:
            raise ConfigError(
                f"{self._journal.path} already has episodes; resume that run (resume=True, --resume), or write to "
                "another place"
            )
        return Resume()

    async def _work(self, at_once: int) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(at_once):
                    group.create_task(self._worker())
        except BaseExceptionGroup as failures:
            # Workers that fail together fail of one cause; the group is kept as its context.
            raise failures.exceptions[0] from failures.exceptions[0].__cause__
        finally:
            self._queue.put_nowait(None)

    async def _worker(self) -> None:
        while self._todo:
            item, attempt = self._todo.popleft()
            tries, losses = self._retries, MOST_LOSSES
            while True:
                played = await self.play(item, attempt)
                self._finish(item, played)
                if played.episode.valid:
                    break
                if played.episode.error_kind == "worker_lost":
                    losses -= 1
                else:
                    tries -= 1
                if tries < 0 or losses < 0:
                    break
                attempt += 1
                await asyncio.sleep(min(RETRY_WAIT_S * 2 ** (self._retries - tries - 1), RETRY_WAIT_MAX_S))
        self.fewer()

    def _finish(self, item: Item, played: Played) -> None:
        episode = played.episode
        if self._journal is not None:
            self._journal.append_line(episode.to_json() if played.line is None else played.line)
        self._queue.put_nowait((item.index, episode))
        if episode.error is not None:
            # What spoils one episode often spoils all of them: it is said aloud once.
            level = logging.INFO if episode.error in self._said else logging.WARNING
            self._said.add(episode.error)
            log.log(level, "seed %s, sample %d, attempt %d: %s", item.seed, item.sample, episode.attempt, episode.error)
        if self._on_episode is not None:
            self._on_episode(episode)
