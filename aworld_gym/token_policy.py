"""Episodes over token ids: what training frameworks and local models share.

A consumer that samples ids (a trainer, a local model, a server) gives one function, ``generate``: many id lists
in, one continuation each out. Everything else is here: episodes run concurrently on the package's loop thread,
their requests are gathered into batches, and ``generate`` is called with each batch *on the caller's thread*
(trainers and torch models are bound to it). What comes back is each episode's record and its
:class:`~aworld_gym.tokens.TokenTrajectory`: exactly the ids that were sampled, exactly the ids that were appended.

No torch here, and no advantage, loss or weight.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import math
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple, cast

import gymnasium as gym

from aworld_gym.errors import ConfigError
from aworld_gym.generation import STRAGGLER_S, AsyncGenerate, Generate, GenerationPool, PoolStats, Rendezvous
from aworld_gym.play import Item
from aworld_gym.rollout import EnvLike, arollout
from aworld_gym.tokens import ChatCodec, TokenTrajectory, TrajectoryBuilder
from aworld_gym.toolchain import loop
from aworld_gym.trajectory import Journal
from aworld_gym.types import Episode, Message

log = logging.getLogger(__name__)


class TokenPolicy:
    """Plays episodes in token ids; a rollout :class:`~aworld_gym.policies.Policy`.

    Each episode is prompt ids, then by turns what ``generate`` sampled and what the codec appends for the
    observation. Nothing sampled is ever rendered or tokenised again.

    Args:
        codec: tokenises and parses for the model's template.
        generate: an awaitable sampler, for example ``GenerationPool.generate``.
        max_tokens: ids of the whole episode after its prompt, observations included.
        max_turn_tokens: ids sampled in one turn.
        max_context: ids of prompt and episode together (what the model can hold).
        model_version: recorded with what is sampled.
        name: for logs and records.

    An episode whose budget is used up, or whose turn was cut before a stop id, ends as ``max_tokens``: a cut turn
    is not shown to the env, for its half sentence is not an answer, but its ids stay in the trajectory.
    """

    def __init__(
        self,
        codec: ChatCodec,
        generate: AsyncGenerate,
        *,
        max_tokens: int,
        max_turn_tokens: int | None = None,
        max_context: int | None = None,
        model_version: str | None = None,
        name: str = "token",
    ):
        for what, value in (
            ("max_tokens", max_tokens),
            ("max_turn_tokens", max_turn_tokens),
            ("max_context", max_context),
        ):
            if value is not None and value < 1:
                raise ConfigError(f"{what} must be at least 1, got {value!r}")
        self.codec, self.generate, self.name = codec, generate, name
        self.max_tokens, self.max_context, self.model_version = max_tokens, max_context, model_version
        self.max_turn_tokens = max_tokens if max_turn_tokens is None else max_turn_tokens
        self.agents: dict[int, TokenAgent] = {}
        """By index of the episode: the agent of its latest attempt."""

    def episode(
        self, *, obs: Any, info: Mapping[str, Any], seed: int | None, index: int, attempt: int, env: gym.Env
    ) -> TokenAgent:
        """An agent for the episode that was just reset; it takes the place of an earlier attempt's."""
        self.agents[index] = TokenAgent(self, index, attempt, info["tools"])
        return self.agents[index]


class TokenAgent:
    """One attempt at one episode; :meth:`trajectory` has its ids."""

    def __init__(self, policy: TokenPolicy, key: int, attempt: int, tools: Sequence[Mapping[str, Any]]):
        self._policy, self._key, self._tools = policy, key, tools
        self.attempt = attempt
        self._built = TrajectoryBuilder()
        self._prompt: list[int] = []
        self._last: list[int] = []
        self._told: list[Message] = []  # of a fork's first steps, as long as they carry no ids
        self._begun = False
        self._logprobs_known = True

    async def act(self, messages: tuple[Message, ...]) -> Message | None:
        """The model's next message; None once its token budget is used up or its turn was cut."""
        policy, built = self._policy, self._built
        appended: list[int] = []
        if self._begun:
            appended = policy.codec.extend(self._last, messages)
        else:
            self._begun, self._prompt = True, self._extended(messages)
            built.prompt(self._prompt)
        limit = min(self._room() - len(appended), policy.max_turn_tokens)
        if limit < 1:
            return None
        if appended:
            built.appended(appended)
        ids, logprobs = await policy.generate(self._key, built.ids, limit)
        stops = policy.codec.stop_ids
        end = next((k + 1 for k, token in enumerate(ids[:limit]) if token in stops), limit)
        self._last, logprobs = ids[:end], None if logprobs is None else logprobs[:end]
        if logprobs is None or not all(map(math.isfinite, logprobs)):
            self._logprobs_known, logprobs = False, [0.0] * len(self._last)
        built.sampled(self._last, logprobs)
        parsed = policy.codec.parse(self._last, self._tools)
        if not parsed.closed:
            return None
        known = logprobs if self._logprobs_known else None
        sampled = {"token_ids": self._last, "logprobs": known, "model_version": policy.model_version}
        return {**parsed.message, "sampled": sampled}

    def follow(self, messages: tuple[Message, ...], action: Message) -> None:
        """Take a turn over into the prompt: by the ids that were sampled where the action carries them.

        What was sampled by another is no response of this episode: it is prompted, and never trained on here.

        Raises:
            ConfigError: an action without ids comes after one with them.
        """
        ids = (action.get("sampled") or {}).get("token_ids")
        if ids is not None:
            self._prompt, self._last = [*self._extended(messages), *ids], list(ids)
        elif self._prompt:
            raise ConfigError("a fork's steps carry sampled token ids in part: none may follow one that has them")
        else:
            self._told += [*messages, action]

    def _extended(self, messages: tuple[Message, ...]) -> list[int]:
        """The prompt with further messages."""
        codec = self._policy.codec
        if self._prompt:
            return [*self._prompt, *codec.extend(self._last, messages)]
        return list(codec.prompt((*self._told, *messages), self._tools))

    def observe(self, reward: float, info: Mapping[str, Any], done: bool) -> None:
        """The reward of the turn just taken."""
        self._built.reward(reward)

    def trajectory(self) -> TokenTrajectory | None:
        """What was prompted, sampled and appended so far; None before the first turn.

        Without log-probabilities where the sampler did not give all of them (none for a turn, or no finite number).
        """
        if not self._begun:
            return None
        built = self._built.build()
        return built if self._logprobs_known else dataclasses.replace(built, logprobs=None)

    def _room(self) -> int:
        room, context = self._policy.max_tokens, self._policy.max_context
        if context is not None:
            room = min(room, context - len(self._prompt))
        return room - self._built.response_length


