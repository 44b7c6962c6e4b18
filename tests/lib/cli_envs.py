"""Envs and policies that command lines in tests name by import path. Printing here is on purpose: see test_cli.py."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import gymnasium as gym

from aworld_gym.env import ToolEnv
from aworld_gym.policies import OraclePolicy, ScriptedPolicy
from aworld_gym.policies.base import tool_call

print("noise from an import")
os.write(1, b"noise under Python's feet\n")

STDIO = {
    "mcpServers": {"small": {"command": sys.executable, "args": [str(Path(__file__).with_name("small_toolchain.py"))]}}
}


def make_env(*, stdio: bool = False, split: str = "train", limits: dict | None = None):
    """The small env of the tests, in process or over stdio."""
    from shaping_functions import TASKS

    print("noise from making an env")
    config = STDIO if stdio else {"mcpServers": {"small": {"python": "small_toolchain:make_server"}}}
    return ToolEnv(config, TASKS, limits=limits)


def oracle(style: str = "plain"):
    """The oracle, with an option that changes nothing."""
    return OraclePolicy()


def slow(seconds: float = 0.3):
    """A policy that waits in a tool, then submits the right answer."""

    def say(transcript, info):
        waited = transcript[-1]["role"] == "tool"
        name, arguments = ("submit_answer", {"answer": "42"}) if waited else ("wait", {"seconds": seconds})
        return {"role": "assistant", "content": None, "tool_calls": [tool_call("c", name, arguments)]}

    return ScriptedPolicy(say, name="slow")


def two():
    """A policy that answers 2, whatever the question."""
    return ScriptedPolicy([{"role": "assistant", "content": "<answer>2</answer>"}], name="two")


def broken():
    """A policy with a bug."""

    def say(transcript, info):
        raise KeyError("a bug of the policy")

    return ScriptedPolicy(say, name="broken")


def dying():
    """A policy that ends its (stdio) server."""
    return ScriptedPolicy(
        [{"role": "assistant", "content": None, "tool_calls": [tool_call("c", "die", {})]}], name="dying"
    )


def crashing():
    """Not a policy: a bug outside of any episode."""
    raise RuntimeError("an unexpected bug")


if "CliTest/Small-v0" not in gym.registry:
    gym.register("CliTest/Small-v0", entry_point="cli_envs:make_env")
