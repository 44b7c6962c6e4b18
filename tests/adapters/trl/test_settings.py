"""Settings, dataset rows, what is refused, and the sampler over a trainer that is not there."""

import json
import logging
import math
import shutil
import subprocess
import sys
from types import SimpleNamespace

import gymnasium as gym
import pytest
import tiny_model
from probe_trainer import ProbeTrainer
from say_env import ENV_ID
from trl import GRPOConfig

from adapters import trl
from adapters.hf import tasks_needed
from adapters.trl import _private, rollouts
from adapters.trl.run import arguments
from aworld_gym.errors import ConfigError
from aworld_gym.tokens import ChatCodec, UnsupportedTemplateError
from aworld_gym.tokens.pieces import Pieces
from aworld_gym.trajectory import read_jsonl


def test_a_config_passes_through_untouched(tmp_path, small, caplog):
    small |= {"epsilon_high": 0.3, "loss_type": "dr_grpo", "generation_kwargs": {"top_k": 7}, "output_dir": "elsewhere"}
    with caplog.at_level(logging.INFO):
        args, options = arguments({**small, "rollout": {"retries": 4}}, tmp_path, overrides={"learning_rate": 0.5})
    assert args.output_dir == str(tmp_path) and args.learning_rate == 0.5 and options.retries == 4
    for name, value in small.items():
        assert name in ("output_dir", "learning_rate") or getattr(args, name) == value
    assert caplog.messages == [f"set by the adapter: output_dir={str(tmp_path)!r}, dataloader_pin_memory=False"]


def test_a_file_is_read(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("learning_rate: 1e-6\nmax_steps: 5\nreport_to: none\nrollout: {max_turn_tokens: 48}\n")
    args, options = arguments(path, tmp_path)
    assert (args.learning_rate, args.max_steps, options.max_turn_tokens) == (1e-6, 5, 48)
    path.write_text(json.dumps({"temperature": 0.5}))
    assert arguments(str(path), tmp_path)[0].temperature == 0.5


def test_a_config_object_is_not_changed(tmp_path, small):
    config = GRPOConfig("elsewhere", **small)
    args, _ = arguments(config, tmp_path, evaluates=True)
    assert (args.output_dir, config.output_dir) == (str(tmp_path), "elsewhere")
    assert (args.eval_strategy, args.eval_steps, config.eval_strategy) == ("steps", 1, "no")
    assert (
        arguments(GRPOConfig(str(tmp_path), **small, eval_strategy="epoch"), tmp_path, evaluates=True)[0].eval_strategy
        == "epoch"
    )


def test_evaluation_is_planned_where_there_is_an_env_for_it(tmp_path, small):
    args, _ = arguments({**small, "max_steps": 50}, tmp_path, evaluates=True)
    assert (args.eval_strategy, args.eval_steps, args.num_generations_eval) == ("steps", 5, 1)
    args, _ = arguments(
        {**small, "eval_strategy": "steps", "eval_steps": 3, "num_generations_eval": 4}, tmp_path, evaluates=True
    )
    assert (args.eval_steps, args.num_generations_eval) == (3, 4)


@pytest.mark.parametrize(
    ("config", "more", "message"),
    [
        ({"lr": 1.0}, {}, "GRPOConfig has no field 'lr', and train\\(\\) no such argument"),
        (None, {"overrides": {"credi": "step"}}, "Did you mean 'credit'"),
        ({"credit": "step"}, {}, "'credit' is an argument of train.*--set credit=..."),
        ({"learning_rat": 1.0}, {}, "Did you mean 'learning_rate'"),
        ({"num_generations": 3}, {}, "GRPOConfig refuses these settings: .*divisible"),
        ("nothing.yaml", {}, "cannot be read"),
        ({"rollout": {}}, {"rollout": {}}, "given twice"),
        ({"rollout": {"retry": 1}}, {}, "^unknown rollout option 'retry'"),
    ],
)
def test_settings_that_cannot_work(tmp_path, config, more, message):
    with pytest.raises(ConfigError, match=message):
        arguments(config, tmp_path, **more)


def test_files_that_are_no_config(tmp_path, small):
    path = tmp_path / "c.yaml"
    for text, message in (("a: [", "not YAML or JSON"), ("[1, 2]", "must hold a mapping of settings, got list")):
        path.write_text(text)
        with pytest.raises(ConfigError, match=message):
            arguments(path, tmp_path)
    with pytest.raises(ConfigError, match="set \\['beta'\\] in the GRPOConfig itself"):
        arguments(GRPOConfig(str(tmp_path), **small), tmp_path, overrides={"beta": 0.1})


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"gradient_accumulation_steps": 2, "max_steps": 3},
        {"num_iterations": 2, "max_steps": 3},
        {"steps_per_generation": 3, "max_steps": 4},
    ],
)
def test_every_group_of_a_run_has_a_new_task(taught, tmp_path, small, settings):
    args, _ = arguments(small | settings, tmp_path)
    parts = trl.spec(ENV_ID, tasks=tasks_needed(args))
    trainer = ProbeTrainer(str(taught), parts.reward_funcs, args, parts.train_dataset, rollout_func=parts.rollout_func)
    steps_an_epoch = len(trainer.get_train_dataloader()) / args.gradient_accumulation_steps
    assert steps_an_epoch >= args.max_steps, "no task comes twice"
    assert steps_an_epoch < args.max_steps + args.steps_per_generation * args.num_iterations, "and none is for nothing"
    rows = next(iter(trainer.get_train_dataloader()))
    seeds = [row["prompt"][0]["task_seed"] for row in rows]
    assert all(len(set(seeds[k : k + 4])) == 1 for k in range(0, len(seeds), 4)) and len(set(seeds)) == len(seeds) / 4