class TokenEpisode(NamedTuple):
    """One item of a token rollout."""

    episode: Episode
    """The record of the last attempt."""
    trajectory: TokenTrajectory | None
    """Its ids; None where the env could not start."""
    attempts: int = 1


def token_rollout(
    env: EnvLike,
    codec: ChatCodec,
    generate: Generate,
    items: Sequence[Item],
    *,
    max_tokens: int,
    max_turn_tokens: int | None = None,
    max_context: int | None = None,
    concurrency: int = 256,
    retries: int = 1,
    straggler_s: float = STRAGGLER_S,
    deadline_s: float | None = None,
    journal: Journal | None = None,
    on_episode: Callable[[Episode], None] | None = None,
    rendezvous: Rendezvous | None = None,
    model_version: str | None = None,
    stats: PoolStats | None = None,
) -> list[TokenEpisode]:
    """Play ``items`` with a sampler of token ids, which is called on this thread.

    Args:
        env: an id, a spec, an env made by ``gym.make`` (its spec is rebuilt), or a function that makes one.
        codec: tokenises and parses for the model's template.
        generate: samples for a batch of id lists; see :class:`Generate`.
        items: the episodes; (seed, sample) pairs are unique.
        max_tokens: ids of a whole episode after its prompt, observations included.
        max_turn_tokens: ids sampled in one turn.
        max_context: ids of prompt and episode together.
        concurrency: episodes at once.
        retries: further tries, each in a fresh env, of an episode that infrastructure spoiled.
        straggler_s: see :class:`GenerationPool`.
        deadline_s: wall-clock seconds for one attempt at an episode, sampling included; it then ends as ``timeout``.
        journal: where each record is written as it is complete.
        on_episode: called with each record, spoiled attempts included, on the loop's thread.
        rendezvous: for distributed runs in which generation is collective; see :meth:`GenerationPool.serve`.
        model_version: recorded with what is sampled.
        stats: added to: what the pool did.

    Returns:
        One TokenEpisode per item, in their order. Those that stay invalid are among them.

    Raises:
        ConfigError: arguments that cannot work.
        PolicyError: the codec refused a message.
        BaseException: whatever ``generate`` raised. Every env is closed first.
    """
    places = {(item.seed, item.sample): item.index for item in items}
    if len(places) != len(items):
        raise ConfigError("expected items with unique (seed, sample) pairs; number the samples of one seed")
    pool = GenerationPool(straggler_s, stats)
    policy = TokenPolicy(
        codec,
        pool.generate,
        max_tokens=max_tokens,
        max_turn_tokens=max_turn_tokens,
        max_context=max_context,
        model_version=model_version,
    )
    last: dict[int, Episode] = {}
    attempts: Counter[int] = Counter()
    waiting = iter(items[concurrency:])

    def finished(episode: Episode) -> None:
        index = places[episode.seed, episode.sample]
        attempts[index] += 1
        if episode.valid or episode.attempt >= retries:
            if (following := next(waiting, None)) is not None:  # begins in its place, and batches wait for it too
                pool.enter(following.index)
            pool.leave(index)
        if on_episode is not None:
            on_episode(episode)

    async def play() -> None:
        episodes = arollout(
            env,
            policy,
            items=items,
            concurrency=concurrency,
            retries=retries,
            deadline_s=deadline_s,
            journal=journal,
            on_episode=finished,
        )
        async with aclosing(cast("AsyncGenerator[Episode, None]", episodes)) as records:
            async for episode in records:
                last[places[episode.seed, episode.sample]] = episode

    pool.enter(*(item.index for item in items[:concurrency]))
    _drive(play, pool, generate, rendezvous)
    out = []
    for item in items:
        record, agent = last[item.index], policy.agents.get(item.index)
        began = agent is not None and agent.attempt == record.attempt  # else this attempt failed at reset
        out.append(TokenEpisode(record, agent.trajectory() if agent and began else None, attempts[item.index]))
    return out


def _drive(
    play: Callable[[], Coroutine[Any, Any, None]],
    pool: GenerationPool,
    generate: Generate,
    rendezvous: Rendezvous | None,
) -> None:
    """Run ``play`` on the loop and ``generate`` here; where this side fails, wait until the other has ended."""

    async def begin() -> asyncio.Task[None]:
        task = asyncio.create_task(play())
        task.add_done_callback(lambda _: pool.close())
        return task

    async def end(task: asyncio.Task[None]) -> None:
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled() and task.exception() is not None:
            log.debug("episodes ended with their sampler", exc_info=task.exception())

    task = loop.run(begin())
    try:
        pool.serve(generate, rendezvous)
    except BaseException:
        loop.run(end(task))
        raise
    task.result()
