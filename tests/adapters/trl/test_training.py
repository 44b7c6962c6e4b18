"""Real optimiser steps of TRL's own trainer on a real env, and what they leave."""

import json
import shutil
import warnings

import gymnasium as gym
import pytest
import torch
from probe_trainer import (
    StockProbeTrainer,
    assert_gradient_only_on_sampled_ids,
    assert_trained_on_what_was_sampled,
    changed_weights,
)
from say_env import ENV_ID, SESSIONS
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig

from adapters import trl
from aworld_gym.toolchain import stats
from aworld_gym.trajectory import read_jsonl
from aworld_gym.types import Outcome
from aworld_gym.wrappers import RewardShaping


def shaped():
    return RewardShaping(gym.make(ENV_ID), "say_env:by_answer", scale=1.0)


def test_sampled_ids_are_trained_ids(taught, tmp_path, small, probe):
    before, env = stats(), shaped()
    small |= {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "max_steps": 3}
    result = trl.train(env, model=str(taught), output_dir=tmp_path, config=small, rollout={"max_turn_tokens": 40})
    trainer = probe()
    assert trainer.state.global_step == 3 and len(trainer.steps) == 6
    assert assert_trained_on_what_was_sampled(trainer) > 24
    assert assert_gradient_only_on_sampled_ids(trainer) > 100
    assert any((x.inputs["tool_mask"] == 0).any() for x in trainer.steps), "no tool result in any row"
    assert changed_weights(trainer) == set(trainer.first_weights)
    opened = stats().opened - before.opened
    assert opened == stats().closed - before.closed == 24 == result.counts["episodes"]
    assert env.unwrapped.toolchain.opened is False, "the env that was passed in is not used"


def test_what_a_run_leaves(taught, tmp_path, small):
    seen = []

    class Watch(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            seen.append(len((tmp_path / "episodes.jsonl").read_text().splitlines()))

    result = trl.train(shaped(), model=str(taught), output_dir=tmp_path, config=small, callbacks=[Watch()])
    assert seen == [8, 16], "episodes are written as they finish"
    episodes = list(read_jsonl(result.episodes))
    assert len(episodes) == 16 and all(e.valid and json.loads(e.spec)["id"] == ENV_ID for e in episodes)
    groups = {}
    for episode in episodes:
        groups.setdefault(episode.group_id, []).append(episode)
    assert sorted(len(g) for g in groups.values()) == [4] * 4
    for group in groups.values():
        assert len({(e.task_id, e.seed) for e in group}) == 1 and sorted(e.sample for e in group) == [0, 1, 2, 3]
    assert {g.split("/")[0] for g in groups} == {"0", "1"}, "the group's name begins with its step"
    assert len({e.seed for e in episodes}) == 4, "each group plays a new task"
    model, tokenizer = (
        AutoModelForCausalLM.from_pretrained(result.checkpoint),
        AutoTokenizer.from_pretrained(result.checkpoint),
    )
    assert tokenizer.chat_template and model.num_parameters() > 0
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 2] and "train_loss" in lines[-1]
    for line, logged in zip(lines, result.metrics, strict=True):
        assert line == logged
    first = [e for e in episodes if e.group_id.startswith("0/")]
    assert lines[0]["reward"] == pytest.approx(sum(e.total_reward for e in first) / 8)
    assert lines[0]["env/score"] == pytest.approx(sum(e.score for e in first) / 8)
    assert lines[0]["env/turns"] == pytest.approx(sum(len(e.steps) for e in first) / 8)
    assert lines[0]["env/reward/by_answer"] > 0 and lines[0]["env/invalid"] == 0
    outcomes = sum(lines[0][f"env/outcome/{o}"] for o in Outcome if o.valid)
    assert outcomes == pytest.approx(1.0) and result.counts["answered"] > 0


