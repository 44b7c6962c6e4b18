"""What an episode costs besides model and tools.

    python -m benchmarks.overhead [--concurrency 1 32 256] [--repeat 5] [--only noop step turns memory first] [--save]

* *noop*: workload noop-4 (five model calls to an endpoint that answers at once, four calls of a tool that does
  nothing): CPU of an episode beside hand-written loops over the same client libraries, which take turns with it.
* *step*: an env step with one call of that tool, beside a raw ``call_tool`` of the SDK's client.
* *turns*: an episode of 500 turns: a step early and late.
* *memory*: what a live episode adds to the process, beyond the first.
* *first*: ``gym.make`` and the first reset of ``AWorld/Gaia-v0``, in a fresh process and in one that has had others.

CPU seconds are those of the measured process and of all that it started, without the endpoint.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from aworld_gym import Task
from aworld_gym.env import ToolEnv
from aworld_gym.policies.base import tool_call
from aworld_gym.toolchain import compat, loop
from aworld_gym.types import Limits
from benchmarks import common
from benchmarks.drivers import noop_tool

PARTS = ("noop", "step", "turns", "memory", "first")
RATIO_BAR, STEP_BAR_MS, FLAT_BAR, MEMORY_BAR_MB, WARM_BAR_MS, COLD_BAR_MS = 1.10, 0.3, 1.20, 1.0, 50.0, 1500.0
EPISODES = {1: 20, 32: 64, 256: 256}
"""Episodes of one measurement of noop-4, by how many at once."""
SYSTEMS = {
    "loop with a function": ("run_bare.py", "function"),
    "loop with MCP in memory": ("run_bare.py", "mcp"),
    "aworld-gym, a session an episode": ("run_ours.py", "episode"),
    "aworld-gym, one shared session": ("run_ours.py", "shared"),
}
FLOOR = "loop with MCP in memory"
TURNS, EARLY, LATE = 500, range(6, 16), range(490, 500)
"""Turns of the long episode, and those whose cost is compared: around the tenth, and the last ten."""


def make_server(context: Any) -> Any:
    """The env's server."""
    server = compat.new_server("noop")
    server.tool()(noop_tool.noop)
    return server


def make_env() -> ToolEnv:
    """An env without limits that such episodes would reach."""
    config = {"mcpServers": {"noop": {"python": make_server}}}
    return ToolEnv(config, [Task("noop", "Call noop.", "done")], limits=Limits(max_turns=None, max_tool_calls=None))


def action(x: int) -> dict[str, Any]:
    """One call."""
    return {"role": "assistant", "content": None, "tool_calls": [tool_call(f"call_{x}", "noop", {"x": x})]}


# -- noop-4 -----------------------------------------------------------------------------------------------------


def noop(
    systems: Mapping[str, tuple[str, str]], sizes: Mapping[int, int], repeat: int, tell: Callable[[str], None]
) -> dict[str, Any]:
    """CPU per episode of each system at each concurrency, and of each round."""
    with common.chat_server() as url, tempfile.TemporaryDirectory() as folder:
        drivers: dict[str, common.Driver] = {}
        try:
            for name, (script, which) in systems.items():
                log = Path(folder) / f"{len(drivers)}.log"
                drivers[name] = common.Driver(sys.executable, script, [url, which], log)
            answers, failed = common.rounds(drivers, lambda name: sizes, lambda name: repeat, tell)
        finally:
            for driver in drivers.values():
                driver.close()
    if failed:
        raise common.DriverError(str(failed))
    return {f"{name}|{concurrency}": [common.ms(a) for a in found] for (name, concurrency), found in answers.items()}


