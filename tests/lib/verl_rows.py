"""The rollout path of the verl adapter over a sampler that is given: :class:`aworld_gym.trained.RolloutRows`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from adapters.common import TrainedRow, env_spec
from adapters.verl import agent_loop
from aworld_gym.generation import Generate
from aworld_gym.play import Item
from aworld_gym.tokens import ChatCodec


def rollout_rows(
    env: Any, codec: ChatCodec, generate: Generate, items: Sequence[Item], *, max_tokens: int
) -> list[TrainedRow]:
    """What would reach verl's trainer: what the agent loop returns, one row per item, in their order.

    Args:
        env: as for :func:`adapters.verl.train`.
        codec: tokenises and parses.
        generate: samples; called with one id list at a time.
        items: the episodes.
        max_tokens: ids of a whole episode after its prompt.
    """
    from verl.experimental.agent_loop.agent_loop import DictConfigWrap
    from verl.utils.dataset.rl_dataset import RLHFDataset
    from verl.workers.rollout.replica import TokenOutput

    from adapters.verl.config import verl_config

    lengths = {"data.max_prompt_length": 1 << 20, "data.max_response_length": max_tokens}
    config, _ = verl_config("", Path("."), overrides=lengths)
    spec = env_spec(env).to_json()
    agent_loop.CODECS[codec.tokenizer] = codec

    class Servers:
        async def generate(self, request_id: str, *, prompt_ids: list[int], sampling_params: Any, **_: Any) -> Any:
            ((ids, logprobs),) = generate([list(prompt_ids)], [sampling_params["max_tokens"]])
            return TokenOutput(token_ids=list(ids), log_probs=logprobs, stop_reason="completed")

    async def play(item: Item) -> agent_loop.EnvOutput:
        loop = agent_loop.EnvAgentLoop(
            trainer_config=DictConfigWrap(config),
            server_manager=Servers(),
            tokenizer=codec.tokenizer,
            processor=None,
            dataset_cls=RLHFDataset,
            data_config=DictConfigWrap(config.data),
        )
        info = {"env": spec, "seed": item.seed, "group": item.group_id or str(item.seed)}
        return await loop.run({"logprobs": True}, extra_info=info, session_id=item.sample, global_steps=0)

    async def play_all() -> list[agent_loop.EnvOutput]:
        return await asyncio.gather(*map(play, items))

    return [_row(output) for output in asyncio.run(play_all())]


def _row(output: agent_loop.EnvOutput) -> TrainedRow:
    mask = tuple(output.response_mask)
    ends = tuple(k for k, bit in enumerate(mask) if bit and not (k + 1 < len(mask) and mask[k + 1]))
    return TrainedRow(
        prompt_ids=tuple(output.prompt_ids),
        response_ids=tuple(output.response_ids),
        mask=mask,
        turn_rewards=tuple(output.token_rewards[k] for k in ends),
        turn_ends=ends,
        valid=any(mask),
        logprobs=tuple(output.response_logprobs or ()),
    )
