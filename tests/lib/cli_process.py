"""Commands, in processes of their own or in this one, and what they print."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aworld_gym.cli import app

ENV = "cli_envs:CliTest/Small-v0"
LIB = str(Path(__file__).parent)


def process(*args: str, program: tuple[str, ...] = (sys.executable, "-m", "aworld_gym"), **kwargs: Any):
    """A command in a process of its own; its streams are pipes where nothing else is said."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("LLM_")}
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [LIB, env.get("PYTHONPATH")]))
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([*program, *args], text=True, env=env, **streams | kwargs)


def only_json(out: str) -> dict[str, Any]:
    """The one JSON object that makes up all of ``out``."""
    assert out.count("\n") == 1 and out.endswith("\n"), out
    value = json.loads(out)
    assert isinstance(value, dict)
    return value


def in_process(capfd: pytest.CaptureFixture[str], *first: str) -> Callable[..., tuple[int, str, str]]:
    """Commands in this process, each begun by ``first``: what makes one (exit status, stdout, stderr)."""

    def run(*args: object) -> tuple[int, str, str]:
        capfd.readouterr()
        with pytest.raises(SystemExit) as end:
            app([*first, *map(str, args)])
        out, err = capfd.readouterr()
        return end.value.code or 0, out, err

    return run


@pytest.fixture(name="run")
def run_fixture(capfd, monkeypatch):
    """Commands in this process, on a terminal that tells no width and with no endpoint set."""
    for name in ("LLM_BASE_URL", "LLM_API_KEY", "LLM_MODEL_NAME", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    return in_process(capfd)
