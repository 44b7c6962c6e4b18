"""What verl is given: configuration, rows, agent.yaml, environment; and what is refused."""

import logging
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import gymnasium as gym
import pandas as pd
import pytest
import yaml
from gymnasium.envs.registration import EnvSpec
from say_env import ENV_ID

from adapters import verl
from adapters.common import TurnwiseOptions
from adapters.ray_session import ray_session
from adapters.verl import cpu, plugin
from adapters.verl.config import verl_config, write_agent, write_rows
from adapters.verl.run import _final
from aworld_gym.errors import ConfigError, MissingDependencyError
from aworld_gym.wrappers import RewardShaping

ROOT = Path(__file__).parents[3]
LR = "actor_rollout_ref.actor.optim.lr"


def test_what_the_adapter_sets_is_said_and_the_rest_is_verls(tmp_path, caplog):
    with caplog.at_level(logging.INFO):
        cfg, environment = verl_config("m", tmp_path, credit="step")
    assert cfg.algorithm.adv_estimator == "aworld_step" and cfg.trainer.v1.trainer_mode == plugin.TRAINER
    assert cfg.actor_rollout_ref.model.path == "m" and cfg.data.train_files == str(tmp_path / "train.parquet")
    assert cfg.actor_rollout_ref.rollout.calculate_log_probs is True and cfg.data.max_prompt_length == 512
    assert (
        "algorithm.adv_estimator='aworld_step'" in caplog.text and "data.filter_overlong_prompts=False" in caplog.text
    )
    assert verl_config("m", tmp_path)[0].algorithm.adv_estimator == "aworld_episode"
    assert (
        environment["VERL_USE_EXTERNAL_MODULES"] == "adapters.verl.cpu" and environment["VERL_PLATFORM"] == cpu.PLATFORM
    )


def test_a_gpu_run_never_imports_the_cpu_module(tmp_path):
    code = (
        "import sys, torch; torch.accelerator.is_available = lambda: True\n"
        "from pathlib import Path\nfrom adapters.verl.config import verl_config\n"
        f"cfg, env = verl_config('m', Path({str(tmp_path)!r}))\n"
        "assert 'adapters.verl.cpu' not in sys.modules, 'imported'\n"
        "r = cfg.actor_rollout_ref.rollout\n"
        "print(env['VERL_USE_EXTERNAL_MODULES'], r.name, r.dtype, cfg.trainer.n_gpus_per_node, 'VERL_PLATFORM' in env)"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.split()[-5:] == ["adapters.verl.plugin", "vllm", "bfloat16", "8", "False"], done.stderr


@pytest.mark.parametrize("form", ["nested", "dotted", "file", "hydra", "overrides"])
def test_the_users_settings_come_last(tmp_path, form):
    nested = {"trainer": {"save_freq": 3}, "actor_rollout_ref": {"actor": {"optim": {"lr": 0.5}}}}
    config, overrides = nested, {}
    if form == "dotted":
        config = {"trainer.save_freq": 3, LR: 0.5}
    elif form == "file":
        config = tmp_path / "mine.yaml"
        config.write_text(yaml.safe_dump(nested))
    elif form == "hydra":
        config = ["trainer.save_freq=3", f"{LR}=0.5"]
    elif form == "overrides":
        config, overrides = {"trainer.save_freq": 9, LR: 0.1}, {"trainer": {"save_freq": 3}, LR: 0.5}
    cfg, _ = verl_config("m", tmp_path, config, overrides)
    assert cfg.trainer.save_freq == 3 and cfg.actor_rollout_ref.actor.optim.lr == 0.5
    assert cfg.actor_rollout_ref.rollout.name == "transformers", "what was not given is still set"


def test_what_an_env_needs_cannot_be_set_otherwise(tmp_path):
    cfg, _ = verl_config("m", tmp_path, {"data": {"train_files": "else.parquet"}, "trainer": {"logger": ["console"]}})
    assert cfg.data.train_files == str(tmp_path / "train.parquet")
    assert list(cfg.trainer.logger) == ["console", "file"], "metrics.jsonl is made of it"


def test_new_keys_and_free_sections(tmp_path):
    more = {"+trainer.mine": 1, "actor_rollout_ref.rollout.engine_kwargs.vllm": {"a": 1}}
    cfg, _ = verl_config("m", tmp_path, more)
    assert cfg.trainer.mine == 1 and cfg.actor_rollout_ref.rollout.engine_kwargs.vllm.a == 1
    assert cfg.actor_rollout_ref.model.override_config.attn_implementation == "sdpa"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"trainer": {"save_frek": 1}}, "no 'trainer.save_frek'.*Did you mean 'save_freq'"),
        ({"trainr": {"save_freq": 1}}, "no 'trainr'.*Did you mean 'trainer'"),
        (["trainer.save_frek=1"], "refuses these overrides.*save_frek"),
        ({"trainer.use_v1": False}, "every reward to an episode's last token"),
        ("nothing.yaml", "cannot be read"),
    ],
)
def test_settings_that_cannot_work(tmp_path, config, message):
    with pytest.raises(ConfigError, match=message):
        verl_config("m", tmp_path, config)


