"""Real optimiser steps of swift's own trainer on real envs, and what they leave."""

import json

import gymnasium as gym
import pytest
import torch
from say_env import ENV_ID
from swift_probe import (
    assert_gradient_only_on_sampled_ids,
    assert_trained_on_what_was_sampled,
    changed_weights,
    rows,
)
from transformers import AutoModelForCausalLM, AutoTokenizer

from adapters import swift
from adapters.credit import turn_advantages
from aworld_gym.toolchain import stats
from aworld_gym.trajectory import read_jsonl
from aworld_gym.wrappers import RewardShaping


def shaped(**kwargs):
    return RewardShaping(gym.make(ENV_ID, **kwargs), "say_env:by_answer", scale=1.0)


@pytest.fixture(params=["episode", "step"])
def credit(request):
    return request.param


def test_gaia_with_a_model_that_calls_tools(warm_start, tmp_path, small, probe, credit):
    before, env = stats(), gym.make("AWorld/Gaia-v0", preset="mini")
    small |= {"learning_rate": 1e-3, "max_completion_length": 300, "temperature": 0.9}
    result = swift.train(env, model=warm_start, output_dir=tmp_path, config=small, credit=credit)
    trainer = probe()
    assert trainer.state.global_step == 2 and len(trainer.steps) == 2
    assert assert_trained_on_what_was_sampled(trainer) > 32, "fewer than two turns an episode"
    assert assert_gradient_only_on_sampled_ids(trainer) > 50
    assert any(0 in mask[mask.index(1) :] for step in trainer.steps for _, mask in rows(step)), "no tool result"
    assert changed_weights(trainer) == set(trainer.first_weights)
    opened = stats().opened - before.opened
    assert opened == stats().closed - before.closed >= 16 == result.counts["episodes"]
    assert sum(len(e.steps) for e in read_jsonl(result.episodes)) > 32
    gaps = [m["sampling/logprob_gap/max"] for m in result.metrics if "loss" in m]
    assert len(gaps) == 2 and max(gaps) < 1e-4
    assert result.counts["answered"] > 0 and result.counts["invalid"] == 0
    if credit == "step":
        assert_turns_have_their_own_advantages(trainer)


def assert_turns_have_their_own_advantages(trainer):
    """The tensors hold, at each turn's sampled ids, what the env's rewards of that turn and later give."""
    for (samples, _), step in zip(trainer.batches, trainer.steps, strict=True):
        episodes = [sample.rollout_infos["played"] for sample in samples]
        expected = turn_advantages([e.trajectory.turn_rewards for e in episodes], group_size=4)
        for k, episode in enumerate(episodes):
            ids, mask = rows(step)[k]
            start, frame = len(ids) - len(episode.trajectory.response_ids), step.ids.size(1) - step.advantages.size(1)
            for (first, stop), value in zip(episode.trajectory.turns, expected[k], strict=True):
                assert all(mask[start + first : start + stop])
                found = step.advantages[k, start + first - frame : start + stop - frame].tolist()
                assert found == pytest.approx([value] * (stop - first), abs=1e-5)


def test_step_rewards_reach_the_loss_by_turns(taught, tmp_path, small, probe):
    swift.train(shaped(), model=taught, output_dir=tmp_path, config=small, credit="step")
    trainer = probe()
    assert_turns_have_their_own_advantages(trainer)
    several = [len(set(step.advantages[k][step.mask[k].bool()].tolist())) for step in trainer.steps for k in range(8)]
    assert max(several) > 1, "no episode whose turns differ"
    assert assert_gradient_only_on_sampled_ids(trainer) > 50


def test_what_a_run_leaves(taught, tmp_path, small, probe):
    small |= {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}
    result = swift.train(
        shaped(), model=str(taught), output_dir=tmp_path, config=small, rollout={"max_turn_tokens": 40}
    )
    trainer = probe()
    assert len(trainer.steps) == 4 and assert_trained_on_what_was_sampled(trainer) > 16
    episodes = list(read_jsonl(result.episodes))
    assert len(episodes) == 16 and all(e.valid and json.loads(e.spec)["id"] == ENV_ID for e in episodes)
    assert all(len(step.sampled["token_ids"]) <= 40 for e in episodes for step in e.steps)
    groups = {}
    for episode in episodes:
        groups.setdefault(episode.group_id, []).append(episode)
    assert sorted(len(g) for g in groups.values()) == [4] * 4
    for group in groups.values():
        assert len({(e.task_id, e.seed) for e in group}) == 1 and sorted(e.sample for e in group) == [0, 1, 2, 3]
    assert {g.split("/")[0] for g in groups} == {"0", "1"} and len({e.seed for e in episodes}) == 4
    model, tokenizer = (
        AutoModelForCausalLM.from_pretrained(result.checkpoint),
        AutoTokenizer.from_pretrained(result.checkpoint),
    )
    assert tokenizer.chat_template and torch.equal(
        model.get_input_embeddings().weight, trainer.model.get_input_embeddings().weight
    )
    assert json.loads((result.checkpoint / "args.json").read_text())["template"] is None
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 2] and lines == result.metrics
    first = [e for e in episodes if e.group_id.startswith("0/")]
    assert lines[0]["reward"] == pytest.approx(sum(e.total_reward for e in first) / 8)
    assert lines[0]["env/score"] == pytest.approx(sum(e.score for e in first) / 8)
    assert lines[0]["env/invalid"] == 0 and lines[0]["env/reward/by_answer"] > 0
    assert lines[0]["time/generate_s"] > 0 and lines[0]["time/env_s"] > 0


