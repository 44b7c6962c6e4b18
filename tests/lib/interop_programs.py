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
from dataclasses import dataclass
from pathlib import Path

import pytest
from interop_servers import INTEROP

REPOSITORY = Path(__file__).parents[2]
SCRIPTS = REPOSITORY / "tests/interop"
NPM = INTEROP / "node_modules"
NODE_NEEDED = (22, 19)  # by the inspector
RUN_S = 60.0


def need_installed(path: Path = INTEROP / ".done") -> None:
    """Skip where ``.interop`` was not made."""
    if not path.exists():
        pytest.skip(f"{path.relative_to(REPOSITORY)} is not there: run `make .interop/.done` (needs npm)")


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
    """What the conformance suite found."""

    passed: bool
    checks: Mapping[str, set[str]]
    """The statuses of each check, by its id."""
    report: str

    def check(self, *expected: str) -> None:
        """Nothing failed, nothing was warned of, and each of ``expected`` was tried and succeeded."""
        wrong = {name: found for name, found in self.checks.items() if found & {"FAILURE", "WARNING"}}
        missing = [name for name in expected if self.checks.get(name) != {"SUCCESS"}]
        assert self.passed and not wrong and not missing, f"{wrong=} {missing=}\n{self.report}"


def conformance(role: str, scenario: str, options: Sequence[str], out: Path, **env: str) -> Verdict:
    """Run one scenario of the conformance suite.

    Args:
        role: ``client`` or ``server``: what is tested.
        scenario: its name.
        options: further options.
        out: an empty directory, for the results.
        env: for the suite, and what it starts.
    """
    script = NPM / "@modelcontextprotocol/conformance/dist/index.js"
    command = [node(), script, role, "--scenario", scenario, "--output-dir", out, *options]
    ended = run(command, **env)
    checks: dict[str, set[str]] = {}
    for path in out.glob("*/checks.json"):
        for check in json.loads(path.read_text()):
            checks.setdefault(check["id"], set()).add(check["status"])
    texts = [path.read_text() for path in sorted(out.glob("*/std*.txt"))]
    report = "\n".join([shlex.join(map(str, command)), ended.stdout, ended.stderr, *texts])
    return Verdict(ended.returncode == 0, checks, report)
