"""What swift is given, and what is refused: the failures that swift itself does not show."""

import importlib.metadata
import importlib.util
import json
import logging
import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import pytest
import tiny_model
from gymnasium.envs.registration import EnvSpec
from say_env import ENV_ID
from swift.rewards import orms
from swift.template.register import TEMPLATE_MAPPING
from swift.trainers.trainer_factory import TrainerFactory

from adapters import swift
from adapters.swift import plugin
from adapters.swift.plugin import EnvReward
from adapters.swift.run import arguments
from aworld_gym.errors import ConfigError, MissingDependencyError
from aworld_gym.wrappers import RewardShaping

ROOT = Path(__file__).parents[3]


def refused(match, taught, tmp_path, small, env=ENV_ID, **settings):
    with pytest.raises(ConfigError, match=match):
        swift.train(env, model=taught, output_dir=tmp_path / "run", config=small, **settings)


def test_swift_is_imported_when_it_is_used():
    code = (
        "import sys; from adapters import swift; assert 'swift.pipelines' not in sys.modules and "
        "'torch' not in sys.modules; print(swift.__all__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert "train" in done.stdout


def test_trl_1_is_refused(monkeypatch):
    version = importlib.metadata.version
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "1.16.0" if name == "trl" else version(name))
    with pytest.raises(ConfigError, match=r"trl below 1, and trl 1.16.0 is installed.*an environment each"):
        swift.require_swift()


@pytest.mark.parametrize("name", ["msgspec", "trl"])
def test_what_swift_needs_and_does_not_install_is_missed_at_once(monkeypatch, name):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda n, *a: None if n == name else find(n, *a))
    with pytest.raises(
        MissingDependencyError, match=rf"needs {name}, which does not come with it.*aworld-gym\[swift\]"
    ):
        swift.require_swift()


def test_an_untested_version_is_said(monkeypatch, caplog):
    version = importlib.metadata.version
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "9.9" if name == "ms-swift" else version(name))
    assert swift.require_swift() == "9.9"
    assert "ms-swift 9.9 is not among the versions" in caplog.text


def test_no_reward_is_an_error_and_never_0():
    for infos in (None, [{}, {}], [{"total_reward": 0.0}, {"total_reward": 1.0}]):
        with pytest.raises(ConfigError, match="found no reward"):
            EnvReward()(["a", "b"], rollout_infos=infos)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"num_generation": 4}, "no field 'num_generation'.*Did you mean 'num_generations'"),
        ({"template": "qwen3"}, "'template' is set by the adapter"),
        ({"dataset": ["x"]}, "'dataset' is set by the adapter"),
        ({"credits": "step"}, "no field 'credits'"),
        ({"rollout": {"retry": 1}}, "unknown rollout option 'retry'"),
    ],
)
def test_names_are_checked_before_anything_is_loaded(taught, tmp_path, small, settings, match):
    refused(match, taught, tmp_path, small | settings)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"max_turns": 3}, "max_turns=3 would cut episodes"),
        ({"multi_turn_scheduler": "gym_scheduler"}, "leave multi_turn_scheduler out"),
        ({"credit": "step", "reward_funcs": ["format"]}, "credit='step' takes all rewards from the env"),
        ({"credit": "turns"}, "credit must be 'episode' or 'step', got 'turns'"),
        ({"scale_rewards": "gdpo"}, "scale_rewards='gdpo'"),
        ({"logprob_threshold": 0}, "threshold must be positive"),
        ({"use_gym_env": True}, "leave use_gym_env and gym_env out"),
        ({"response_prefix": "<think>"}, "response_prefix='<think>' has no effect"),
        ({"agent_template": "hermes"}, "agent_template='hermes' has no effect"),
        ({"tasks": 1}, "a batch plays 2 tasks .*groups of 4.*there are 1: give more tasks"),
    ],
)
def test_what_cannot_work_is_refused_at_the_start(taught, tmp_path, small, settings, match):
    refused(match, taught, tmp_path, small, **settings)


