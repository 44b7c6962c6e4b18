"""swift's GRPOTrainer for the episodes of an env. The training is all swift's.

swift takes it through its own factory (``TrainerFactory.TRAINER_MAPPING``). What is extended, and why:

- ``_infer_single_or_multi_turn``: numbers the episodes of a batch before swift's multi-turn loop plays them, and closes
  whatever that loop leaves open. swift has no hook for the end of a trajectory.
- ``_get_request_config``: no turn samples more ids than its episode has left.
- ``_engine_infer``: with transformers, sampling is :func:`adapters.swift._private.sample` in the place of swift's
  engine, which drops sampled ids that equal the pad token. vLLM is swift's own.
- ``_postprocess_rollout_outputs``: a sample's ids and mask are those of the episode's trajectory. swift's loop collects
  sampled ids only, and those of an attempt that failed too.
- ``_compute_advantages``, ``compute_std``: episodes that are no measurement stay out of the baseline.
- ``_postprocess_batch``: advantages by turn with ``credit="step"``, and the alarm on log-probabilities.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import torch
from accelerate.utils import gather_object
from swift.infer_engine.protocol import (
    ChatCompletionResponse,
    ChatCompletionResponseChoice,
    ChatMessage,
    RolloutOutput,
    UsageInfo,
)
from swift.rl_core.advantage import compute_advantages_dynamic
from swift.rlhf_trainers import GRPOTrainer
from swift.rollout import invoke_async_hook

from adapters.common import Journals, LogprobAlarm, TrainedRow, episode_metrics, number_items
from adapters.credit import Scale, turn_advantages
from adapters.hf import MetricsCallback, context, threshold
from adapters.swift import _private
from adapters.swift.scheduler import REWARD, SCHEDULER, SETTINGS, EnvReward, EnvScheduler, make_codec, row_of
from adapters.swift.template import TEMPLATE, IdTemplate
from adapters.versions import require_names
from aworld_gym.errors import ConfigError
from aworld_gym.generation import Sampled
from aworld_gym.token_policy import TokenEpisode
from aworld_gym.types import Outcome

log = logging.getLogger(__name__)

require_names(GRPOTrainer, _private.OVERRIDDEN, "ms-swift", _private.TESTED)


class EnvGRPOTrainer(GRPOTrainer):
    """See the module. What swift's arguments do not hold comes from :data:`adapters.swift.scheduler.SETTINGS`."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.credit = SETTINGS.credit
        self._refuse_what_cannot_work()
        model, args, output_dir = self.accelerator.unwrap_model(self.model), self.args, Path(self.args.output_dir)
        bound = SETTINGS.logprob_threshold
        self.alarm = LogprobAlarm(threshold(model, args) if bound is None else bound)
        ends = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
        asked = self.template.template_kwargs
        self.codec = make_codec(self.template.tokenizer, ends, SETTINGS.codec, template_kwargs=asked)
        self.template.template_meta.stop_words = [[i] for i in sorted(self.codec.stop_ids)]  # for vLLM
        held = context(model, self.template.max_length, args.vllm_max_model_len if args.use_vllm else None)
        journals = Journals.into(output_dir)
        self.scheduler.attach(self.codec, SETTINGS.rollout, self.max_completion_length, held, journals)
        self.scheduler.rank = self.accelerator.process_index
        self.add_callback(_Records(output_dir / "metrics.jsonl"))
        self._generate_s = 0.0
        SETTINGS.trainer = self

    @property
    def scheduler(self) -> EnvScheduler:
        """The scheduler that swift made."""
        return cast("EnvScheduler", self.multi_turn_scheduler)

    # ---- rollout -----------------------------------------------------------------------------------------------------

    def _infer_single_or_multi_turn(self, samples: Any, request_config: Any, is_global_inputs: bool = False) -> Any:
        began, self._generate_s, done = time.perf_counter(), 0.0, []
        size, mode = self._group_size, self._mode  # now: sampling puts the model into eval mode
        first, step = self.accelerator.process_index * len(samples), self.state.global_step
        items = number_items([row_of(sample.extra)["seed"] for sample in samples], size, first=first, step=step)
        self.scheduler.items = {sample.request_id: item for sample, item in zip(samples, items, strict=True)}
        self.scheduler.version = str(step)
        try:
            at_once = self.scheduler.options.concurrency
            for start in range(0, len(samples), at_once):
                some = samples[start : start + at_once]
                done += super()._infer_single_or_multi_turn(some, request_config, is_global_inputs)
        finally:
            invoke_async_hook(self.scheduler.sweep())
        self._count(mode, [_played(sample) for sample in done], time.perf_counter() - began)
        return done

    def _get_request_config(self) -> Any:
        config = super()._get_request_config()
        config.max_tokens = max(1, min(config.max_tokens, self.scheduler.limit or 1))
        return config

    def _engine_infer(self, infer_requests: Any, request_config: Any = None, *, use_tqdm: Any = False) -> Any:
        """Sample for the requests that have ids; an episode that ended at its start asks for nothing."""
        began = time.perf_counter()
        asked = [request for request in infer_requests if request.messages[-1]["content"]]
        found: list[Any] = []
        if asked and self.use_fast_infer:
            found = super()._engine_infer(asked, request_config, use_tqdm=use_tqdm)
        elif asked:
            prompts = [request.messages[-1]["content"] for request in asked]
            found = [_output(*row) for row in self._sample(prompts, request_config)]
        by_request = {request.uuid: output for request, output in zip(asked, found, strict=True)}
        self._generate_s += time.perf_counter() - began
        return [by_request.get(request.uuid) or _output([], None) for request in infer_requests]

    def _sample(self, prompts: list[list[int]], config: Any) -> list[Sampled]:
        return _private.sample(self, prompts, config, self.codec.stop_ids)

    def _postprocess_rollout_outputs(self, samples: Any, outputs: Any) -> Any:
        done = super()._postprocess_rollout_outputs(samples, outputs)
        for sample in done:
            fill(sample, filler=min(self.codec.stop_ids))
        return done

    # ---- advantages --------------------------------------------------------------------------------------------------

    def _compute_advantages(self, samples: Any, rewards_per_func: torch.Tensor, batches: Any) -> torch.Tensor:
        valid = self._valid(samples)
        advantages = super()._compute_advantages(samples, self._filled(rewards_per_func, valid), batches)
        keep = [k for k, ok in enumerate(valid) if ok]
        if len(keep) == len(valid):
            return advantages
        out, kl = torch.zeros_like(advantages), None
        if not keep:
            return out
        if self.kl_in_reward and self.beta:
            parts = [b["grpo_batch"] for b in batches]
            sums = [((p.old_per_token_logps - p.ref_per_token_logps) * p.completion_mask).sum(-1) for p in parts]
            kl = self.accelerator.gather(torch.cat(sums))[keep]
        some, rewards = compute_advantages_dynamic(
            rewards_per_func=rewards_per_func[keep],
            reward_weights=self.reward_weights,
            prompt_ids=[str(k // self._group_size) for k in keep],
            request_ids=[str(k) for k in keep],
            advantage_estimator=self.advantage_estimator,
            scale_rewards=self.scale_rewards,
            kl_in_reward=self.kl_in_reward,
            beta=self.beta,
            kl_values=kl,
        )
        out[keep] = some
        self._metrics[self._mode]["reward"][-1] = rewards.mean().item()
        return out

    def compute_std(self, samples: Any, rewards_per_func: torch.Tensor) -> torch.Tensor:
        """As swift's, which looks for groups that have something to learn from; of valid episodes."""
        return super().compute_std(samples, self._filled(rewards_per_func, self._valid(samples)))

    def _postprocess_batch(self, samples: Any, batch_encoded_inputs: Any) -> None:
        super()._postprocess_batch(samples, batch_encoded_inputs)
        for chunk, encoded in zip(self.split_by_mini_batches(samples), batch_encoded_inputs, strict=True):
            clear_fillers(chunk, encoded["grpo_batch"])
        batches = [encoded["grpo_batch"] for encoded in batch_encoded_inputs]
        trained = self.accelerator.gather(sum(batch.completion_mask.sum() for batch in batches)).sum()
        for batch in batches:
            batch.num_items_in_batch = trained.clamp(min=1)  # losses divide by it
        if self.credit == "step":
            self._credit_turns(samples, batch_encoded_inputs)
        self._watch_logprobs(samples, batch_encoded_inputs)

    def _credit_turns(self, samples: Any, batches: Any) -> None:
        """Advantages (B, T) that differ by turn, at sampled ids."""
        own = [_played(sample) for sample in samples]
        rewards = gather_object([list(_rewards(one)) if one.episode.valid else None for one in own])
        everyone = turn_advantages(rewards, group_size=self._group_size, scale=cast("Scale", self.scale_rewards))
        first = self.accelerator.process_index * len(samples)
        for k, (sample, one) in enumerate(zip(samples, own, strict=True)):
            spans = one.trajectory.turns if one.trajectory is not None and one.episode.valid else ()
            values = everyone[first + k][: len(spans)]
            sample.rollout_infos["advantages"] = [
                v for (a, b), v in zip(spans, values, strict=True) for v in [v] * (b - a)
            ]
        for chunk, encoded in zip(self.split_by_mini_batches(samples), batches, strict=True):
            batch = encoded["grpo_batch"]
            for k, sample in enumerate(chunk):
                at, values = batch.completion_mask[k].nonzero().flatten(), sample.rollout_infos["advantages"]
                batch.advantages[k] = 0.0
                batch.advantages[k, at] = torch.tensor(values, device=at.device).to(batch.advantages.dtype)

    def _watch_logprobs(self, samples: Any, batches: Any) -> None:
        """Compare the log-probabilities of sampling with those that the loss starts from."""
        total, count, most = 0.0, 0, 0.0
        for chunk, encoded in zip(self.split_by_mini_batches(samples), batches, strict=True):
            batch = encoded["grpo_batch"]
            for k, sample in enumerate(chunk):
                if not sample.rollout_logprobs or not sample.rollout_logprobs[0]:
                    continue
                scored = batch.old_per_token_logps[k][batch.completion_mask[k]].float()
                gaps = (scored - torch.tensor(sample.rollout_logprobs[0], device=scored.device)).abs()
                total, count, most = total + gaps.sum().item(), count + len(gaps), max(most, gaps.max().item())
        sums = gather_object([(total, count, most)])
        total, count, most = sum(s[0] for s in sums), sum(s[1] for s in sums), max(s[2] for s in sums)
        if count:
            self._metrics[self._mode]["sampling/logprob_gap/mean"].append(total / count)
            self._metrics[self._mode]["sampling/logprob_gap/max"].append(most)
            if self.accelerator.is_main_process:
                self.alarm.check(total / count, most, step=self.state.global_step)

    # ------------------------------------------------------------------------------------------------------------------

    @property
    def _mode(self) -> str:
        return "train" if self.model.training else "eval"

    @property
    def _group_size(self) -> int:
        return int(self.num_generations if self.model.training else self.num_generations_eval)

    def _valid(self, samples: Any) -> list[bool]:
        """Of all processes' samples, in the order of their rewards."""
        return list(gather_object([_played(sample).episode.valid for sample in samples]))

    def _filled(self, rewards: torch.Tensor, valid: Sequence[bool]) -> torch.Tensor:
        """Rewards (N, F) in which the mean of a group's valid episodes stands for its others."""
        if all(valid):
            return rewards
        out, ok = rewards.clone(), torch.tensor(valid, device=rewards.device)
        for start in range(0, len(valid), self._group_size):
            group = slice(start, start + self._group_size)
            if ok[group].any():
                out[group][~ok[group]] = rewards[group][ok[group]].mean(0)
        return out

    def _count(self, mode: str, played: Sequence[TokenEpisode], seconds: float) -> None:
        counts, step = self.scheduler.counts[mode], self.state.global_step
        for one in played:
            counts.add(one)
        counts.warn_of_invalid(played, step)
        full = [len(one.trajectory.prompt_ids) for one in played if one.trajectory and not one.trajectory.response_ids]
        if full:
            log.warning(
                "step %d: %d of %d prompts (of up to %d ids) leave no room for a turn; set max_length higher, "
                "which is %s",
                *(step, len(full), len(played), max(full), self.template.max_length),
            )
        times = {"time/generate_s": self._generate_s, "time/env_s": seconds - self._generate_s}
        for row in gather_object([*(episode_metrics(one) for one in played), times]):
            for name, value in row.items():
                self._metrics[mode][name].append(value)

    def _refuse_what_cannot_work(self) -> None:
        args, wrong = self.args, None
        if not isinstance(self.multi_turn_scheduler, EnvScheduler):
            wrong = f"multi_turn_scheduler must be {SCHEDULER!r}, got {args.multi_turn_scheduler!r}"
        elif not isinstance(self.template, IdTemplate):
            wrong = f"template must be {TEMPLATE!r}, got {self.template.template_meta.template_type!r}"
        elif not any(isinstance(function, EnvReward) for function in self.reward_funcs):
            wrong = f"reward_funcs must hold {REWARD!r}: without it there is no reward of the env"
        elif self.use_gym_env or getattr(args, "use_gym_env", None):
            wrong = f"leave use_gym_env and gym_env out: the reward is that of {REWARD!r}"
        elif self.enable_server_multi_turn:
            wrong = "start `swift rollout` without --multi_turn_scheduler: episodes are played by the trainer"
        elif args.async_generate:
            wrong = "async_generate is not supported: it trains on what older weights sampled"
        elif self.scale_rewards == "gdpo":
            wrong = "scale_rewards='gdpo' cannot leave episodes out of a baseline; use 'group', 'batch' or 'none'"
        elif self.credit == "step":
            plain = self.advantage_estimator == "grpo" and not self._has_teacher_explicit() and not self.use_liger_loss
            if len(self.reward_funcs) != 1 or not plain or self.loss_type == "real" or self.kl_in_reward:
                wrong = (
                    "credit='step' takes all rewards from the env, by turns: it goes with one reward function, "
                    "advantage_estimator='grpo', no teacher, no liger kernel, no kl_in_reward and no loss_type='real'"
                )
        if wrong is not None:
            raise ConfigError(wrong)


def fill(sample: Any, *, filler: int) -> None:
    """Give swift's sample the ids and mask of its episode, which stands in its ``rollout_infos``.

    swift needs an id in every prompt and response, and in every row one that is trained on, or its log-probabilities
    do not fit its ids. For an episode that has none, or is no measurement, that is ``filler``, which
    :func:`clear_fillers` takes out again before there is a loss.
    """
    played = _played(sample)
    row = TrainedRow.of(played, filler=filler)
    ids, mask = list(row.response_ids), list(row.mask)
    sample.messages = [{"role": "user", "content": list(row.prompt_ids)}, {"role": "assistant", "content": ids}]
    sample.response_token_ids, sample.response_loss_mask, sample.rollout_logprobs = [ids], [mask], []
    if row.logprobs is not None:
        sample.rollout_logprobs = [[p for p, bit in zip(row.logprobs, mask, strict=True) if bit]]
    sample.rollout_infos["filler"] = not any(mask)
    if not any(mask):
        sample.response_loss_mask = [[1]]
    sample.finish_reason = "length" if played.episode.outcome is Outcome.MAX_TOKENS else "stop"
    sample.rollout_infos["num_turns"] = len(played.episode.steps)


def clear_fillers(samples: Sequence[Any], batch: Any) -> None:
    """Nothing of a row is trained on in which only a filler stands."""
    for k, sample in enumerate(samples):
        if sample.rollout_infos["filler"]:
            batch.completion_mask[k] = False


class _Records(MetricsCallback):
    """Metrics, and one correction: swift's ``args.json``, which goes into each checkpoint, names no template.

    Who serves a checkpoint with swift means the model's own template, not the one of ids.
    """

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        super().on_train_begin(args, state, control, **kwargs)
        saved = Path(args.output_dir) / "args.json"
        if state.is_world_process_zero and saved.is_file():
            data = json.loads(saved.read_text(encoding="utf-8")) | {"template": None}
            saved.write_text(json.dumps(data, indent=2, ensure_ascii=False), encoding="utf-8")


def _played(sample: Any) -> TokenEpisode:
    played = (sample.rollout_infos or {}).get("played")
    if not isinstance(played, TokenEpisode):
        raise ConfigError(f"a sample was not played by the scheduler {SCHEDULER!r}: it has no episode")
    return played


def _rewards(played: TokenEpisode) -> Sequence[float]:
    return () if played.trajectory is None else played.trajectory.turn_rewards


def _output(ids: list[int], logprobs: list[float] | None) -> RolloutOutput:
    content = None if logprobs is None else {"content": [{"logprob": p} for p in logprobs]}
    message = ChatMessage(role="assistant", content="")
    choice = ChatCompletionResponseChoice(0, message, "stop", logprobs=content, token_ids=ids)
    return RolloutOutput(response=ChatCompletionResponse(model="", choices=[choice], usage=UsageInfo(0, 0, 0)))
