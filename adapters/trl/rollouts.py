"""The three things a GRPOTrainer is given: dataset rows, a rollout function, a reward function.

A row names an env and a task seed, in extra keys of its only message, which TRL hands on untouched; the prompt
that the model sees is made by the env. The rollout function plays the rows of a batch as concurrent episodes and
returns exactly the ids that were sampled and appended. The reward function passes on what the env paid; for an
episode that is not a measurement it returns None, which TRL keeps out of the group's baseline.
"""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gymnasium.envs.registration import EnvSpec

from adapters.common import EpisodeCounts, RolloutOptions, episode_metrics
from adapters.trl import _private
from aworld_gym.errors import ConfigError
from aworld_gym.generation import PoolStats
from aworld_gym.play import Item
from aworld_gym.token_policy import TokenEpisode, token_rollout
from aworld_gym.tokens import ChatCodec
from aworld_gym.trajectory import Journal
from aworld_gym.types import Outcome

log = logging.getLogger(__name__)


def dataset(env: str, seeds: Sequence[int]) -> Any:
    """A ``datasets.Dataset`` of one row per task seed.

    Args:
        env: ``"train"`` or ``"eval"``: which of the rollout function's envs plays the row.
        seeds: the task seeds.
    """
    from datasets import Dataset

    rows = [[{"role": "user", "content": f"{env} task {s}", "env": env, "task_seed": s}] for s in seeds]
    return Dataset.from_dict({"prompt": rows})


class EnvRollouts:
    """``rollout_func`` of a GRPOTrainer.

    Args:
        envs: specs by the name that dataset rows carry (``"train"``, ``"eval"``).
        options: how episodes are played.
        journals: for each env, where its episodes are written as they finish; none for an env left out.
        codec: tokenises and parses; by default made for the trainer's tokenizer.
    """

    def __init__(
        self,
        envs: Mapping[str, EnvSpec],
        options: RolloutOptions | None = None,
        journals: Mapping[str, Path] | None = None,
        codec: ChatCodec | None = None,
    ):
        self.envs, self.options = dict(envs), options or RolloutOptions()
        self.counts = {name: EpisodeCounts() for name in self.envs}
        self._paths = dict(journals or {})
        self._journals: dict[str, Journal] = {}
        self._given_codec = codec
        self._prepared: tuple[Any, ChatCodec, _private.TrainerSampler] | None = None

    def prepare(self, trainer: Any) -> tuple[ChatCodec, _private.TrainerSampler]:
        """Make and check the codec for the trainer's tokenizer, and let the trainer's sampler stop where it does.

        Raises:
            UnsupportedTemplateError: the chat template cannot be used token-exactly.
        """
        if self._prepared is None or self._prepared[0] is not trainer:
            codec = self._given_codec or _codec_for(trainer)
            codec.self_check()
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
        (codec, sampler), names = self.prepare(trainer), {row[-1]["env"] for row in prompts}
        if len(names) != 1 or not names <= set(self.envs):
            raise ConfigError(f"expected the rows of one env of {sorted(self.envs)} in a batch, got {sorted(names)}")
        (name,), step, stats = names, trainer.state.global_step, PoolStats()
        played = token_rollout(
            self.envs[name],
            codec,
            sampler,
            self._items(prompts, trainer),
            max_tokens=trainer.max_completion_length,
            max_turn_tokens=self.options.max_turn_tokens,
            max_context=_context(trainer),
            concurrency=self.options.concurrency,
            retries=self.options.retries,
            straggler_s=self.options.straggler_s,
            journal=self._journal(name, trainer),
            rendezvous=sampler.rendezvous if sampler.distributed else None,
            model_version=str(step),
            stats=stats,
        )
        for one in played:
            self.counts[name].add(one)
        self.counts[name].warn_of_invalid(played, step)
        # TRL needs at least one id in every prompt and completion; the filler is never trained on.
        return _columns(played, stats, filler=min(codec.stop_ids), mask_truncated=trainer.mask_truncated_completions)

    def close(self) -> None:
        """Close the journals."""
        for journal in self._journals.values():
            journal.close()
        self._journals.clear()

    def _items(self, prompts: Sequence[Sequence[Mapping[str, Any]]], trainer: Any) -> list[Item]:
        size = trainer.num_generations if trainer.model.training else trainer.num_generations_eval
        first = trainer.accelerator.process_index * len(prompts)
        groups: dict[int, list[int]] = defaultdict(list)  # seed -> its groups in this batch, usually one
        items = []
        for index, prompt in enumerate(prompts):
            seed, (group, sample) = int(prompt[-1]["task_seed"]), divmod(first + index, size)
            if group not in groups[seed]:
                groups[seed].append(group)
            again = groups[seed].index(group)
            group_id = f"{trainer.state.global_step}/{seed}" + (f"/{again}" if again else "")
            items.append(Item(index, seed, sample + size * again, group_id))
        return items

    def _journal(self, name: str, trainer: Any) -> Journal | None:
        if name not in self._journals and name in self._paths:
            path, rank = self._paths[name], trainer.accelerator.process_index
            self._journals[name] = Journal(path if rank == 0 else path.with_suffix(f".rank{rank}{path.suffix}"))
        return self._journals.get(name)


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