def test_only_the_warnings_about_which_nobody_can_do_anything_are_left_out(taught, tmp_path, small):
    class Warns(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            warnings.warn("something else is deprecated", FutureWarning, stacklevel=1)

    settings = {name: value for name, value in small.items() if name != "gradient_checkpointing"}
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        trl.train(ENV_ID, model=str(taught), output_dir=tmp_path, config=settings, callbacks=[Warns()])
    future = {str(w.message) for w in shown if issubclass(w.category, FutureWarning)}
    assert future == {"something else is deprecated"}


def test_the_parts_in_a_stock_trainer(taught, tmp_path, small):
    parts = trl.spec(ENV_ID, tasks=4, seed=3, rollout={"max_turn_tokens": 40}, episodes=tmp_path / "e.jsonl")
    trainer = StockProbeTrainer(
        str(taught),
        parts.reward_funcs,
        GRPOConfig(str(tmp_path), **small),
        parts.train_dataset,
        rollout_func=parts.rollout_func,
    )
    trainer.train()
    parts.rollout_func.close()
    assert assert_trained_on_what_was_sampled(trainer) > 16
    assert_gradient_only_on_sampled_ids(trainer)
    assert {e.seed for e in read_jsonl(tmp_path / "e.jsonl")} == set(range(3 * 10**9, 3 * 10**9 + 4))


def test_a_run_is_reproducible(taught, tmp_path, small):
    runs = [trl.train(shaped(), model=str(taught), output_dir=tmp_path / name, config=small) for name in "ab"]
    weights = [AutoModelForCausalLM.from_pretrained(r.checkpoint).state_dict() for r in runs]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    clock = ("time/", "train_", "step_time")
    kept = [[{k: v for k, v in m.items() if not k.startswith(clock)} for m in r.metrics] for r in runs]
    assert kept[0] == kept[1]


def test_resume_goes_on_where_it_stopped(taught, tmp_path, small):
    small |= {"max_steps": 4, "save_strategy": "steps", "save_steps": 2}
    whole = trl.train(shaped(), model=str(taught), output_dir=tmp_path / "whole", config=small)
    broken = tmp_path / "broken"
    shutil.copytree(tmp_path / "whole", broken)  # as if killed after step 3: a checkpoint, and lines beyond it
    for name in ("final", "checkpoint-4"):
        shutil.rmtree(broken / name)
    lines = (broken / "metrics.jsonl").read_text().splitlines(keepends=True)
    (broken / "metrics.jsonl").write_text("".join(lines[:3]) + lines[3][:20])
    resumed = trl.train(shaped(), model=str(taught), output_dir=broken, config=small, resume_from_checkpoint=True)
    steps = [json.loads(line)["step"] for line in (broken / "metrics.jsonl").read_text().splitlines()]
    assert steps == [1, 2, 3, 4, 4]
    one, other = (AutoModelForCausalLM.from_pretrained(r.checkpoint).state_dict() for r in (whole, resumed))
    assert all(torch.allclose(one[name], other[name], atol=1e-6) for name in one)
    seeds = [e.seed for e in read_jsonl(resumed.episodes)]
    assert len(seeds) == 48 and set(seeds) == {e.seed for e in read_jsonl(whole.episodes)}, "16 of 32 played again"


def test_another_runs_episodes_are_not_mixed_in(taught, tmp_path, small):
    (tmp_path / "episodes.jsonl").write_text("{}\n")
    with pytest.raises(ValueError, match="of an earlier run; pass resume_from_checkpoint=True"):
        trl.train(ENV_ID, model=str(taught), output_dir=tmp_path, config=small)


def test_lora(taught, tmp_path, small, probe):
    from peft import LoraConfig, PeftModel

    lora = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    result = trl.train(shaped(), model=str(taught), output_dir=tmp_path, config=small, peft_config=lora)
    trainer = probe()
    assert assert_trained_on_what_was_sampled(trainer) > 8
    changed = changed_weights(trainer)
    assert changed and all("lora_" in name for name in changed)
    assert (result.checkpoint / "adapter_config.json").exists()
    PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(taught), result.checkpoint)
    assert max(m["sampling/logprob_gap/mean"] for m in result.metrics if "loss" in m) < 1e-5


def test_evaluation_during_training(taught, tmp_path, small):
    result = trl.train(
        ENV_ID,
        model=str(taught),
        output_dir=tmp_path,
        config=small,
        eval_env=shaped(),
        eval_tasks=5,
        eval_steps=1,
        per_device_eval_batch_size=4,
    )
    evaluations = [m for m in result.metrics if "eval_reward" in m]
    assert [m["step"] for m in evaluations] == [1, 2]
    assert all("eval_env/score" in m and m["eval_env/reward/by_answer"] > 0 for m in evaluations)
    episodes = list(read_jsonl(tmp_path / "eval_episodes.jsonl"))
    assert len(episodes) == 10 and len({e.seed for e in episodes}) == 5, "the same held-out tasks each time"
    assert min(e.seed for e in episodes) >= 10**15 and len(list(read_jsonl(result.episodes))) == 16


def test_a_hung_tool_and_a_server_that_cannot_start(taught, tmp_path, small, caplog):
    SESSIONS.reset(slow=lambda n: 3.0 if n == 1 else 0.0, broken=lambda n: n in (3, 5, 6, 7, 8, 9))
    env = gym.make(ENV_ID, limits={"call_timeout_s": 0.5})
    result = trl.train(
        env, model=str(taught), output_dir=tmp_path, config=small, rollout={"retries": 0, "straggler_s": 0.1}
    )
    assert result.metrics[-1]["step"] == 2, "training went on"
    assert result.counts["invalid"] == 6 == result.counts["infra_failure"] and result.counts["episodes"] == 16
    assert sum(m["env/invalid"] for m in result.metrics if "loss" in m) == pytest.approx(6 / 8)
    assert "are left out of loss and baseline" in caplog.text and "told to be broken" in caplog.text
    assert sum(not e.valid for e in read_jsonl(result.episodes)) == 6


def test_servers_that_die(taught, tmp_path, small):
    small |= {"per_device_train_batch_size": 4, "max_steps": 1}
    result = trl.train("Test/SayStdio-v0", model=str(taught), output_dir=tmp_path, config=small)
    episodes = list(read_jsonl(result.episodes))
    died = [e for e in episodes if not e.valid]
    assert died and all("server_died" in e.error for e in died)
    assert result.counts["episodes"] == 4 and result.counts["retried"] >= 1
    assert {e.attempt for e in died} == {0, 1}, "each was tried again"
    assert result.metrics[-1]["step"] == 1


def test_no_env_at_all(taught, tmp_path, small, probe, caplog):
    SESSIONS.reset(broken=lambda number: True)
    small |= {"max_steps": 1, "per_device_train_batch_size": 4, "weight_decay": 0.0}
    result = trl.train(ENV_ID, model=str(taught), output_dir=tmp_path, config=small, rollout={"retries": 0})
    assert result.counts["invalid"] == 4 and changed_weights(probe()) == set()
    assert [r.levelname for r in caplog.records if "are left out" in r.getMessage()] == ["ERROR"]
