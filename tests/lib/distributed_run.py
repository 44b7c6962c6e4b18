"""One process of a distributed training: ``torchrun --nproc_per_node 2 distributed_run.py MODEL OUTPUT``.

Writes what reached this process's loss to ``OUTPUT/rank<k>.json``.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import gymnasium as gym
import tiny_model  # noqa: F401  (one thread)
from probe_trainer import Probe, ProbeTrainer, assert_trained_on_what_was_sampled
from say_env import ENV_ID, SESSIONS

from adapters import trl
from adapters.trl import run
from aworld_gym.wrappers import RewardShaping


def main(model: str, output: Path) -> None:
    rank = int(os.environ["RANK"])
    run.EnvGRPOTrainer = ProbeTrainer
    if rank == 1:  # its episodes are slower, and one of them never begins
        SESSIONS.reset(slow=lambda number: 0.3, broken=lambda number: number == 1)
    config = {
        "per_device_train_batch_size": 4,
        "num_generations": 8,
        "max_steps": 2,
        "max_completion_length": 120,
        "learning_rate": 1e-4,
        "logging_steps": 1,
        "gradient_checkpointing": False,
        "save_strategy": "no",
        "disable_tqdm": True,
        "use_cpu": True,
        "bf16": False,
        "seed": 1,
    }
    env = RewardShaping(gym.make(ENV_ID), "say_env:by_answer", scale=1.0)
    options = {"retries": 0, "max_turn_tokens": 40, "straggler_s": 0.05}
    result = trl.train(env, model=model, output_dir=output, config=config, credit="step", rollout=options)
    trainer = Probe.made[-1]
    assert_trained_on_what_was_sampled(trainer)
    rows = [
        {
            "seed": inputs["prompt"][0]["task_seed"],
            "rewards": inputs["turn_rewards"] if inputs["env_valid"] else None,
            "advantages": [tensors["advantages"][k, stop - 1].item() for _, stop in inputs["turn_spans"]],
        }
        for batch, tensors in trainer.scored
        for k, inputs in enumerate(batch)
    ]
    weights = sum(p.double().abs().sum().item() for p in trainer.model.parameters())
    report = {"rows": rows, "weights": weights, "invalid": result.counts["invalid"], "metrics": len(result.metrics)}
    (output / f"rank{rank}.json").write_text(json.dumps(report))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
