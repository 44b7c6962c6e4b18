"""The rollout path of the ms-swift adapter over a sampler that is given: :class:`aworld_gym.trained.RolloutRows`."""

from __future__ import annotations

import copy
import json
from collections import defaultdict
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from swift.infer_engine import RequestConfig
from swift.rl_core.data import GRPOSample
from swift.rlhf_trainers.utils import collate_to_grpo_micro_batch, encode_sample
from swift.template import get_template
from swift.trainers.trainer_factory import TrainerFactory

from adapters.batches import Batches
from adapters.common import Env, Journals, RolloutOptions, TrainedRow, env_spec, task_message, task_rows
from adapters.swift.plugin import COLUMN, TEMPLATE, register
from adapters.swift.trainer import EnvGRPOTrainer, finish
from aworld_gym.generation import Generate, Sampled
from aworld_gym.play import Item
from aworld_gym.tokens import ChatCodec

OPTIONS = RolloutOptions()


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
    trainer = ScriptedTrainer(codec, generate, max_tokens)
    rows = task_rows(env_spec(env), [item.seed or 0 for item in items])
    samples = [GRPOSample.from_row({"messages": [task_message(row["seed"])], COLUMN: json.dumps(row)}) for row in rows]
    return [_row(trainer, sample) for sample in trainer.play(samples)]


class ScriptedTrainer(EnvGRPOTrainer):
    """The trainer without a model: what its rollout needs, and nothing else."""

    def __init__(self, codec: ChatCodec, generate: Generate, max_tokens: int):
        # No trainer of swift is made without a model and a data set.
        mapping = TrainerFactory.TRAINER_MAPPING
        before = mapping["grpo"]
        register()
        mapping["grpo"] = before
        processor = copy.copy(codec.tokenizer)
        processor.model_info = SimpleNamespace(config=None, task_type="causal_lm", max_model_len=None)
        processor.model_meta = SimpleNamespace(is_multimodal=False, template=TEMPLATE)
        self.template = get_template(processor, template_type=TEMPLATE)
        self.template.set_mode("train")
        self.codec, self.generate = codec, generate
        self.rollouts, self.holds, self.max_completion_length = Batches(OPTIONS, Journals()), None, max_tokens
        self.request_config = RequestConfig(max_tokens=max_tokens)
        self.args = SimpleNamespace(vllm_mode=None, max_turns=None)
        self.accelerator, self.state = SimpleNamespace(process_index=0, num_processes=1), SimpleNamespace(global_step=0)
        self.model, self.num_generations = SimpleNamespace(training=True), 1
        self.vllm_mode, self.vllm_tensor_parallel_size, self.use_fast_infer = None, 1, False
        self.multi_turn_scheduler, self.enable_server_multi_turn, self.async_generate = None, False, False
        self._metrics = {"train": defaultdict(list)}

    def play(self, samples: list[Any]) -> list[Any]:
        """Play the episodes of samples, as a training step does."""
        done: list[Any] = self._infer_single_or_multi_turn(samples, self.request_config)
        return done

    def _sample(self, prompts: list[list[int]], config: Any) -> list[Sampled]:
        return list(self.generate(prompts, [config.max_tokens] * len(prompts)))


def _row(trainer: ScriptedTrainer, sample: Any) -> TrainedRow:
    sample.encoded = encode_sample(sample, trainer.template)
    inputs, batch = collate_to_grpo_micro_batch(
        [sample], trainer.template, device=torch.device("cpu"), use_logits_to_keep=True
    )
    finish(sample, batch, 0)
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
