"""One episode of an env per call of verl's agent loop.

Sampling is verl's (its server manager, ids in and out); the episode is
:class:`~aworld_gym.turnwise.TurnwiseEpisode`'s, on the package's own event loop, so that no tool and no tokenising
holds up the loop on which verl runs all episodes of a worker. verl has no deadlines and trains on half a group when
``run`` raises: so ``run`` ends in time, closes its env, and never raises.

A row of the dataset names its env in ``extra_info``: ``env`` (an EnvSpec as JSON), ``seed``, and optionally
``group`` (a name for the episodes of this task) and ``split`` (``"train"`` or ``"eval"``).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import math
import time
import uuid
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import GenerationConfig
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput

from adapters.common import SETTLE_S, TrainedRow, TurnwiseOptions, checked_codec, episode_metrics, spec_of
from aworld_gym.errors import ConfigError
from aworld_gym.play import Item
from aworld_gym.token_policy import TokenEpisode
from aworld_gym.tokens import ChatCodec
from aworld_gym.trajectory import Journal
from aworld_gym.turnwise import TurnRequest, TurnwiseEpisode

log = logging.getLogger(__name__)

CPU_ROLLOUT = "transformers"
"""``actor_rollout_ref.rollout.name`` of :mod:`adapters.verl.cpu`."""


class EnvOutput(AgentLoopOutput):
    """An episode as verl takes it, with each turn's reward at the turn's last sampled id."""

    token_rewards: list[float]
    """Aligned with ``response_ids``."""

    def as_dict(self) -> dict[str, Any]:
        """The fields that verl keeps. Its own ``rm_scores`` is the sum of rewards at the last token."""
        out = super().as_dict()
        out["rm_scores"] = torch.tensor(out.pop("token_rewards"), dtype=torch.float32)
        return out


class EnvAgentLoop(AgentLoopBase):
    """Plays the env that a row names; see :mod:`adapters.verl.agent_loop`.

    Args:
        *args: verl's.
        rollout: fields of :class:`~adapters.common.TurnwiseOptions`, as in an agent.yaml.
        output_dir: where episodes are written as they finish (``episodes.<k>.jsonl``, one file a worker), and what
            became of each row (``rows.<k>.jsonl``).
        **kwargs: verl's.
    """

    def __init__(
        self, *args: Any, rollout: Mapping[str, Any] | None = None, output_dir: str | None = None, **kwargs: Any
    ):
        super().__init__(*args, **kwargs)
        self.options = TurnwiseOptions.of(None if rollout is None else dict(rollout))
        self.output_dir = None if output_dir is None else Path(output_dir)

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> EnvOutput:
        """Play one episode. An episode that is no measurement has one id, which has mask 0.

        Args:
            sampling_params: verl's, for the sampler.
            **row: the dataset's row, and verl's ``session_id`` and ``global_steps``.
        """
        times, played, error = {"generate": 0.0, "all": 0.0}, None, None
        versions: list[int] = []
        longest = (self.options.retries + 1) * self.options.deadline_s + SETTLE_S
        async with _gate(self.options.concurrency):
            began = time.monotonic()
            try:
                async with asyncio.timeout(longest):
                    played = await self._play(sampling_params, row, times, versions)
            except Exception as failure:
                log.exception("an episode is left out of loss and baseline: %s", where(row))
                error = f"{type(failure).__name__}: {failure}"
            times["all"] = time.monotonic() - began
        return self._output(row, played, error, times, versions)

    async def _play(
        self, sampling: Mapping[str, Any], row: Mapping[str, Any], times: dict[str, float], versions: list[int]
    ) -> TokenEpisode:
        info, rollout = row["extra_info"], self.rollout_config
        codec, step = _codec(self), int(row.get("global_steps", 0))
        group = f"{step}/{info.get('group') or info['seed']}"
        item = Item(0, int(info["seed"]), int(row.get("session_id", 0)), group)
        name = "eval_episodes" if info.get("split") == "eval" else "episodes"
        async with TurnwiseEpisode(
            spec_of(info["env"]),
            codec,
            item,
            max_tokens=rollout.response_length,
            max_turn_tokens=self.options.max_turn_tokens,
            max_context=min(rollout.prompt_length + rollout.response_length, rollout.get("max_model_len") or math.inf),
            retries=self.options.retries,
            deadline_s=self.options.deadline_s,
            journal=None if self.output_dir is None else _journal(self.output_dir, name),
            model_version=str(step),
        ) as episode:
            request, attempt, turn, request_id = await episode.start(), -1, 0, ""
            while request is not None:
                if request.attempt != attempt:
                    attempt, turn, request_id = request.attempt, 0, uuid.uuid4().hex
                    check_prompt(len(request.ids), rollout.prompt_length)
                params = {**sampling, "stop_token_ids": sorted(codec.stop_ids), "max_tokens": request.limit}
                if rollout.name == CPU_ROLLOUT:  # that sampler is reproducible, whatever the order of its requests
                    params["seed"] = _seed(rollout.get("seed", 0), group, item.sample, attempt, turn)
                began, turn = time.monotonic(), turn + 1
                try:
                    ids, logprobs = await self._sample(request_id, request, params, versions)
                finally:
                    times["generate"] += time.monotonic() - began
                request = await episode.sampled(ids, logprobs)
            return episode.result

    async def _sample(
        self, request_id: str, request: TurnRequest, params: dict[str, Any], versions: list[int]
    ) -> tuple[list[int], list[float] | None]:
        call = self.server_manager.generate(request_id=request_id, prompt_ids=request.ids, sampling_params=params)
        out = await asyncio.wait_for(call, self.options.deadline_s)
        for name in ("min_global_steps", "max_global_steps"):
            if out.extra_fields.get(name) is not None:
                versions.append(int(out.extra_fields[name]))
        if not out.token_ids:
            raise RuntimeError(f"verl's rollout server sampled nothing ({out.stop_reason})")
        return list(out.token_ids), None if out.log_probs is None else list(out.log_probs)

    def _output(
        self,
        row: Mapping[str, Any],
        played: TokenEpisode | None,
        error: str | None,
        times: Mapping[str, float],
        versions: list[int],
    ) -> EnvOutput:
        # verl needs an id in every prompt and response; this one is never trained on.
        filler = int(self.tokenizer.eos_token_id or 0)
        nothing = TrainedRow((filler,), (filler,), (0,), (), (), False, (0.0,))
        kept = nothing if played is None else TrainedRow.of(played, filler=filler)
        if kept.logprobs is None and self.rollout_config.calculate_log_probs:
            kept, error = nothing, error or "the rollout server gave no log-probabilities, or not for every id"
        valid = kept.valid and any(kept.mask)  # without an id to train on, verl could not tell it from an invalid one
        retried = 0.0 if played is None else played.attempts - 1.0
        metrics = episode_metrics(played) if valid and played else {"env/invalid": 1.0, "env/retried": retried}
        steps = versions or [int(row.get("global_steps", 0))]
        env_s = times["all"] - times["generate"]
        if self.output_dir is not None:
            info = row.get("extra_info") or {}
            note = {"step": int(row.get("global_steps", 0)), "split": info.get("split", "train"), "valid": valid}
            note["outcome"] = "infra_failure" if played is None else str(played.episode.outcome)
            note |= {"attempts": 1 if played is None else played.attempts, "metrics": metrics}
            note["error"] = error or (None if played is None else played.episode.error)
            _note(self.output_dir, note | {"generate_s": times["generate"], "env_s": env_s})
        rewards = [0.0] * len(kept.response_ids)
        for end, reward in zip(kept.turn_ends, kept.turn_rewards, strict=True):
            rewards[end] = reward
        with_logprobs = self.rollout_config.calculate_log_probs
        return EnvOutput(
            prompt_ids=list(kept.prompt_ids),
            response_ids=list(kept.response_ids),
            response_mask=list(kept.mask),
            **({"response_logprobs": list(kept.logprobs or ())} if with_logprobs else {}),
            token_rewards=rewards,
            reward_score=math.fsum(rewards),
            num_turns=2 * len(kept.turn_ends),
            metrics=AgentLoopMetrics(generate_sequences=times["generate"], tool_calls=env_s),
            extra_fields={
                "turn_scores": list(kept.turn_rewards),
                "tool_rewards": [],
                "min_global_steps": min(steps),
                "max_global_steps": max(steps),
                "reward_extra_info": metrics,
            },
        )


def check_prompt(ids: int, bound: int) -> None:
    """Raises ConfigError where a prompt is longer than verl is set to take; a shortened one would be another task."""
    if ids > bound:
        raise ConfigError(f"the prompt has {ids} ids and data.max_prompt_length is {bound}; set it higher")


def make_codec(tokenizer: Any, config: Any) -> ChatCodec:
    """The codec for a model of verl's config, checked.

    Raises:
        UnsupportedTemplateError: the chat template cannot be used token-exactly.
    """
    kwargs = dict(config.data.get("apply_chat_template_kwargs") or {}) or None
    try:
        ends = GenerationConfig.from_pretrained(config.actor_rollout_ref.model.path).eos_token_id
    except OSError:  # the model has none, and then its sampler ends by none
        ends = None
    return checked_codec(tokenizer, ends, template_kwargs=kwargs)


def where(row: Mapping[str, Any]) -> str:
    """Which episode a row is, for people."""
    info = row.get("extra_info") or {}
    return f"step {row.get('global_steps')}, seed {info.get('seed')}, sample {row.get('session_id')}"


# ---- of this process -------------------------------------------------------------------------------------------------
# verl builds a loop for every episode; what is worth keeping is kept here.

_codecs: dict[int, tuple[Any, ChatCodec]] = {}
_gates: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[int, asyncio.Semaphore]] = weakref.WeakKeyDictionary()
_journals: dict[Path, Journal] = {}


def _codec(loop: EnvAgentLoop) -> ChatCodec:
    if id(loop.tokenizer) not in _codecs:
        keep_codec(make_codec(loop.tokenizer, loop.config), loop.tokenizer)
    return _codecs[id(loop.tokenizer)][1]


def keep_codec(codec: ChatCodec, tokenizer: Any = None) -> None:
    """Use ``codec`` in this process wherever the model's tokenizer is the one given (by default the codec's own)."""
    tokenizer = codec.tokenizer if tokenizer is None else tokenizer
    _codecs[id(tokenizer)] = tokenizer, codec


def _gate(concurrency: int) -> asyncio.Semaphore:
    here = _gates.setdefault(asyncio.get_running_loop(), {})
    return here.setdefault(concurrency, asyncio.Semaphore(concurrency))


def _journal(folder: Path, name: str) -> Journal:
    """This process's own: the first file that no other process writes."""
    if folder / name not in _journals:
        for k in range(10_000):
            try:
                _journals[folder / name] = Journal(folder / f"{name}.{k}.jsonl")
                break
            except ConfigError:
                if not (folder / f"{name}.{k}.jsonl").exists():
                    raise  # not another's lock: the folder cannot be written
    return _journals[folder / name]


def _note(folder: Path, row: Mapping[str, Any]) -> None:
    try:
        path = folder / _journal(folder, "episodes").path.name.replace("episodes", "rows")
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
    except (OSError, ConfigError):
        log.exception("what became of a row could not be written: %s", row)


def _seed(*parts: Any) -> int:
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:7], "big")
