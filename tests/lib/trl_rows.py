"""The rollout path of the TRL adapter over a sampler that is given: :class:`aworld_gym.trained.RolloutRows`."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from adapters.common import Env, RolloutOptions, TrainedRow, env_spec
from adapters.trl.rollouts import EnvRollouts, dataset
from aworld_gym.generation import Generate
from aworld_gym.play import Item
from aworld_gym.tokens import ChatCodec


def rollout_rows(
    env: Env,
    codec: ChatCodec,
    generate: Generate,
    items: Sequence[Item],
    *,
    max_tokens: int,
    rollout: RolloutOptions | None = None,
) -> list[TrainedRow]:
    """Episodes as ``rollout_func`` gives them to a GRPOTrainer.

    Dataset rows, rollout function and sampler are those of training; only the trainer's own generation is scripted.
    """
    rows = dataset("train", [int(item.seed or 0) for item in items])["prompt"]
    rollouts = EnvRollouts({"train": env_spec(env)}, rollout, codec=codec)
    out = rollouts(list(rows), ScriptedTrainer(codec, generate, max_tokens))
    count = len(items)
    logprobs = out["logprobs"] or [None] * count
    return [
        TrainedRow(
            prompt_ids=tuple(out["prompt_ids"][k]),
            response_ids=tuple(out["completion_ids"][k]),
            mask=tuple(out["env_mask"][k]),
            turn_rewards=tuple(out["turn_rewards"][k]),
            turn_ends=tuple(stop - 1 for _, stop in out["turn_spans"][k]),
            valid=out["env_valid"][k],
            logprobs=None if logprobs[k] is None else tuple(logprobs[k]),
        )
        for k in range(count)
    ]


class ScriptedTrainer:
    """What of a GRPOTrainer the rollout path touches, with generation by ``generate``."""

    def __init__(self, codec: ChatCodec, generate: Generate, max_tokens: int):
        self._generate = generate
        self.processing_class, self.eos_token_ids = codec.tokenizer, sorted(codec.stop_ids)
        self.max_completion_length, self.mask_truncated_completions = max_tokens, False
        self.num_generations = self.num_generations_eval = 1
        self.chat_template_kwargs: dict[str, Any] = {}
        self.use_vllm = self.use_transformers_continuous_batching = False
        self.state, self.temperature = SimpleNamespace(global_step=0), 1.0
        self.generation_config, self.generation_kwargs = SimpleNamespace(max_new_tokens=max_tokens), {}
        self.accelerator = SimpleNamespace(process_index=0, num_processes=1, unwrap_model=lambda model: model)
        config = SimpleNamespace(get_text_config=lambda: SimpleNamespace(max_position_embeddings=None))
        # The log-probabilities are the script's: there is no forward pass to read them off.
        hook = SimpleNamespace(remove=lambda: None)
        self.model = SimpleNamespace(training=True, config=config, register_forward_hook=lambda *args, **kwargs: hook)

    def _generate_single_turn(self, prompts: list[list[int]], *args: Any) -> tuple[list[list[int]], Any]:
        limits = [self.generation_config.max_new_tokens] * len(prompts)
        rows = self._generate(prompts, limits)
        known = all(logprobs is not None for _, logprobs in rows)
        return [ids for ids, _ in rows], [logprobs for _, logprobs in rows] if known else None
