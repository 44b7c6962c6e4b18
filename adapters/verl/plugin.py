"""What verl loads in each of its processes: two advantage estimators, and its own trainer with an eye on the env.

Load it through verl's plugin hook, ``VERL_USE_EXTERNAL_MODULES=adapters.verl.plugin`` (``adapters.verl.train`` does).
Everything of verl that is not its public interface stands here, behind a check of the version.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from typing import Any

import numpy as np
import torch
import transfer_queue as tq
from omegaconf import open_dict
from verl.trainer.ppo import core_algos
from verl.trainer.ppo.core_algos import register_adv_est
from verl.trainer.ppo.v1 import PPOTrainerSync, register_trainer

from adapters.common import THRESHOLD_FP32, THRESHOLD_LOW_PRECISION, LogprobAlarm
from adapters.credit import turn_advantages
from adapters.verl import TESTED, require_verl
from adapters.versions import require_names

log = logging.getLogger(__name__)

PRIVATE = ("_compute_advantage", "_update_actor", "_compute_metrics")
"""Methods of verl's trainer that are overridden."""
ESTIMATORS = {"episode": "aworld_episode", "step": "aworld_step"}
"""The advantage estimator of each credit, for ``algorithm.adv_estimator``."""
TRAINER = "aworld_sync"
"""The trainer below, for ``trainer.v1.trainer_mode``: verl's ``sync``."""

require_verl()
require_names(PPOTrainerSync, PRIVATE, "verl", TESTED)


def _groups(index: np.ndarray, response_mask: torch.Tensor) -> list[list[int]]:
    """Rows of each group that are measurements: those with an id to train on. Fewer than two have no baseline."""
    groups: dict[Any, list[int]] = defaultdict(list)
    for row, kept in enumerate(response_mask.any(dim=-1).tolist()):
        if kept:
            groups[index[row]].append(row)
    return [rows for rows in groups.values() if len(rows) > 1]


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
    for rows in _groups(index, response_mask):
        out[rows], _returns = core_algos.compute_grpo_outcome_advantage(
            token_level_rewards[rows],
            response_mask[rows],
            np.zeros(len(rows), dtype=int),
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
    out = torch.zeros_like(token_level_rewards)
    for rows in _groups(index, response_mask):
        turns = [_runs(response_mask[row]) for row in rows]
        rewards = [_turn_rewards(token_level_rewards[row], spans) for row, spans in zip(rows, turns, strict=True)]
        scale = "group" if _normalises(config) else "none"
        for row, spans, values in zip(
            rows, turns, turn_advantages(rewards, group_size=len(rows), scale=scale), strict=True
        ):
            for (start, stop), value in zip(spans, values, strict=True):
                out[row, start:stop] = value
    return out, out


def _turn_rewards(rewards: torch.Tensor, spans: list[tuple[int, int]]) -> list[float]:
    """Of each turn, what stands from its first id up to the next turn's: verl's rejection may mask a turn's last id."""
    starts = [start for start, _ in spans]
    ends = [*starts[1:], len(rewards)]
    return [float(rewards[start:end].sum()) for start, end in zip(starts, ends, strict=True)]


def _normalises(config: Any) -> bool:
    return True if config is None else bool(config.get("norm_adv_by_std_in_grpo", True))


def _runs(mask: torch.Tensor) -> list[tuple[int, int]]:
    edges = torch.nn.functional.pad(mask.bool().int(), (1, 1)).diff()
    starts, stops = (edges == 1).nonzero()[:, 0].tolist(), (edges == -1).nonzero()[:, 0].tolist()
    return list(zip(starts, stops, strict=True))


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
        rollout = config.actor_rollout_ref.rollout
        fp32 = str(rollout.get("dtype", "")) in ("float32", "fp32")
        self.alarm = LogprobAlarm(THRESHOLD_FP32 if fp32 else THRESHOLD_LOW_PRECISION)
        self.measured = True

    def _compute_advantage(self, batch: Any, metrics: dict) -> Any:
        names = ["response_mask", "old_log_probs", "rollout_log_probs"]
        data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=names)
        data = data.to_padded_tensor()
        mask = data["response_mask"].bool()
        self.measured = bool(mask.any())
        correction = self.config.algorithm.get("rollout_correction")
        if not self.measured:
            with open_dict(self.config):  # verl's correction asserts that there is something to correct
                self.config.algorithm.rollout_correction = None
        elif "rollout_log_probs" in data.keys() and not (correction and correction.get("bypass_mode")):
            gap = (data["old_log_probs"] - data["rollout_log_probs"]).abs()[mask].float()
            mean, largest = gap.mean().item(), gap.max().item()
            metrics |= {"rollout/logprob_gap/mean": mean, "rollout/logprob_gap/max": largest}
            self.alarm.check(mean, largest, step=self.global_steps)
        try:
            return super()._compute_advantage(batch, metrics)
        finally:
            with open_dict(self.config):
                self.config.algorithm.rollout_correction = correction

    def _update_actor(self, batch: Any, metrics: dict) -> Any:
        return super()._update_actor(batch, metrics) if self.measured else batch

    def _compute_metrics(self, batch: Any, metrics: dict, *args: Any, **kwargs: Any) -> Any:
        played = [k for k, tag in zip(batch.keys, batch.tags, strict=True) if not tag.get("is_padding", False)]
        fields = tq.kv_batch_get(keys=played, partition_id=batch.partition_id, select_fields=["extra_fields"])
        sums: dict[str, list[float]] = defaultdict(list)
        for row in fields.pop("extra_fields").tolist():
            for name, value in row.get("reward_extra_info", {}).items():
                sums[name].append(value)
        metrics |= {name: float(np.mean(values)) for name, values in sums.items() if name.startswith("env/")}
        if lost := int(sum(sums["env/invalid"])):
            log.log(
                logging.WARNING if self.measured else logging.ERROR,
                "step %d: %d of %d episodes are no measurement and are left out of loss and baseline%s; rows.*.jsonl "
                "in the output folder says why",
                self.global_steps,
                lost,
                len(played),
                "" if self.measured else ": the weights stay as they are",
            )
        return super()._compute_metrics(batch, metrics, *args, **kwargs)
