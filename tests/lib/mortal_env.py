"""``say_env`` over stdio, whose server ends its own process in the middle of an episode, a given number of times."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import gymnasium as gym

from aworld_gym import Task
from aworld_gym.env import ToolEnv
from aworld_gym.toolchain.compat import new_server

ENV_ID = "Test/Mortal-v0"


def make_env(deaths: str, **kwargs) -> ToolEnv:
    """An env whose ``echo`` takes a file out of the folder ``deaths`` and dies, while there is one."""
    server = {"command": sys.executable, "args": [str(Path(__file__).resolve()), deaths]}
    tasks = [Task(word, f"say {word}", word) for word in ("red", "blue", "green", "black")]
    return ToolEnv({"mcpServers": {"say": server}}, tasks, **kwargs)


if ENV_ID not in gym.registry:
    gym.register(ENV_ID, entry_point="mortal_env:make_env")


if __name__ == "__main__":
    mortal = new_server("mortal")

    @mortal.tool()
    def echo(text: str) -> str:
        """Return the text."""
        for file in sorted(Path(sys.argv[1]).iterdir()):
            try:
                file.unlink()
            except FileNotFoundError:
                continue  # another server took it
            os._exit(3)
        return text

    @mortal.tool()
    def submit_answer(answer: str) -> str:
        """Submit the answer."""
        return "ok"

    mortal.run("stdio")
