"""Running what ``tests/interop/install.sh`` installs: foreign MCP clients, and MCP's conformance suite."""

from __future__ import annotations

import functools
import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from interop_servers import INTEROP

REPOSITORY = Path(__file__).parents[2]
SCRIPTS = REPOSITORY / "tests/interop"
NPM = INTEROP / "node_modules"
SUITE = NPM / "@modelcontextprotocol/conformance/dist/index.js"
NODE_NEEDED = (22, 19)  # by the inspector
RUN_S = 60.0


def need_installed(folder: Path = INTEROP) -> None:
    """Skip where an environment, ``.interop`` or another, was not made."""
    made = REPOSITORY / folder.relative_to(REPOSITORY).parts[0] / ".done"
    if not made.exists() or not folder.exists():
        pytest.skip(f"{folder.relative_to(REPOSITORY)} is not there: run `make {made.relative_to(REPOSITORY)}`")


@functools.cache
def node() -> str:
    """A Node that is new enough: the one of ``.interop``, else the one on PATH."""
    need_installed()
    found = [*map(str, sorted(NPM.glob("node-*/bin/node"))), shutil.which("node") or ""]
    for path in filter(None, found):
        version = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=30).stdout
        if tuple(map(int, re.findall(r"\d+", version)[:2])) >= NODE_NEEDED:
            return path
    pytest.skip(f"no Node {'.'.join(map(str, NODE_NEEDED))} or newer: neither in .interop nor on PATH")


def run(command: Sequence[str | Path], timeout: float = RUN_S, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; it sees this process's environment and ``env``."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith("MCP_SERVER")} | env
    return subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=timeout, env=environ)


@dataclass(frozen=True)
class Verdict:
    """What the conformance suite found of one scenario."""

    checks: Mapping[str, set[str]]
    """The statuses of each check, by its id."""
    said: str
    """The checks as the suite wrote them, messages included."""
    report: str
    ended_well: bool = True
    """False where the client under test failed, whatever its checks say."""

    @property
    def wrong(self) -> dict[str, set[str]]:
        """The checks that failed, or that were warned of."""
        return {name: found for name, found in self.checks.items() if found & {"FAILURE", "WARNING"}}

    def check(self, *expected: str) -> None:
        """Nothing failed, nothing was warned of, and each of ``expected`` was tried and succeeded."""
        wrong, missing = self.wrong, [name for name in expected if self.checks.get(name) != {"SUCCESS"}]
        assert self.ended_well and not wrong and not missing, f"{wrong=} {missing=}\n{self.report}"


def _suite(options: Sequence[str | Path], out: Path, node_options: Sequence[str | Path], env: Mapping[str, str]):
    """Run the suite's program; the verdicts by the folders of its results, and how it ended."""
    command = [node(), *node_options, SUITE, *options, "--output-dir", out]
    ended = run(command, **env)
    report = "\n".join([shlex.join(map(str, command)), ended.stdout, ended.stderr])
    verdicts = {}
    for path in sorted(out.glob("*/checks.json")):
        checks: dict[str, set[str]] = {}
        for check in json.loads(path.read_text()):
            checks.setdefault(check["id"], set()).add(check["status"])
        texts = [text.read_text() for text in (path, *sorted(path.parent.glob("std*.txt")))]
        verdicts[path.parent.name] = Verdict(checks, texts[0], "\n".join([report, *texts]))
    return verdicts, Verdict({}, "", report, ended.returncode == 0)


def scenarios(role: str) -> list[str]:
    """The names of the suite's scenarios for a ``client`` or ``server``."""
    ended = run([node(), SUITE, "list", f"--{role}"])
    assert ended.returncode == 0, ended.stderr
    return re.findall(r"^  - (\S+)", ended.stdout, re.M)


def conformance_client(scenario: str, options: Sequence[str], out: Path, **env: str) -> Verdict:
    """Run one client scenario of the conformance suite.

    Args:
        scenario: its name.
        options: further options.
        out: an empty directory, for the results.
        env: for the suite, and what it starts.
    """
    verdicts, ended = _suite(["client", "--scenario", scenario, *options], out, (), env)
    return replace(next(iter(verdicts.values()), ended), ended_well=ended.ended_well)


def conformance_server(url: str, version: str, token: str, out: Path) -> dict[str, Verdict]:
    """Run all server scenarios of the conformance suite that a version of the protocol has.

    Args:
        url: the server's.
        version: of the protocol, a date.
        token: sent with every request, to which the suite has no option.
        out: an empty directory, for the results.

    Returns:
        the verdicts, by the scenario's name.
    """
    options = ["server", "--url", url, "--suite", "all", "--spec-version", version]
    verdicts, ended = _suite(options, out, ["--import", SCRIPTS / "with_token.mjs"], {"MCP_SERVER_TOKEN": token})
    assert verdicts, ended.report
    # folders are called server-<scenario>-<time>
    return {re.sub(r"^server-|-\d{4}-\d\d-\d\dT.*$", "", name): verdict for name, verdict in verdicts.items()}
