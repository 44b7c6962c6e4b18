"""verl's agent loop without Ray: a scripted server manager, and loops built as verl's worker builds them."""

from __future__ import annotations

from pathlib import Path

import gymnasium as gym
from scripted_sampler import ScriptedSampler
from transformers import AutoTokenizer
from verl.experimental.agent_loop.agent_loop import DictConfigWrap
from verl.utils.dataset.rl_dataset import RLHFDataset
from verl.workers.rollout.replica import TokenOutput

from adapters.verl.agent_loop import EnvAgentLoop
from adapters.verl.config import verl_config


class ScriptedServers:
    """A server manager that answers from a ScriptedSampler; remembers what it was asked."""

    def __init__(self, codec, script, logprobs: bool = True):
        self.sampler = ScriptedSampler(codec, script, logprobs)
        self.requests = []

    async def generate(self, request_id, *, prompt_ids, sampling_params, **_):
        self.requests.append((request_id, list(prompt_ids), dict(sampling_params)))
        ((ids, logprobs),) = self.sampler([prompt_ids], [sampling_params["max_tokens"]])
        return TokenOutput(token_ids=ids, log_probs=logprobs, stop_reason="completed", extra_fields={"global_steps": 3})


class Worker:
    """What of verl's worker builds and runs loops."""

    def __init__(self, model: Path, folder: Path, **settings):
        small = {"data.max_prompt_length": 100, "data.max_response_length": 200}
        self.config, _ = verl_config(model, folder, overrides=small | settings)
        self.tokenizer = AutoTokenizer.from_pretrained(model)
        self.folder = folder

    def loop(self, servers, **options) -> EnvAgentLoop:
        return EnvAgentLoop(
            trainer_config=DictConfigWrap(self.config),
            server_manager=servers,
            tokenizer=self.tokenizer,
            processor=None,
            hf_model_type="qwen3",
            dataset_cls=RLHFDataset,
            data_config=DictConfigWrap(self.config.data),
            tools=None,
            output_dir=str(self.folder),
            **options,
        )

    async def run(self, servers, env, *, seed=0, sample=0, **options):
        spec = (gym.spec(env) if isinstance(env, str) else env.spec).to_json()
        info = {"index": 0, "split": "train", "seed": seed, "group": str(seed), "env": spec}
        loop = self.loop(servers, **options)
        return await loop.run(
            {"temperature": 1.0, "logprobs": True}, extra_info=info, session_id=sample, global_steps=3
        )
