"""What a GAIA host needs, in a container or not, for the sizes in docs/deploy.md: prints a table.

    python -m benchmarks.gaia_host [--sessions 256] [--episodes 256] [--concurrency 64]

Asks the host that MCP_SERVER_URL and MCP_SERVER_TOKEN name, or starts one on this machine. Memory and processor time
are the host's own process, as its /metrics tells them; run_python's programs are processes of their own, on top.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from urllib.request import ProxyHandler, build_opener

import gymnasium as gym

import aworld_gym  # noqa: F401 - registers AWorld/*
from aworld_gym.policies import OraclePolicy
from aworld_gym.rollout import rollout
from benchmarks import common

ENV = "AWorld/Gaia-v0"
MEMORY, CPU = "process_resident_memory_bytes", "process_cpu_seconds_total"
MIB = 2**20


@contextmanager
def a_host(sessions: int) -> Iterator[str]:
    """The base address of the host to ask; one is started where the environment names none."""
    named = os.environ.get("MCP_SERVER_URL")
    if named:
        yield named.removesuffix("/mcp")
        return
    command = [sys.executable, "-m", "envs.gaia", "--port", "0", "--max-sessions", str(sessions)]
    with common.program(command) as (told, _):
        url = f"http://{told['ip']}:{told['port']}"
        os.environ |= {"MCP_SERVER_URL": f"{url}/mcp", "MCP_SERVER_TOKEN": told["token"]}
        try:
            yield url
        finally:
            del os.environ["MCP_SERVER_URL"], os.environ["MCP_SERVER_TOKEN"]


def numbers(url: str) -> dict[str, float]:
    """The host's memory in MiB and processor time in seconds."""
    with build_opener(ProxyHandler({})).open(f"{url}/metrics", timeout=30) as reply:
        lines = reply.read().decode().splitlines()
    found = {line.split()[0]: float(line.split()[1]) for line in lines if line and not line.startswith("#")}
    return {"mib": found[MEMORY] / MIB, "cpu_s": found[CPU]}


def measure(url: str, sessions: int, episodes: int, concurrency: int) -> dict[str, float]:
    """All rows, by name.

    Raises:
        RuntimeError: an episode did not end as it should, so that the numbers mean nothing.
    """
    rows = {"at the start (MiB)": numbers(url)["mib"]}
    with ExitStack() as stack:
        for seed in range(sessions):
            env = gym.make(ENV, toolchain="remote")
            stack.callback(env.close)
            env.reset(seed=seed)
        opened = numbers(url)
        rows["per idle session, its task's files uploaded (MiB)"] = (
            opened["mib"] - rows["at the start (MiB)"]
        ) / sessions
    before = numbers(url)
    played = rollout(
        gym.spec(ENV), OraclePolicy(), episodes=episodes, seed=sessions, concurrency=concurrency, progress=False
    )
    after = numbers(url)
    good = sum(episode.valid and episode.score == 1 for episode in played)
    if good != episodes:
        raise RuntimeError(f"{good} of {episodes} oracle episodes were solved: something is wrong with this host")
    rows[f"after {episodes} episodes, {concurrency} at once (MiB)"] = after["mib"]
    rows["processor time per episode (ms)"] = (after["cpu_s"] - before["cpu_s"]) / episodes * 1000
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sessions", type=int, default=256, help="that are open at once and do nothing")
    parser.add_argument("--episodes", type=int, default=256)
    parser.add_argument("--concurrency", type=int, default=64)
    options = parser.parse_args(arguments)
    with a_host(max(options.sessions, options.concurrency)) as url:
        rows = measure(url, options.sessions, options.episodes, options.concurrency)
    print("| | |\n|---|---|")
    for name, value in rows.items():
        print(f"| {name} | {value:.3g} |")


if __name__ == "__main__":
    main()
