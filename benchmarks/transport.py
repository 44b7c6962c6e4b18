"""Client CPU of a tool call over HTTP: the SDK's transport against the lean one, in one run.

    python -m benchmarks.transport [--sessions 1 32 256] [--repeat 5] [--save]

An environment host runs in a process of its own, with a tool that gives a short text back. In each round, both clients
open the same number of sessions with it, make the same calls in all of them at once, and close them; which comes first
changes from round to round. Told are medians over the rounds of the process's own CPU time, and of the ratios within
each round, which mean something on a busy machine too.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import Any

from aworld_gym.toolchain import load_config, loop
from aworld_gym.toolchain.compat import new_server
from aworld_gym.toolchain.config import HTTP_CLIENTS, ServerConfig
from aworld_gym.toolchain.connection import Connection
from benchmarks.common import Machine, host, keep, markdown, parser, spread, tell

TEXT = "hello world " * 8
TIMEOUT_S = 120.0
CALLS = 2048
"""Of one measurement, in all sessions together, but at most :data:`CALLS_EACH` in each."""
CALLS_EACH = 512


def make(context: Any) -> Any:
    """The server that is served."""
    server = new_server("bench")

    @server.tool()
    async def echo(text: str) -> str:
        """Give the text back."""
        return text

    return server


async def measure(config: ServerConfig, sessions: int, calls: int) -> dict[str, float]:
    """CPU milliseconds of this process per session (opened and closed) and per call."""
    began = time.process_time()
    connections = await asyncio.gather(*(Connection.open(config, None, TIMEOUT_S) for _ in range(sessions)))
    opened = time.process_time()

    async def play(connection: Connection) -> None:
        for _ in range(calls):
            result = await connection.call("echo", {"text": TEXT}, TIMEOUT_S)
            if result["content"][0]["text"] != TEXT:
                raise RuntimeError(f"a wrong result came: {result}")

    await asyncio.gather(*(connection.call("echo", {"text": TEXT}, TIMEOUT_S) for connection in connections))
    start, wall = time.process_time(), time.perf_counter()
    await asyncio.gather(*(play(connection) for connection in connections))
    end, rate = time.process_time(), sessions * calls / (time.perf_counter() - wall)
    await asyncio.gather(*(connection.aclose() for connection in connections))
    closing = time.process_time() - end
    return {
        "call_ms": 1e3 * (end - start) / (sessions * calls),
        "session_ms": 1e3 * (opened - began + closing) / sessions,
        "calls_per_s": rate,
    }


def run(sizes: list[int], repeat: int) -> list[dict[str, Any]]:
    """All measurements, in the order in which they were made."""
    found = []
    with host("benchmarks.transport:make", "--max-sessions", str(max(sizes) + 8)) as (told, _):
        url = f"http://{told['ip']}:{told['port']}/mcp"
        entry = {"type": "aworld-host", "url": url, "token": told["token"]}
        configs = {
            client: load_config({"mcpServers": {"it": {**entry, "http_client": client}}}).servers[0]
            for client in HTTP_CLIENTS
        }
        for config in configs.values():  # imports and such
            loop.run(measure(config, 1, 8), timeout=TIMEOUT_S)
        for number in range(repeat):
            for sessions in sizes:
                calls = max(1, min(CALLS_EACH, CALLS // sessions))
                for client in HTTP_CLIENTS if number % 2 == 0 else reversed(HTTP_CLIENTS):
                    answer = loop.run(measure(configs[client], sessions, calls), timeout=10 * TIMEOUT_S)
                    found.append({"round": number, "sessions": sessions, "client": client, **answer})
                    tell(f"round {number + 1}, {sessions} sessions, {client}: {answer['call_ms']:.3f} ms CPU a call")
    return found


def table(found: list[dict[str, Any]], sizes: list[int]) -> str:
    """The measurements as Markdown."""

    def of(key: str, sessions: int, client: str) -> list[float]:
        return [row[key] for row in found if (row["sessions"], row["client"]) == (sessions, client)]

    columns = [">sessions", ">sdk: ms CPU per call", ">lean: ms CPU per call", ">sdk / lean"]
    columns += [">sdk: ms CPU per session", ">lean: ms CPU per session", ">sdk: calls/s", ">lean: calls/s"]
    rows = []
    for sessions in sizes:
        sdk, lean = (of("call_ms", sessions, client) for client in HTTP_CLIENTS)
        rows.append(
            [sessions, spread(sdk, 3), spread(lean, 3), spread([a / b for a, b in zip(sdk, lean, strict=True)], 1)]
            + [f"{statistics.median(of('session_ms', sessions, client)):.1f}" for client in HTTP_CLIENTS]
            + [f"{statistics.median(of('calls_per_s', sessions, client)):.0f}" for client in HTTP_CLIENTS]
        )
    return markdown(columns, rows)


def main() -> None:
    """Measure, print, and keep."""
    made = parser(__doc__)
    made.add_argument("--sessions", type=int, nargs="+", default=[1, 32, 256], help="open at once")
    options = made.parse_args()
    machine = Machine(("aworld-gym", "mcp", "httpx2", "aiohttp"))
    found = run(options.sessions, options.repeat)
    about = machine.told(
        f"medians of {options.repeat} rounds (least-most); CPU of the client's process alone; a session is opened, its "
        "tools listed, and closed; calls per second are bounded by the host, which had a core or less to itself"
    )
    text = f"{table(found, options.sessions)}\n\n{about}"
    print(text)
    if options.save:
        keep("transport", "A tool call over HTTP: what the client costs", text, {"about": about, "rounds": found})


if __name__ == "__main__":
    main()
