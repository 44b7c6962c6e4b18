"""What an environment host costs, what it has left after a crowd, and whether it keeps its promises: prints a table.

    python -m benchmarks.host --save [--sessions 256] [--calls 20] [--tool-s 0.05] [--think-s 0] [--dropped 1000]

The host is a process of its own with an in-process server. The clients are one process: once they speak plain HTTP, so
that nearly all of the time is the host's, and once they are the sessions of this project's envs. *Added* is what a call
takes beyond what the tool itself does. All sessions call at once and without a pause, which no model does: the host is
then never idle, and what is added is the time that a call waits for the others'.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import json
import logging
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from aworld_gym.toolchain import Toolchain, loop
from aworld_gym.toolchain.compat import new_server
from aworld_gym.types import Limits
from benchmarks import common

with common.needs("gaia,dev"):
    import psutil

    from aworld_gym.host.sessions import TICK_S

EMPTY_S, ROUND_S = 120.0, 600.0
"""Seconds for all sessions to end, and for one round of our own client's."""
_HOST = "tests/aworld_gym/host"
APART = (
    f"{_HOST}/test_protocol.py::test_two_sessions_see_nothing_of_each_other",
    f"{_HOST}/test_protocol.py::test_servers_run_in_processes_of_their_own",
    "tests/envs/gaia/test_sandbox.py::test_it_is_alone",
    "tests/envs/gaia/servers/test_browser.py::test_two_sessions_of_a_host_share_nothing_of_their_browsers",
)
TOKENS = (f"{_HOST}/test_security.py::test_bad_tokens_are_refused_with_a_reason_and_never_logged",)

OPENING = {
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "0"}},
}


def make(context: Any) -> Any:
    """The server that is served."""
    server = new_server("bench")

    @server.tool()
    async def work(seconds: float) -> str:
        """Take some time."""
        await asyncio.sleep(seconds)
        return "done"

    return server


