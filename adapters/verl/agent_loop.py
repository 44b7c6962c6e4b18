"""One episode of an env per call of verl's agent loop.

Sampling is verl's (its server manager, ids in and out); the episode is
:class:`~aworld_gym.turnwise.TurnwiseEpisode`'s, on the package's own event loop, so that no tool and no tokenising
holds up the loop on which verl runs all episodes of a worker. verl has no deadlines and trains on half a group when
``run`` raises: so ``run`` ends in time, closes its env, and never raises (:meth:`adapters.turnwise.EnvEpisode.play`).

A row of the dataset names its env in ``extra_info``, as :func:`adapters.tasks.task_rows` writes it: ``env`` (an EnvSpec
as JSON), ``seed``, and optionally ``group`` (a name for the episodes of this task) and ``split`` (``"train"`` or
``"eval"``).
"""

from __future__ import annotations

import functools
import hashlib
import math
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput

from adapters import common
from adapters.common import EnvEpisode, Journals, TrainedRow, TurnwiseOptions
from adapters.hf import declared_ends
from adapters.turnwise import Played
from aworld_gym.errors import ConfigError
from aworld_gym.generation import Sampled
from aworld_gym.play import Item
from aworld_gym.tokens import ChatCodec
from aworld_gym.turnwise import TurnRequest

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
    """Plays the env that a row names; see :mod:`adapters.verl.agent_loop`. verl makes one for every episode.

    Args:
        *args: verl's.
        rollout: fields of :class:`~adapters.common.TurnwiseOptions`, as in an agent.yaml.
        output_dir: where episodes are written as they finish (``episodes.<k>.jsonl``, one file a worker).
        **kwargs: verl's.
    """

    def __init__(
        self, *args: Any, rollout: Mapping[str, Any] | None = None, output_dir: str | None = None, **kwargs: Any
    ):
        super().__init__(*args, **kwargs)
        self.options = TurnwiseOptions.of(None if rollout is None else dict(rollout))
        self._journals, self._codec, self._versions = _journals(output_dir), _codec(self), list[int]()

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> EnvOutput:
        """Play one episode. An episode that is no measurement has one id, which has mask 0.

        Args:
            sampling_params: verl's, for the sampler.
            **row: the dataset's row, and verl's ``session_id`` and ``global_steps``.
        """
        info, step, rollout = row.get("extra_info") or {}, int(row.get("global_steps", 0)), self.rollout_config
        seed, episode_id = int(info.get("seed") or 0), uuid.uuid4().hex
        item = Item(0, seed, int(row.get("session_id", 0)), f"{step}/{info.get('group') or seed}")
        bound = rollout.prompt_length + rollout.response_length
        episode = EnvEpisode(
            info,
            item,
            self._codec,
            self.options,
            max_tokens=rollout.response_length,
            max_context=min(bound, rollout.get("max_model_len") or bound),
            journal=functools.partial(self._journals.free, info.get("split", "train")),
            version=step,
        )

        async def sample(request: TurnRequest, turn: int) -> Sampled:
            if turn == 0:
                check_prompt(len(request.ids), rollout.prompt_length)
            params = {**sampling_params, "stop_token_ids": sorted(self._codec.stop_ids), "max_tokens": request.limit}
            if rollout.name == CPU_ROLLOUT:  # that sampler is reproducible, whatever the order of its requests
                params["seed"] = _seed(rollout.get("seed", 0), item.group_id, item.sample, request.attempt, turn)
            out = await self.server_manager.generate(
                request_id=f"{episode_id}-{request.attempt}", prompt_ids=request.ids, sampling_params=params
            )
            self._versions += [int(out.extra_fields.get(f"{which}_global_steps") or step) for which in ("min", "max")]
            if not out.token_ids:
                raise RuntimeError(f"verl's rollout server sampled nothing ({out.stop_reason})")
            if rollout.calculate_log_probs and not (out.log_probs and all(map(math.isfinite, out.log_probs))):
                raise RuntimeError("the rollout server gave no log-probabilities, or not for every id")
            return list(out.token_ids), out.log_probs

        return self._output(await episode.play(sample), step)

    def _output(self, played: Played, step: int) -> EnvOutput:
        # verl needs an id in every prompt and response; this one is never trained on.
        row = TrainedRow.of(played.episode, filler=int(self.tokenizer.eos_token_id or 0))
        known, versions = self.rollout_config.calculate_log_probs, self._versions or [step]
        return EnvOutput(
            prompt_ids=list(row.prompt_ids),
            response_ids=list(row.response_ids),
            response_mask=list(row.mask),
            **({"response_logprobs": list(row.logprobs or ())} if known else {}),
            token_rewards=list(row.token_rewards),
            reward_score=math.fsum(row.turn_rewards),
            num_turns=2 * len(row.turn_ends),
            metrics=AgentLoopMetrics(generate_sequences=played.generate_s, tool_calls=played.env_s),
            extra_fields={
                "turn_scores": list(row.turn_rewards),
                "tool_rewards": [],
                "min_global_steps": min(versions),
                "max_global_steps": max(versions),
                "reward_extra_info": played.metrics,
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
    ends = declared_ends(config.actor_rollout_ref.model.path)
    return common.checked_codec(tokenizer, ends, template_kwargs=kwargs)


# ---- of this process -------------------------------------------------------------------------------------------------

CODECS: dict[Any, ChatCodec] = {}
"""By tokenizer."""


def _codec(loop: EnvAgentLoop) -> ChatCodec:
    if loop.tokenizer not in CODECS:
        CODECS[loop.tokenizer] = make_codec(loop.tokenizer, loop.config)
    return CODECS[loop.tokenizer]


@functools.cache
def _journals(folder: str | None) -> Journals:
    return Journals() if folder is None else Journals.into(Path(folder))


def _seed(*parts: Any) -> int:
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:7], "big")
