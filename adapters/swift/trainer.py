"""swift's GRPOTrainer for the episodes of an env. The training is all swift's.

swift takes it through its own factory (``TrainerFactory.TRAINER_MAPPING``). What is extended, and why:

- ``_infer_single_or_multi_turn``: the package plays the episodes of a batch, and swift's engine samples for it. swift's
  own multi-turn loop collects sampled ids only, those of an attempt that failed too, and has no hook for the end.
- ``_compute_rewards_per_func``, ``_compute_advantages``: episodes that are no measurement stay out of the baseline.
- ``_postprocess_batch``: advantages by turn with ``credit="step"``, and the alarm on log-probabilities.
"""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.utils import gather_object
from swift.infer_engine.protocol import RolloutInferRequest
from swift.infer_engine.utils import prepare_generation_config
from swift.rl_core.advantage import compute_advantages_dynamic
from swift.rlhf_trainers import GRPOTrainer

from adapters import common, hf
from adapters.batches import Batches, round_of_all
from adapters.common import Journals, TrainedRow
from adapters.credit import measured
from adapters.swift import TESTED
from adapters.swift.plugin import REWARD, SETTINGS, TEMPLATE, EnvReward, IdTemplate, request_messages, row_of
from adapters.versions import require_names
from aworld_gym.errors import ConfigError
from aworld_gym.generation import Sampled
from aworld_gym.token_policy import TokenEpisode
from aworld_gym.types import Outcome

OVERRIDDEN = (
    "_infer_single_or_multi_turn",
    "_compute_rewards_per_func",
    "_compute_advantages",
    "_postprocess_batch",
)
"""Methods of swift's GRPOTrainer that are extended."""

require_names(GRPOTrainer, OVERRIDDEN, "ms-swift", TESTED)


