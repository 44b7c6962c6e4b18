"""Four local Ray nodes, one of them killed half way: are episodes lost, or doubled in the journal?

    python -m benchmarks.scaling_ray [--nodes 4] [--episodes 256] [--concurrency 64] [--json]

Episodes are four calls of a tool that takes 0.25 s and an answer, in groups of four. The nodes are real ones (each its
own raylet and worker processes) on this machine, of ``ray.cluster_utils.Cluster``; the one that is killed gets SIGKILL.
A lost episode would be one whose item has no valid record in the journal, a doubled one a key that stands there twice,
or an item with two valid records. Exit status 1 where there is one. Needs Ray: ``pip install 'aworld-gym[ray]'``.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import gymnasium as gym

from aworld_gym import Task
from aworld_gym.env import ToolEnv
from aworld_gym.policies import ScriptedPolicy, make, tool_call
from aworld_gym.rollout import iterate
from aworld_gym.trajectory import read_jsonl

CALLS, GROUP, TOOL_S = 4, 4, 0.25
ENV_ID = "AWorldBenchmarks/Slow-v0"
KILL_WAIT_S = 60.0
STORE_BYTES = 100 * 1024 * 1024  # of each node; what Ray would take is a third of the machine's memory, each time

# Before Ray is imported: all that it starts then listens on 127.0.0.1 alone.
os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")


def make_env() -> ToolEnv:
    """An env over one server whose tool takes its time."""
    server = {"python": "benchmarks.scaling:make_server", "kwargs": {"seconds": TOOL_S}}
    return ToolEnv({"mcpServers": {"slow": server}}, [Task("count", "Call noop four times.", "done")])


def waiting() -> ScriptedPolicy:
    """Calls the tool four times, then answers."""

    def say(transcript: list[dict[str, Any]], info: Any) -> dict[str, Any]:
        turn = sum(message["role"] == "tool" for message in transcript)
        if turn == CALLS:
            return {"role": "assistant", "content": "<answer>done</answer>"}
        return {"role": "assistant", "content": None, "tool_calls": [tool_call(f"c{turn}", "noop", {"x": turn})]}

    return ScriptedPolicy(say, name="waiting")


@contextmanager
def cluster(
    nodes: int, *, num_cpus: int = 4, resources: Callable[[int], dict[str, float]] = lambda k: {}
) -> Iterator[Any]:
    """So many nodes; the first is the head. Node k has ``resources(k)`` besides its logical CPUs.

    Gives Ray's own Cluster, with ``nodes`` in order and ``folder``, where all its files are; both end with the block.
    """
    from ray.cluster_utils import Cluster

    folder = tempfile.mkdtemp(prefix="rayt-", dir="/tmp")  # short: the paths of sockets are below it
    before = os.environ.get("RAY_TMPDIR")
    # The place of its files, among them the address that `auto` finds: nobody else is to find it.
    os.environ["RAY_TMPDIR"] = folder
    made = Cluster()
    made.folder = Path(folder)
    of_each = {"num_cpus": num_cpus, "object_store_memory": STORE_BYTES, "include_dashboard": False}
    try:
        made.nodes = [made.add_node(resources=resources(k), **of_each) for k in range(nodes)]
        yield made
    finally:
        made.shutdown()
        if before is None:
            os.environ.pop("RAY_TMPDIR", None)
        else:
            os.environ["RAY_TMPDIR"] = before
        shutil.rmtree(folder, ignore_errors=True)


def ray_node_killed(nodes: int = 4, episodes: int = 256, concurrency: int = 64) -> dict[str, Any]:
    """Play on a cluster of so many nodes and kill the last when half of the episodes are done.

    Returns:
        ``nodes``, ``episodes``, ``lost`` and ``doubled`` (counts), ``again``: attempts that were played again because
        their worker was lost; ``workers_lost``; ``wall_s``: of the rollout, without starting the nodes.
    """
    from aworld_gym.engines.ray import Ray

    if ENV_ID not in gym.registry:
        gym.register(ENV_ID, entry_point="benchmarks.scaling_ray:make_env")
    policy = make("benchmarks.scaling_ray:waiting")
    with tempfile.TemporaryDirectory() as folder, cluster(nodes) as made:
        path, killer, done = Path(folder) / "episodes.jsonl", None, 0
        began = time.perf_counter()
        options = {"episodes": episodes, "group_size": GROUP, "concurrency": concurrency, "journal": path}
        with closing(iterate(ENV_ID, policy, engine=Ray(made.address), **options)) as played:
            for episode in played:
                done += episode.valid
                if killer is None and done >= episodes // 2:
                    killer = threading.Thread(target=made.remove_node, args=(made.nodes[-1], False))
                    killer.start()
        wall_s = time.perf_counter() - began
        if killer is not None:
            killer.join(KILL_WAIT_S)
        records = list(read_jsonl(path))
    valid = Counter((record.seed, record.sample) for record in records if record.valid)
    keys = Counter(record.key for record in records)
    lost = [record for record in records if record.error_kind == "worker_lost"]
    return {
        "nodes": nodes,
        "episodes": episodes,
        "lost": episodes - len(valid),
        "doubled": sum(count - 1 for count in keys.values()) + sum(count - 1 for count in valid.values()),
        "again": len(lost),
        "workers_lost": len({record.error for record in lost}),
        "wall_s": round(wall_s, 1),
    }


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--episodes", type=int, default=256)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")
    options = parser.parse_args()
    found = ray_node_killed(options.nodes, options.episodes, options.concurrency)
    if options.json:
        print(json.dumps(found))
    else:
        print("| " + " | ".join(found) + " |\n|" + " --- |" * len(found))
        print("| " + " | ".join(str(value) for value in found.values()) + " |")
    return 1 if found["lost"] or found["doubled"] else 0


if __name__ == "__main__":
    sys.exit(main())
