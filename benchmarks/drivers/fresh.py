"""What has to be measured in a fresh process; prints one line of JSON.

fresh.py memory KIND LIVE      MB that each of LIVE live episodes adds beyond the first
fresh.py first ENV             milliseconds of imports, of the first gym.make and reset, and of later ones
"""

from __future__ import annotations

import gc
import json
import statistics
import sys
import time
from typing import Any

SEEDS = 32
"""First resets that are measured."""
STEPS = 4
"""Steps that each live episode has taken."""


def rss_mb() -> float:
    """Resident memory of this process."""
    gc.collect()
    import psutil

    return psutil.Process().memory_info().rss / 2**20


def make(kind: str) -> Any:
    """An env of a kind: an id, or a ToolEnv with the no-op tool."""
    import gymnasium as gym

    import aworld_gym  # noqa: F401
    from benchmarks import overhead

    if not kind.startswith("noop"):
        return gym.make(kind)
    config = {
        "mcpServers": {"noop": {"python": overhead.make_server, "scope": "shared" if "shared" in kind else "episode"}}
    }
    return overhead.ToolEnv(config, [overhead.Task("noop", "Call noop.", "done")])


def live(kind: str, seed: int) -> Any:
    """A live episode, some steps old."""
    env = make(kind)
    _, info = env.reset(seed=seed)
    name = "noop" if kind.startswith("noop") else "list_files"
    for x in range(STEPS):
        arguments = json.dumps({"x": x} if name == "noop" else {})
        call = {"id": f"call_{x}", "type": "function", "function": {"name": name, "arguments": arguments}}
        _, _, ended, cut, info = env.step({"role": "assistant", "content": None, "tool_calls": [call]})
        if ended or cut or info["tool_errors"]:
            raise RuntimeError(f"the episode was to go on without errors, and its info is {info}")
    return env


def memory(kind: str, count: int) -> dict[str, float]:
    """MB each."""
    for seed in range(count + 1):  # what a process keeps of its tasks, however few are live: worlds, files
        live(kind, seed).close()
    envs = [live(kind, 0)]
    before = rss_mb()
    envs += [live(kind, seed) for seed in range(1, count + 1)]
    each = (rss_mb() - before) / count
    for env in envs:
        env.close()
    return {"mb_each": each}


def first(env_id: str) -> dict[str, float]:
    """Milliseconds."""
    wall, cpu = time.perf_counter(), time.process_time()

    def lap() -> tuple[float, float]:
        nonlocal wall, cpu
        before = wall, cpu
        wall, cpu = time.perf_counter(), time.process_time()
        return (wall - before[0]) * 1e3, (cpu - before[1]) * 1e3

    import gymnasium as gym

    import aworld_gym  # noqa: F401

    imports, known = lap(), set()
    laps: dict[str, list[tuple[float, float]]] = {"cold": [], "new_world": [], "warm": []}
    for seed in range(SEEDS):
        lap()
        env = gym.make(env_id)
        env.reset(seed=seed)
        took = lap()
        corpus = json.dumps(env.get_wrapper_attr("task").public, sort_keys=True)  # which world the task is of
        laps["cold" if seed == 0 else "warm" if corpus in known else "new_world"].append(took)
        known.add(corpus)
        env.close()
    found = {"import_ms": imports[0], "import_cpu_ms": imports[1]}
    for name, ones in laps.items():
        walls, cpus = zip(*ones, strict=True)
        found |= {f"{name}_ms": statistics.median(walls), f"{name}_cpu_ms": statistics.median(cpus)}
    return found


if __name__ == "__main__":
    what, kind, *rest = sys.argv[1:]
    print(json.dumps(memory(kind, int(rest[0])) if what == "memory" else first(kind)))
