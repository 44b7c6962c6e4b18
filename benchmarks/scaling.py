"""What many episodes at once take.

    python -m benchmarks.scaling [--episodes 256] [--model-s 1] [--tool-s 0.25] [--only speedup hung replay ray]

Episodes are four calls of a tool and an answer; the model takes --model-s each turn and the tool --tool-s.

* *speedup*: all at once against one after another (--serial episodes are played so; they take the same time each).
  With a model in this process that only waits, and with an endpoint of its own over HTTP.
* *hung*: one of the episodes calls a tool that never answers; when the others end, with it and without.
* *replay*: recorded and replayed (``benchmarks.replay`` with its defaults).
* *ray*: four local nodes, one of them killed half way (``benchmarks.scaling_ray``; needs an environment with Ray:
  --ray-python).
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from aworld_gym import EpisodeContext, Task
from aworld_gym.env import ToolEnv
from aworld_gym.policies import OpenAIPolicy, ScriptedPolicy
from aworld_gym.policies.base import Policy, tool_call
from aworld_gym.rollout import iterate, make_items
from aworld_gym.toolchain import compat
from aworld_gym.types import Limits
from benchmarks import common, replay

PARTS = ("speedup", "hung", "replay", "ray")
CALLS = 4
SPEEDUP_BAR, HUNG_BAR, REPLAY_BAR = 100.0, 1.05, replay.BAR
HANG_S = 10.0
"""The deadline of a call in the part *hung*: the hung episode ends after it, long after the others."""
HUNG_TASK = "hung"
RAY_PYTHON = sys.executable  # `make test` installs Ray beside the package


def make_server(context: EpisodeContext, *, seconds: float = 0.0, hang: str = "none") -> Any:
    """A server whose tool takes ``seconds``; the first call of the task that is to hang does, as ``hang`` says."""
    server = compat.new_server("slow")
    hangs = context.public.get("hangs") is True

    async def noop(x: int) -> str:
        """Return x."""
        await asyncio.sleep(1e9 if hangs and x == 0 else seconds)
        return str(x)

    def stuck(x: int) -> str:
        threading.Event().wait(3 * HANG_S if x == 0 else seconds)  # no cancellation reaches a thread
        return str(x)

    server.tool(name="noop", description="Return x.")(stuck if hangs and hang == "thread" else noop)
    return server


def make_env(seconds: float, hang: str = "none") -> ToolEnv:
    """An env whose task ``hung`` is the only one with a hanging tool, where ``hang`` says how."""
    config = {"mcpServers": {"slow": {"python": make_server, "kwargs": {"seconds": seconds, "hang": hang}}}}
    tasks = [
        Task("plain", "Call noop.", "done"),
        Task(HUNG_TASK, "Call noop.", "done", public={"hangs": hang != "none"}),
    ]
    return ToolEnv(config, tasks, limits=Limits(call_timeout_s=HANG_S))


def waiting_policy(seconds: float) -> Policy:
    """Calls the tool four times and answers; thinks ``seconds`` each turn."""

    async def say(transcript: list[dict[str, Any]], info: Any) -> dict[str, Any]:
        await asyncio.sleep(seconds)
        x = sum(message["role"] == "tool" for message in transcript)
        if x == CALLS:
            return {"role": "assistant", "content": "<answer>done</answer>"}
        return {"role": "assistant", "content": None, "tool_calls": [tool_call(f"call_{x}", "noop", {"x": x})]}

    return ScriptedPolicy(say, name="waiting")


def finish_times(
    env: Callable[[], ToolEnv], policy: Policy, tasks: Sequence[str], concurrency: int
) -> list[tuple[str, float, bool]]:
    """Task, seconds until the end, and whether the answer was right, of each episode in order of completion."""
    items = make_items(len(tasks))
    items = [
        type(item)(item.index, item.seed, options={"task_id": task}) for item, task in zip(items, tasks, strict=True)
    ]
    ended: list[tuple[str, float, bool]] = []
    began = time.perf_counter()
    for episode in iterate(
        env,
        policy,
        items=items,
        concurrency=concurrency,
        on_episode=lambda e: ended.append((e.task_id, time.perf_counter() - began, e.total_reward == 1.0)),
    ):
        assert episode.valid, episode.error
    return ended


def speedup(episodes: int, model_s: float, tool_s: float, serial: int, repeat: int) -> dict[str, Any]:
    """Wall-clock seconds of so many at once, and of one after another, for each kind of model."""

    def walls(policy: Policy) -> dict[str, Any]:
        def env() -> ToolEnv:
            return make_env(tool_s)

        def one(count: int, concurrency: int) -> float:
            ended = finish_times(env, policy, ["plain"] * count, concurrency)
            if len(ended) != count or not all(right for *_, right in ended):
                raise RuntimeError(f"{count} episodes were to end with the right answer: {ended[:3]}...")
            return ended[-1][1]

        one(1, 1)
        alone = one(serial, 1) / serial
        together, cpus = [], []
        for _ in range(repeat):
            cpu = time.process_time()
            together.append(one(episodes, episodes))
            cpus.append(time.process_time() - cpu)
        return {"alone_s": alone, "together_s": together, "cpu_s": cpus, "episodes": episodes}

    found = {"a model in this process": walls(waiting_policy(model_s))}
    with common.chat_server(CALLS, model_s) as url:
        found["an endpoint over HTTP"] = walls(OpenAIPolicy("mock", base_url=url))
    return found


def speedup_table(found: Mapping[str, Any], model_s: float, tool_s: float) -> tuple[str, list[str]]:
    """The table of speed-ups, and which bars were missed."""
    rows, missed, least = [], [], (CALLS + 1) * model_s + CALLS * tool_s
    for name, one in found.items():
        episodes = one["episodes"]
        ratio = statistics.median(episodes * one["alone_s"] / wall for wall in one["together_s"])
        rows.append(
            [
                name,
                episodes,
                f"{one['alone_s']:.2f}",
                f"{episodes * one['alone_s']:.0f}",
                common.spread(one["together_s"]),
                f"{least:.2f}",
                f"{ratio:.0f}",
                common.spread(one["cpu_s"]),
            ]  # fmt: skip
        )
        if ratio < SPEEDUP_BAR:
            missed.append(f"speed-up with {name}: {ratio:.0f}")
    columns = [
        f"model {model_s:g} s, tool {tool_s:g} s", ">episodes", ">one alone (s)", ">one after another (s)",
        ">all at once (s)", ">waits alone (s)", ">times faster", ">CPU (s)",
    ]  # fmt: skip
    return common.markdown(columns, rows), missed


def hung(episodes: int, model_s: float, tool_s: float, repeat: int) -> dict[str, Any]:
    """When the last of the other episodes ends: without a hung tool, and with one of each kind, in turns."""
    policy, tasks = waiting_policy(model_s), [HUNG_TASK] + ["plain"] * (episodes - 1)
    found: dict[str, Any] = {"none": [], "loop": [], "thread": []}
    finish_times(lambda: make_env(0.0), waiting_policy(0.0), ["plain"], 1)
    for number in range(repeat):
        for kind in found if number % 2 == 0 else reversed(found):
            ended = finish_times(lambda kind=kind: make_env(tool_s, kind), policy, tasks, episodes)  # type: ignore[misc]
            if kind != "none" and ended[-1][0] != HUNG_TASK:
                raise RuntimeError("the episode whose tool hangs was to end last")
            found[kind].append(max(seconds for task, seconds, _ in ended if task != HUNG_TASK))
    return {**found, "episodes": episodes}


def hung_table(found: Mapping[str, Any]) -> tuple[str, list[str]]:
    """The table of hung tools, and which bars were missed."""
    labels = {"none": "no tool hangs", "loop": "one waits for ever", "thread": "one blocks its thread"}
    rows, missed = [], []
    for kind, label in labels.items():
        ratio = statistics.median(one / base for one, base in zip(found[kind], found["none"], strict=True))
        rows.append([label, found["episodes"], common.spread(found[kind]), f"{ratio:.3f}"])
        if ratio > HUNG_BAR:
            missed.append(f"{label}: the others end {ratio:.3f} times as late")
    columns = ["one hung tool", ">episodes, all at once", ">the others' last end (s)", ">times"]
    return common.markdown(columns, rows), missed


def replay_rows(episodes: int, tool_s: float, repeat: int) -> list[dict[str, Any]]:
    """Recordings and their replays at equal concurrency."""
    return [replay.compared(tool_s, concurrency, episodes, repeat) for concurrency in (16, 64)]


def replay_table(rows: Sequence[Mapping[str, Any]], tool_s: float) -> tuple[str, list[str]]:
    """The table of replays, and which bars were missed."""
    missed = [f"rewards of the replay at {row['concurrency']} differ" for row in rows if not row["identical_rewards"]]
    if rows[0]["times_faster"] < REPLAY_BAR:
        missed.append(f"replay: {rows[0]['times_faster']:.1f} times faster at {rows[0]['concurrency']} at once")
    return replay.table(list(rows), tool_s), missed


def ray(python: str, limit_s: float = 500.0) -> dict[str, Any]:
    """What ``benchmarks.scaling_ray`` found, or under ``not_run`` why there is nothing."""
    command = [python, "-m", "benchmarks.scaling_ray", "--json"]
    try:
        done = subprocess.run(command, cwd=common.REPOSITORY, capture_output=True, text=True, timeout=limit_s)
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"not_run": str(error)}
    answers = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not answers:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or ["it said nothing"]
        return {"not_run": f"status {done.returncode}: {lines[-1]}"[:300]}
    found: dict[str, Any] = json.loads(answers[-1])
    return found


def ray_table(found: Mapping[str, Any]) -> tuple[str, list[str]]:
    """The table of the Ray cluster, and which bars were missed."""
    if "not_run" in found:
        row = ["not run", *["-"] * 4, found["not_run"]]
        missed = [f"ray: not run ({found['not_run']})"]
    else:
        row = [found[name] for name in ("nodes", "episodes", "lost", "doubled", "wall_s")]
        row.append(f"{found['again']} episodes played again elsewhere")
        missed = [f"ray: {found[name]} episodes {name}" for name in ("lost", "doubled") if found[name]]
    columns = [
        "local Ray, one node killed half way: nodes",
        ">episodes",
        ">lost",
        ">doubled in the journal",
        ">wall (s)",
        "note",
    ]
    return common.markdown(columns, [row]), missed


def main() -> None:
    """Measure and print."""
    parser = common.parser(__doc__)
    parser.add_argument("--episodes", type=int, default=256)
    parser.add_argument("--model-s", type=float, default=1.0)
    parser.add_argument("--tool-s", type=float, default=0.25)
    parser.add_argument("--serial", type=int, default=3, help="episodes played one after another")
    parser.add_argument("--ray-python", default=RAY_PYTHON, help="an interpreter of an environment with Ray")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    options = parser.parse_args()
    episodes, model_s, tool_s, repeat = options.episodes, options.model_s, options.tool_s, options.repeat
    measures: dict[str, common.Measure] = {
        "speedup": (
            lambda: speedup(episodes, model_s, tool_s, options.serial, repeat),
            lambda found: speedup_table(found, model_s, tool_s),
        ),
        "hung": (lambda: hung(episodes, model_s, tool_s, repeat), hung_table),
        "replay": (lambda: replay_rows(episodes, tool_s, repeat), lambda found: replay_table(found, tool_s)),
        "ray": (lambda: ray(options.ray_python), ray_table),
    }
    common.report("scaling", "Scaling", measures, options)


if __name__ == "__main__":
    main()