def noop_table(found: Mapping[str, Sequence[float]], sizes: Mapping[int, int]) -> tuple[str, list[str]]:
    """The table of noop-4, and which bars were missed."""
    missed, rows = [], []
    names = list(dict.fromkeys(key.rpartition("|")[0] for key in found))
    for name in names:
        cells = [name]
        for concurrency in sizes:
            mine, floor = found[f"{name}|{concurrency}"], found[f"{FLOOR}|{concurrency}"]
            ratio = statistics.median(one / other for one, other in zip(mine, floor, strict=True))
            cells.append(f"{common.spread(mine, 1)}, {ratio:.2f}")
            if name.startswith("aworld-gym") and ratio > RATIO_BAR:
                missed.append(f"{name}: {ratio:.2f} times the loop with MCP at {concurrency} at once")
        rows.append(cells)
    columns = ["noop-4: CPU ms an episode, and times the loop with MCP", *(f">{c} at once" for c in sizes)]
    return common.markdown(columns, rows), missed


# -- one process, one env -----------------------------------------------------------------------------------------


async def _cost(work: Callable[[int], Awaitable[Any]], times: int) -> float:
    """CPU milliseconds of each."""
    began = time.process_time()
    for number in range(times):
        await work(number)
    return (time.process_time() - began) / times * 1e3


async def _raw(times: int) -> float:
    async with compat.in_process(make_server(None)) as session:
        await session.call_tool("noop", {"x": 0})
        return await _cost(lambda x: session.call_tool("noop", {"x": x}), times)


async def _stepped(times: int) -> float:
    env = make_env()
    try:
        await env.areset(seed=0)
        await env.astep(action(0))
        return await _cost(lambda x: env.astep(action(x)), times)
    finally:
        await env.aclose()


def _facade(times: int) -> float:
    env = make_env()
    try:
        env.reset(seed=0)
        env.step(action(0))
        began = time.process_time()
        for x in range(times):
            env.step(action(x))
        return (time.process_time() - began) / times * 1e3
    finally:
        env.close()


def step(times: int, repeat: int) -> dict[str, list[float]]:
    """CPU milliseconds of a raw call, of ``astep`` on the package's loop, and of ``step`` from another thread."""
    kinds: dict[str, Callable[[], float]] = {
        "raw call_tool": lambda: loop.run(_raw(times)),
        "await env.astep(action)": lambda: loop.run(_stepped(times)),
        "env.step(action), from another thread": lambda: _facade(times),
    }
    found: dict[str, list[float]] = {name: [] for name in kinds}
    for measure in kinds.values():
        measure()  # imports, caches
    for number in range(repeat):
        for name in kinds if number % 2 == 0 else reversed(kinds):
            found[name].append(kinds[name]())
    return found


def step_table(found: Mapping[str, Sequence[float]]) -> tuple[str, list[str]]:
    """The table of a step, and which bars were missed."""
    raw, rows, missed = next(iter(found.values())), [], []
    for name, values in found.items():
        above = statistics.median(one - other for one, other in zip(values, raw, strict=True))
        rows.append([name, common.spread(values, 3), f"{above:.3f}"])
        if above >= STEP_BAR_MS:
            missed.append(f"{name}: {above:.3f} ms above the raw call")
    return common.markdown(["one call of an in-process no-op tool", ">CPU ms", ">above raw, ms"], rows), missed


async def _long(turns: int) -> list[float]:
    env, costs = make_env(), []
    try:
        await env.areset(seed=0)
        for turn in range(turns):
            began = time.process_time()
            await env.astep(action(turn))
            costs.append((time.process_time() - began) * 1e3)
    finally:
        await env.aclose()
    return costs


def turns(count: int, episodes: int, repeat: int) -> dict[str, list[float]]:
    """CPU milliseconds of a step early and late in long episodes: each the median over ``episodes`` of them."""
    found: dict[str, list[float]] = {"early": [], "late": []}
    late = range(count - len(LATE), count)
    loop.run(_long(EARLY.stop))
    for _ in range(repeat):
        played = [loop.run(_long(count)) for _ in range(episodes)]
        for name, which in (("early", EARLY), ("late", late)):
            found[name].append(statistics.median(costs[turn] for costs in played for turn in which))
    return found


