"""Peers on workload noop-4, side by side in one run.

    python -m benchmarks.peers [--concurrency 1 32 256] [--repeat 5] [--only NAME ...] [--save]

Each peer is installed, pinned, in an environment of its own under ``.venv-peers/`` (some minutes at first), and driven
there by a file of ``drivers/``. All take turns, each with as many episodes; the numbers are CPU of the driving process
and of all that it starts, without the model's endpoint. A peer that cannot be installed or run is a row that says why.

Two tables: five calls of a model that answers at once and four of a tool that does nothing; and the four calls alone.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import common

ENVIRONMENTS = common.REPOSITORY / ".venv-peers"
INSTALL_S = 1200.0
EPISODES = {1: 20, 32: 64, 256: 256}
"""Episodes of one measurement, by how many at once."""
OURS = "aworld-gym, a session an episode"
ALONE, STDIO = f"{OURS}, calls alone", "aworld-gym, one stdio server, calls alone"


@dataclass(frozen=True)
class System:
    """One row."""

    name: str
    script: str
    arguments: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    """What is installed for it; nothing where it runs in this environment."""
    llm: bool = True
    """Whether it plays with the model, or makes the calls alone."""
    mcp: bool = True
    """Whether its tool calls go through MCP: then it is one to be ahead of."""
    tools: str = ""
    """How it reaches the tool."""
    against: str = OURS
    """The row of ours that it is compared with: one that reaches the tool in a like way."""
    sizes: Mapping[int, int] | None = None
    """Its own numbers of episodes, where it takes too long for those of the others."""
    repeat: int | None = None
    note: str = ""

    @property
    def environment(self) -> Path:
        """Where it is installed."""
        return ENVIRONMENTS / self.packages[0].partition("[")[0].replace("==", "-")


VERIFIERS_1, VERIFIERS_4 = ("verifiers==0.1.14", "openai==3.57.0"), ("verifiers==0.4.0", "uv==0.13.9")
OPENENV = ("openenv==0.10.0", "openai==3.57.0", "fastmcp==3.4.11", "mcp==1.30.0")
GEM = ("gem-llm==0.1.0", "fastmcp==2.12.5", "pydantic==2.11.10")
AWORLD, SKYRL = ("aworld==0.3.2", "mcp==1.10.1", "pydantic==2.11.10"), ("skyrl-gym==0.4.0",)
SYSTEMS = (
    System("loop with a function", "run_bare.py", ("function",), mcp=False, tools="a function"),
    System("loop with MCP in memory", "run_bare.py", ("mcp",), tools="MCP in memory, a session an episode"),
    System(OURS, "run_ours.py", ("episode",), tools="MCP in memory, a session an episode"),
    System("aworld-gym, one shared session", "run_ours.py", ("shared",), tools="MCP in memory, one session"),
    System("verifiers 0.1.14", "run_verifiers_v0.py", (), VERIFIERS_1, mcp=False, tools="a function"),
    System(
        "verifiers 0.4.0",
        "run_verifiers_v1.py",
        (),
        VERIFIERS_4,
        tools="MCP over HTTP, one server",
        sizes={1: 2, 32: 32},
        repeat=1,
        note="a process of 70 MB for each live episode: not at 256",
    ),
    System("OpenEnv 0.10.0, in process", "run_openenv.py", ("inprocess",), OPENENV, tools="MCP in memory"),
    System("OpenEnv 0.10.0, WebSocket", "run_openenv.py", ("websocket",), OPENENV, tools="MCP behind a WebSocket"),
    System(
        "loop with MCP in memory, calls alone",
        "run_bare.py",
        ("mcp", "--no-llm"),
        llm=False,
        against=ALONE,
        tools="MCP in memory, a session an episode",
    ),
    System(
        ALONE,
        "run_ours.py",
        ("episode", "--no-llm"),
        llm=False,
        against=ALONE,
        tools="MCP in memory, a session an episode",
    ),
    System(STDIO, "run_ours.py", ("stdio", "--no-llm"), llm=False, against=STDIO, tools="MCP over stdio, one server"),
    System(
        "OpenEnv 0.10.0, in process, calls alone",
        "run_openenv.py",
        ("inprocess", "--no-llm"),
        OPENENV,
        llm=False,
        against=ALONE,
        tools="MCP in memory",
    ),
    System("skyrl-gym 0.4.0", "run_skyrl.py", (), SKYRL, llm=False, mcp=False, against=ALONE, tools="a function"),
    System("GEM 0.1.0", "run_gem.py", ("function",), GEM, llm=False, mcp=False, against=ALONE, tools="a function"),
    System(
        "GEM 0.1.0, MCPTool",
        "run_gem.py",
        ("mcp",),
        GEM,
        llm=False,
        against=STDIO,
        tools="MCP over HTTP, a session a call",
        sizes={1: 5},
        repeat=3,
        note="with a stdio server its second call fails; 32 at once did not end in ten minutes",
    ),
    System(
        "AWorld 0.3.2, Sandbox",
        "run_aworld.py",
        (),
        AWORLD,
        llm=False,
        against=STDIO,
        tools="MCP over stdio, one server",
    ),
)


class NotInstalled(Exception):
    """Why a peer cannot be had."""


def install(system: System, tell: Callable[[str], None] = common.tell) -> str:
    """The interpreter of the system's environment, made where it is not yet as it should be.

    Raises:
        NotInstalled: pip's last words.
    """
    if not system.packages:
        return sys.executable
    python, stamp = system.environment / "bin/python", system.environment / ".installed"
    wanted = "\n".join(system.packages)
    if stamp.exists() and stamp.read_text() == wanted:
        return str(python)
    tell(f"installing {' '.join(system.packages)} ...")
    try:
        for command in (
            [sys.executable, "-m", "venv", str(system.environment)],
            [str(python), "-m", "pip", "install", "-q", *system.packages],
        ):
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=INSTALL_S)
    except subprocess.CalledProcessError as error:
        lines = [line for line in error.stderr.splitlines() if "ERROR" in line] or error.stderr.splitlines() or ["?"]
        raise NotInstalled(f"not installed: {lines[-1][:200]}") from error
    except subprocess.TimeoutExpired:
        raise NotInstalled(f"not installed within {INSTALL_S:g} s") from None
    stamp.write_text(wanted)
    return str(python)


def compared(
    systems: Sequence[System], sizes: Mapping[int, int], repeat: int, tell: Callable[[str], None] = common.tell
) -> dict[str, Any]:
    """Per system: CPU milliseconds an episode in each round, by concurrency; versions; or why there are none."""
    found: dict[str, Any] = {}
    drivers: dict[str, common.Driver] = {}
    by_name = {system.name: system for system in systems}
    with common.chat_server() as url, tempfile.TemporaryDirectory() as folder:
        try:
            for number, system in enumerate(systems):
                found[system.name] = {"ms": {}, "why": system.note}
                try:
                    python = install(system, tell)
                    arguments = [url, *system.arguments]
                    drivers[system.name] = common.Driver(
                        python, system.script, arguments, Path(folder) / f"{number}.log"
                    )
                except (NotInstalled, common.DriverError) as error:
                    found[system.name]["why"] = str(error)
                    tell(f"{system.name}: {error}")
                else:
                    found[system.name] |= drivers[system.name].told

            def of(name: str) -> Mapping[int, int]:
                own = by_name[name].sizes
                return sizes if own is None else {c: n for c, n in own.items() if c in sizes}

            answers, failed = common.rounds(drivers, of, lambda name: min(by_name[name].repeat or repeat, repeat), tell)
        finally:
            for driver in drivers.values():
                driver.close()
    for (name, concurrency), ones in answers.items():
        found[name]["ms"][concurrency] = [common.ms(one) for one in ones]
    for name, why in failed.items():
        found[name]["why"] = why
    return found


def tables(found: Mapping[str, Any], systems: Sequence[System], sizes: Mapping[int, int]) -> tuple[str, list[str]]:
    """One table with the model and one without; and of which peers with MCP this project is not ahead."""
    parts, missed = [], []
    for llm in (True, False):
        rows = []
        for system in (one for one in systems if one.llm is llm):
            one, reference = found[system.name], found.get(system.against, {"ms": {}})["ms"]
            cells = []
            for concurrency in sizes:
                mine = one["ms"].get(concurrency)
                if not mine:
                    cells.append("-")
                    continue
                text = common.spread(mine, 1)
                if concurrency in reference:
                    ratio = statistics.median(a / b for a, b in zip(mine, reference[concurrency], strict=False))
                    text += f", {ratio:.2f}"
                    if system.mcp and system.packages and ratio <= 1.0:
                        missed.append(f"not ahead of {system.name} at {concurrency} at once: {ratio:.2f}")
                cells.append(text)
            start = f"{one['start_s']:.1f}" if "start_s" in one else "-"
            against = f"compared with: {STDIO}" if system.against == STDIO != system.name else ""
            rows.append([system.name, system.tools, *cells, start, "; ".join(filter(None, (against, one["why"])))])
        if rows:
            what = "CPU ms an episode, and times ours"
            title = f"noop-4: {what}" if llm else f"the four calls alone: {what}"
            columns = [title, "tools", *(f">{c} at once" for c in sizes), ">start, CPU s", "note"]
            parts.append(common.markdown(columns, rows))
    return "\n\n".join(parts), missed


def main() -> None:
    """Measure and print."""
    parser = common.parser(__doc__)
    parser.add_argument("--concurrency", type=int, nargs="+", default=list(EPISODES))
    parser.add_argument("--only", nargs="+", metavar="NAME", help="systems whose name contains one of these, and ours")
    options = parser.parse_args()
    chosen = [
        one
        for one in SYSTEMS
        if options.only is None or one.name.startswith("aworld-gym") or any(part in one.name for part in options.only)
    ]
    sizes = {c: EPISODES.get(c, max(c, 10)) for c in options.concurrency}
    options.only = ["peers"]
    measure = (lambda: compared(chosen, sizes, options.repeat), lambda found: tables(found, chosen, sizes))
    common.report("peers", "Peers", {"peers": measure}, options)


if __name__ == "__main__":
    main()