def test_an_estimator_of_verls_own_is_kept_with_a_warning(tmp_path, caplog):
    cfg, _ = verl_config("m", tmp_path, {"algorithm.adv_estimator": "rloo"})
    assert cfg.algorithm.adv_estimator == "rloo" and "count in its baseline as reward 0" in caplog.text


def test_a_trainer_of_verls_own_is_kept_with_a_warning(tmp_path, caplog):
    assert verl_config("m", tmp_path)[0].trainer.v1.trainer_mode == "aworld_sync" and not caplog.records
    cfg, _ = verl_config("m", tmp_path, {"trainer": {"v1": {"trainer_mode": "colocate_async"}}})
    assert cfg.trainer.v1.trainer_mode == "colocate_async" and "nothing is logged of the env" in caplog.text


def test_other_plugins_stay(tmp_path, monkeypatch):
    monkeypatch.setenv("VERL_USE_EXTERNAL_MODULES", "json,adapters.verl.cpu")
    assert verl_config("m", tmp_path)[1]["VERL_USE_EXTERNAL_MODULES"] == "adapters.verl.cpu,json"


def test_rows_name_the_env_with_its_wrappers(tmp_path):
    env = RewardShaping(gym.make(ENV_ID, limits={"max_turns": 3}), "say_env:by_answer", scale=2.0)
    write_rows(tmp_path / "a" / "train.parquet", env.spec, [10**15, 7, 7], "train")
    rows = pd.read_parquet(tmp_path / "a" / "train.parquet").to_dict("records")
    assert [row["extra_info"]["seed"] for row in rows] == [10**15, 7, 7]
    assert [row["extra_info"]["group"] for row in rows] == [str(10**15), "7", "7/1"], "two groups of one task"
    assert [row["extra_info"]["index"] for row in rows] == [0, 1, 2] and {row["agent_name"] for row in rows} == {
        "aworld"
    }
    again = gym.make(EnvSpec.from_json(rows[0]["extra_info"]["env"]))
    assert isinstance(again, RewardShaping) and again.unwrapped.limits.max_turns == 3
    again.close()
    write_rows(tmp_path / "b.parquet", env.spec, [10**15, 7, 7], "train")
    assert (tmp_path / "b.parquet").read_bytes() == (tmp_path / "a" / "train.parquet").read_bytes()


def test_agent_yaml(tmp_path):
    write_agent(tmp_path / "agent.yaml", TurnwiseOptions(retries=3), tmp_path)
    (agent,) = yaml.safe_load((tmp_path / "agent.yaml").read_text())
    assert agent["name"] == "aworld" and agent["output_dir"] == str(tmp_path) and agent["rollout"]["retries"] == 3


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "the prompt has .* and data.max_prompt_length is 10; set it higher"),
        ({"tasks": 3}, "data.train_batch_size is 1024 tasks a step, and there are 3"),
        ({"credit": "turn"}, "credit must be 'episode' or 'step'"),
        ({"env": "Test/Nothing-v0"}, "no env 'Test/Nothing-v0'"),
        ({"model": "./nowhere"}, "no folder './nowhere'"),
    ],
)
def test_what_train_refuses_before_ray_starts(untaught, tmp_path, settings, message):
    given = {"env": ENV_ID, "model": untaught, "data.max_prompt_length": 10, "tasks": 2000} | settings
    with pytest.raises(ConfigError, match=message):
        verl.train(given.pop("env"), output_dir=tmp_path, **given)


def test_another_runs_episodes_are_not_mixed_in(untaught, tmp_path):
    (tmp_path / "episodes.jsonl").write_text("{}\n")
    with pytest.raises(ConfigError, match="of an earlier run"):
        verl.train(ENV_ID, model=untaught, output_dir=tmp_path)


def test_the_plain_entry():
    def run(*arguments):
        command = [sys.executable, "-W", "ignore", "-m", "adapters.verl", *arguments]
        return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120)

    done = run("--help")
    assert done.returncode == 0 and "ENV" in done.stdout and "--model" in done.stdout and "KEY=VALUE" in done.stdout
    done = run("AWorld/Gaya-v0", "--model", "m", "--output", "/tmp/x", "a.b=1")
    assert done.returncode and "Gaya" in done.stderr and "Traceback" not in done.stderr


