"""Commands in processes of their own, and what they print."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

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