def test_evaluation_during_training(taught, tmp_path, small):
    small |= {"eval_steps": 1, "per_device_eval_batch_size": 4}
    result = swift.train(ENV_ID, model=taught, output_dir=tmp_path, config=small, eval_env=shaped(), eval_tasks=4)
    evaluations = [m for m in result.metrics if "eval_reward" in m]
    assert [m["step"] for m in evaluations] == [1, 2]
    assert all("eval_env/score" in m and m["eval_env/reward/by_answer"] > 0 for m in evaluations)
    episodes = list(read_jsonl(tmp_path / "eval_episodes.jsonl"))
    assert len(episodes) == 8 and len({e.seed for e in episodes}) == 4, "the same held-out tasks each time"
    assert min(e.seed for e in episodes) >= 10**15 and len(list(read_jsonl(result.episodes))) == 16


def test_resume_goes_on_where_it_stopped(taught, tmp_path, small):
    small |= {"save_strategy": "steps", "save_steps": 1, "max_steps": 1}
    swift.train(shaped(), model=taught, output_dir=tmp_path, config=small)
    again = swift.train(
        shaped(), model=taught, output_dir=tmp_path, config=small | {"max_steps": 2}, resume_from_checkpoint=True
    )
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "loss" in line] == [1, 2] and again.counts["episodes"] == 8
    episodes = list(read_jsonl(again.episodes))
    assert [e.group_id.split("/")[0] for e in episodes] == ["0"] * 8 + ["1"] * 8


def test_a_run_is_reproducible(taught, tmp_path, small):
    small |= {"max_steps": 1}
    runs = [swift.train(shaped(), model=taught, output_dir=tmp_path / name, config=small) for name in "ab"]
    weights = [AutoModelForCausalLM.from_pretrained(r.checkpoint).state_dict() for r in runs]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_a_prompt_that_leaves_no_room_is_said(taught, tmp_path, small, caplog):
    result = swift.train(ENV_ID, model=taught, output_dir=tmp_path, config=small | {"max_steps": 1}, max_length=15)
    assert (
        "8 of 8 prompts (of up to 19 ids) leave no room for a turn; set max_length higher, which is 15" in caplog.text
    )
    assert result.counts["max_tokens"] == 8 and result.metrics[0]["env/sampled_tokens"] == 0


def test_sampled_logprobs_are_the_policys_own_whatever_the_sampling_options(taught, tmp_path, small, probe):
    small |= {"temperature": 0.6, "top_k": 5, "top_p": 0.9, "repetition_penalty": 1.1, "max_steps": 1}
    result = swift.train(ENV_ID, model=taught, output_dir=tmp_path, config=small)
    assert result.metrics[0]["sampling/logprob_gap/max"] < 1e-4
    assert assert_trained_on_what_was_sampled(probe()) >= 8


def test_lora_and_the_alarm(taught, tmp_path, small, probe, caplog):
    lora = {"tuner_type": "lora", "lora_rank": 4, "lora_dropout": 0.9, "target_modules": ["q_proj", "v_proj"]}
    small |= {"max_steps": 2, "learning_rate": 0.1}
    result = swift.train(ENV_ID, model=taught, output_dir=tmp_path, config=small | lora, logprob_threshold=1e-5)
    changed = changed_weights(probe())
    assert changed and all("lora_" in name for name in changed)
    assert (result.checkpoint / "adapter_config.json").exists()
    assert AutoTokenizer.from_pretrained(result.checkpoint).chat_template
    gaps = [m["sampling/logprob_gap/mean"] for m in result.metrics if "loss" in m]
    assert gaps[0] < 1e-5 < gaps[1], "dropout changes nothing while the adapter is zero, and then it does"
    assert "log-probabilities of sampling and of the trainer differ" in caplog.text