def turns_table(found: Mapping[str, Sequence[float]], count: int) -> tuple[str, list[str]]:
    """The table of long episodes, and which bars were missed."""
    ratio = statistics.median(late / early for early, late in zip(found["early"], found["late"], strict=True))
    rows = [[common.spread(found["early"], 3), common.spread(found["late"], 3), f"{ratio:.2f}"]]
    columns = [">step around turn 10, CPU ms", f">around turn {count}", ">times"]
    return common.markdown(columns, rows), [f"late steps cost {ratio:.2f} times early ones"] * (ratio > FLAT_BAR)


# -- fresh processes ------------------------------------------------------------------------------------------------


def fresh(*arguments: str) -> dict[str, Any]:
    """What ``drivers/fresh.py`` tells, run in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.drivers.fresh", *arguments]
    done = subprocess.run(command, cwd=common.REPOSITORY, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with status {done.returncode}: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def memory(kinds: Sequence[str], live: int, repeat: int) -> dict[str, list[float]]:
    """MB that each live episode adds, by kind of env."""
    return {kind: [fresh("memory", kind, str(live))["mb_each"] for _ in range(repeat)] for kind in kinds}


def memory_table(found: Mapping[str, Sequence[float]], live: int) -> tuple[str, list[str]]:
    """The table of memory, and which bars were missed."""
    rows = [[kind, live, common.spread(values, 3)] for kind, values in found.items()]
    missed = [f"{k}: {statistics.median(v):.2f} MB" for k, v in found.items() if statistics.median(v) >= MEMORY_BAR_MB]
    return common.markdown(["live episodes, in-process tools", ">beyond the first", ">MB each"], rows), missed


def first(repeat: int) -> dict[str, list[float]]:
    """Milliseconds of ``gym.make`` and the first reset: cold, warm; wall and CPU; and of the imports before."""
    answers = [fresh("first", "AWorld/Gaia-v0") for _ in range(repeat)]
    return {name: [answer[name] for answer in answers] for name in answers[0]}


def first_table(found: Mapping[str, Sequence[float]]) -> tuple[str, list[str]]:
    """The table of first resets, and which bars were missed."""
    labels = {
        "import": "import gymnasium, aworld_gym",
        "cold": "cold: the first of a process",
        "new_world": "warm, a task of a world that is not made yet",
        "warm": "warm",
    }
    rows = [
        [label, common.spread(found[f"{name}_ms"], 1), common.spread(found[f"{name}_cpu_ms"], 1)]
        for name, label in labels.items()
    ]
    missed = [
        f"{name}: {statistics.median(found[f'{name}_ms']):.0f} ms"
        for name, bar in (("cold", COLD_BAR_MS), ("warm", WARM_BAR_MS))
        if statistics.median(found[f"{name}_ms"]) >= bar
    ]
    return common.markdown(["gym.make + first reset, AWorld/Gaia-v0", ">wall ms", ">CPU ms"], rows), missed


def main() -> None:
    """Measure and print."""
    parser = common.parser(__doc__)
    parser.add_argument("--concurrency", type=int, nargs="+", default=list(EPISODES))
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--live", type=int, default=64, help="episodes that are live at once, for memory")
    options = parser.parse_args()
    sizes = {c: EPISODES.get(c, max(c, 20)) for c in options.concurrency}
    measures: dict[str, common.Measure] = {
        "noop": (lambda: noop(SYSTEMS, sizes, options.repeat, common.tell), lambda f: noop_table(f, sizes)),
        "step": (lambda: step(500, options.repeat), step_table),
        "turns": (lambda: turns(TURNS, 3, options.repeat), lambda f: turns_table(f, TURNS)),
        "memory": (
            lambda: memory(
                ("noop, a session each", "noop, shared session", "AWorld/Gaia-v0"), options.live, options.repeat
            ),
            lambda f: memory_table(f, options.live),
        ),
        "first": (lambda: first(options.repeat), first_table),
    }
    common.report("overhead", "Overhead", measures, options)


if __name__ == "__main__":
    main()
