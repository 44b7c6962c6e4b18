"""Programs run in run_python's sandbox, under limits that a test does not have to wait for."""

from __future__ import annotations

import textwrap
from pathlib import Path

from envs.gaia.sandbox import Rules, Run, run

QUICK = Rules(cpu_s=1, wall_s=3.0, memory_bytes=256 << 20, workspace_bytes=16 << 20, workspace_entries=300)


def go(folder: Path, code: str, rules: Rules = QUICK, **options) -> Run:
    return run(textwrap.dedent(code).encode(), folder, rules=rules, **options)


def printed(folder: Path, code: str, **options) -> str:
    result = go(folder, code, **options)
    assert result.ok, result
    return result.output.strip()