def test_a_ray_whose_workers_would_not_load_the_adapter(monkeypatch):
    monkeypatch.setattr("ray.is_initialized", lambda: True)
    context = SimpleNamespace(runtime_env={"env_vars": {"LOADS": "others"}})
    monkeypatch.setattr("ray.get_runtime_context", lambda: context)
    with pytest.raises(ConfigError, match="Ray runs in this process already.*call ray.shutdown"):
        with ray_session({"LOADS": "mine.a"}, name="LOADS", holds="mine."):
            pass
    context.runtime_env["env_vars"]["LOADS"] = "others,mine.b"
    monkeypatch.setattr("ray.shutdown", lambda: pytest.fail("another's Ray is not ended"))
    with ray_session({"LOADS": "mine.a"}, name="LOADS", holds="mine."):
        assert os.environ["LOADS"] == "mine.a"


def test_the_environment_is_left_as_it_was(monkeypatch):
    ended = []
    monkeypatch.setattr("ray.shutdown", lambda: ended.append(1))
    monkeypatch.setenv("VERL_A", "before")
    with ray_session({"VERL_A": "a", "VERL_B": "b", "PYTHONPATH": "/nowhere"}, name="VERL_A", holds="a"):
        assert (os.environ["VERL_A"], os.environ["VERL_B"]) == ("a", "b")
        assert os.environ.get("PYTHONPATH") != "/nowhere" and not ended
    assert os.environ["VERL_A"] == "before" and "VERL_B" not in os.environ and ended


class TestTheRun:
    """What stands around verl's ``run_ppo``, which is put in the place of by functions here."""

    @pytest.fixture
    def started(self, monkeypatch, tmp_path):
        from verl.trainer import main_ppo

        from adapters.verl import run

        small = {"data.train_batch_size": 4, "actor_rollout_ref.rollout.n": 2}
        small |= {"actor_rollout_ref.actor.ppo_mini_batch_size": 4}
        small |= {"actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 4}
        small |= {"actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu": 4}

        def start(run_ppo, stall_s=30.0, **settings):
            monkeypatch.setattr(main_ppo, "run_ppo", run_ppo)
            cfg, environment = verl_config("m", tmp_path, overrides=small | settings)
            run._run(cfg, environment, tmp_path, stall_s)

        return start

    def test_workers_get_their_environment(self, started):
        seen = []
        started(
            lambda cfg, runner: seen.append(cfg.ray_kwargs.ray_init), **{"+ray_kwargs.ray_init._temp_dir": "/tmp/x"}
        )
        variables = seen[0].runtime_env.env_vars
        assert variables.VERL_USE_EXTERNAL_MODULES == "adapters.verl.cpu" and str(ROOT) in variables.PYTHONPATH
        assert seen[0].num_gpus == 1 and seen[0]._temp_dir == "/tmp/x"

    def test_a_run_in_which_nothing_happens_is_given_up(self, started, tmp_path):
        over = threading.Event()

        def hang(cfg, runner):
            (tmp_path / "rows.0.jsonl").write_text("{}\n")
            over.wait(60)

        began = time.monotonic()
        with pytest.raises(RuntimeError, match="verl did nothing for 2 s"):
            started(hang, stall_s=2)
        over.set()
        assert time.monotonic() - began < 20

    def test_what_verl_raises_is_raised(self, started):
        def fail(cfg, runner):
            raise KeyError("nonsense")

        with pytest.raises(RuntimeError, match="verl's run failed: 'nonsense'") as caught:
            started(fail)
        assert isinstance(caught.value.__cause__, KeyError)

    def test_what_verl_refuses_is_a_config_error(self, started):
        for setting, message in (
            ({"actor_rollout_ref.actor.ppo_mini_batch_size": 64}, "train_batch_size"),
            ({"actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": None}, "Please set at least one of"),
        ):
            with pytest.raises(ConfigError, match=f"verl refuses this configuration: .*{message}"):
                started(lambda cfg, runner: None, **setting)


def test_without_a_checkpoint_there_is_no_final(tmp_path, caplog):
    assert _final(tmp_path) == tmp_path / "checkpoints" and "there is no final/" in caplog.text


def test_numbers_that_yaml_reads_as_text(tmp_path):
    (tmp_path / "c.yaml").write_text("actor_rollout_ref: {actor: {optim: {lr: 1e-6}}}\ntrainer: {save_freq: often}\n")
    with pytest.raises(ConfigError, match="trainer.save_freq='often'"):
        verl_config("m", tmp_path, tmp_path / "c.yaml")
    (tmp_path / "c.yaml").write_text("actor_rollout_ref: {actor: {optim: {lr: 1e-6}}}\n")
    assert verl_config("m", tmp_path, tmp_path / "c.yaml")[0].actor_rollout_ref.actor.optim.lr == 1e-6


def test_without_verl_or_what_it_needs(monkeypatch):
    from importlib.metadata import PackageNotFoundError

    def none(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "msgspec" else name)
    with pytest.raises(MissingDependencyError, match=r"needs msgspec, which does not come with it.*aworld-gym\[verl\]"):
        _ = verl.train
    monkeypatch.setattr("importlib.metadata.version", none)
    with pytest.raises(MissingDependencyError, match=r"pip install 'aworld-gym\[verl\]'"):
        _ = verl.train