class Client:
    """One session over one connection, by plain HTTP."""

    def __init__(self, port: int, token: str):
        self._port, self._headers, self._number = port, f"authorization: Bearer {token}\r\n", 0

    async def open(self) -> Client:
        """Connect and shake hands."""
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        status, headers, body = await self._ask(OPENING)
        if status != 200:
            raise RuntimeError(f"no session: {status} {body[:300]!r}")
        self._headers += f"mcp-session-id: {headers['mcp-session-id']}\r\n"
        await self._ask({"method": "notifications/initialized"})
        return self

    async def call(self, seconds: float) -> bool:
        """One call; whether it worked."""
        params = {"name": "work", "arguments": {"seconds": seconds}}
        status, _, body = await self._ask({"method": "tools/call", "params": params})
        return status == 200 and b'"done"' in body

    def drop(self) -> None:
        """Leave without a word."""
        self._writer.transport.abort()

    async def _ask(self, message: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
        self._number += 1
        asks = not message["method"].startswith("notifications/")
        body = json.dumps({"jsonrpc": "2.0", **({"id": self._number} if asks else {}), **message}).encode()
        head = (
            "POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
            f"accept: application/json, text/event-stream\r\ncontent-length: {len(body)}\r\n{self._headers}\r\n"
        )
        self._writer.write(head.encode() + body)
        status = int((await self._reader.readline()).split()[1])
        headers = {}
        while (line := await self._reader.readline()) != b"\r\n":
            name, _, value = line.decode().partition(":")
            headers[name.lower()] = value.strip()
        if "chunked" not in headers.get("transfer-encoding", ""):
            return status, headers, await self._reader.readexactly(int(headers.get("content-length", 0)))
        parts = []
        while size := int(await self._reader.readline(), 16):
            parts.append(await self._reader.readexactly(size))
            await self._reader.readline()
        await self._reader.readline()
        return status, headers, b"".join(parts)


async def load(port: int, token: str, host: psutil.Process, options: argparse.Namespace) -> dict[str, Any]:
    """All sessions at once, with plain HTTP clients: what calls take, and what the host spends."""
    clients = await asyncio.gather(*(Client(port, token).open() for _ in range(options.sessions)))
    found = await _played([functools.partial(client.call, options.tool_s) for client in clients], host, options)
    for client in clients:
        client.drop()
    await _empty(port)
    return found


async def ours(port: int, token: str, host: psutil.Process, options: argparse.Namespace) -> dict[str, Any]:
    """The same with this project's own client, as envs use it. Runs on the background loop."""
    entry = {"type": "aworld-host", "url": f"http://127.0.0.1:{port}/mcp", "token": token}
    toolchain = Toolchain({"mcpServers": {"bench": entry}}, Limits(call_timeout_s=60.0, open_timeout_s=120.0))

    async def call(session: Any) -> bool:
        return (await session.call("c", "work", {"seconds": options.tool_s})).text == "done"

    own = time.process_time()
    sessions = await asyncio.gather(*(toolchain.open() for _ in range(options.sessions)))
    opening = (time.process_time() - own) / options.sessions * 1e3
    try:
        found = await _played([functools.partial(call, session) for session in sessions], host, options)
    finally:
        await asyncio.gather(*(session.aclose() for session in sessions))
        await toolchain.aclose()
    await _empty(port)
    return found | {"client_open_cpu_ms": opening}


async def _played(
    sessions: Sequence[Callable[[], Awaitable[bool]]], host: psutil.Process, options: argparse.Namespace
) -> dict[str, Any]:
    """The calls of all sessions, each a function that makes one and says whether it worked: times, failures, CPU."""
    failed, added = 0, []

    async def play(call: Callable[[], Awaitable[bool]]) -> None:
        nonlocal failed
        for _ in range(options.calls):
            if options.think_s:
                await asyncio.sleep(random.uniform(0, 2 * options.think_s))
            began = time.perf_counter()
            good = await call()
            added.append(time.perf_counter() - began - options.tool_s)
            failed += not good

    cpu, began, own = _cpu(host), time.monotonic(), time.process_time()
    await asyncio.gather(*map(play, sessions))
    wall = time.monotonic() - began
    hundredths = statistics.quantiles(added, n=100)
    return {
        "calls": len(added),
        "failed": failed,
        "calls_per_s": len(added) / wall,
        "added_median_ms": hundredths[49] * 1e3,
        "added_p99_ms": hundredths[98] * 1e3,
        "host_cpu_ms": (_cpu(host) - cpu) / len(added) * 1e3,
        "client_cpu_ms": (time.process_time() - own) / len(added) * 1e3,
    }


async def memory(port: int, token: str, host: psutil.Process, options: argparse.Namespace) -> dict[str, Any]:
    """What an idle session holds, and what is left when so many were opened and dropped without a word."""
    warm = [await Client(port, token).open() for _ in range(4)]
    for one in warm:
        await one.call(0.0)
    before, cpu = host.memory_info().rss, _cpu(host)
    clients = await asyncio.gather(*(Client(port, token).open() for _ in range(options.sessions)))
    found: dict[str, Any] = {
        "idle_session_mib": (host.memory_info().rss - before) / options.sessions / 2**20,
        "open_cpu_ms": (_cpu(host) - cpu) / options.sessions * 1e3,
    }
    for client in (*clients, *warm):
        client.drop()
    await _empty(port)
    files, held, left = host.num_fds(), host.memory_info().rss, options.dropped
    while left > 0:
        crowd = await asyncio.gather(*(Client(port, token).open() for _ in range(min(left, options.sessions))))
        left -= len(crowd)
        for client in crowd:
            client.drop()
        await _empty(port)
    return found | {
        "dropped": options.dropped,
        "files_left": host.num_fds() - files,
        "memory_left_mib": (host.memory_info().rss - held) / 2**20,
        "processes_left": len(host.children(recursive=True)),
    }


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


async def _empty(port: int) -> None:
    """Wait until the host has no session."""
    async with asyncio.timeout(EMPTY_S):
        while True:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /ready HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n")
            text = await reader.read()
            writer.close()
            if json.loads(text.partition(b"\r\n\r\n")[2])["sessions"] == 0:
                await asyncio.sleep(3 * TICK_S)  # it collects what is left of them when it next looks
                return
            await asyncio.sleep(0.2)


def tested(*nodes: str) -> tuple[str, bool]:
    """What became of some tests, in the words of pytest; whether all passed."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *nodes]
    done = subprocess.run(command, cwd=common.REPOSITORY, capture_output=True, text=True, timeout=600)
    last = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else done.stderr[-200:]
    return last.strip("= "), done.returncode == 0


def killed() -> tuple[str, bool]:
    """The row of the host that is killed; ``python -m tests.faults`` has it too, beside those of tools and network."""
    sys.path.insert(0, str(common.REPOSITORY / "tests/lib"))
    import fault_table

    logging.disable(logging.WARNING)  # they are what the row is about
    with tempfile.TemporaryDirectory() as folder:
        row = fault_table.play_host_fault(Path(folder))
    logging.disable(logging.NOTSET)
    right = sum(e.valid and e.score == 1.0 for e in row.episodes)
    wrong = sum(e.valid and e.score != 1.0 for e in row.episodes)
    times = f"the run took {row.noticed_s:.0f} s, and {row.recovered_s:.1f} s after the restart an episode was valid"
    text = f"{row.becomes}; {times}"
    return text, right == 64 and not wrong


def table(loads: list[dict[str, Any]], own: list[dict[str, Any]], held: dict[str, Any]) -> list[tuple[str, str, str]]:
    """The measured rows: what, its bar, and what was measured."""

    def both(name: str, digits: int = 0) -> str:
        return "; ".join(
            f"{who} {common.spread([one[name] for one in many], digits)}"
            for who, many in (("plain HTTP", loads), ("our client", own))
        )

    return [
        ("calls that failed", "none", both("failed")),
        ("added latency, p99, ms", "under 250", both("added_p99_ms")),
        ("added latency, median, ms", "", both("added_median_ms")),
        ("calls per second", "", both("calls_per_s")),
        ("CPU of the host per call, ms", "", both("host_cpu_ms", 2)),
        ("CPU of the clients per call, ms", "", both("client_cpu_ms", 2)),
        ("CPU per session opened, ms", "", f"host {held['open_cpu_ms']:.1f}; our client "
            f"{common.spread([one['client_open_cpu_ms'] for one in own], 1)}"),
        ("memory per idle session, MiB", "under 2", f"{held['idle_session_mib']:.2f}"),
        (
            f"{held['dropped']} sessions opened and dropped: descriptors, processes, memory left",
            "back to the start",
            f"{held['files_left']}, {held['processes_left']}, {held['memory_left_mib']:.1f} MiB",
        ),
    ]  # fmt: skip


def main() -> None:
    """Measure, and print."""
    parser = common.parser(__doc__, repeat=3)
    parser.add_argument("--sessions", type=int, default=256)
    parser.add_argument("--calls", type=int, default=20, help="of each session")
    parser.add_argument("--tool-s", type=float, default=0.05, help="seconds that the tool takes")
    parser.add_argument("--think-s", type=float, default=0.0, help="seconds between a session's calls, on average")
    parser.add_argument("--dropped", type=int, default=1000, help="sessions to open and drop")
    parser.add_argument("--load-only", action="store_true", help="leave out what is tested rather than measured")
    options = parser.parse_args()
    machine = common.Machine(("aworld-gym", "mcp", "uvicorn"))
    room = ("--max-sessions", str(options.sessions + 4), "--idle", "20")
    with common.host("benchmarks.host:make", *room) as (told, pid):
        at = told["port"], told["token"], psutil.Process(pid)
        held = asyncio.run(memory(*at, options))  # first, as long as nothing was ever allocated and given back
        loads = [asyncio.run(load(*at, options)) for _ in range(options.repeat)]
        own = [loop.run(ours(*at, options), timeout=ROUND_S) for _ in range(options.repeat)]
    rows = table(loads, own, held)
    data: dict[str, Any] = {"plain": loads, "ours": own, "held": held}
    if not options.load_only:
        for what, bar, (text, good) in (
            ("host killed (-9) in the middle of 64 episodes, and started again", "each valid in the end", killed()),
            ("two sessions: files, memory, environment, processes, browser", "nothing is seen", tested(*APART)),
            ("bad tokens", "all refused, none logged", tested(*TOKENS)),
        ):
            rows.append((what, bar, f"{text}{'' if good else ' (NOT MET)'}"))
            data[what] = {"told": text, "good": good}
    title = (
        f"{options.sessions} sessions x {options.calls} calls of a tool that takes {options.tool_s:g} s, "
        f"{options.think_s:g} s between; the median of {options.repeat} and their range."
    )
    text = f"{title}\n\n{common.markdown(('', 'bar', 'measured'), rows)}\n\n{machine.told()}"
    print(text)
    if options.save:
        more = "Faults of tools and of the network: [faults.md](faults.md)."
        common.keep("host", "The environment host", f"{text}\n\n{more}", data)


if __name__ == "__main__":
    main()
