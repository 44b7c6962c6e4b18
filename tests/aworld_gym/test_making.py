"""Envs named by their users: what comes out, and what is said where none can."""

import gymnasium as gym
import pytest
import shaping_functions

from aworld_gym.env import ToolEnv
from aworld_gym.errors import ConfigError
from aworld_gym.making import check_tool_env, make_tool_env

if "MakingTest/Small-v0" not in gym.registry:
    gym.register("MakingTest/Small-v0", entry_point="shaping_functions:make_env")


def lacking(**kwargs):
    raise gym.error.DependencyNotInstalled("pip install something")


def test_by_id_and_by_spec():
    for name in ("MakingTest/Small-v0", gym.spec("MakingTest/Small-v0")):
        env = make_tool_env(name)
        assert isinstance(env.unwrapped, ToolEnv) and env.spec.id == "MakingTest/Small-v0"
        env.close()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("CartPole-v1", "'CartPole-v1' is not a tool env: expected an aworld_gym.env.ToolEnv.*got CartPoleEnv"),
        ("AWorld/Gaja-v0", "no env 'AWorld/Gaja-v0'.*Did you mean"),
        ("AWorld/Gaia-v7", "no env 'AWorld/Gaia-v7'"),
    ],
)
def test_what_cannot_be_played_in(name, message):
    with pytest.raises(ConfigError, match=message):
        make_tool_env(name)


def test_what_lacks_a_dependency():
    spec = gym.envs.registration.EnvSpec("MakingTest/Lacking-v0", entry_point=lacking)
    with pytest.raises(ConfigError, match="cannot be made: pip install something"):
        make_tool_env(spec)


def test_anything_else():
    env = shaping_functions.make_env()
    assert check_tool_env(env, "mine") is env
    with pytest.raises(ConfigError, match="'mine' is not a tool env.*got NoneType"):
        check_tool_env(None, "mine")
