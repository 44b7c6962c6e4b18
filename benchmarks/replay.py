"""Replay against recording: the same episodes with tools that take time, and from the tape.

    python -m benchmarks.replay [--episodes 256] [--tool-seconds 0.25] [--concurrency 16 64] [--repeat 5] [--save]

Each episode is four calls of a tool that takes --tool-seconds, of a real in-process MCP server whose results no second
run would give again, then an answer made of them: right in about half of the episodes, so that rewards say whether
the same results came back. Recorded once for each concurrency and replayed --repeat times in the same process; the
table has the median. Prints a Markdown table; --save keeps it in benchmarks/results/, with versions and the machine's
load. The exit status is 1 where a reward differs, or where the first concurrency falls short of the bar.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aworld_gym import Episode, EpisodeContext, Task
from aworld_gym.env import ToolEnv
from aworld_gym.policies import ScriptedPolicy
from aworld_gym.policies.base import tool_call
from aworld_gym.rollout import rollout
from aworld_gym.tape import Recorder, Replay
from aworld_gym.toolchain import stats
from aworld_gym.toolchain.compat import new_server
from benchmarks import common

CALLS = 4
BAR = 20.0
"""How many times faster a replay has to be."""
TASKS = [Task(f"task-{number}", f"Draw numbers for {number}.", "even") for number in range(64)]


def make_server(context: EpisodeContext, *, seconds: float) -> Any:
    """A server whose one tool takes its time and never gives the same twice."""
    server = new_server("slow")

    @server.tool()
    async def draw(turn: int) -> str:
        """Draw a number."""
        await asyncio.sleep(seconds)
        return str(random.SystemRandom().randrange(10**12))

    return server


def policy() -> ScriptedPolicy:
    """Draws, then says whether the sum of what it drew is even or odd; even is right."""

    def say(transcript: list[dict[str, Any]], info: Any) -> dict[str, Any]:
        drawn = [int(message["content"]) for message in transcript if message["role"] == "tool"]
        if len(drawn) == CALLS:
            answer = "even" if sum(drawn) % 2 == 0 else "odd"
            return {"role": "assistant", "content": f"<answer>{answer}</answer>"}
        call = tool_call(f"c{len(drawn)}", "draw", {"turn": len(drawn)})
        return {"role": "assistant", "content": None, "tool_calls": [call]}

    return ScriptedPolicy(say, name="draw")


def measured(seconds: float, concurrency: int, episodes: int, tape: Any) -> tuple[list[Episode], float, float]:
    """The episodes, and what they took: wall-clock and CPU seconds."""
    config = {"mcpServers": {"slow": {"python": make_server, "kwargs": {"seconds": seconds}}}}
    wall, cpu = time.perf_counter(), time.process_time()
    played = rollout(lambda: ToolEnv(config, TASKS), policy(), episodes=episodes, concurrency=concurrency, tape=tape)
    return played, time.perf_counter() - wall, time.process_time() - cpu


def rewards(played: Sequence[Episode]) -> list[list[float]]:
    """Each step's reward."""
    return [[step.reward for step in episode.steps] for episode in played]


def compared(seconds: float, concurrency: int, episodes: int, repeat: int) -> dict[str, Any]:
    """One row: a recording, and its replays."""
    measured(0.0, concurrency, concurrency, None)  # imports, threads
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "tape"
        with Recorder(place) as recorder:
            played, record_wall, record_cpu = measured(seconds, concurrency, episodes, recorder)
        size = sum(file.stat().st_size for file in place.iterdir())
        walls, cpus, same, opened = [], [], True, stats().connections_opened
        for _ in range(repeat):
            began, cpu = time.perf_counter(), time.process_time()
            tape = Replay(place)  # reading the tape counts
            reading, reading_cpu = time.perf_counter() - began, time.process_time() - cpu
            again, wall, cpu = measured(seconds, concurrency, episodes, tape)
            walls.append(wall + reading)
            cpus.append(cpu + reading_cpu)
            same = same and rewards(again) == rewards(played)
    assert stats().connections_opened == opened, "a replay opened a connection to a server"
    valid = [episode for episode in played if episode.valid]
    return {
        "concurrency": concurrency,
        "episodes": episodes,
        "valid": len(valid),
        "rewarded": sum(episode.total_reward == 1.0 for episode in valid),
        "record_wall_s": record_wall,
        "record_cpu_s": record_cpu,
        "replay_wall_s": statistics.median(walls),
        "replay_wall_all_s": walls,
        "replay_cpu_s": statistics.median(cpus),
        "times_faster": record_wall / statistics.median(walls),
        "times_less_cpu": record_cpu / statistics.median(cpus),
        "identical_rewards": same,
        "tape_bytes": size,
    }


def table(rows: Sequence[dict[str, Any]], seconds: float) -> str:
    """The rows as Markdown."""
    columns = [
        ">concurrency", ">episodes", ">with reward", f">recording, {seconds:g} s tools (s)", ">replay (s)",
        ">times faster", ">CPU of recording / replay (s)", "rewards", ">tape (KiB)",
    ]  # fmt: skip
    cells = [
        [
            row["concurrency"],
            row["episodes"],
            row["rewarded"],
            f"{row['record_wall_s']:.2f}",
            f"{row['replay_wall_s']:.3f}",
            f"{row['times_faster']:.1f}",
            f"{row['record_cpu_s']:.2f} / {row['replay_cpu_s']:.2f}",
            "identical" if row["identical_rewards"] else "DIFFERENT",
            f"{row['tape_bytes'] / 1024:.0f}",
        ]
        for row in rows
    ]
    return common.markdown(columns, cells)


def main() -> None:
    """Measure and print."""
    parser = common.parser(__doc__)
    parser.add_argument("--episodes", type=int, default=256)
    parser.add_argument("--tool-seconds", type=float, default=0.25)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[16, 64])
    options = parser.parse_args()
    machine = common.Machine(("aworld-gym", "gymnasium", "mcp"))
    rows = [compared(options.tool_seconds, c, options.episodes, options.repeat) for c in options.concurrency]
    more = f"{CALLS} calls an episode; replay: median of {options.repeat}, reading the tape included"
    text, about = table(rows, options.tool_seconds), machine.told(more)
    print(text, about, sep="\n\n")
    if options.save:
        common.keep("replay", "Replay", f"{text}\n\n{about}", {"about": about, "rows": rows})
    short = rows[0]["times_faster"] < BAR
    if short or not all(row["identical_rewards"] for row in rows):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
