"""What an environment host costs, and what it has left after a crowd: prints a table.

    python -m benchmarks.host [--sessions 256] [--calls 20] [--tool-s 0.05] [--think-s 0] [--dropped 1000]

The host is a process of its own with an in-process server; the clients are one process that speaks plain HTTP, so that
nearly all of the time is the host's. *Added* is what a call takes beyond what the tool itself does.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from aworld_gym.toolchain.compat import new_server

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


async def measure(port: int, token: str, host: psutil.Process, options: argparse.Namespace) -> dict[str, Any]:
    """The table's rows."""
    rows: dict[str, Any] = {}
    warm = [await Client(port, token).open() for _ in range(4)]
    for one in warm:
        await one.call(0.0)
    before, cpu = host.memory_info().rss, _cpu(host)
    clients = await asyncio.gather(*(Client(port, token).open() for _ in range(options.sessions)))
    rows["CPU per session opened, ms"] = (_cpu(host) - cpu) / options.sessions * 1e3
    rows["memory per idle session, MiB"] = (host.memory_info().rss - before) / options.sessions / 2**20
    added, failed = [], 0

    async def play(client: Client) -> None:
        nonlocal failed
        for _ in range(options.calls):
            if options.think_s:
                await asyncio.sleep(random.uniform(0, 2 * options.think_s))
            began = time.perf_counter()
            failed += not await client.call(options.tool_s)
            added.append(time.perf_counter() - began - options.tool_s)

    cpu, began, own = _cpu(host), time.monotonic(), time.process_time()
    await asyncio.gather(*(play(client) for client in clients))
    wall = time.monotonic() - began
    hundredths = statistics.quantiles(added, n=100)
    rows |= {
        "calls": len(added),
        "failed": failed,
        "calls per second": len(added) / wall,
        "added latency, median, ms": hundredths[49] * 1e3,
        "added latency, p99, ms": hundredths[98] * 1e3,
        "CPU of the host per call, ms": (_cpu(host) - cpu) / len(added) * 1e3,
        "CPU of the clients per call, ms": (time.process_time() - own) / len(added) * 1e3,
    }
    for client in (*clients, *warm):
        client.drop()
    await _empty(port)
    open_before, memory = host.num_fds(), host.memory_info().rss
    left = options.dropped
    while left > 0:
        crowd = await asyncio.gather(*(Client(port, token).open() for _ in range(min(left, options.sessions))))
        left -= len(crowd)
        for client in crowd:
            client.drop()
        await _empty(port)
    rows |= {
        "sessions opened and dropped": options.dropped,
        "descriptors left": host.num_fds() - open_before,
        "memory left, MiB": (host.memory_info().rss - memory) / 2**20,
        "processes left": len(host.children(recursive=True)),
    }
    return rows


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


async def _empty(port: int) -> None:
    """Wait until the host has no session."""
    while True:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /ready HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n")
        text = await reader.read()
        writer.close()
        if json.loads(text.partition(b"\r\n\r\n")[2])["sessions"] == 0:
            return
        await asyncio.sleep(0.2)


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=256)
    parser.add_argument("--calls", type=int, default=20, help="of each session")
    parser.add_argument("--tool-s", type=float, default=0.05, help="seconds that the tool takes")
    parser.add_argument("--think-s", type=float, default=0.0, help="seconds between a session's calls, on average")
    parser.add_argument("--dropped", type=int, default=1000, help="sessions to open and drop")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "bench.json"
        config.write_text(json.dumps({"mcpServers": {"bench": {"python": "benchmarks.host:make"}}}))
        command = [sys.executable, "-m", "aworld_gym", "serve", "--mcp-config", str(config), "--port", "0"]
        command += ["--max-sessions", str(options.sessions + 4), "--idle", "20"]
        with open(Path(folder) / "log", "w") as log:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=dict(os.environ))
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                sys.exit((Path(folder) / "log").read_text())
            told = json.loads(line)
            host = psutil.Process(process.pid)
            rows = asyncio.run(measure(told["port"], told["token"], host, options))
        finally:
            process.terminate()
            process.wait()
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    print(f"{options.sessions} sessions x {options.calls} calls of {options.tool_s:g} s, {options.think_s:g} s between")
    print(f"{os.cpu_count()} CPUs, load {load}")
    for name, value in rows.items():
        print(f"{name:36} {value if isinstance(value, int) else round(value, 3)}")


if __name__ == "__main__":
    main()
