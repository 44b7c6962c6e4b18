"""The three things a GRPOTrainer is given: dataset rows, a rollout function, a reward function.

A row names an env and a task seed, in extra keys of its only message, which TRL hands on untouched; the prompt
that the model sees is made by the env. The rollout function plays the rows of a batch as concurrent episodes and
returns exactly the ids that were sampled and appended. The reward function passes on what the env paid; for an
episode that is not a measurement it returns None, which TRL keeps out of the group's baseline.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from datasets import Dataset
from gymnasium.envs.registration import EnvSpec

from adapters import common
from adapters.batches import Batches
from adapters.common import Journals, RolloutOptions, TrainedRow
from adapters.hf import context
from adapters.trl import _private
from aworld_gym.token_policy import TokenEpisode
from aworld_gym.tokens import ChatCodec
from aworld_gym.types import Outcome


def dataset(env: str, seeds: Sequence[int]) -> Dataset:
    """One row per task seed.

    Args:
        env: ``"train"`` or ``"eval"``: which of the rollout function's envs plays the row.
        seeds: the task seeds.
    """
    rows = [[{**common.task_message(seed, env), "env": env, "task_seed": seed}] for seed in seeds]
    return Dataset.from_dict({"prompt": rows})


class EnvRollouts:
    """``rollout_func`` of a GRPOTrainer.

    Args:
        envs: specs by the name that dataset rows carry (``"train"``, ``"eval"``).
        options: how episodes are played.
        journals: where episodes are written as they finish.
        codec: tokenises and parses; by default made for the trainer's tokenizer.
    """

    def __init__(
        self,
        envs: Mapping[str, EnvSpec],
        options: RolloutOptions | None = None,
        journals: Journals | None = None,
        codec: ChatCodec | None = None,
    ):
        self.envs, self._given_codec = dict(envs), codec
        self.batches = Batches(options or RolloutOptions(), journals or Journals())
        self._prepared: tuple[Any, ChatCodec, _private.TrainerSampler] | None = None

    def prepare(self, trainer: Any) -> tuple[ChatCodec, _private.TrainerSampler]:
        """Make and check the codec for the trainer's tokenizer, and let the trainer's sampler stop where it does.

        Raises:
            UnsupportedTemplateError: the chat template cannot be used token-exactly.
        """
        if self._prepared is None or self._prepared[0] is not trainer:
            codec = common.checked_codec(
                _private.tokenizer(trainer),
                _private.trainer_stop_ids(trainer),
                given=self._given_codec,
                template_kwargs=trainer.chat_template_kwargs or None,
            )
            _private.adopt_stop_ids(trainer, sorted(codec.stop_ids))
            self._prepared = trainer, codec, _private.TrainerSampler(trainer)
        return self._prepared[1:]

    def __call__(self, prompts: Sequence[Sequence[Mapping[str, Any]]], trainer: Any) -> dict[str, Any]:
        """Play one episode per row, in order.

        Returns:
            ``prompt_ids``, ``completion_ids``, ``logprobs`` and ``env_mask`` (1 where an id was sampled), and per
            row for the reward function and for credit: ``env_reward``, ``env_valid``, ``turn_spans`` (half-open
            ranges of the completion), ``turn_rewards``, ``env_metrics``.
        """
        codec, sampler = self.prepare(trainer)
        name = common.the_one((row[-1]["env"] for row in prompts), self.envs)
        size = trainer.num_generations if trainer.model.training else trainer.num_generations_eval
        played, metrics = self.batches.play(
            self.envs[name],
            codec,
            sampler,
            [int(row[-1]["task_seed"]) for row in prompts],
            split=name,
            group_size=size or 1,
            step=trainer.state.global_step,
            accelerator=trainer.accelerator,
            max_tokens=trainer.max_completion_length,
            max_context=context(trainer.model, trainer.args.vllm_max_model_length if trainer.use_vllm else None),
            room="the model, or the engine, holds no more",
        )
        # TRL needs at least one id in every prompt and completion; the filler is never trained on.
        cut, needed = trainer.mask_truncated_completions, _private.needs_logprobs(trainer)
        out = _columns(played, filler=min(codec.stop_ids), mask_truncated=cut, logprobs_needed=needed)
        return out | {"env_metrics": metrics}

    def close(self) -> None:
        """Close the journals."""
        self.batches.journals.close()


def env_reward(
    completions: Sequence[Any],
    env_reward: Sequence[float],
    env_valid: Sequence[bool],
    env_metrics: Sequence[Mapping[str, float]],
    log_metric: Callable[[str, float], None] | None = None,
    **_: Any,
) -> list[float | None]:
    """The reward function: what the env paid for each row, summed; None where the episode is not a measurement."""
    if log_metric is not None:
        for row in env_metrics:
            for name, value in row.items():
                log_metric(name, value)
    return [reward if valid else None for reward, valid in zip(env_reward, env_valid, strict=True)]


def _columns(
    played: Sequence[TokenEpisode], *, filler: int, mask_truncated: bool, logprobs_needed: bool
) -> dict[str, Any]:
    rows = [TrainedRow.of(one, filler=filler) for one in played]
    out: dict[str, Any] = {name: [] for name in ("prompt_ids", "completion_ids", "env_mask", "logprobs")}
    for one, row in zip(played, rows, strict=True):
        # TRL's own test of mask_truncated_completions looks at the last id only, which a full turn may end with.
        cut = mask_truncated and one.episode.outcome is Outcome.MAX_TOKENS
        out["prompt_ids"].append(list(row.prompt_ids))
        out["completion_ids"].append(list(row.response_ids))
        out["env_mask"].append([0] * len(row.mask) if cut else list(row.mask))
        # Where the engine could not say, NaN: TRL then corrects nothing.
        out["logprobs"].append(list(row.logprobs or [math.nan if bit else 0.0 for bit in row.mask]))
    trained = [row for row in rows if row.turns]
    if trained and all(row.logprobs is None for row in trained) and not logprobs_needed:
        out["logprobs"] = None
    return out | {
        "env_reward": [one.episode.total_reward for one in played],
        "env_valid": [row.valid for row in rows],
        "turn_spans": [[list(turn) for turn in row.turns] for row in rows],
        "turn_rewards": [list(row.turn_rewards) for row in rows],
    }


@dataclass(frozen=True)
class TrlSpec:
    """An env in the form that a GRPOTrainer takes; see :func:`adapters.trl.spec`."""

    train_dataset: Dataset
    """One row per task."""
    rollout_func: EnvRollouts
    reward_funcs: list[Callable[..., list[float | None]]] = field(default_factory=lambda: [env_reward])
    eval_dataset: Dataset | None = None
    """Rows of ``eval_env``, where one was given."""
