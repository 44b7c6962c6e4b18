"""What ``swift rlhf --external_plugins`` needs to train on an env (see run.sh); run by itself, it writes a data set."""

import os

from adapters import swift

# "step": each turn has an advantage of its own, from its reward and the later ones.
swift.register(credit=os.environ.get("CREDIT", "episode"), rollout={"retries": 1, "deadline_s": 1800})

if __name__ == "__main__":
    import argparse
    import json

    import gymnasium as gym

    import aworld_gym  # noqa: F401  (registers the envs)

    arguments = argparse.ArgumentParser(description="Write a data set of tasks for swift.")
    arguments.add_argument("env", help="an env's id, such as AWorld/Gaia-v0")
    arguments.add_argument("output", help="a JSONL file")
    arguments.add_argument("--tasks", type=int, default=1000)
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--env-args", type=json.loads, default={}, help="arguments of gym.make, as JSON")
    given = arguments.parse_args()
    env = gym.make(given.env, **given.env_args)
    swift.write_tasks(given.output, env, given.tasks, seed=given.seed)