def test_fewer_tasks_than_a_batch_are_refused(taught, tmp_path, small):
    """transformers' Trainer would end before the first step, and all would look well."""
    with pytest.raises(ConfigError, match="a batch plays 2 tasks .*groups of 4.*there are 1: give more tasks"):
        trl.train(ENV_ID, model=str(taught), output_dir=tmp_path, config=small, tasks=1)


def test_no_bound_of_an_episode_but_the_models(tmp_path, small, monkeypatch):
    model = tiny_model.random_model(tiny_model.tokenizer())
    model.config.max_position_embeddings = 90
    small |= {"max_completion_length": None, "max_steps": 1}
    how = {"output_dir": tmp_path, "config": small, "processing_class": tiny_model.tokenizer()}
    result = trl.train(ENV_ID, model=model, **how)
    assert 0 < result.metrics[0]["env/sampled_tokens"] < 90
    monkeypatch.setattr(rollouts, "context", lambda *args: None)
    with pytest.raises(ConfigError, match="set max_completion_length"):
        trl.train(ENV_ID, model=model, **{**how, "output_dir": tmp_path / "other"})


def test_without_max_steps_an_epoch_has_a_thousand_tasks(tmp_path, small):
    assert tasks_needed(arguments({**small, "max_steps": -1}, tmp_path)[0]) == 1000


def test_rows_of_a_dataset(tmp_path):
    parts = trl.spec(ENV_ID, tasks=[5, 10**12], eval_env=ENV_ID, eval_tasks=2)
    assert [row["prompt"][0]["task_seed"] for row in parts.train_dataset] == [5, 10**12]
    assert [row["prompt"][0]["env"] for row in parts.eval_dataset] == ["eval", "eval"]
    with pytest.raises(ConfigError, match="positive number of tasks"):
        trl.spec(ENV_ID, tasks=0)


def test_a_model_that_cannot_be_had(taught, tmp_path, small):
    for model in (str(tmp_path / "nowhere"), tmp_path / "nowhere", "./nowhere", "../no/where"):
        with pytest.raises(ConfigError, match="there is no folder '.*where' .*Give a folder"):
            trl.train(ENV_ID, model=model, output_dir=tmp_path, config=small)
    shutil.copytree(taught, tmp_path / "torn", ignore=shutil.ignore_patterns("*.safetensors"))
    with pytest.raises(ConfigError, match=r"the model .*torn' cannot be loaded: .*[^.]\. Give a folder") as error:
        trl.train(ENV_ID, model=str(tmp_path / "torn"), output_dir=tmp_path, config=small)
    assert "\n" not in str(error.value)


