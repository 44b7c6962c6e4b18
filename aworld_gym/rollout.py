"""Independent asynchronous episodes: many at once, none waiting for another.

Each of ``concurrency`` workers plays one episode after another. An episode that an infrastructure failure spoiled is
recorded as such and played again, in a fresh env, under the next attempt number. Whatever ends the rollout (the last
episode, an error, a cancellation, an interrupt), every env is closed, and every finished episode has been written to
the journal and handed over.

Here is what a user calls; how and where episodes are run stands in :mod:`aworld_gym.engines`, and what one episode is
in :mod:`aworld_gym.play`. Neither knows a model or a trainer, or computes metrics.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from typing import TYPE_CHECKING, Any, TypeAlias

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from aworld_gym.branch import Prefix
from aworld_gym.engines.base import Engine, PolicyLike
from aworld_gym.engines.envs import EnvLike, maker
from aworld_gym.engines.local import LocalEngine
from aworld_gym.errors import ConfigError, PolicyError, did_you_mean
from aworld_gym.manifests import Manifest, find
from aworld_gym.play import Item
from aworld_gym.progress import EpisodeProgress
from aworld_gym.tape import Tape
from aworld_gym.toolchain import loop
from aworld_gym.trajectory import Journal
from aworld_gym.types import Episode

__all__ = ["EnvLike", "Groups", "Item", "arollout", "branch", "fork_items", "iterate", "make_items", "rollout"]

if TYPE_CHECKING:
    from aworld_gym.engines.ray import Ray

ENGINES = ("local", "ray")
EngineLike: TypeAlias = "str | Ray"
"""``local``, ``ray``, or the settings of the latter."""

DEFAULT_EPISODES = 50


def make_items(episodes: int, *, seed: int = 0, group_size: int = 1) -> list[Item]:
    """``episodes`` items from ``seed`` on, ``group_size`` in a row sharing a seed and a group.

    Raises:
        ConfigError: a number is out of range, or ``episodes`` is not a multiple of ``group_size``.
    """
    for name, value, least in (("episodes", episodes, 1), ("group_size", group_size, 1), ("seed", seed, 0)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ConfigError(f"{name} must be a whole number of at least {least}, got {value!r}")
    if episodes % group_size:
        raise ConfigError(
            f"episodes ({episodes}) must be a multiple of group_size ({group_size}), to keep groups whole"
        )
    return [Item(i, seed + i // group_size, i % group_size, str(seed + i // group_size)) for i in range(episodes)]


class Groups:
    """Puts records together to whole groups, whichever order they come in.

    A group is whole once each of its samples has a valid record; spoiled attempts are no part of it.

    Args:
        size: samples of a group, the rollout's ``group_size``.

    Example:
        >>> groups = Groups(4)
        >>> for episode in iterate("AWorld/Gaia-v0", OraclePolicy(), episodes=8, group_size=4):
        ...     if (whole := groups.add(episode)) is not None:
        ...         print([e.sample for e in whole])
        [0, 1, 2, 3]
        [0, 1, 2, 3]
    """

    def __init__(self, size: int):
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ConfigError(f"size must be a whole number of at least 1, got {size!r}")
        self.size = size
        self.open: dict[str | None, dict[int, Episode]] = {}
        """Groups that have begun and are not whole: the valid records by sample. Those left when the rollout has ended
        stay so: some sample failed for good."""

    def add(self, episode: Episode) -> tuple[Episode, ...] | None:
        """Take a record in; the whole group, by sample, if this was its last."""
        group = self.open.setdefault(episode.group_id, {})
        if episode.valid:
            group[episode.sample] = episode
        if len(group) < self.size:
            return None
        del self.open[episode.group_id]
        return tuple(group[sample] for sample in sorted(group))


def fork_items(episode: Episode, step: int, n: int, *, options: Mapping[str, Any] | None = None) -> list[Item]:
    """``n`` items that begin with the first ``step`` steps of a recorded episode, for any kind of rollout.

    Args:
        episode: the record.
        step: how many of its steps are taken over; 0 begins at its prompt.
        n: how many forks.
        options: of the reset, besides the task: ``components``, say, where the episode had some.

    Raises:
        ConfigError: the episode has fewer steps, or n is not at least 1.
    """
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise ConfigError(f"n must be a whole number of at least 1, got {n!r}")
    prefix = Prefix(episode, step)
    reset = {"task_id": episode.task_id, **(options or {})}
    return [Item(k, episode.seed, k, prefix.group_id, options=reset, prefix=prefix) for k in range(n)]


def branch(
    episode: Episode,
    step: int,
    n: int,
    policy: PolicyLike,
    *,
    env: EnvLike | None = None,
    options: Mapping[str, Any] | None = None,
    **more: Any,
) -> list[Episode]:
    """Continue a recorded episode from one of its steps, ``n`` times.

    The recorded actions of the first ``step`` steps are taken in fresh envs, by running their calls again or from
    ``tape``; every result is compared with the recorded one. Then the policy plays on. An agent with ``follow`` goes on
    as if the steps had been its own; any other is first asked with the conversation so far.

    Args:
        episode: the record.
        step: how many of its steps are taken over.
        n: how many forks.
        policy: as for :func:`rollout`.
        env: what to play in; rebuilt from the episode's own spec where None.
        options: of the reset, besides the task: ``components``, say, where the episode had some.
        **more: other arguments of :func:`rollout`: ``concurrency``, ``retries``, ``journal``, ``tape``, ...

    Returns:
        The forks' records, in order. ``parent`` is the episode's key, ``forked_at`` is ``step``; their steps begin with
        those taken over, and their rewards are what the env paid now.

    Raises:
        ReplayError: a result, the prompt or the tools differ from the recording; it names the first difference.
        ConfigError: there is no such step, or the episode has no spec to make an env of.

    Example:
        >>> from aworld_gym.policies import OraclePolicy, RandomPolicy
        >>> played = rollout("AWorld/Gaia-v0", OraclePolicy(), episodes=1)[0]
        >>> forks = branch(played, 2, 4, RandomPolicy())
        >>> [fork.forked_at for fork in forks]
        [2, 2, 2, 2]
    """
    items = fork_items(episode, step, n, options=options)
    if env is None:
        if episode.spec is None:
            raise ConfigError(
                f"episode {episode.key} has no env spec to make an env of: pass env=, what it was played in"
            )
        env = EnvSpec.from_json(episode.spec)
    return rollout(env, policy, items=items, **more)


def rollout(env: EnvLike, policy: PolicyLike, *, progress: bool = False, **options: Any) -> list[Episode]:
    """Play episodes and wait for all of them.

    Callable from any thread but the package's own loop; inside a running event loop it blocks that loop.

    Args:
        env: an id, a spec, an env made by ``gym.make``, or a function that makes an env.
        policy: makes one agent per episode; or a plain function of (messages so far, tools).
        progress: show a progress bar on stderr.
        **options: the arguments of :func:`arollout` (``episodes``, ``seed``, ``concurrency``, ``journal``, ...).

    Returns:
        Every record, invalid attempts included, by item and attempt (not by time of completion).

    Raises:
        PolicyError: the policy raised; its ``finished`` holds the records that were complete.

    Example:
        >>> from aworld_gym.policies import OraclePolicy
        >>> [e.score for e in rollout("AWorld/Gaia-v0", OraclePolicy(), episodes=2)]
        [1.0, 1.0]
    """
    done: list[tuple[int, Episode]] = []
    try:
        with closing(_iterate(env, policy, progress, options)) as pairs:
            done.extend(pairs)
    except PolicyError as error:
        error.finished = tuple(episode for _, episode in done)
        raise
    return [episode for _, episode in sorted(done, key=lambda pair: (pair[0], pair[1].attempt))]


def iterate(env: EnvLike, policy: PolicyLike, *, progress: bool = False, **options: Any) -> Iterator[Episode]:
    """As :func:`rollout`, one record at a time in order of completion, for runs too long to hold in memory."""
    with closing(_iterate(env, policy, progress, options)) as pairs:
        for _, episode in pairs:
            yield episode


async def arollout(
    env: EnvLike,
    policy: PolicyLike,
    *,
    episodes: int | None = None,
    seed: int = 0,
    concurrency: int = 16,
    group_size: int = 1,
    items: Sequence[Item] | None = None,
    manifest: str | os.PathLike[str] | Manifest | None = None,
    retries: int = 1,
    deadline_s: float | None = None,
    journal: str | os.PathLike[str] | Journal | None = None,
    resume: bool = False,
    on_episode: Callable[[Episode], None] | None = None,
    tape: Tape | None = None,
    engine: EngineLike = "local",
) -> AsyncIterator[Episode]:
    """Play episodes; yield their records in order of completion, invalid attempts included.

    The episodes run on the package's event loop, whichever loop iterates. They run ahead of a slow consumer.
    Leaving the iteration early stops them: hold the iterator in :func:`contextlib.aclosing` where you may.

    Args:
        env: an id, a spec, an env made by ``gym.make`` (its spec is rebuilt, wrappers included; the env itself
            is not touched), or a function that makes an env.
        policy: makes one agent per episode (:class:`~aworld_gym.policies.Policy`); or a plain function of
            (messages so far, tools), see :class:`~aworld_gym.policies.FunctionPolicy`.
        episodes: how many (50 where None). Item i has seed ``seed + i // group_size`` and the group of that name.
        seed: the first seed.
        concurrency: episodes at once.
        group_size: episodes that share a seed, and so a task.
        items: what to play, instead of ``episodes``, ``seed`` and ``group_size``.
        manifest: a fixed list of tasks to play, ``group_size`` samples of each, instead of ``episodes`` or ``items``:
            a name that the env has, a file, or a Manifest (:mod:`aworld_gym.manifests`). The env is made with the
            arguments that it asks for, and all its tasks are checked before the first is played.
        retries: further tries, each in a fresh env, of an episode that infrastructure spoiled.
        deadline_s: wall-clock seconds for one attempt, the policy's time included; it then ends as ``timeout``.
            Off by default: a clock makes a rollout irreproducible.
        journal: a file to write every record to as it is complete, or an open Journal (which stays open).
        resume: continue the journal: items that have a valid record there are yielded from it and not played;
            others get further attempts. Without it a journal that already has records is refused; with it, one
            whose records are of another manifest, env, env spec, policy or policy settings.
        on_episode: called with each new record, on the loop's thread, before it is yielded; it must not block.
        tape: where tool results are recorded to or come from: a Recorder, Replay or Cache (:mod:`aworld_gym.tape`).
            It stays open.
        engine: where episodes are played: ``local``, in this process; ``ray``, by workers of a Ray cluster; or a
            :class:`~aworld_gym.engines.ray.Ray` that says of which and how. To other processes env, policy and items
            go as JSON: one that cannot is refused.

    Raises:
        ConfigError: arguments that cannot work, a journal of another env or policy, or a task that is not the one
            of the manifest.
        PolicyError: the policy raised, or gave what is not an action. Finished episodes were yielded before.
        OutputError: the journal could not be written (a full disk, say). So were those that it has.
        ReplayError: the tape does not have a call that was made.
    """
    env, chosen, manifest = _choose(env, items, episodes, seed, group_size, manifest)
    running = _engine(
        engine,
        env,
        policy,
        chosen,
        manifest=manifest,
        concurrency=concurrency,
        retries=retries,
        deadline_s=deadline_s,
        journal=journal,
        resume=resume,
        on_episode=on_episode,
        tape=tape,
    )
    try:
        await loop.call(running.start())
        running.settle()
        while (pair := await loop.call(running.next())) is not None:
            yield pair[1]
    finally:
        await loop.call(running.aclose())


def _iterate(
    env: EnvLike, policy: PolicyLike, progress: bool, options: dict[str, Any]
) -> Generator[tuple[int, Episode], None, None]:
    """The synchronous engine loop: records with the index of their item. An interrupt leaves nothing open."""
    known = list(inspect.signature(arollout).parameters)[2:]  # all but env and policy
    for name in options:
        if name not in known:
            hint = did_you_mean(name, known)
            raise ConfigError(f"a rollout takes no argument {name!r}; it takes {', '.join(known)}.{hint}")
    options = dict(options)
    chosen = {name: options.pop(name, default) for name, default in _CHOICE.items()}
    env, items, manifest = _choose(env, **chosen)
    running = _engine(options.pop("engine", "local"), env, policy, items, manifest=manifest, **options)
    try:
        loop.run(running.start())
        running.settle()
        with EpisodeProgress(running.total) if progress else nullcontext() as bar:
            while (pair := loop.run(running.next())) is not None:
                if bar is not None:
                    bar.add(pair[1])
                yield pair
    finally:
        loop.run(running.aclose())


def _engine(engine: EngineLike, env: EnvLike, policy: PolicyLike, items: Sequence[Item], **options: Any) -> Engine:
    """The engine of that name; Ray is imported only by its own."""
    if engine == "local":
        return LocalEngine(env, policy, items, **options)
    from aworld_gym.engines.ray import Ray, RayEngine

    settings = Ray() if engine == "ray" else engine
    if not isinstance(settings, Ray):
        hint = did_you_mean(engine, ENGINES) if isinstance(engine, str) else ""
        raise ConfigError(f"engine must be one of {', '.join(ENGINES)}, or a Ray(...), got {engine!r}.{hint}")
    return RayEngine(env, policy, items, settings=settings, **options)


_CHOICE: dict[str, Any] = {"items": None, "episodes": None, "seed": 0, "group_size": 1, "manifest": None}


def _choose(
    env: EnvLike,
    items: Sequence[Item] | None,
    episodes: int | None,
    seed: int,
    group_size: int,
    manifest: str | os.PathLike[str] | Manifest | None,
) -> tuple[EnvLike, Sequence[Item], Manifest | None]:
    """The env to play in, what to play, and the manifest that it is of."""
    given = {"episodes": episodes, "items": items, "manifest": manifest}
    both = [name for name, value in given.items() if value is not None]
    if len(both) > 1:
        why = "; a manifest is played whole" if manifest is not None else ""
        raise ConfigError(f"give either {' or '.join(both)}, not both{why}")
    if manifest is not None:
        if isinstance(env, gym.Env):
            maker(env)  # says what to do about one without a spec
        named = _spec(env) if isinstance(env, str) else env.spec if isinstance(env, gym.Env) else env
        manifest = find(named, manifest)
        env = manifest.applied(named) if isinstance(named, EnvSpec) else env
        return env, manifest.items(group_size=group_size, seed=seed), manifest
    if items is not None:
        return env, items, None
    count = DEFAULT_EPISODES if episodes is None else episodes
    return env, make_items(count, seed=seed, group_size=group_size), None


def _spec(env_id: str) -> EnvSpec:
    try:
        return gym.spec(env_id)
    except gym.error.Error as error:
        raise ConfigError(f"no env {env_id!r}: {error}") from error
