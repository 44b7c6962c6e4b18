"""An env for command lines in tests that prints nothing itself, unlike :mod:`cli_envs`."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import gymnasium as gym
from shaping_functions import TASKS as SHAPED

from aworld_gym.env import ToolEnv

STDIO = {
    "mcpServers": {"small": {"command": sys.executable, "args": [str(Path(__file__).with_name("small_toolchain.py"))]}}
}


TASKS = [dataclasses.replace(SHAPED[0], id=name, level=level) for level, name in enumerate(("first", "second"), 1)]


def make_env(*, stdio: bool = False, split: str = "train", limits: dict | None = None):
    """The small env of the tests, in process or over stdio."""
    return ToolEnv(STDIO if stdio else {"mcpServers": {"small": {"python": "small_toolchain:make_server"}}}, TASKS)


if "QuietTest/Small-v0" not in gym.registry:
    gym.register("QuietTest/Small-v0", entry_point="quiet_envs:make_env")
