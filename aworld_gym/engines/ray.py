"""Episodes on a Ray cluster: workers of many asynchronous episodes each, spread over its nodes.

This process keeps the journal and decides what is played; a worker (:mod:`aworld_gym.engines.ray_worker`) plays one
attempt after another of what it is given. A worker that is lost, with its node or alone, spoils the attempts that it
was playing (``worker_lost``): they are recorded as such and played again elsewhere, and another worker takes its place.
Ray itself retries nothing, so every attempt has its record.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aworld_gym.engines import ray_cluster
from aworld_gym.engines.base import Engine, Played, PolicyLike
from aworld_gym.engines.envs import EnvLike
from aworld_gym.engines.ray_worker import EpisodeWorker, Parcel, about
from aworld_gym.engines.travel import Failure, pack_env, pack_item, pack_policy
from aworld_gym.errors import ConfigError, InfraError, did_you_mean
from aworld_gym.play import Item, failed
from aworld_gym.types import Episode

log = logging.getLogger(__name__)

EPISODES_PER_WORKER = 32
"""Episodes at once in one worker, where the number of workers is not given; nodes that stand idle get one anyway."""
STOP_S = 20.0
"""Seconds that a worker may take to close its envs before it is killed."""
OVERDUE_S = 120.0
"""Seconds after its deadline until a worker that has not answered for an attempt is taken for lost."""
FAILED_STARTS = 3
"""Workers in a row that may fail to start, or as many as there should be, if those are more."""


@dataclass(frozen=True)
class Ray:
    """Where and how the workers of engine ``ray`` run.

    Raises:
        ConfigError: a value that cannot be.

    Example:
        >>> rollout("AWorld/Gaia-v0", policy, engine=Ray("10.0.0.1:6379", workers=8))  # doctest: +SKIP
    """

    address: str | None = None
    """Of a cluster: ``host:port`` or ``auto``; ``local`` starts one on this machine, as does None where ``RAY_ADDRESS``
    names none. What was started here ends with the rollout."""
    workers: int | None = None
    """Processes that play; where None, one for each 32 episodes at once and at least one a node."""
    num_cpus: float = 1.0
    """Logical CPUs that each worker asks Ray for."""
    resources: Mapping[str, float] = field(default_factory=dict)
    """Custom resources that each worker asks for: only nodes that have them get one."""
    env: tuple[str, ...] = ()
    """Names of environment variables of this process that the workers are to have (keys of tool servers, say)."""
    start_timeout_s: float = 120.0
    """Seconds within which there has to be a worker."""
    log_to_driver: bool = False
    """Print what the workers print. It is in Ray's logs anyway."""
    temp_dir: str | None = None
    """Where a cluster that is started here keeps its logs; where None, they are removed with it."""

    def __post_init__(self) -> None:
        if self.workers is not None and (type(self.workers) is not int or self.workers < 1):
            raise ConfigError(f"workers must be a whole number of at least 1, got {self.workers!r}")
        if not self.num_cpus >= 0:
            raise ConfigError(f"num_cpus must not be negative, got {self.num_cpus!r}")
        if not self.start_timeout_s > 0:
            raise ConfigError(f"start_timeout_s must be positive, got {self.start_timeout_s!r}")
        for name, amount in self.resources.items():
            if name in ("CPU", "GPU"):
                raise ConfigError(f"resources are those that a cluster names itself; {name} is none of them")
            if isinstance(amount, bool) or not isinstance(amount, int | float) or not amount > 0:
                raise ConfigError(f"resource {name!r} must be a positive number, got {amount!r}")

    def variables(self) -> dict[str, str]:
        """The environment variables named by ``env``.

        Raises:
            ConfigError: one is not set.
        """
        for name in self.env:
            if name not in os.environ:
                hint = did_you_mean(name, os.environ)
                raise ConfigError(f"environment variable {name} is to be given to the workers and is not set.{hint}")
        return {name: os.environ[name] for name in self.env}

    def wants(self) -> dict[str, float]:
        """What each worker asks for."""
        return {"CPU": self.num_cpus, **self.resources}


class _Lost(Exception):
    """A worker does not answer any more."""


@dataclass(eq=False)
class _Worker:
    """A worker as this process sees it."""

    actor: Any
    slots: int
    playing: int = 0
    ready: bool = False
    lost: bool = False