def test_enable_thinking_reaches_the_models_own_template(tmp_path, small, probe):
    folder, tokenizer = tmp_path / "m", tiny_model.tokenizer()
    tokenizer.chat_template = "{{ '(no)' if enable_thinking is false else '(yes)' }}" + tiny_model.TEMPLATE
    tiny_model.random_model(tokenizer).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    small |= {"max_steps": 1, "max_completion_length": 5}
    swift.train(ENV_ID, model=folder, output_dir=tmp_path / "run", config=small, enable_thinking=False)
    prompts = {probe().codec.tokenizer.decode(prompt) for prompt, _, _ in probe().samples}
    assert prompts and all(prompt.startswith("(no)") for prompt in prompts)


def test_models_that_cannot_be_used(taught, tmp_path, small):
    refused("there is no folder", tmp_path / "none", tmp_path, small)
    refused(
        "give a path or a name on a hub, got a Qwen3", tiny_model.random_model(tiny_model.tokenizer()), tmp_path, small
    )
    folder, tokenizer = tmp_path / "pad", tiny_model.tokenizer()
    tokenizer.pad_token = tokenizer.eos_token
    tiny_model.random_model(tokenizer).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    refused("pad token is its end of turn", folder, tmp_path, small)
    tokenizer = tiny_model.tokenizer()
    tokenizer.chat_template = "{% for m in messages %}<|im_start|>{{ m.role }} {{ m.content }}<|im_end|>{% endfor %}"
    tokenizer.save_pretrained(folder)
    (tmp_path / "run" / "episodes.jsonl").unlink(missing_ok=True)
    refused("Families whose templates work", folder, tmp_path, small)


def test_another_runs_episodes_are_not_mixed_in(taught, tmp_path, small):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "episodes.jsonl").write_text("{}\n")
    refused("of an earlier run; pass resume_from_checkpoint", taught, tmp_path, small)
    refused("there is no checkpoint", taught, tmp_path, small, resume_from_checkpoint=True)


def test_settings_are_the_users_and_the_adapters_are_said(tmp_path, caplog):
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.json").write_text('{"model_type": "qwen3"}')
    given = {"learning_rate": "1e-3", "reward_funcs": ["format"], "bf16": True}
    with caplog.at_level(logging.INFO):
        found = arguments(given, tmp_path / "m", tmp_path, [tmp_path / "tasks.jsonl"])
    assert found["learning_rate"] == 1e-3 and found["bf16"] is True and found["model_type"] == "qwen3"
    assert found["reward_funcs"] == ["aworld_env_reward", "format"] and found["use_cpu"] is True
    assert "template='aworld'" in caplog.text and "add_version=False" in caplog.text


def test_a_data_set_carries_the_whole_spec(tmp_path):
    env = RewardShaping(gym.make(ENV_ID, limits={"max_turns": 3}), "say_env:by_answer", scale=2.0)
    path = swift.write_tasks(tmp_path / "a" / "tasks.jsonl", env, 2, seed=3)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    found = [json.loads(row["aworld"]) for row in rows]
    assert [row["seed"] for row in found] == [3 * 10**9, 3 * 10**9 + 1]
    assert len({row["messages"][0]["content"] for row in rows}) == 2, "groups are told apart by their messages"
    again = gym.make(EnvSpec.from_json(found[0]["env"]))
    assert isinstance(again, RewardShaping) and again.unwrapped.spec.kwargs["limits"] == {"max_turns": 3}
    with pytest.raises(ConfigError, match="has no column 'aworld'"):
        plugin.row_of({"question": "?"})


def test_register_is_for_the_rest_of_the_process_and_train_for_itself(monkeypatch):
    before = TrainerFactory.TRAINER_MAPPING["grpo"]
    monkeypatch.setitem(TrainerFactory.TRAINER_MAPPING, "grpo", before)
    assert before == "swift.rlhf_trainers.GRPOTrainer", "train() has left swift's own trainer in its place"
    swift.register(credit="step", rollout={"retries": 3})
    assert TrainerFactory.TRAINER_MAPPING["grpo"] == "adapters.swift.trainer.EnvGRPOTrainer"
    assert orms["aworld_env_reward"] is EnvReward
    assert "aworld" in TEMPLATE_MAPPING and plugin.SETTINGS.rollout.retries == 3
