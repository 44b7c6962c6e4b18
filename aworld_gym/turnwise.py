"""One episode whose sampling is somebody else's: a request for each turn goes out, the sampled ids come in.

Where a framework owns the loop (it asks for one episode at a time, or calls hooks turn by turn),
:func:`~aworld_gym.token_policy.token_rollout` cannot call its sampler. A :class:`TurnwiseEpisode` is the same
episode the other way round: the same :class:`~aworld_gym.token_policy.TokenPolicy` plays it on the package's loop,
tools and all, and stands still wherever an answer of the model is needed.

Safe to use from any event loop, and from several in turn: frameworks run their hooks in short-lived ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple, cast

from aworld_gym.errors import ConfigError
from aworld_gym.generation import Sampled
from aworld_gym.play import Item
from aworld_gym.rollout import EnvLike, arollout
from aworld_gym.token_policy import TokenEpisode, TokenPolicy
from aworld_gym.tokens import ChatCodec
from aworld_gym.toolchain import loop
from aworld_gym.trajectory import Journal
from aworld_gym.types import Episode


class TurnRequest(NamedTuple):
    """What to sample from next."""

    ids: list[int]
    """All ids of the episode so far, its prompt included."""
    limit: int
    """How many ids may be sampled, a stop id included."""
    attempt: int
    """Counts from 0; a higher one than before begins the episode again, in a fresh env, from its prompt."""


class TurnwiseEpisode:
    """One episode, asked for turn by turn.

    Args:
        env: an id, a spec, an env made by ``gym.make`` (its spec is rebuilt), or a function that makes one.
        codec: tokenises and parses for the model's template.
        item: the episode.
        max_tokens: ids of the whole episode after its prompt, observations included.
        max_turn_tokens: ids sampled in one turn.
        max_context: ids of prompt and episode together.
        retries: further tries, each in a fresh env, of an episode that infrastructure spoiled.
        deadline_s: wall-clock seconds for one attempt, sampling included; it then ends as ``timeout``.
        journal: where each record is written as it is complete.
        on_episode: called with each record, spoiled attempts included, on the package's loop.
        model_version: recorded with what is sampled.

    Example:
        The loop of a framework that has an asynchronous sampler::

            async with TurnwiseEpisode(env, codec, item, max_tokens=2048) as episode:
                request = await episode.start()
                while request is not None:
                    ids, logprobs = await sample(request.ids, request.limit)
                    request = await episode.sampled(ids, logprobs)
                trajectory = episode.result.trajectory
    """

    def __init__(
        self,
        env: EnvLike,
        codec: ChatCodec,
        item: Item,
        *,
        max_tokens: int,
        max_turn_tokens: int | None = None,
        max_context: int | None = None,
        retries: int = 1,
        deadline_s: float | None = None,
        journal: Journal | None = None,
        on_episode: Callable[[Episode], None] | None = None,
        model_version: str | None = None,
    ):
        self._env, self._item, self._journal, self._on_episode = env, item, journal, on_episode
        self._retries, self._deadline_s = retries, deadline_s
        self._policy = TokenPolicy(
            codec,
            self._generate,
            max_tokens=max_tokens,
            max_turn_tokens=max_turn_tokens,
            max_context=max_context,
            model_version=model_version,
        )
        self._task: asyncio.Task[TokenEpisode] | None = None
        self._waiting: asyncio.Future[Sampled] | None = None
        self._request: asyncio.Future[TurnRequest] | None = None

    async def __aenter__(self) -> TurnwiseEpisode:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    async def start(self) -> TurnRequest | None:
        """Reset an env and ask for the first turn; None where the episode has ended already (see :attr:`result`).

        Raises:
            ConfigError: settings that cannot work, or an unknown task; or the episode was started before.
        """
        return await loop.call(self._started())

    async def sampled(self, ids: Sequence[int], logprobs: Sequence[float] | None = None) -> TurnRequest | None:
        """Play the turn that was asked for, and ask for the next; None where the episode has ended.

        Args:
            ids: what was sampled, a stop id included; more than the request's ``limit`` is cut off.
            logprobs: of each id, where the sampler has them.

        Raises:
            ConfigError: nothing was asked for.
            PolicyError: the codec refused a message.
        """
        given = None if logprobs is None else [float(x) for x in logprobs]
        return await loop.call(self._played(([int(i) for i in ids], given)))

    async def aclose(self) -> None:
        """Stop the episode wherever it is and close its env; idempotent."""
        await loop.call(self._closed())

    @property
    def result(self) -> TokenEpisode:
        """The record and the ids of the last attempt, once the episode has ended.

        Raises:
            ConfigError: it has not.
        """
        if self._task is None or not self._task.done():
            raise ConfigError("the episode has not ended: go on until start() or sampled() gives None")
        return self._task.result()

    # ---- on the package's loop -------------------------------------------------------------------------------------

    async def _started(self) -> TurnRequest | None:
        if self._task is not None:
            raise ConfigError("an episode starts once; make another TurnwiseEpisode")
        self._request = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._play(), name="aworld-gym-turnwise")
        return await self._next()

    async def _played(self, sampled: Sampled) -> TurnRequest | None:
        waiting, self._waiting = self._waiting, None
        if waiting is None:
            raise ConfigError("no turn was asked for: the episode has not started, has ended, or is being played")
        self._request = asyncio.get_running_loop().create_future()
        if not waiting.done():  # else a deadline has ended the episode while the turn was sampled
            waiting.set_result(sampled)
        return await self._next()

    async def _next(self) -> TurnRequest | None:
        assert self._task is not None and self._request is not None  # both are made before
        await asyncio.wait((self._task, self._request), return_when=asyncio.FIRST_COMPLETED)
        if self._request.done():
            return self._request.result()
        self._task.result()  # raises what ended it
        return None

    async def _closed(self) -> None:
        task = self._task
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait((task,))

    async def _generate(self, key: int, ids: list[int], limit: int) -> Sampled:
        assert self._request is not None  # made before whatever leads here
        self._waiting = asyncio.get_running_loop().create_future()
        self._request.set_result(TurnRequest(list(ids), limit, self._policy.agents[key].attempt))
        return await self._waiting

    async def _play(self) -> TokenEpisode:
        attempts, last = 0, None
        options: dict[str, Any] = {"journal": self._journal, "on_episode": self._on_episode}
        options |= {"retries": self._retries, "deadline_s": self._deadline_s, "concurrency": 1}
        async with aclosing(cast("Any", arollout(self._env, self._policy, items=[self._item], **options))) as records:
            async for record in records:
                attempts, last = attempts + 1, record
        assert last is not None  # a rollout of one item has a record of it
        agent = self._policy.agents.get(self._item.index)
        began = agent is not None and agent.attempt == last.attempt  # else this attempt failed at reset
        return TokenEpisode(last, agent.trajectory() if agent and began else None, attempts)
