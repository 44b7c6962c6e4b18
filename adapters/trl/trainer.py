"""A GRPOTrainer that can credit turns and watches its log-probabilities. The training is all TRL's.

One method is overridden: after TRL has generated and scored a batch, the tensors that are about to reach the loss
are checked against what the sampler reported, and with ``credit="step"`` the advantages become per token.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from accelerate.utils import gather_object
from trl import GRPOTrainer

from adapters.credit import Credit, check_credit, token_advantages
from adapters.hf import logprob_alarm, own_turn_advantages
from adapters.trl import _private
from aworld_gym.errors import ConfigError

SCORED_ROWS = 4
"""Rows per batch whose log-probabilities are computed again for the alarm, where TRL has not done so anyway."""


class EnvGRPOTrainer(GRPOTrainer):
    """GRPOTrainer for the rollouts of an env.

    Args:
        *args: as GRPOTrainer's.
        credit: ``"episode"`` leaves the advantages as TRL computes them, from the sum of an episode's rewards.
            ``"step"`` gives each turn its own: :func:`adapters.credit.turn_advantages`.
        logprob_threshold: mean difference of log-probabilities above which a warning is logged. By default 1e-3
            where everything is fp32, else 0.05.
        **kwargs: as GRPOTrainer's.
    """

    def __init__(self, *args: Any, credit: Credit = "episode", logprob_threshold: float | None = None, **kwargs: Any):
        check_credit(credit)
        with warnings.catch_warnings():
            # That rollout_func is experimental is what the check of TRL's version is for.
            warnings.filterwarnings("ignore", message=".*rollout_func.*experimental.*", category=UserWarning)
            super().__init__(*args, **kwargs)
        if credit == "step" and self.multi_objective_aggregation != "sum_then_normalize":
            raise ConfigError(
                "credit='step' normalises rewards-to-go within a group; it needs "
                f"multi_objective_aggregation='sum_then_normalize', got {self.multi_objective_aggregation!r}"
            )
        if credit == "step" and len(self.reward_funcs) != 1:
            raise ConfigError(
                f"credit='step' takes all rewards from the env, by turns; expected one reward function, got "
                f"{len(self.reward_funcs)}. Shape rewards with a wrapper of the env instead."
            )
        self.credit = credit
        self.alarm = logprob_alarm(self.model, self.args, logprob_threshold)

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        output = super()._generate_and_score_completions(inputs)
        self._watch_logprobs(output)
        if self.credit == "step":
            output["advantages"] = self._turn_advantages(inputs, output)
        return output

    def _watch_logprobs(self, output: dict[str, Any]) -> None:
        """Compare sampling and training log-probabilities of ids that will be trained on."""
        sampled = output.get("sampling_per_token_logps")
        if sampled is None:
            return
        scored = output.get("old_per_token_logps")
        if scored is None:
            scored = _private.score(self, output, min(SCORED_ROWS, len(sampled)))
        rows = len(scored)
        mask = (output["completion_mask"][:rows] * output["tool_mask"][:rows]).bool() & ~sampled[:rows].isnan()
        gap = (scored - sampled[:rows]).abs()[mask].float()
        speaks, step = self.accelerator.is_main_process, self.state.global_step
        for name, value in self.alarm.compare([gap], step=step, gather=gather_object, speaks=speaks).items():
            _private.log_metric(self, f"sampling/{name}", value)

    def _turn_advantages(self, inputs: list[dict[str, Any]], output: dict[str, Any]) -> torch.Tensor:
        """Advantages (B, T): each turn's at its sampled ids, 0 elsewhere."""
        training = self.model is not None and self.model.training
        advantages = own_turn_advantages(
            [row["turn_rewards"] if row["env_valid"] else None for row in inputs],
            self.accelerator,
            group_size=(self.num_generations if training else self.num_generations_eval) or 1,
            scale=self.scale_rewards,
        )
        width = output["completion_ids"].size(1)
        by_token = token_advantages([row["turn_spans"] for row in inputs], advantages, width)
        return torch.from_numpy(by_token).to(output["advantages"])