def test_an_env_that_cannot_be_had(taught, tmp_path, small):
    with pytest.raises(ConfigError, match="no env 'Test/Sy-v0'"):
        trl.train("Test/Sy-v0", model=str(taught), output_dir=tmp_path, config=small)
    with pytest.raises(ConfigError, match="'CartPole-v1' is not a tool env"):
        trl.train("CartPole-v1", model=str(taught), output_dir=tmp_path, config=small)
    with pytest.raises((ConfigError, ValueError), match="max_turn"):
        trl.train(
            ENV_ID,
            model=str(taught),
            output_dir=tmp_path,
            config=small,
            eval_env=gym.make(ENV_ID, limits={"max_turn": 1}),
        )


def test_a_template_that_cannot_be_used(taught, tmp_path, small):
    tokenizer = tiny_model.tokenizer()
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    with pytest.raises(UnsupportedTemplateError):
        trl.train(ENV_ID, model=str(taught), output_dir=tmp_path, config=small, processing_class=tokenizer)


def test_the_codec_may_be_given(taught, tmp_path, small):
    codec = ChatCodec(tiny_model.tokenizer(), tool_format=lambda text, tools: Pieces(content=["<answer>red</answer>"]))
    result = trl.train(ENV_ID, model=str(taught), output_dir=tmp_path, config=small | {"max_steps": 1}, codec=codec)
    assert result.metrics[0]["env/tool_calls"] == 0.0
    assert {e.submitted for e in read_jsonl(result.episodes) if e.steps} == {"red"}


def test_importing_the_adapter_imports_no_trainer():
    code = "import sys; from adapters import trl; trl.TrainResult; sys.exit(bool({'trl', 'torch'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
    with pytest.raises(AttributeError, match="has no attribute 'trian'"):
        trl.trian  # noqa: B018


class FakeVllmTrainer:
    """What the sampler uses of a GRPOTrainer over vLLM."""

    use_vllm = True
    use_transformers_continuous_batching = False
    temperature = 1.0
    processing_class = SimpleNamespace(eos_token_id=9)

    def __init__(self):
        self.vllm_generation = SimpleNamespace(max_completion_length=512, generation_kwargs={"seed": 1})
        self.accelerator = SimpleNamespace(num_processes=1, unwrap_model=lambda model: model)
        self.model = SimpleNamespace()
        self.asked = []

    def _generate_single_turn(self, prompts, images, fields, num_generations):
        self.asked.append((prompts, images, fields, num_generations, self.vllm_generation.max_completion_length))
        return [[1, 2, 9] for _ in prompts], [[-0.5, None, -0.25] for _ in prompts]


def test_the_sampler_over_vllm():
    trainer = FakeVllmTrainer()
    sampler = _private.TrainerSampler(trainer)
    (first, second) = sampler([[3], [4]], [2, 8])
    assert trainer.asked == [([[3], [4]], None, {}, 1, 8)], "one call, bounded by the largest limit"
    assert trainer.vllm_generation.max_completion_length == 512
    assert first[0] == [1, 2] and second[0] == [1, 2, 9]
    assert first[1][0] == -0.5 and math.isnan(first[1][1]) and second[1][2] == -0.25
    _private.adopt_stop_ids(trainer, [9, 7])
    assert trainer.eos_token_ids == [7, 9]
    assert trainer.vllm_generation.generation_kwargs == {"seed": 1, "stop_token_ids": [7, 9]}


def test_the_trainers_sampler_stops_where_the_codec_does(taught, tmp_path, small):
    parts = trl.spec(ENV_ID, tasks=4)
    trainer = ProbeTrainer(
        str(taught),
        parts.reward_funcs,
        arguments(small, tmp_path)[0],
        parts.train_dataset,
        rollout_func=parts.rollout_func,
    )
    codec, sampler = parts.rollout_func.prepare(trainer)
    assert trainer.generation_config.eos_token_id == sorted(codec.stop_ids) == trainer.eos_token_ids
    (ids, logprobs), (short, _) = sampler(
        [codec.prompt([{"role": "user", "content": "say red"}], tiny_model.TOOLS)] * 2, [60, 2]
    )
    assert not set(ids[:-1]) & codec.stop_ids and len(short) == 2 and len(ids) == len(logprobs) <= 60
    assert trainer.generation_config.max_new_tokens == small["max_completion_length"]
