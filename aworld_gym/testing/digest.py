"""An episode as text, here and in another process: ``python -m aworld_gym.testing.digest`` reads a spec on stdin."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from aworld_gym.errors import InfraError

TIMEOUT_S = 240.0


def record(env: gym.Env, seed: int, actions: Callable[[Sequence[Any], int], Sequence[Any]]) -> list[str]:
    """What reset and each step of an episode returned, as text; the order of keys counts."""
    obs, info = env.reset(seed=seed)
    steps = [plain([obs, info])]
    for action in actions(info["tools"], seed):
        result = env.step(action)
        steps.append(plain(result))
        if result[2] or result[3]:
            break
    return steps


def plain(value: Any) -> str:
    """JSON of what an env returned."""
    return json.dumps(value, ensure_ascii=True)


def digest_elsewhere(spec: EnvSpec, seeds: Sequence[int], hash_seed: int) -> list[list[str]]:
    """The episodes of these seeds, played with random calls in a fresh process with this hash seed.

    Raises:
        InfraError: that process failed.
    """
    places = os.pathsep.join(dict.fromkeys([os.getcwd(), *filter(None, sys.path)]))
    done = subprocess.run(
        [sys.executable, "-m", "aworld_gym.testing.digest"],
        input=json.dumps({"spec": spec.to_json(), "seeds": list(seeds)}),
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": places},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise InfraError("env_failed", f"the env did not play in a process of its own: {done.stderr.strip()[-400:]}")
    out: list[list[str]] = json.loads(done.stdout.strip().splitlines()[-1])
    return out


def main() -> None:
    """Play what stdin asks for, and print it as one line of JSON."""
    from aworld_gym.making import make_tool_env
    from aworld_gym.testing.environment import random_calls

    asked = json.loads(sys.stdin.read())
    out = []
    for seed in asked["seeds"]:
        env = make_tool_env(EnvSpec.from_json(asked["spec"]))
        try:
            out.append(record(env, seed, random_calls))
        finally:
            env.close()
    print(json.dumps(out))


if __name__ == "__main__":
    main()
