"""An env whose prompt depends on the process's hash seed: what no env may do."""

from __future__ import annotations

from aworld_gym import Task
from aworld_gym.env import ToolEnv


def make_env(**kwargs) -> ToolEnv:
    order = " ".join({"red", "blue", "green", "black", "white", "pink", "gold", "gray"})
    tasks = [Task(word, f"say {word}, not {order}", word) for word in ("red", "blue", "green")]
    return ToolEnv({"mcpServers": {"say": {"python": "say_env:make_server"}}}, tasks, **kwargs)