def _context(trainer: Any) -> int | None:
    """How many ids the model, and the engine that samples, can hold."""
    model = getattr(trainer.model.config.get_text_config(), "max_position_embeddings", None)
    engine = trainer.args.vllm_max_model_length if trainer.use_vllm else None
    return min((bound for bound in (model, engine) if bound), default=None)


def _codec_for(trainer: Any) -> ChatCodec:
    tokenizer = getattr(trainer.processing_class, "tokenizer", trainer.processing_class)
    kwargs = trainer.chat_template_kwargs or None
    codec = ChatCodec(tokenizer, template_kwargs=kwargs)
    # Ids that the model itself declares as ends are ends too.
    stop_ids = codec.stop_ids | set(_private.trainer_stop_ids(trainer))
    return codec if stop_ids == codec.stop_ids else ChatCodec(tokenizer, template_kwargs=kwargs, stop_ids=stop_ids)


def _columns(played: Sequence[TokenEpisode], stats: PoolStats, *, filler: int, mask_truncated: bool) -> dict[str, Any]:
    out: dict[str, list[Any]] = defaultdict(list)
    sampled = [p.trajectory for p in played if p.trajectory is not None and p.trajectory.response_ids]
    with_logprobs = not sampled or any(trajectory.logprobs is not None for trajectory in sampled)
    for one in played:
        trajectory, valid = one.trajectory, one.episode.valid
        if trajectory is not None and valid and trajectory.response_ids:
            ids, mask = list(trajectory.response_ids), list(trajectory.mask)
            # Where the engine could not say, NaN: TRL then corrects nothing.
            logprobs = list(trajectory.logprobs or [math.nan if bit else 0.0 for bit in mask])
            spans, rewards = [list(turn) for turn in trajectory.turns], list(trajectory.turn_rewards)
            if mask_truncated and one.episode.outcome is Outcome.MAX_TOKENS:
                mask = [0] * len(mask)  # TRL's own test looks at the last id only, which a full turn may end with
        else:
            ids, mask, logprobs, spans, rewards = [filler], [0], [0.0], [], []
        out["prompt_ids"].append([filler] if trajectory is None else list(trajectory.prompt_ids))
        out["completion_ids"].append(ids)
        out["env_mask"].append(mask)
        out["logprobs"].append(logprobs)
        out["env_reward"].append(one.episode.total_reward)
        out["env_valid"].append(valid)
        out["turn_spans"].append(spans)
        out["turn_rewards"].append(rewards)
        out["env_metrics"].append(episode_metrics(one))
    out["env_metrics"][0] |= {
        "env/late": float(stats.late),
        "time/generate_s": stats.generate_s,
        "time/env_s": stats.wait_s,
    }
    columns: dict[str, Any] = dict(out)
    return columns if with_logprobs else columns | {"logprobs": None}


@dataclass(frozen=True)
class TrlSpec:
    """An env in the form that a GRPOTrainer takes; see :func:`adapters.trl.spec`."""

    train_dataset: Any
    """A ``datasets.Dataset`` with one row per task."""
    rollout_func: EnvRollouts
    reward_funcs: list[Callable[..., list[float | None]]] = field(default_factory=lambda: [env_reward])
    eval_dataset: Any = None
    """Rows of ``eval_env``, where one was given."""
