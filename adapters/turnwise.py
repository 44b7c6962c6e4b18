"""One episode for frameworks that own the loop of turns: whatever happens to it, it goes on or ends, in time.

A :class:`~aworld_gym.turnwise.TurnwiseEpisode` has deadlines of its own. Should anything hang beside them, a framework
that waits for one episode would wait for ever with all others; here it is given up instead, as no measurement.
"""

from __future__ import annotations

import asyncio
import logging
import time
import weakref
from collections import Counter
from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from adapters.episodes import OpenJournal, episode_metrics, lost_episode
from adapters.handover import spec_of
from adapters.options import TurnwiseOptions
from aworld_gym.generation import Sampled
from aworld_gym.play import Item
from aworld_gym.token_policy import TokenEpisode
from aworld_gym.tokens import ChatCodec
from aworld_gym.turnwise import TurnRequest, TurnwiseEpisode

log = logging.getLogger(__name__)

SETTLE_S = 60.0
"""Seconds that ending and closing an episode may take beyond its deadlines."""


class Sample(Protocol):
    """A framework's sampler, for one turn of one episode."""

    def __call__(self, request: TurnRequest, turn: int) -> Awaitable[Sampled]:
        """Sample after ``request.ids``; ``turn`` counts the attempt's from 0."""


class Played(NamedTuple):
    """An episode, and where its time went."""

    episode: TokenEpisode
    generate_s: float
    env_s: float

    @property
    def metrics(self) -> dict[str, float]:
        """What to log of it."""
        return episode_metrics(self.episode) | {"time/generate_s": self.generate_s, "time/env_s": self.env_s}


_gates: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[int, asyncio.Semaphore]] = weakref.WeakKeyDictionary()


def _gate(concurrency: int) -> asyncio.Semaphore:
    """What all episodes of this event loop go through."""
    here = _gates.setdefault(asyncio.get_running_loop(), {})
    return here.setdefault(concurrency, asyncio.Semaphore(concurrency))


class EnvEpisode:
    """The episode of a row of a data set: asked for turn by turn, or played with a sampler.

    Args:
        row: what :func:`adapters.tasks.task_rows` wrote.
        item: which episode of the batch it is.
        codec: tokenises and parses.
        options: how it is played.
        max_tokens: ids of the whole episode after its prompt.
        max_context: ids of prompt and episode together.
        journal: where its records are written.
        version: of the weights that sample.
    """

    def __init__(
        self,
        row: Mapping[str, Any],
        item: Item,
        codec: ChatCodec,
        options: TurnwiseOptions,
        *,
        max_tokens: int,
        max_context: int | None,
        journal: OpenJournal,
        version: int,
    ):
        self.item, self.options = item, options
        self.request: TurnRequest | None = None
        """What to sample from next; None before the start, and once the episode has ended."""
        self._row, self._codec, self._journal = row, codec, journal
        self._bounds = {"max_tokens": max_tokens, "max_context": max_context, "model_version": str(version)}
        self._episode: TurnwiseEpisode | None = None
        self._lost: TokenEpisode | None = None
        self._attempts = 1

    async def start(self) -> TurnRequest | None:
        """Reset an env and ask for the first turn; None where the episode has ended already."""
        self._episode = TurnwiseEpisode(
            spec_of(self._row["env"]),
            self._codec,
            self.item,
            max_turn_tokens=self.options.max_turn_tokens,
            retries=self.options.retries,
            deadline_s=self.options.deadline_s,
            journal=self._journal(),
            **self._bounds,
        )
        return await self._ask(self._episode.start())

    async def sampled(self, ids: Sequence[int], logprobs: Sequence[float] | None) -> TurnRequest | None:
        """Play the turn that was asked for, and ask for the next; None where the episode has ended.

        Log-probabilities that are not one for each id count as none.
        """
        assert self._episode is not None  # it was started
        if logprobs is not None and len(logprobs) != len(ids):
            logprobs = None
        return await self._ask(self._episode.sampled(ids, logprobs))

    async def _ask(self, turn: Coroutine[Any, Any, TurnRequest | None]) -> TurnRequest | None:
        longest = (self.options.retries + 1) * self.options.deadline_s + SETTLE_S
        try:
            self.request = await asyncio.wait_for(turn, longest)
        except TimeoutError:
            self._give_up(f"the episode did not go on within {longest} s")
        if self.request is not None:
            self._attempts = self.request.attempt + 1
        return self.request

    def _give_up(self, why: str) -> None:
        self.request, self._lost = None, lost_episode(self.item, why, self._attempts, self._journal)

    @property
    def result(self) -> TokenEpisode:
        """The record and the ids of the last attempt, once the episode has ended or was given up."""
        if self._lost is not None:
            return self._lost
        assert self._episode is not None  # it was started
        return self._episode.result

    async def aclose(self) -> None:
        """Stop the episode wherever it is and close its env."""
        if self._episode is not None:
            try:
                await asyncio.wait_for(self._episode.aclose(), SETTLE_S)
            except TimeoutError:
                log.error("an episode (seed %s) could not be closed within %s s", self.item.seed, SETTLE_S)

    async def play(self, sample: Sample) -> Played:
        """Play it whole, with a framework's asynchronous sampler: ends in time, closes its env, and never raises.

        ``options.concurrency`` is of all that are played on this event loop.

        Args:
            sample: samples its turns, each within the episode's deadline.

        Returns:
            The episode. One that failed by any other cause than the env's is no measurement either; nor is a valid
            one in which nothing was sampled, for no trainer can tell it from those.
        """
        turns, generate_s = Counter[int](), 0.0
        async with _gate(self.options.concurrency):
            began = time.monotonic()
            try:
                request = await self.start()
                while request is not None:
                    turn, asked = turns[request.attempt], time.monotonic()
                    turns[request.attempt] += 1
                    try:
                        ids, logprobs = await asyncio.wait_for(sample(request, turn), self.options.deadline_s)
                    except TimeoutError as error:  # which itself says nothing
                        raise TimeoutError(f"a turn was not sampled within {self.options.deadline_s} s") from error
                    finally:
                        generate_s += time.monotonic() - asked
                    request = await self.sampled(ids, logprobs)
                episode, trajectory, _ = self.result
                if episode.valid and not (trajectory and trajectory.response_ids):
                    raise RuntimeError("nothing was sampled: the prompt leaves no room for a turn")
            except Exception as error:
                which = (self.item.group_id, self.item.seed, self.item.sample)
                log.exception("an episode is left out of loss and baseline: group %s, seed %s, sample %s", *which)
                await self.aclose()  # what its deadline may just have ended is on record before what it is taken for
                self._give_up(f"{type(error).__name__}: {error}")
            finally:
                await self.aclose()
            env_s = time.monotonic() - began - generate_s
        return Played(self.result, generate_s, env_s)
