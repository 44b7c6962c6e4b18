"""Tools that hang, servers that die, envs that cannot start: training goes on, and the counts say what happened."""

import gymnasium as gym
import mortal_env
import pytest
import torch
from say_env import ENV_ID, SESSIONS
from swift_probe import ProbeTrainer, assert_trained_on_what_was_sampled, changed_weights, rows

# Below swift's own import, which the adapter guards.
from adapters import swift
from adapters.credit import turn_advantages
from aworld_gym.trajectory import read_jsonl
from aworld_gym.wrappers import RewardShaping


def shaped(**kwargs):
    return RewardShaping(gym.make(ENV_ID, **kwargs), "say_env:by_answer", scale=1.0)


def test_a_hung_tool_and_a_server_that_cannot_start(taught, tmp_path, small, caplog):
    SESSIONS.reset(slow=lambda n: 3.0 if n == 1 else 0.0, broken=lambda n: n in (3, 5, 6, 7, 8, 9))
    env = gym.make(ENV_ID, limits={"call_timeout_s": 0.5})
    result = swift.train(env, model=taught, output_dir=tmp_path, config=small, rollout={"retries": 0})
    assert result.metrics[-1]["step"] == 2, "training went on"
    assert result.counts["invalid"] == 6 == result.counts["infra_failure"] and result.counts["episodes"] == 16
    assert sum(m["env/invalid"] for m in result.metrics if "loss" in m) == pytest.approx(6 / 8)
    assert "are left out of loss and baseline" in caplog.text and "told to be broken" in caplog.text
    assert sum(not e.valid for e in read_jsonl(result.episodes)) == 6


def test_a_deadline_ends_what_no_timeout_of_a_tool_ends(taught, tmp_path, small):
    SESSIONS.reset(slow=lambda n: 4.0)
    env = gym.make(ENV_ID, limits={"call_timeout_s": 60})
    small |= {"max_steps": 1, "per_device_train_batch_size": 4}
    result = swift.train(env, model=taught, output_dir=tmp_path, config=small, rollout={"deadline_s": 2.0})
    assert result.counts["timeout"] >= 1 and result.counts["invalid"] == 0
    assert result.metrics[-1]["step"] == 1


def test_an_episode_that_begins_again_is_trained_on_from_its_last_beginning(taught, tmp_path, small, probe):
    deaths = tmp_path / "deaths"
    deaths.mkdir()
    for k in range(2):
        (deaths / str(k)).touch()
    env = gym.make(mortal_env.ENV_ID, deaths=str(deaths))
    small |= {"max_steps": 1}
    result = swift.train(env, model=taught, output_dir=tmp_path / "run", config=small, rollout={"retries": 3})
    assert result.counts["retried"] == 2 and result.counts["invalid"] == 0
    trainer = probe()
    assert assert_trained_on_what_was_sampled(trainer) >= 8
    again = [s for s in trainer.batches[0][0] if s.rollout_infos["played"].attempts > 1]
    assert again and all(s.messages[1]["content"] == list(_trajectory(s).response_ids) for s in again)
    assert [list(_trajectory(s).prompt_ids) for s in again] == [s.messages[0]["content"] for s in again]


def test_servers_that_die(taught, tmp_path, small):
    small |= {"per_device_train_batch_size": 4, "max_steps": 1}
    result = swift.train("Test/SayStdio-v0", model=taught, output_dir=tmp_path, config=small)
    died = [e for e in read_jsonl(result.episodes) if not e.valid]
    assert died and all("server_died" in e.error for e in died)
    assert {e.attempt for e in died} == {0, 1}, "each was tried again"
    assert result.counts["episodes"] == 4 and result.counts["retried"] >= 1 and result.metrics[-1]["step"] == 1


@pytest.mark.parametrize("loss_type", ["grpo", "dapo"])
def test_no_env_at_all(taught, tmp_path, small, probe, caplog, loss_type):
    SESSIONS.reset(broken=lambda number: True)
    small |= {"max_steps": 1, "per_device_train_batch_size": 4, "weight_decay": 0.0, "loss_type": loss_type}
    result = swift.train(ENV_ID, model=taught, output_dir=tmp_path, config=small, rollout={"retries": 0})
    assert result.counts["invalid"] == 4 and changed_weights(probe()) == set()
    assert result.metrics[0]["loss"] == 0.0, "not NaN"
    assert [r.levelname for r in caplog.records if "are left out" in r.getMessage()] == ["ERROR"]


