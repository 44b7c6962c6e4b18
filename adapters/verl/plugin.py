"""What verl loads in each of its processes: two advantage estimators, and its own trainer with an eye on the env.

Load it through verl's plugin hook, ``VERL_USE_EXTERNAL_MODULES=adapters.verl.plugin`` (``adapters.verl.train`` does).
Everything of verl that is not its public interface stands here, behind a check of the version.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import transfer_queue as tq
from omegaconf import open_dict
from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage, register_adv_est
from verl.trainer.ppo.v1 import PPOTrainerSync, register_trainer

from adapters.common import THRESHOLD_FP32, THRESHOLD_LOW_PRECISION, LogprobAlarm, mean_metrics
from adapters.credit import Scale, credit_by_token, measured
from adapters.episodes import say_invalid
from adapters.verl import TESTED, require_verl
from adapters.versions import require_names

PRIVATE = ("_compute_advantage", "_update_actor", "_compute_metrics")
"""Methods of verl's trainer that are overridden."""
ESTIMATORS = {"episode": "aworld_episode", "step": "aworld_step"}
"""The advantage estimator of each credit, for ``algorithm.adv_estimator``."""
TRAINER = "aworld_sync"
"""The trainer below, for ``trainer.v1.trainer_mode``: verl's ``sync``."""

require_verl()
require_names(PPOTrainerSync, PRIVATE, "verl", TESTED)


@register_adv_est(ESTIMATORS["episode"])
def episode_advantages(
    token_level_rewards: torch.Tensor, response_mask: torch.Tensor, index: np.ndarray, config: Any = None, **_: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """GRPO as verl has it, over the rows that are measurements (``credit="episode"``).

    A row whose mask is all zeros (an invalid episode, padding) is in no group's mean or deviation, and a row whose
    group has no other has advantage 0; verl's own would give it its raw reward.

    Args:
        token_level_rewards: (B, T); a turn's reward stands at its last sampled id.
        response_mask: (B, T), 1 where an id was sampled.
        index: (B,), the group of each row.
        config: verl's ``algorithm`` section; ``norm_adv_by_std_in_grpo`` is looked at.

    Returns:
        Advantages and returns, both (B, T).
    """
    out = torch.zeros_like(token_level_rewards)
    rows = measured(response_mask.any(dim=-1).tolist(), index.tolist(), least=2)
    if rows:
        out[rows], _ = compute_grpo_outcome_advantage(
            token_level_rewards[rows],
            response_mask[rows],
            index[rows],
            norm_adv_by_std_in_grpo=_normalises(config),
        )
    return out, out


@register_adv_est(ESTIMATORS["step"])
def step_advantages(
    token_level_rewards: torch.Tensor, response_mask: torch.Tensor, index: np.ndarray, config: Any = None, **_: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Each turn has its own advantage (``credit="step"``): :func:`adapters.credit.turn_advantages`.

    Turns are the runs of ones in ``response_mask``. Arguments, returns and the treatment of rows without a one are
    those of :func:`episode_advantages`.
    """
    scale: Scale = "group" if _normalises(config) else "none"
    by_token = credit_by_token(token_level_rewards, response_mask, index.tolist(), scale=scale)
    out = torch.from_numpy(by_token).to(token_level_rewards)
    return out, out


def _normalises(config: Any) -> bool:
    return True if config is None else bool(config.get("norm_adv_by_std_in_grpo", True))


@register_trainer(TRAINER)
class EnvTrainer(PPOTrainerSync):
    """verl's synchronous trainer; it adds metrics, and survives a batch in which nothing is a measurement.

    Logged besides verl's own: ``env/*`` (means over the batch's episodes, invalid ones only counted), and
    ``rollout/logprob_gap/mean`` and ``max`` (nats, over sampled ids), with a warning above a threshold.
    """

    def __init__(self, config: Any):
        with open_dict(config):  # verl chooses its parts by this name, and this is its "sync"
            config.trainer.v1.trainer_mode = "sync"
        super().__init__(config)
        fp32 = str(config.actor_rollout_ref.rollout.get("dtype", "")) in ("float32", "fp32")
        self.alarm = LogprobAlarm(THRESHOLD_FP32 if fp32 else THRESHOLD_LOW_PRECISION)
        self.measured = True

    def _compute_advantage(self, batch: Any, metrics: dict) -> Any:
        names = ["response_mask", "old_log_probs", "rollout_log_probs"]
        data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=names).to_padded_tensor()
        mask, correction = data["response_mask"].bool(), self.config.algorithm.get("rollout_correction")
        self.measured = bool(mask.any())
        if "rollout_log_probs" in data.keys() and not (correction and correction.get("bypass_mode")):
            gap = (data["old_log_probs"] - data["rollout_log_probs"]).abs()[mask].float()
            found = self.alarm.compare([gap], step=self.global_steps)
            metrics |= {f"rollout/{name}": value for name, value in found.items()}
        with open_dict(self.config):  # verl's correction asserts that there is something to correct
            self.config.algorithm.rollout_correction = correction if self.measured else None
        try:
            return super()._compute_advantage(batch, metrics)
        finally:
            self.config.algorithm.rollout_correction = correction

    def _update_actor(self, batch: Any, metrics: dict) -> Any:
        return super()._update_actor(batch, metrics) if self.measured else batch

    def _compute_metrics(self, batch: Any, metrics: dict, *args: Any, **kwargs: Any) -> Any:
        played = [key for key, tag in zip(batch.keys, batch.tags, strict=True) if not tag.get("is_padding", False)]
        fields = tq.kv_batch_get(keys=played, partition_id=batch.partition_id, select_fields=["extra_fields"])
        rows = [row.get("reward_extra_info", {}) for row in fields.pop("extra_fields").tolist()]
        metrics |= {name: mean for name, mean in mean_metrics(rows).items() if name.startswith(("env/", "time/"))}
        if lost := int(sum(row.get("env/invalid", 0.0) for row in rows)):
            say_invalid(lost, len(rows), step=self.global_steps, more="episodes.*.jsonl in the output folder says why")
        return super()._compute_metrics(batch, metrics, *args, **kwargs)