class RayEngine(Engine):
    """Plays on the workers of a cluster.

    Args:
        env: as for a rollout; a spec that JSON holds, or a function with an import path.
        policy: as for a rollout; one with a ``recipe``, or a function with an import path.
        items: what to play; their options are JSON.
        settings: where and how.
        **options: those of :class:`Engine`.

    Raises:
        ConfigError: arguments that cannot work, or an env, policy or item that cannot travel.
        MissingDependencyError: Ray is not installed.
    """

    def __init__(self, env: EnvLike, policy: PolicyLike, items: Any, *, settings: Ray, **options: Any):
        if options.get("tape") is not None:
            raise ConfigError(
                "engine 'ray' plays without a tape, which is a folder that one process writes: record, replay or cache "
                "with engine 'local'"
            )
        super().__init__(env, policy, items, **options)
        self._ray = ray_cluster.load_ray(settings.address)  # on the caller's thread, where imports belong
        self._settings = settings
        self._packed = {"env": pack_env(env), "policy": pack_policy(self.policy), "variables": settings.variables()}
        for item in items:
            pack_item(item)
        self._connecting: asyncio.Future[None] | None = None
        self._workers: set[_Worker] = set()
        self._starting: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Condition()
        self._failure: BaseException | None = None
        self._wanted = self._slots = self._failed_starts = 0
        self._closing = self._ever_ready = False

    async def open(self, at_once: int) -> None:
        """Connect, and have workers started; attempts wait for the first that is ready."""
        await self.pool.aclose()  # an env was made to check the journal or the manifest, and is not played in
        self._connecting = asyncio.ensure_future(
            asyncio.to_thread(
                ray_cluster.connect,
                self._settings.address,
                temp_dir=self._settings.temp_dir,
                log_to_driver=self._settings.log_to_driver,
            )
        )
        await asyncio.shield(self._connecting)
        self._wanted = min(at_once, await asyncio.to_thread(self._how_many, at_once))
        self._slots = math.ceil(at_once / self._wanted)
        for _ in range(self._wanted):
            self._start_one()

    def settle(self) -> None:
        """Have signals be what they were."""
        ray_cluster.take_back_signals()

    async def play(self, item: Item, attempt: int) -> Played:
        """Have a worker play one attempt."""
        worker = await self._free()
        limit = None if self.deadline_s is None else self.deadline_s + OVERDUE_S
        try:
            line = self._value(await self._asked(worker, "play", pack_item(item), attempt, limit_s=limit))
        except _Lost as lost:
            await self._replace(worker)
            error = InfraError("worker_lost", str(lost))
            return Played(failed(self.env_id, self.policy, item, error, attempt=attempt))
        finally:
            worker.playing -= 1
            async with self._changed:
                self._changed.notify()
        return Played(Episode.from_dict(json.loads(line)), line)

    async def close(self) -> None:
        """End the workers, and the cluster if it was started here."""
        self._closing = True
        for task in self._starting:
            task.cancel()
        if self._starting:
            await asyncio.wait(self._starting)
        connecting, self._connecting = self._connecting, None
        try:
            await asyncio.gather(*(self._end(worker) for worker in self._workers))
        finally:
            self._workers.clear()
            if connecting is not None:
                await asyncio.wait((connecting,))
                if connecting.exception() is None:
                    await asyncio.to_thread(ray_cluster.disconnect)

    # ---- workers ----------------------------------------------------------------------------------------------------

    def _how_many(self, at_once: int) -> int:
        """How many workers to ask for."""
        if self._settings.workers is not None:
            return self._settings.workers
        room = [self._room(node["Resources"]) for node in self._ray.nodes() if node["Alive"]]
        fitting = [count for count in room if count]
        if not fitting:
            log.warning(
                "no node of the Ray cluster has what a worker asks for, %s; waiting %g s for one that does. %s",
                _shown(self._settings.wants()),
                self._settings.start_timeout_s,
                self._has(),
            )
        wanted = max(len(fitting), math.ceil(at_once / EPISODES_PER_WORKER))
        return max(1, min(wanted, sum(fitting)))

    def _room(self, resources: Mapping[str, float]) -> int:
        """How many workers a node could hold."""
        asked = {name: amount for name, amount in self._settings.wants().items() if amount}
        return min((int(resources.get(name, 0) // amount) for name, amount in asked.items()), default=sys.maxsize)

    def _has(self) -> str:
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        plain = ("memory", "object_store_memory")
        each = [_shown({k: v for k, v in n.items() if not k.startswith("node:") and k not in plain}) for n in nodes]
        return f"It has {len(nodes)} nodes: {'; '.join(each[:8])}{' ...' if len(each) > 8 else ''}"

    def _start_one(self) -> None:
        task = asyncio.get_running_loop().create_task(self._started(), name="aworld-gym-ray-worker")
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)

    async def _started(self) -> None:
        """Start one worker; what goes wrong for good is everybody's failure."""
        try:
            while not await self._one_started():
                pass
        except Exception as error:
            await self._fail(error)

    async def _one_started(self) -> bool:
        """Whether a worker could be started; raises where it is of no use to try again."""
        actor = await asyncio.to_thread(self._actor)
        worker = _Worker(actor, self._slots)
        self._workers.add(worker)
        parcel = Parcel(
            env_id=self.env_id,
            size=self._slots,
            deadline_s=self.deadline_s,
            folder=os.getcwd(),
            path=tuple(place for place in sys.path if place),
            **self._packed,
        )
        asked = asyncio.ensure_future(self._asked(worker, "start", parcel))
        try:
            while not (await asyncio.wait((asked,), timeout=self._settings.start_timeout_s))[0]:
                if not any(other.ready for other in self._workers):
                    raise self._none_started(f"none was ready within {self._settings.start_timeout_s:g} s")
            there = self._value(await asked)
        except _Lost as lost:
            self._workers.discard(worker)
            await asyncio.to_thread(self._kill, worker)
            self._failed_starts += 1
            if self._failed_starts >= max(FAILED_STARTS, self._wanted):
                raise self._none_started(f"{self._failed_starts} in a row were lost, the last so: {lost}") from lost
            return False
        finally:
            asked.cancel()
        here = about(self.policy)
        for what, value in here.items():
            if there.get(what) != value:
                raise ConfigError(
                    f"a worker is not what this rollout is: its {what} is {there.get(what)!r}, here it is {value!r}; "
                    "use the same packages on all nodes, and a policy that is made the same everywhere"
                )
        async with self._changed:
            worker.ready = self._ever_ready = True
            self._failed_starts = 0
            self._changed.notify_all()
        return True

    def _none_started(self, why: str) -> Exception:
        said = f"no worker of the Ray cluster could be started: {why}. Each asks for {_shown(self._settings.wants())}. "
        said += self._has()
        return InfraError("worker_lost", said) if self._ever_ready else ConfigError(said)

    def _actor(self) -> Any:
        options = self._ray.remote(EpisodeWorker).options(
            num_cpus=self._settings.num_cpus,
            resources=dict(self._settings.resources),
            max_concurrency=self._slots + 2,  # besides the episodes: start and stop
            max_restarts=0,
            max_task_retries=0,
            scheduling_strategy="SPREAD",
        )
        return options.remote()

    async def _free(self) -> _Worker:
        """The least busy worker that has room, and room in it."""
        async with self._changed:
            while True:
                if self._failure is not None:
                    raise self._failure
                free = [w for w in self._workers if w.ready and w.playing < w.slots]
                if free:
                    worker = min(free, key=lambda w: w.playing)
                    worker.playing += 1
                    return worker
                await self._changed.wait()

    async def _fail(self, error: BaseException) -> None:
        async with self._changed:
            self._failure = self._failure or error
            self._changed.notify_all()

    async def _asked(self, worker: _Worker, method: str, *args: Any, limit_s: float | None = None) -> Any:
        """What a worker answers.

        Raises:
            _Lost: it cannot answer any more; the worker is to be given up.
        """
        errors = self._ray.exceptions
        try:
            async with asyncio.timeout(limit_s):
                reference = getattr(worker.actor, method).remote(*args)
                return await asyncio.wrap_future(reference.future())
        except errors.RayTaskError:
            raise  # a bug here: a worker gives failures as values
        except errors.RayError as error:
            raise _Lost(_in_one_line(error)) from error
        except TimeoutError as error:
            raise _Lost(f"the worker gave no answer within {limit_s:g} s, {OVERDUE_S:g} s too late") from error

    def _value(self, answer: Any) -> Any:
        if isinstance(answer, Failure):
            raise answer.error()
        return answer

    async def _replace(self, worker: _Worker) -> None:
        """Give a worker up, for good even if it comes back, and have another started."""
        if worker.lost:
            return
        worker.lost, worker.ready = True, False
        self._workers.discard(worker)
        if not self._closing:
            self._start_one()
        await asyncio.to_thread(self._kill, worker)

    def _kill(self, worker: _Worker) -> None:
        try:
            self._ray.kill(worker.actor, no_restart=True)
        except self._ray.exceptions.RayError as error:  # it is gone already, or the whole cluster is
            log.info("a worker could not be killed: %s", _in_one_line(error))

    async def _end(self, worker: _Worker) -> None:
        """Let a worker close its envs, then end its process."""
        if worker.ready:
            try:
                answer = await self._asked(worker, "stop", limit_s=STOP_S)
                if isinstance(answer, Failure):
                    log.warning("a worker did not close everything: %s", answer.text)
            except _Lost as lost:
                log.info("a worker ended before it was told to: %s", lost)
        await asyncio.to_thread(self._kill, worker)


def _shown(resources: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {amount:g}" for name, amount in sorted(resources.items())) or "nothing"


def _in_one_line(error: BaseException) -> str:
    """Ray's own words, which are a paragraph: which process of which machine, and why."""
    lines = [line.strip() for line in str(error).splitlines()]
    kept = [line for line in lines if line and not line.startswith(("class_name:", "actor_id:", "namespace:"))]
    text = " ".join(kept).partition(" Some common causes include")[0]
    return text if len(text) <= 400 else text[:399] + "…"
