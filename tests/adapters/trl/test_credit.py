"""The tensors that TRL makes of episodes: advantages, masks, and the alarm over log-probabilities."""

import importlib.metadata
import logging
import math

import gymnasium as gym
import numpy as np
import pytest
import torch
from probe_trainer import ProbeTrainer, assert_gradient_only_on_sampled_ids
from say_env import ENV_ID, SESSIONS
from trl import GRPOConfig

from adapters import trl
from adapters.credit import turn_advantages
from adapters.trl import _private
from aworld_gym.errors import ConfigError
from aworld_gym.types import Outcome
from aworld_gym.wrappers import RewardShaping


@pytest.fixture
def batch(taught, tmp_path, small):
    """A function that makes a trainer and lets it generate and score one batch: (trainer, rows, tensors)."""

    def batch(env=None, *, credit="episode", rollout=None, reward_funcs=None, **settings):
        env = env or RewardShaping(gym.make(ENV_ID), "say_env:by_answer", scale=1.0)
        parts = trl.spec(env, tasks=8, rollout={"retries": 0, "max_turn_tokens": 40, **(rollout or {})})
        trainer = ProbeTrainer(
            str(taught),
            reward_funcs or parts.reward_funcs,
            GRPOConfig(str(tmp_path), **small | settings),
            parts.train_dataset,
            rollout_func=parts.rollout_func,
            credit=credit,
        )
        trainer.model.train()
        rows = next(iter(trainer.get_train_dataloader()))
        return trainer, rows, trainer._generate_and_score_completions(rows)

    return batch


def expected_advantages(rewards, valid, scale, size=4):
    """Recomputed from scratch, as if invalid rows had never been."""
    rewards, out = np.array(rewards, dtype=float), np.zeros(len(rewards))
    spread = np.std(rewards[valid], ddof=1)
    for start in range(0, len(rewards), size):
        index = [k for k in range(start, start + size) if valid[k]]
        if len(index) < 2:
            continue
        group = rewards[index]
        divisor = {"none": 1.0, "group": np.std(group, ddof=1) + 1e-4, "batch": spread + 1e-4}[scale]
        out[index] = (group - group.mean()) / divisor
    return out


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_invalid_rows_are_out_of_loss_and_baseline(batch, scale, caplog):
    SESSIONS.reset(broken=lambda number: number in (1, 4, 5, 6))
    trainer, rows, tensors = batch(scale_rewards=scale)
    valid = np.array([row["env_valid"] for row in rows])
    rewards = [row["env_reward"] for row in rows]
    assert sum(~valid) == 4 and len({round(r, 6) for r, v in zip(rewards, valid, strict=True) if v}) > 1
    expected = expected_advantages(rewards, valid, scale)
    assert tensors["advantages"].tolist() == pytest.approx(expected.tolist(), abs=1e-4)
    assert tensors["advantages"][torch.tensor(~valid)].tolist() == [0.0] * 4
    trained = (tensors["completion_mask"] * tensors["tool_mask"]).sum(1)
    assert (trained[torch.tensor(~valid)] == 0).all() and (trained[torch.tensor(valid)] > 0).all()
    assert tensors["num_items_in_batch"] == trained.sum()
    assert "4 of 8 episodes failed with their infrastructure" in caplog.text
    assert trainer._metrics["train"]["env/invalid"] == [0.5]


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_step_credit_gives_each_turn_its_own(batch, scale):
    SESSIONS.reset(broken=lambda number: number == 2)
    _, rows, tensors = batch(credit="step", scale_rewards=scale)
    rewards = [row["turn_rewards"] if row["env_valid"] else None for row in rows]
    assert sum(r is None for r in rewards) == 1 and max(len(r or ()) for r in rewards) > 1
    expected = turn_advantages(rewards, group_size=4, scale=scale)
    advantages = tensors["advantages"]
    assert advantages.shape == tensors["completion_ids"].shape
    for k, (row, values) in enumerate(zip(rows, expected, strict=True)):
        rebuilt = torch.zeros(advantages.size(1))
        for (start, stop), value in zip(row["turn_spans"], values, strict=True):
            assert tensors["tool_mask"][k, start:stop].all() and tensors["completion_ids"][k, stop - 1] != 0
            rebuilt[start:stop] = value
        assert torch.allclose(advantages[k], rebuilt, atol=1e-6)
        assert (advantages[k][tensors["tool_mask"][k] == 0] == 0).all()


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_step_credit_of_final_rewards_is_episode_credit(batch, scale, monkeypatch):
    _, rows, tensors = batch(gym.make(ENV_ID), credit="step", scale_rewards=scale, seed=3)
    totals = [row["env_reward"] for row in rows]
    assert len(set(totals)) == 2, "a batch with right and wrong answers is needed"
    expected = expected_advantages(totals, np.ones(8, dtype=bool), scale)
    for k, row in enumerate(rows):
        for start, stop in row["turn_spans"]:
            assert tensors["advantages"][k, start:stop].tolist() == pytest.approx(
                [expected[k]] * (stop - start), abs=1e-4
            )


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"loss_type": "grpo", "beta": 0.1},
        {"loss_type": "dr_grpo", "scale_rewards": "none", "num_iterations": 2},
        {"importance_sampling_level": "sequence", "loss_type": "grpo"},
        {"gradient_accumulation_steps": 2, "steps_per_generation": 4, "per_device_train_batch_size": 4},
    ],
)
def test_step_credit_trains_with_the_losses_of_trl(taught, tmp_path, small, probe, settings):
    env = RewardShaping(gym.make(ENV_ID), "say_env:by_answer", scale=1.0)
    result = trl.train(env, model=str(taught), output_dir=tmp_path, config=small | settings, credit="step")
    losses = [m["loss"] for m in result.metrics if "loss" in m]
    assert len(losses) == 2 and all(math.isfinite(loss) for loss in losses)
    assert all(m["grad_norm"] > 0 for m in result.metrics if "loss" in m)
    if not {"beta", "importance_sampling_level"} & set(settings):
        off_policy = bool({"num_iterations", "steps_per_generation"} & set(settings))
        assert assert_gradient_only_on_sampled_ids(probe(), clipped=off_policy) > 50


