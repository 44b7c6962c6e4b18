"""The advantage estimators, on tensors as verl hands them over."""

import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage, get_adv_estimator_fn
from verl.trainer.ppo.v1 import get_trainer_cls

from adapters.credit import turn_advantages
from adapters.verl import plugin

EPISODE, STEP = (get_adv_estimator_fn(plugin.ESTIMATORS[credit]) for credit in ("episode", "step"))


def batch(episodes, width=40):
    """Tensors of episodes, each a list of turn rewards or None for an invalid one, with seven ids a turn."""
    rewards, mask = torch.zeros(len(episodes), width), torch.zeros(len(episodes), width, dtype=torch.long)
    for row, turns in enumerate(episodes):
        for k, reward in enumerate(turns or ()):
            mask[row, 10 * k : 10 * k + 7] = 1
            rewards[row, 10 * k + 6] = reward
    return rewards, mask


def groups(*sizes):
    return np.array([f"uid{k}" for k, size in enumerate(sizes) for _ in range(size)], dtype=object)


turns = st.lists(st.floats(-2, 2, width=16), min_size=1, max_size=4)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.lists(turns, min_size=2, max_size=5), min_size=1, max_size=3), st.data())
def test_an_invalid_row_changes_nothing_for_its_siblings(valid, data):
    """With failed rows put in anywhere, the others' advantages are those of a run without them, for both credits."""
    index, episodes = [], []
    for k, group in enumerate(valid):
        with_failures = list(group)
        for _ in range(data.draw(st.integers(0, 2))):
            with_failures.insert(data.draw(st.integers(0, len(with_failures))), None)
        episodes += with_failures
        index += [f"uid{k}"] * len(with_failures)
    order = data.draw(st.permutations(range(len(episodes))))  # verl balances lengths: groups are not consecutive
    episodes, index = [episodes[i] for i in order], np.array([index[i] for i in order], dtype=object)
    kept = [i for i, episode in enumerate(episodes) if episode is not None]
    for estimator in (EPISODE, STEP):
        rewards, mask = batch(episodes)
        advantages, returns = estimator(token_level_rewards=rewards, response_mask=mask, index=index, config=None)
        alone, _ = estimator(
            token_level_rewards=rewards[kept], response_mask=mask[kept], index=index[kept], config=None
        )
        assert torch.allclose(advantages[kept], alone, atol=1e-6) and torch.equal(advantages, returns)
        assert not advantages[mask == 0].any() and advantages.isfinite().all()


def test_episode_credit_is_verls_grpo():
    episodes = [[0.0, 1.0], [0.5], [0.1, 0.2, 0.3], [0.0]] * 2
    rewards, mask = batch(episodes)
    index = groups(4, 4)
    for normalise in (True, False):
        config = OmegaConf.create({"norm_adv_by_std_in_grpo": normalise})
        ours, _ = EPISODE(token_level_rewards=rewards, response_mask=mask, index=index, config=config)
        verls, _ = compute_grpo_outcome_advantage(rewards, mask, index, norm_adv_by_std_in_grpo=normalise)
        assert torch.allclose(ours, verls) and ours.abs().sum() > 0


def test_step_credit_is_the_shared_formula():
    episodes = [[0.0, 1.0], [0.5], [0.1, 0.2, 0.3], [0.0, -1.0, 0.0, 1.0]]
    rewards, mask = batch(episodes)
    for normalise, scale in ((True, "group"), (False, "none")):
        config = OmegaConf.create({"norm_adv_by_std_in_grpo": normalise})
        ours, _ = STEP(token_level_rewards=rewards, response_mask=mask, index=groups(4), config=config)
        expected = turn_advantages(episodes, group_size=4, scale=scale)
        for row, values in enumerate(expected):
            for k, value in enumerate(values):
                assert torch.allclose(ours[row, 10 * k : 10 * k + 7], torch.tensor(value), atol=1e-6)
                assert not ours[row, 10 * k + 7 : 10 * k + 10].any(), "no advantage at appended ids"


def test_credits_agree_where_only_the_last_turn_is_rewarded():
    rng = random.Random(0)
    episodes = [[0.0] * rng.randrange(4) + [rng.random()] for _ in range(6)]
    rewards, mask = batch(episodes)
    one, _ = EPISODE(token_level_rewards=rewards, response_mask=mask, index=groups(6))
    other, _ = STEP(token_level_rewards=rewards, response_mask=mask, index=groups(6))
    assert torch.allclose(one, other, rtol=1e-2)


def test_rewards_survive_where_verl_rejects_the_ids_that_they_stand_at():
    rewards, mask = batch([[0.5, 1.0], [0.0, 0.25]])
    whole, _ = STEP(token_level_rewards=rewards, response_mask=mask, index=groups(2))
    mask[:, [6, 16]] = 0
    rest, _ = STEP(token_level_rewards=rewards, response_mask=mask, index=groups(2))
    assert torch.equal(rest, whole * mask) and rest.any()


@pytest.mark.parametrize("estimator", [EPISODE, STEP])
def test_a_row_that_is_alone_has_no_baseline(estimator):
    """GRPO of verl gives the only row of a group its raw reward as advantage."""
    rewards, mask = batch([[1.0], None, None])
    advantages, _ = estimator(token_level_rewards=rewards, response_mask=mask, index=groups(3))
    assert not advantages.any()


def test_the_trainer_is_verls_own_by_another_name():
    assert get_trainer_cls(plugin.TRAINER) is plugin.EnvTrainer
    changed = {name for name in vars(plugin.EnvTrainer) if not name.startswith("__")} - {"_abc_impl"}
    assert changed == set(plugin.PRIVATE), "what is overridden is what the check of the version looks for"
