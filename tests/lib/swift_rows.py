"""This adapter's rollout path over a scripted sampler, for tests that compare trainers and for debugging."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from swift.infer_engine import RequestConfig
from swift.rl_core.data import GRPOSample
from swift.rlhf_trainers.utils import collate_to_grpo_micro_batch, encode_sample
from swift.template import get_template

from adapters.common import Env, Journals, TrainedRow, TurnwiseOptions, env_spec
from adapters.swift import template
from adapters.swift.run import task_row
from adapters.swift.scheduler import EnvScheduler, make_codec
from adapters.swift.trainer import EnvGRPOTrainer, clear_fillers
from aworld_gym.generation import Generate, Sampled
from aworld_gym.play import Item
from aworld_gym.tokens import ChatCodec


def rollout_rows(
    env: Env, codec: ChatCodec, generate: Generate, items: Sequence[Item], *, max_tokens: int
) -> list[TrainedRow]:
    """What would reach swift's loss, read from its tensors: one row per item.

    The trainer's own methods play the episodes and swift's own functions make the tensors; only the sampler and the
    model are not the trainer's.

    Args:
        env: as for :func:`adapters.swift.train`.
        codec: tokenises and parses.
        generate: samples, for all episodes of a turn at a time.
        items: the episodes.
        max_tokens: ids of a whole episode after its prompt.
    """
    trainer = _Scripted(codec, generate, max_tokens)
    spec = env_spec(env)
    samples = [GRPOSample.from_row(task_row(spec, item.seed or 0)) for item in items]
    for k, sample in enumerate(samples):
        sample.request_id = f"item-{k}"
    return [_row(trainer, sample) for sample in trainer.play(samples)]


class _Scripted(EnvGRPOTrainer):
    """The trainer without a model: what its rollout needs, and nothing else."""

    def __init__(self, codec: ChatCodec, generate: Generate, max_tokens: int):
        # No trainer of swift is made without a model and a data set.
        template.register()
        processor = copy.copy(codec.tokenizer)
        processor.model_info = SimpleNamespace(config=None, task_type="causal_lm", max_model_len=None)
        processor.model_meta = SimpleNamespace(is_multimodal=False, template=template.TEMPLATE)
        self.template = get_template(processor, template_type=template.TEMPLATE)
        self.template.set_mode("train")
        self.codec, self.generate = make_codec(codec.tokenizer, given=codec), generate
        self.multi_turn_scheduler = EnvScheduler(tokenizer=processor, template=self.template)
        self.scheduler.attach(self.codec, TurnwiseOptions(), max_tokens, None, Journals())
        self.request_config = RequestConfig(max_tokens=max_tokens)
        self.args = SimpleNamespace(vllm_mode=None, max_turns=None)
        self.accelerator, self.state = SimpleNamespace(process_index=0), SimpleNamespace(global_step=0)
        self.model, self.num_generations = SimpleNamespace(training=True), 1
        self.vllm_mode, self.vllm_tensor_parallel_size, self.use_fast_infer = None, 1, False
        self.enable_server_multi_turn = self.dynamic_num_samples = self.async_generate = False
        self._metrics = {"train": defaultdict(list)}

    def play(self, samples: list[Any]) -> list[Any]:
        """Play the episodes of samples, as a training step does."""
        done: list[Any] = self._infer_single_or_multi_turn(samples, self.request_config)
        return done

    def _sample(self, prompts: list[list[int]], config: Any) -> list[Sampled]:
        return list(self.generate(prompts, [config.max_tokens] * len(prompts)))


def _row(trainer: _Scripted, sample: Any) -> TrainedRow:
    sample.encoded = encode_sample(sample, trainer.template)
    inputs, batch = collate_to_grpo_micro_batch(
        [sample], trainer.template, device=torch.device("cpu"), use_logits_to_keep=True
    )
    clear_fillers([sample], batch)
    ids, start = inputs["input_ids"][0].tolist(), len(sample.messages[0]["content"])
    mask = [0] * (len(ids) - batch.completion_mask.size(1)) + batch.completion_mask[0].int().tolist()
    assert not any(mask[:start])
    mask = mask[start:]
    played = sample.rollout_infos["played"]
    known = iter(sample.rollout_logprobs[0] if sample.rollout_logprobs else ())
    return TrainedRow(
        prompt_ids=tuple(ids[:start]),
        response_ids=tuple(ids[start:]),
        mask=tuple(mask),
        turn_rewards=tuple(played.trajectory.turn_rewards) if any(mask) else (),
        turn_ends=tuple(k for k, bit in enumerate(mask) if bit and not (mask[k + 1 :] or [0])[0]),
        valid=played.episode.valid,
        logprobs=tuple(next(known) if bit else 0.0 for bit in mask) if sample.rollout_logprobs else None,
    )