def test_step_credit_says_what_it_cannot_do(batch):
    with pytest.raises(ConfigError, match="multi_objective_aggregation='sum_then_normalize'"):
        batch(credit="step", multi_objective_aggregation="normalize_then_sum")
    with pytest.raises(ConfigError, match="one reward function, got 2"):
        batch(credit="step", reward_funcs=[lambda **k: [0.0], lambda **k: [0.0]])
    with pytest.raises(ConfigError, match="credit must be 'episode' or 'step', got 'token'"):
        batch(credit="token")


def test_further_reward_functions_add_to_the_envs(batch):
    from adapters.trl.rollouts import env_reward

    def length(completion_ids, **kwargs):
        return [len(ids) / 10 for ids in completion_ids]

    _, rows, tensors = batch(reward_funcs=[env_reward, length], scale_rewards="none")
    lengths = tensors["completion_mask"].sum(1).numpy() / 10
    totals = np.array([row["env_reward"] for row in rows]) + lengths
    assert tensors["advantages"].tolist() == pytest.approx(
        expected_advantages(totals, np.ones(8, bool), "none").tolist(), abs=1e-4
    )


def test_truncated_episodes_leave_the_loss_where_trl_is_told_so(batch):
    _, rows, tensors = batch(mask_truncated_completions=True, max_completion_length=24)
    cut = torch.tensor([row["env_metrics"][f"env/outcome/{Outcome.MAX_TOKENS}"] == 1.0 for row in rows])
    trained = (tensors["completion_mask"] * tensors["tool_mask"]).sum(1)
    assert cut.any() and (trained[cut] == 0).all() and (trained[~cut] > 0).all()
    assert all(row["env_valid"] for row in rows), "they still count in the baseline"


def test_the_gap_of_log_probabilities_is_nothing(batch):
    trainer, rows, tensors = batch()
    assert trainer._metrics["train"]["sampling/logprob_gap/max"][0] < 1e-4 and trainer.alarm.warnings == 0
    known = tensors["sampling_per_token_logps"]
    assert torch.equal(known == 0, tensors["completion_mask"] * tensors["tool_mask"] == 0)
    assert trainer.alarm.threshold == 1e-3


def test_rows_whose_log_probabilities_are_not_known_are_left_to_trl(batch, monkeypatch):
    original = _private.TrainerSampler.__call__

    def sampler(self, prompts, limits):
        outputs = original(self, prompts, limits)
        outputs[0][1][0] = math.nan
        return outputs

    monkeypatch.setattr(_private.TrainerSampler, "__call__", sampler)
    trainer, rows, tensors = batch()
    trained = (tensors["completion_mask"] * tensors["tool_mask"]).bool()
    unknown = tensors["sampling_per_token_logps"].isnan()
    assert unknown.any(1).sum() < 8 and torch.equal(unknown[0], trained[0])
    assert trainer._metrics["train"]["sampling/logprob_gap/mean"][0] < 1e-4


def stale_weights(trainer, original):
    def generate(*args, **kwargs):
        with torch.no_grad():
            saved = trainer.model.model.norm.weight.clone()
            trainer.model.model.norm.weight.mul_(0.9)
            try:
                return original(*args, **kwargs)
            finally:
                trainer.model.model.norm.weight.copy_(saved)

    return generate


def shifted_rows(trainer, original):
    def generate(*args, **kwargs):
        ids, logprobs = original(*args, **kwargs)
        return ids[1:] + ids[:1], logprobs

    return generate


@pytest.mark.parametrize("fault", [stale_weights, shifted_rows])
def test_the_alarm_sees_what_silently_ruins_training(taught, tmp_path, small, probe, caplog, monkeypatch, fault):
    original = ProbeTrainer._generate_single_turn
    monkeypatch.setattr(
        ProbeTrainer,
        "_generate_single_turn",
        lambda self, *args, **kwargs: fault(self, lambda *a, **k: original(self, *a, **k))(*args, **kwargs),
    )
    result = trl.train(ENV_ID, model=str(taught), output_dir=tmp_path, config=small)
    assert probe().alarm.warnings == 2
    assert caplog.text.count("log-probabilities of sampling and of the trainer differ") == 2
    assert all(m["sampling/logprob_gap/mean"] > 1e-3 for m in result.metrics if "loss" in m)


def test_the_alarm_allows_for_low_precision(batch):
    trainer, *_ = batch(bf16=True)
    assert trainer.alarm.threshold == 0.05
    assert trainer._metrics["train"]["sampling/logprob_gap/mean"][0] < 0.05


def test_what_the_adapter_uses_of_trl_is_checked(monkeypatch, caplog):
    with caplog.at_level(logging.WARNING):
        assert _private.require_trl() in _private.TESTED and not caplog.records
        monkeypatch.setattr(importlib.metadata, "version", lambda name: "1.99.0")
        assert _private.require_trl() == "1.99.0"
    assert "trl 1.99.0 is not among the versions that its adapter is tested with (1.16.0)" in caplog.text
    monkeypatch.setattr(_private, "PRIVATE", ("_generate_in_a_new_way",))
    with pytest.raises(ConfigError, match="trl 1.99.0 lacks GRPOTrainer._generate_in_a_new_way"):
        _private.require_trl()