@pytest.mark.parametrize(
    ("credit", "settings"),
    [
        ("episode", {}),
        ("episode", {"scale_rewards": "none"}),
        ("episode", {"scale_rewards": "batch"}),
        ("episode", {"advantage_estimator": "rloo", "beta": 0.04}),
        ("step", {}),
    ],
)
def test_valid_siblings_are_as_in_a_run_without_the_failed_row(taught, tmp_path, small, probe, credit, settings):
    SESSIONS.reset(broken=lambda number: number in (1, 4, 5, 6))
    small |= {"max_steps": 1, **settings}
    swift.train(shaped(), model=taught, output_dir=tmp_path, config=small, credit=credit, rollout={"retries": 0})
    trainer = probe()
    ((samples, (batch,)),), (step,) = trainer.batches, trainer.steps
    valid = [s.rollout_infos["played"].episode.valid for s in samples]
    assert sorted(map(sum, (valid[:4], valid[4:]))) != [4, 4] and sum(valid) == 4
    assert [any(mask) for _, mask in rows(step)] == valid, "an invalid row has no trained id"
    assert not step.advantages[~torch.tensor(valid)].any()
    if credit == "step":
        for start in (0, 4):
            group = [s for s, ok in zip(samples[start : start + 4], valid[start : start + 4], strict=True) if ok]
            if group:
                rewards = [_trajectory(s).turn_rewards for s in group]
                assert _by_turn(step, samples, group) == _close(turn_advantages(rewards, group_size=len(group)))
        return
    assert _by_episode(step, samples, valid) == pytest.approx(_without(trainer, samples, valid, batch), abs=1e-5)


def test_envs_are_closed_when_generation_fails(taught, tmp_path, small, monkeypatch, probe):
    sample, calls = ProbeTrainer._sample, []

    def fails(self, prompts, config):
        calls.append(len(prompts))
        if len(calls) == 2:
            raise RuntimeError("the sampler is out of memory")
        return sample(self, prompts, config)

    monkeypatch.setattr(ProbeTrainer, "_sample", fails)
    with pytest.raises(RuntimeError, match="out of memory"):
        swift.train(ENV_ID, model=taught, output_dir=tmp_path, config=small)
    assert SESSIONS.started == 8 and calls[0] == 8  # that they are closed is the fixture's check


# ----------------------------------------------------------------------------------------------------------------------


def _trajectory(sample):
    return sample.rollout_infos["played"].trajectory


def _close(values):
    return [pytest.approx(row, abs=1e-5) for row in values]


def _by_turn(step, samples, group):
    """Of each sample of a group the advantage of each turn, as it stands in the tensors."""
    out, index = [], {id(s): k for k, s in enumerate(samples)}
    for sample in group:
        values = step.advantages[index[id(sample)]][step.mask[index[id(sample)]].bool()].tolist()
        row = []
        for start, stop in _trajectory(sample).turns:
            turn, values = values[: stop - start], values[stop - start :]
            assert len(set(turn)) == 1
            row.append(turn[0])
        out.append(row)
    return out


def _by_episode(step, samples, valid):
    out = []
    for k, ok in enumerate(valid):
        if ok:
            (value,) = set(step.advantages[k][step.mask[k].bool()].tolist())
            out.append(value)
    return out


def _without(trainer, samples, valid, batch):
    """What swift's own function gives for a batch that never had the failed rows (groups may differ in size)."""
    from swift.rl_core.advantage import compute_advantages

    keep = torch.tensor(valid)
    rewards = torch.tensor([[s.rollout_infos["played"].episode.total_reward] for s in samples])
    kl = None
    if trainer.kl_in_reward and trainer.beta:
        grpo = batch["grpo_batch"]
        kl = ((grpo.old_per_token_logps - grpo.ref_per_token_logps) * grpo.completion_mask).sum(-1)
    if trainer.scale_rewards == "batch":
        kept = rewards[keep][:, 0]
        means = torch.cat(
            [rewards[g : g + 4][keep[g : g + 4]].mean().expand(int(keep[g : g + 4].sum())) for g in (0, 4)]
        )
        return ((kept - means) / (kept.std() + 1e-4)).tolist()
    out = []
    for start in (0, 4):
        group = slice(start, start + 4)
        n = int(keep[group].sum())
        if not n:
            continue
        advantages, _ = compute_advantages(
            rewards[group][keep[group]],
            trainer.reward_weights,
            n,
            advantage_estimator=trainer.advantage_estimator,
            scale_rewards=trainer.scale_rewards,
            kl_in_reward=trainer.kl_in_reward,
            beta=trainer.beta,
            kl_values=None if kl is None else kl[group][keep[group]],
        )
        out += advantages.tolist()
    return out
