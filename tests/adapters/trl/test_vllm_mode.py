"""TRL's vLLM modes, with the engine replaced: the trainer, its corrections and the adapter are the real ones.

The stand-in samples with a local model and answers as ``trl.generation.VLLMGeneration`` does. What vLLM itself does
is for a machine that has it.
"""

import gymnasium as gym
import pytest
import torch
from probe_trainer import assert_trained_on_what_was_sampled
from say_env import ENV_ID, SESSIONS
from trl.trainer import grpo_trainer

from adapters import trl
from aworld_gym.policies.transformers import TransformersGenerator
from aworld_gym.wrappers import RewardShaping


class Engine:
    """Holds its own copy of the weights, as an engine does."""

    synchronises = True
    unknown = staticmethod(lambda row, place: row == place == 0)
    """Ids whose log-probability the engine reports as None, as vLLM does for a NaN."""
    made = []

    def __init__(self, model, max_completion_length, generation_kwargs, temperature, **options):
        self.source, self.model = model, type(model)(model.config)  # a deep copy would share TRL's patched forward
        self.model.load_state_dict(model.state_dict())
        self.max_completion_length, self.generation_kwargs = max_completion_length, generation_kwargs or {}
        self.temperature, self.options, self.limits, self.syncs = temperature, options, [], 0
        Engine.made.append(self)

    def sync_weights(self):
        self.syncs += 1
        if self.synchronises:
            self.model.load_state_dict(self.source.state_dict())

    def generate(self, prompts, images, num_generations, profiler=None):
        assert images is None and num_generations == 1
        self.limits.append(self.max_completion_length)
        sampler = TransformersGenerator(
            self.model,
            stop_ids=self.generation_kwargs["stop_token_ids"],
            temperature=self.temperature,
            max_new_tokens=self.max_completion_length,
        )
        sampled = sampler(prompts)
        logprobs = [
            [[None if self.unknown(k, place) else x] for place, x in enumerate(row)]
            for k, (_, row) in enumerate(sampled)
        ]
        return prompts, [ids for ids, _ in sampled], logprobs, None


@pytest.fixture
def engine(monkeypatch):
    monkeypatch.setattr(grpo_trainer, "VLLMGeneration", Engine)
    monkeypatch.setattr(Engine, "synchronises", True)
    Engine.made.clear()
    return Engine


@pytest.mark.parametrize("correction", [True, False])
def test_training_on_an_engines_samples(taught, tmp_path, small, probe, engine, correction):
    SESSIONS.reset(broken=lambda number: number == 3)
    small |= {"use_vllm": True, "vllm_mode": "colocate", "vllm_importance_sampling_correction": correction}
    result = trl.train(
        ENV_ID, model=str(taught), output_dir=tmp_path, config=small, rollout={"retries": 0, "max_turn_tokens": 40}
    )
    trainer, (made,) = probe(), engine.made
    assert assert_trained_on_what_was_sampled(trainer) > 8
    assert made.syncs == 2 and max(made.limits) <= 40 and made.max_completion_length == 120
    steps = [m for m in result.metrics if "loss" in m]
    assert all(m["sampling/logprob_gap/mean"] < 1e-4 for m in steps) and trainer.alarm.warnings == 0
    assert all(("sampling/importance_sampling_ratio/mean" in m) == correction for m in steps)
    assert trainer.alarm.threshold == 0.05 and result.counts["invalid"] == 1
    for _, tensors in trainer.scored:
        known = ~tensors["sampling_per_token_logps"].isnan()
        trained = (tensors["completion_mask"] * tensors["tool_mask"]).bool()
        assert torch.equal(trained & known, trained & (tensors["sampling_per_token_logps"] < 0))


@pytest.mark.parametrize("correction", [True, False])
def test_an_engine_without_one_log_probability(taught, tmp_path, small, probe, engine, monkeypatch, correction):
    """Nothing is corrected then. It was the end of the training: TRL corrects by numbers, or not at all."""
    monkeypatch.setattr(engine, "unknown", staticmethod(lambda row, place: place == 0))
    small |= {"use_vllm": True, "vllm_mode": "colocate", "vllm_importance_sampling_correction": correction}
    result = trl.train(ENV_ID, model=str(taught), output_dir=tmp_path, config=small)
    assert [m["step"] for m in result.metrics if "loss" in m] == [1, 2] and probe().alarm.warnings == 0
    for _, tensors in probe().scored:
        trained = (tensors["completion_mask"] * tensors["tool_mask"]).bool()
        assert tensors["sampling_per_token_logps"][trained].isnan().all()


def test_an_engine_that_keeps_its_old_weights_is_noticed(taught, tmp_path, small, probe, engine, monkeypatch, caplog):
    monkeypatch.setattr(engine, "synchronises", False)
    small |= {
        "use_vllm": True,
        "vllm_mode": "colocate",
        "learning_rate": 5e-2,
        "max_steps": 2,
        "lr_scheduler_type": "constant",
    }
    env = RewardShaping(gym.make(ENV_ID), "say_env:by_answer", scale=1.0)
    result = trl.train(env, model=str(taught), output_dir=tmp_path, config=small, credit="step")
    gaps = [m["sampling/logprob_gap/mean"] for m in result.metrics if "loss" in m]
    assert gaps[0] < 1e-4 and gaps[1] > 0.05 and probe().alarm.warnings == 1
    assert "weights that did not reach the sampler" in caplog.text
