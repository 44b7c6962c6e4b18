"""swift's hooks: a multi-turn scheduler whose episodes are the package's own, and the reward function.

An episode is a :class:`~aworld_gym.turnwise.TurnwiseEpisode` on the package's event loop. The scheduler hands swift
the ids to sample from, as the content of the only message of a request (:mod:`adapters.swift.template`), takes the
sampled ids, and says when the episode is over. What the episode was then travels in ``rollout_infos["played"]``.

A row of the data set names its episode in the column ``aworld``, as JSON: ``env`` (an EnvSpec, itself as JSON),
``seed``, and optionally ``split`` (``"train"`` or ``"eval"``).
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from swift.rewards import ORM, orms
from swift.rollout import MultiTurnScheduler, multi_turns

from adapters.common import SETTLE_S, EpisodeCounts, Journals, TurnwiseOptions, checked_codec, spec_of
from adapters.credit import Credit
from adapters.swift.template import request_messages
from aworld_gym.errors import ConfigError
from aworld_gym.play import Item
from aworld_gym.token_policy import TokenEpisode
from aworld_gym.tokens import ChatCodec, UnsupportedTemplateError
from aworld_gym.turnwise import TurnRequest, TurnwiseEpisode
from aworld_gym.types import Episode, Outcome

log = logging.getLogger(__name__)

SCHEDULER, REWARD, COLUMN = "aworld", "aworld_env_reward", "aworld"
"""``--multi_turn_scheduler``, ``--reward_funcs``, and the column of the data set."""
FAMILIES = {
    "hermes": "Qwen2.5, Qwen3, Hermes, SmolLM2 with a Hermes template",
    "qwen_xml": "Qwen3.5, Nemotron 3",
    "glm": "GLM 4.5 and later",
    "llama": "Llama 3.1 and later",
}
"""Forms of tool calls, and model families that write them, whose episodes are trained on token-exactly."""


@dataclass
class Settings:
    """What the adapter needs and swift's arguments have no place for."""

    credit: Credit = "episode"
    rollout: TurnwiseOptions = field(default_factory=TurnwiseOptions)
    logprob_threshold: float | None = None
    codec: ChatCodec | None = None
    """By default made for the model's tokenizer."""
    trainer: Any = None
    """The trainer that was made last."""


SETTINGS = Settings()
"""Of this process, as swift's own registries are."""


@dataclass
class _Play:
    """One episode while it is played."""

    item: Item
    episode: TurnwiseEpisode
    request: TurnRequest | None = None
    lost: str | None = None
    """Why no result will come."""


