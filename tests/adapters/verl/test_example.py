"""``examples/verl_gaia``: what people with a launcher of their own start from."""

import os
import subprocess
import sys
from pathlib import Path

import hydra
import pandas as pd
import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf
from scripted_sampler import echo_then_submit
from verl.experimental.agent_loop.agent_loop import DictConfigWrap
from verl.utils.dataset.rl_dataset import RLHFDataset
from verl_loops import ScriptedServers, Worker

from adapters.verl import plugin
from adapters.verl.agent_loop import EnvAgentLoop, make_codec

EXAMPLE = Path(__file__).parents[3] / "examples" / "verl_gaia"


@pytest.fixture
def asked(tmp_path):
    """The commands that run.sh runs, with a stand-in for python."""
    (tmp_path / "python").write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" END >> {tmp_path}/asked\n')
    (tmp_path / "python").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "MODEL": "m", "OUT": str(tmp_path / "out")}

    def run(*arguments, **more):
        subprocess.run(["bash", EXAMPLE / "run.sh", *arguments], env={**environment, **more}, check=True, timeout=60)
        return [call.splitlines() for call in (tmp_path / "asked").read_text().split("END\n") if call]

    return run


def test_run_sh_is_a_configuration_of_verl(asked, tmp_path):
    rows, training = asked("trainer.nnodes=2", CREDIT="step", KWARGS='{"level": 1}')
    assert rows == ["examples/verl_gaia/make_rows.py", str(tmp_path / "out"), "--kwargs", '{"level": 1}']
    assert training[:2] == ["-m", "verl.trainer.main_ppo"]
    with initialize_config_module("verl.trainer.config", version_base=None):
        cfg = compose("ppo_trainer", overrides=training[2:])
    assert cfg.algorithm.adv_estimator == plugin.ESTIMATORS["step"] and cfg.trainer.v1.trainer_mode == plugin.TRAINER
    assert cfg.trainer.nnodes == 2 and cfg.actor_rollout_ref.rollout.name == "vllm"
    assert Path(cfg.actor_rollout_ref.rollout.agent.agent_loop_config_path) == EXAMPLE / "agent.yaml"
    assert cfg.ray_kwargs.ray_init.runtime_env.env_vars.VERL_USE_EXTERNAL_MODULES == "adapters.verl.plugin"


def test_the_defaults_of_run_sh(asked):
    rows, training = asked()
    assert rows[-1] == "{}" and "algorithm.adv_estimator=aworld_episode" in training


async def test_agent_yaml_and_rows_play(untaught, tmp_path, monkeypatch):
    """As verl's worker does: the loop from the file, the episode from the row."""
    sys.path.insert(0, str(EXAMPLE))
    import make_rows

    sys.path.remove(str(EXAMPLE))
    monkeypatch.setattr(sys, "argv", ["make_rows.py", str(tmp_path), "--tasks", "3", "--kwargs", '{"preset": "mini"}'])
    make_rows.main()
    train, held_out = (pd.read_parquet(tmp_path / f"{name}.parquet").to_dict("records") for name in ("train", "eval"))
    assert len(train) == 3 and len(held_out) == 128 and '"validation"' in held_out[0]["extra_info"]["env"]
    monkeypatch.setenv("OUT", str(tmp_path))
    worker = Worker(untaught, tmp_path, **{"data.max_prompt_length": 5000})
    (agent,) = OmegaConf.load(EXAMPLE / "agent.yaml")
    assert agent.name == train[0]["agent_name"]
    codec = make_codec(worker.tokenizer, worker.config)
    servers = ScriptedServers(codec, echo_then_submit)
    servers.sampler.sample = lambda prompt: codec.encode_assistant(echo_then_submit("red", 1))
    loop = hydra.utils.instantiate(
        agent,
        trainer_config=DictConfigWrap(worker.config),
        server_manager=servers,
        tokenizer=worker.tokenizer,
        processor=None,
        hf_model_type="qwen3",
        dataset_cls=RLHFDataset,
        data_config=DictConfigWrap(worker.config.data),
        tools=None,
    )
    assert isinstance(loop, EnvAgentLoop) and loop.options.deadline_s == 1800
    output = await loop.run({"logprobs": True}, **train[1], session_id=0, global_steps=1)
    assert sum(output.response_mask) > 3 and len(list(tmp_path.glob("episodes.*.jsonl"))) == 1