class EnvGRPOTrainer(GRPOTrainer):
    """See the module. What swift's arguments do not hold comes from :data:`adapters.swift.plugin.SETTINGS`."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.credit, tokenizer = SETTINGS.credit, self.template.tokenizer
        self._refuse_what_cannot_work(tokenizer)
        model, args, output_dir = self.accelerator.unwrap_model(self.model), self.args, Path(self.args.output_dir)
        settings = {"given": SETTINGS.codec, "template_kwargs": self.template.template_kwargs}
        self.codec = common.checked_codec(tokenizer, hf.declared_ends(model), **settings)
        self.template.template_meta.stop_words = [[i] for i in sorted(self.codec.stop_ids)]  # for vLLM
        self.holds = hf.context(model, self.template.max_length, args.vllm_max_model_len if args.use_vllm else None)
        self.rollouts = Batches(SETTINGS.rollout, Journals.into(output_dir))
        self.alarm = hf.logprob_alarm(model, args, SETTINGS.logprob_threshold)
        self.add_callback(hf.MetricsCallback(output_dir / "metrics.jsonl"))
        saved = output_dir / "args.json"  # it goes into each checkpoint
        if self.is_world_process_zero() and saved.is_file():  # who serves one means the model's own template
            data = json.loads(saved.read_text(encoding="utf-8")) | {"template": None}
            saved.write_text(json.dumps(data, indent=2, ensure_ascii=False), encoding="utf-8")
        SETTINGS.trainer = self

    # ---- rollout -----------------------------------------------------------------------------------------------------

    def _infer_single_or_multi_turn(self, samples: Any, request_config: Any, is_global_inputs: bool = False) -> Any:
        rows, mode = [row_of(sample.extra) for sample in samples], self._mode  # now: sampling leaves training mode
        env, split = common.the_one((row["env"], row.get("split", "train")) for row in rows)
        played, metrics = self.rollouts.play(
            common.spec_of(env),
            self.codec,
            self._generate,
            [int(row["seed"]) for row in rows],
            split=split,
            group_size=self._group_size,
            step=self.state.global_step,
            accelerator=self.accelerator,
            max_tokens=self.max_completion_length,
            max_context=self.holds,
            room=f"set max_length higher, which is {self.template.max_length}",
        )
        for row in gather_object(metrics):
            for name, value in row.items():
                self._metrics[mode][name].append(value)
        filler = min(self.codec.stop_ids)
        return [filled(deepcopy(sample), one, filler) for sample, one in zip(samples, played, strict=True)]

    def _generate(self, prompts: list[list[int]], limits: list[int]) -> list[Sampled]:
        _, self.request_config.max_tokens = round_of_all(len(prompts), max(limits, default=1))
        if self.use_fast_infer:
            requests = [RolloutInferRequest(messages=request_messages(ids)) for ids in prompts]
            return [_sampled(output) for output in self._rollout(requests, self.request_config)]
        return self._sample(prompts, self._get_request_config()) if prompts else []

    def _sample(self, prompts: list[list[int]], config: Any) -> list[Sampled]:
        # Not by swift's TransformersEngine, which drops every sampled id that equals the pad token, ends a turn where
        # ordinary ids spell a stop word, and gives no log-probabilities at the trainer's temperature.
        model, tokenizer, stops = self.engine.model, self.template.tokenizer, self.codec.stop_ids
        settings = prepare_generation_config(model.generation_config, config, tokenizer)
        settings.eos_token_id, settings.use_cache = sorted(stops), True
        how = {"generate": self.template.generate, "generation_config": settings}
        return hf.sample(model, prompts, stops, pad=tokenizer.pad_token_id, temperature=self.temperature, **how)

    # ---- advantages --------------------------------------------------------------------------------------------------

    def _compute_rewards_per_func(self, samples: Any) -> torch.Tensor:
        """Rewards (N, F) in which the mean of a group's valid episodes stands for its others."""
        rewards, valid = super()._compute_rewards_per_func(samples), self._valid(samples)
        for start in range(0, len(valid), self._group_size):
            group = range(start, start + self._group_size)
            ok = [place for place in group if valid[place]]
            lost = [place for place in group if not valid[place]]
            if ok and lost:
                rewards[lost] = rewards[ok].mean(0)
        return rewards

    def _compute_advantages(self, samples: Any, rewards_per_func: torch.Tensor, batches: Any) -> torch.Tensor:
        advantages, valid = super()._compute_advantages(samples, rewards_per_func, batches), self._valid(samples)
        if all(valid):
            return advantages
        groups = [place // self._group_size for place in range(len(valid))]
        out, kl, keep = torch.zeros_like(advantages), None, measured(valid, groups)
        if keep:
            if self.kl_in_reward and self.beta:
                parts = [b["grpo_batch"] for b in batches]
                sums = [((p.old_per_token_logps - p.ref_per_token_logps) * p.completion_mask).sum(-1) for p in parts]
                kl = self.accelerator.gather(torch.cat(sums))[keep]
            names = ("reward_weights", "advantage_estimator", "scale_rewards", "kl_in_reward", "beta")
            out[keep], rewards = compute_advantages_dynamic(
                rewards_per_func=rewards_per_func[keep],
                prompt_ids=[str(groups[place]) for place in keep],
                request_ids=[str(place) for place in keep],
                kl_values=kl,
                **{name: getattr(self, name) for name in names},
            )
            self._metrics[self._mode]["reward"][-1] = rewards.mean().item()
        return out

    def _postprocess_batch(self, samples: Any, batch_encoded_inputs: Any) -> None:
        super()._postprocess_batch(samples, batch_encoded_inputs)
        batches = [encoded["grpo_batch"] for encoded in batch_encoded_inputs]
        if self.credit == "step":
            self._attach_turn_advantages(samples)
        gaps = []
        for chunk, batch in zip(self.split_by_mini_batches(samples), batches, strict=True):
            for k, sample in enumerate(chunk):
                finish(sample, batch, k)
                gaps.append(logprob_gap(sample, batch, k))
        trained = self.accelerator.gather(sum(batch.completion_mask.sum() for batch in batches)).sum()
        for batch in batches:
            batch.num_items_in_batch = trained.clamp(min=1)  # losses divide by it
        speaks, step = self.accelerator.is_main_process, self.state.global_step
        for name, value in self.alarm.compare(gaps, step=step, gather=gather_object, speaks=speaks).items():
            self._metrics[self._mode][f"sampling/{name}"].append(value)

    def _attach_turn_advantages(self, samples: Any) -> None:
        """Give each sample the advantages of its trained ids, which differ by turn."""
        rows = [sample.rollout_infos["row"] for sample in samples]
        rewards = [row.turn_rewards if row.valid else None for row in rows]
        advantages = hf.own_turn_advantages(rewards, self.accelerator, self._group_size, self.scale_rewards)
        for sample, row, values in zip(samples, rows, advantages, strict=True):
            sample.rollout_infos["advantages"] = np.repeat(values, [stop - start for start, stop in row.turns])

    # ------------------------------------------------------------------------------------------------------------------

    @property
    def _mode(self) -> str:
        return "train" if self.model.training else "eval"

    @property
    def _group_size(self) -> int:
        return int(self.num_generations if self.model.training else self.num_generations_eval)

    def _valid(self, samples: Any) -> list[bool]:
        """Of all processes' samples, in the order of their rewards."""
        return list(gather_object([sample.rollout_infos["row"].valid for sample in samples]))

    def _refuse_what_cannot_work(self, tokenizer: Any) -> None:
        args, by_turns = self.args, self.credit == "step"
        plain = self.advantage_estimator == "grpo" and not self._has_teacher_explicit() and not self.use_liger_loss
        plain = plain and len(self.reward_funcs) == 1 and self.loss_type != "real" and not self.kl_in_reward
        gym_env = self.use_gym_env or getattr(args, "use_gym_env", None)
        scheduler = self.multi_turn_scheduler or self.enable_server_multi_turn
        rewarded = any(isinstance(function, EnvReward) for function in self.reward_funcs)
        for wrong, why in (
            (not isinstance(self.template, IdTemplate), f"template must be {TEMPLATE!r}"),
            (not rewarded, f"reward_funcs must hold {REWARD!r}: without it there is no reward of the env"),
            (gym_env, f"leave use_gym_env and gym_env out: the reward is that of {REWARD!r}"),
            (args.max_turns, f"max_turns={args.max_turns} would cut episodes behind the env's back: limit its turns"),
            (scheduler, "leave multi_turn_scheduler out, of `swift rollout` too: the trainer plays episodes"),
            (args.async_generate, "async_generate is not supported: it trains on what older weights sampled"),
            (self.scale_rewards == "gdpo", "scale_rewards='gdpo' cannot leave episodes out of a baseline"),
            (
                tokenizer.pad_token_id in (None, tokenizer.eos_token_id),
                f"the tokenizer's pad token is its end of turn ({tokenizer.eos_token!r}): engines of swift drop such "
                "an id where it was sampled, and the model is never taught to stop. Save the model with another pad "
                "token: tokenizer.pad_token = ..., tokenizer.save_pretrained(...)",
            ),
            (
                by_turns and not plain,
                "credit='step' takes all rewards from the env, by turns: it goes with one reward function, "
                "advantage_estimator='grpo', no teacher, no liger kernel, no kl_in_reward and no loss_type='real'",
            ),
        ):
            if wrong:
                raise ConfigError(why)


def filled(sample: Any, played: TokenEpisode, filler: int) -> Any:
    """The sample of swift's with the ids and mask of its episode, and the episode, in its ``rollout_infos``.

    swift needs an id in every prompt and response, and in every row one that is trained on, or its log-probabilities
    do not fit its ids. For an episode that has none, or is no measurement, that is ``filler``, which :func:`finish`
    takes out again before there is a loss.
    """
    row = TrainedRow.of(played, filler=filler)
    ids, mask = list(row.response_ids), list(row.mask)
    sample.messages = [{"role": "user", "content": list(row.prompt_ids)}, {"role": "assistant", "content": ids}]
    sample.response_token_ids, sample.rollout_logprobs, sample.add_eos = [ids], [], False
    sample.response_loss_mask = [mask if any(mask) else [1]]
    if row.logprobs is not None:
        sample.rollout_logprobs = [[p for p, bit in zip(row.logprobs, mask, strict=True) if bit]]
    sample.finish_reason = "length" if played.episode.outcome is Outcome.MAX_TOKENS else "stop"
    sample.rollout_infos = {"played": played, "row": row, "num_turns": len(played.episode.steps)}
    return sample


def finish(sample: Any, batch: Any, k: int) -> None:
    """Put into swift's batch what only the adapter knows of its row k: a filler, advantages that differ by turn."""
    if not any(sample.rollout_infos["row"].mask):
        batch.completion_mask[k] = False
    values = sample.rollout_infos.get("advantages")
    if values is not None:
        batch.advantages[k] = 0.0
        batch.advantages[k, batch.completion_mask[k].bool()] = torch.from_numpy(values).to(batch.advantages)


def logprob_gap(sample: Any, batch: Any, k: int) -> torch.Tensor:
    """The difference between the log-probabilities of sampling and those that the loss starts from, where both are."""
    known = [p for turn in sample.rollout_logprobs or () for p in turn]
    scored = batch.old_per_token_logps[k][batch.completion_mask[k].bool()].float()
    return (scored - torch.tensor(known, device=scored.device)).abs() if known else scored[:0]


def _sampled(output: Any) -> Sampled:
    """Ids and log-probabilities of what one of swift's engines gave."""
    (choice,) = output.response.choices
    if not choice.token_ids:
        raise RuntimeError("swift's engine sampled nothing, or gave no token_ids")
    content = (choice.logprobs or {}).get("content")
    known = content is not None and len(content) == len(choice.token_ids)
    return list(choice.token_ids), [token["logprob"] for token in content] if known else None