class EnvScheduler(MultiTurnScheduler):
    """Plays the envs that rows name. The trainer sets what its arguments decide (:meth:`attach`)."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        if self.max_turns:
            raise ConfigError(
                f"max_turns={self.max_turns} would cut episodes behind the env's back; leave it out and limit the "
                "turns of the env: gym.make(..., limits={'max_turns': ...})"
            )
        self.codec: ChatCodec | None = None
        self.items: dict[str, Item] = {}
        """By request: the episode it is to be."""
        self.counts = {"train": EpisodeCounts(), "eval": EpisodeCounts()}
        self._playing: dict[str, _Play] = {}

    def attach(
        self, codec: ChatCodec, options: TurnwiseOptions, max_tokens: int, max_context: int | None, journals: Journals
    ) -> None:
        """What every episode is played with."""
        self.codec, self.options, self.max_tokens, self.max_context = codec, options, max_tokens, max_context
        self.version, self.rank, self.journals = "0", 0, journals

    @property
    def limit(self) -> int:
        """The most ids that any episode may sample now; 0 where none waits."""
        return max((play.request.limit for play in self._playing.values() if play.request is not None), default=0)

    # ---- swift's hooks -----------------------------------------------------------------------------------------------

    async def on_trajectory_start(self, requests: Sequence[Any]) -> None:
        """Reset an env for each request and put the ids of its prompt in the request."""
        if self.codec is None:
            raise ConfigError(
                f"the scheduler {SCHEDULER!r} needs the adapter's trainer, which adapters.swift.register() puts in the "
                "place of swift's GRPOTrainer (rlhf_type grpo)"
            )
        for request in requests:
            item, row = self.items.pop(request.uuid), row_of(request.data_dict)
            self._playing[request.uuid] = _Play(item, self._episode(row, item))
        await asyncio.gather(*(self._ask(request, self._playing[request.uuid]) for request in requests))

    async def on_turn_end(self, infer_request: Any, response_choice: Any, current_turn: int) -> dict[str, Any]:
        """Play the sampled turn."""
        play = self._playing[infer_request.uuid]
        if play.request is not None:
            ids, content = list(response_choice.token_ids or ()), (response_choice.logprobs or {}).get("content")
            logprobs = [token["logprob"] for token in content] if content else None
            if not ids:
                raise RuntimeError("swift's engine sampled nothing, or gave no token_ids")
            if logprobs is not None and len(logprobs) != len(ids):
                logprobs = None
            await self._ask(infer_request, play, ids, logprobs)
        if play.request is not None:
            return {"done": False}
        del self._playing[infer_request.uuid]
        await self._close(play)
        played = _lost(play) if play.lost is not None else play.episode.result
        return {"done": True, "rollout_infos": {"played": played}}

    def step(self, infer_request: Any, response_choice: Any, current_turn: int) -> dict[str, Any]:
        """Ask for the next turn; where the episode began again in a fresh env, for its first."""
        play = self._playing[infer_request.uuid]
        assert play.request is not None  # else the turn was the last
        infer_request.messages = request_messages(play.request.ids)
        return {"infer_request": infer_request}

    async def sweep(self) -> None:
        """Close whatever is still open: after generation has failed, say."""
        left, self._playing = list(self._playing.values()), {}
        self.items.clear()
        await asyncio.gather(*(self._close(play) for play in left))

    # ------------------------------------------------------------------------------------------------------------------

    def _episode(self, row: Mapping[str, Any], item: Item) -> TurnwiseEpisode:
        assert self.codec is not None  # checked before
        return TurnwiseEpisode(
            spec_of(row["env"]),
            self.codec,
            item,
            max_tokens=self.max_tokens,
            max_turn_tokens=self.options.max_turn_tokens,
            max_context=self.max_context,
            retries=self.options.retries,
            deadline_s=self.options.deadline_s,
            journal=self.journals.get(row.get("split", "train"), self.rank),
            model_version=self.version,
        )

    async def _ask(self, request: Any, play: _Play, *sampled: Any) -> None:
        """Start, or go on with what was sampled; nothing of an episode takes longer than its deadlines."""
        longest = (self.options.retries + 1) * self.options.deadline_s + SETTLE_S
        call = play.episode.sampled(*sampled) if sampled else play.episode.start()
        try:
            play.request = await asyncio.wait_for(call, longest)
        except TimeoutError:
            play.request, play.lost = None, f"the episode did not go on within {longest} s"
        request.messages = request_messages(play.request.ids if play.request is not None else [])

    async def _close(self, play: _Play) -> None:
        try:
            await asyncio.wait_for(play.episode.aclose(), SETTLE_S)
        except TimeoutError:
            log.error("an episode (seed %s) could not be closed within %s s", play.item.seed, SETTLE_S)


class EnvReward(ORM):
    """What the env paid, summed over an episode; 0 for one that is no measurement (the trainer leaves it out)."""

    def __call__(self, completions: Sequence[Any], rollout_infos: Any = None, **kwargs: Any) -> list[float]:
        """One reward per completion.

        Raises:
            ConfigError: an episode without a reward, which swift would train on as if it had earned 0.
        """
        infos = list(rollout_infos or [None] * len(completions))
        played = [info.get("played") if isinstance(info, Mapping) else None for info in infos]
        if not all(isinstance(one, TokenEpisode) for one in played):
            raise ConfigError(
                f"the reward function {REWARD!r} found no reward: the episodes were not played by this adapter's "
                f"scheduler. Set multi_turn_scheduler={SCHEDULER!r} and leave gym_env and use_gym_env out"
            )
        return [one.episode.total_reward if one.episode.valid else 0.0 for one in played]


def register() -> None:
    """Make the scheduler and the reward function known to swift."""
    multi_turns[SCHEDULER] = EnvScheduler
    orms[REWARD] = EnvReward


def make_codec(tokenizer: Any, ends: Any = None, given: ChatCodec | None = None, **settings: Any) -> ChatCodec:
    """The codec for a tokenizer, or the one given, checked.

    Args:
        tokenizer: the model's.
        ends: ids that the model itself declares as ends; they are ends too.
        given: the codec to use instead of one made here.
        **settings: ChatCodec's, for one made here.

    Raises:
        ConfigError: the chat template cannot be used token-exactly, or the pad token is the end of a turn.
    """
    try:
        codec = given or checked_codec(tokenizer, ends, **settings)
        codec.self_check()
    except UnsupportedTemplateError as error:
        known = "; ".join(f"{names} (form {form!r})" for form, names in FAMILIES.items())
        raise UnsupportedTemplateError(f"{error}. Families whose templates work: {known}") from error
    if tokenizer.pad_token_id is None or tokenizer.pad_token_id == tokenizer.eos_token_id:
        raise ConfigError(
            f"the tokenizer's pad token is its end of turn ({tokenizer.eos_token!r}): engines of swift drop such an "
            "id where it was sampled, and the model is never taught to stop. Save the model with another pad token: "
            "tokenizer.pad_token = ..., tokenizer.save_pretrained(...)"
        )
    return codec


def row_of(data: Mapping[str, Any]) -> dict[str, Any]:
    """What a row of the data set, of these columns, says of its episode."""
    found = data.get(COLUMN)
    if not isinstance(found, str):
        raise ConfigError(
            f"a row of the data set has no column {COLUMN!r} (columns: {sorted(data)}); write the data set with "
            "adapters.swift.write_tasks"
        )
    row: dict[str, Any] = json.loads(found)
    return row


def _lost(play: _Play) -> TokenEpisode:
    item = play.item
    record = Episode(
        env_id="",
        task_id="",
        seed=item.seed,
        attempt=0,
        group_id=item.group_id,
        sample=item.sample,
        outcome=Outcome.INFRA_FAILURE,
        error=play.lost,
        error_kind="env_failed",
    )
    return TokenEpisode(record, None, 1)
