"""Making an env, with the proof that it is one that agents can play in, and what is recorded of how it was made.

Used wherever an env is named by its user.
"""

from __future__ import annotations

import logging
import weakref
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from aworld_gym.env import ToolEnv
from aworld_gym.errors import ConfigError

log = logging.getLogger(__name__)


def make_tool_env(env: str | EnvSpec) -> gym.Env:
    """``gym.make(env)``.

    Raises:
        ConfigError: there is no such env, it cannot be made here, or it is no tool env.
    """
    name = env if isinstance(env, str) else env.id
    try:
        made = gym.make(env)
    except gym.error.UnregisteredEnv as error:
        raise ConfigError(f"no env {name!r}: {error}") from error
    except gym.error.Error as error:
        raise ConfigError(f"env {name!r} cannot be made: {error}") from error
    try:
        return check_tool_env(made, name)
    except ConfigError:
        made.close()
        raise


def check_tool_env(env: Any, name: str) -> gym.Env:
    """The env itself.

    Args:
        env: what should be a ToolEnv, wrapped or not.
        name: what to call it.

    Raises:
        ConfigError: it is something else.
    """
    if isinstance(env, gym.Env) and isinstance(env.unwrapped, ToolEnv):
        return env
    kind = type(env.unwrapped if isinstance(env, gym.Env) else env).__name__
    raise ConfigError(
        f"{name!r} is not a tool env: expected an aworld_gym.env.ToolEnv, whose actions are assistant messages "
        f"(such as AWorld/Gaia-v0, or one over your own MCP servers), got {kind}"
    )


def env_id_of(env: gym.Env) -> str:
    """The id an env is registered under, or its class name."""
    return env.spec.id if env.spec is not None else type(env.unwrapped).__name__


def spec_json(env: gym.Env) -> str | None:
    """The env's spec as JSON, wrappers included; None where it has none, or one that JSON cannot hold."""
    if env not in _specs:
        spec = env.spec
        try:
            _specs[env] = None if spec is None else spec.to_json()
        except (TypeError, ValueError) as error:
            log.info("the spec of %s is not recorded: %s", env_id_of(env), error)
            _specs[env] = None
    return _specs[env]


_specs: weakref.WeakKeyDictionary[gym.Env, str | None] = weakref.WeakKeyDictionary()
