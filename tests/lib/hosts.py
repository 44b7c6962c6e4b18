"""Environment hosts for tests: in this process, and as processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import waits
from tool_servers import SERVERS, session_of

from aworld_gym.host import HostSettings, credentials, mint
from aworld_gym.host.server import Host
from aworld_gym.toolchain import load_config, loop

sys.path.append(str(SERVERS))  # a host may be made before a test's own fixtures
SECRET = "a secret of the tests that is long enough to sign with"
BASIC = {"mcpServers": {"basic": {"python": "basic:make"}}}


@dataclass
class Running:
    """A host that runs, and what its clients need."""

    url: str
    token: str
    host: Any = None
    process: Any = None
    log: Path | None = None
    made: dict[str, Any] = field(default_factory=dict)

    def entry(self, **more: Any) -> dict[str, Any]:
        """The ``mcpServers`` entry of a client."""
        return {"type": "aworld-host", "url": self.url, "token": self.token, **more}

    @property
    def address(self) -> str:
        return self.url.removesuffix("/mcp")

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2].partition("/")[0])

    def logged(self) -> str:
        return self.log.read_text() if self.log else ""


@contextmanager
def host_here(served: Mapping[str, Any] | None = None, *, pool: int = 0, **settings: Any) -> Iterator[Running]:
    """A host in this process, on a free port."""
    configs = {name: load_config(config) for name, config in (served or {"basic": BASIC}).items()}
    options = {"port": 0, "open_timeout_s": 30.0, **settings}

    async def start() -> tuple[Host, str, int]:
        host = Host(configs, HostSettings(**options), [SECRET], pool)
        return host, *await host.start()

    host, address, port = loop.run(start(), timeout=60)
    scheme = "https" if options.get("ssl_certfile") else "http"
    try:
        yield Running(f"{scheme}://{address}:{port}/mcp", mint(SECRET, [credentials.ALL], 3600, "tests"), host)
    finally:
        loop.run(host.stop(0.01), timeout=60)


@contextmanager
def host_process(*args: str, log: Path, **env: str) -> Iterator[Running]:
    """``aworld-gym serve`` in a process of its own; its log goes to a file."""
    path = os.pathsep.join([str(SERVERS), os.environ.get("PYTHONPATH", "")])
    environ = {k: v for k, v in os.environ.items() if not k.startswith("MCP_SERVER")}
    environ |= {"PYTHONPATH": path, "AWORLD_HOST_SECRET": SECRET, **env}
    with log.open("a") as err:
        process = subprocess.Popen(
            [sys.executable, "-m", "aworld_gym", "serve", *args],
            stdout=subprocess.PIPE,
            stderr=err,
            text=True,
            env=environ,
        )
    try:
        line = waits.first_line(process)
        assert line, f"the host did not start:\n{log.read_text()}"
        told = json.loads(line)
        assert set(told) == {"ip", "port", "token"}, told
        yield Running(f"http://{told['ip']}:{told['port']}/mcp", told["token"], process=process, log=log)
    finally:
        waits.end(process)


def session_at(running: Running, *, public: Any = None, entry: Any = None, **limits: Any):
    """A tool session with a host, its toolchain closed after it."""
    return session_of({"it": entry or running.entry()}, public=public, **limits)


def quick_config(tmp_path: Path, config: Any = None) -> Path:
    """An ``mcpServers`` file."""
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps(config or BASIC))
    return path
