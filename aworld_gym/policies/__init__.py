"""Policies for rollouts: the protocols, and ready ones. Nothing here imports a client library until it is used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from aworld_gym.errors import ConfigError
from aworld_gym.imports import load
from aworld_gym.policies.base import Agent, Policy, tool_call
from aworld_gym.policies.endpoint import OpenAIPolicy
from aworld_gym.policies.oracle import OraclePolicy
from aworld_gym.policies.random_calls import RandomPolicy
from aworld_gym.policies.scripted import ScriptedPolicy

__all__ = ["Agent", "OpenAIPolicy", "OraclePolicy", "Policy", "RandomPolicy", "ScriptedPolicy", "make", "tool_call"]

POLICIES: Mapping[str, Callable[..., Policy]] = {"oracle": OraclePolicy, "random": RandomPolicy, "openai": OpenAIPolicy}
"""Ready policies by short name."""


def make(name: str, **options: Any) -> Policy:
    """A policy by short name (:data:`POLICIES`) or by import path ``package.module:factory``.

    Raises:
        ConfigError: no such policy, options that it does not take, or what was made is not a policy.
    """
    factory = load(name, POLICIES)
    try:
        policy = factory(**options)
    except TypeError as error:
        raise ConfigError(f"policy {name!r} cannot be made with options {sorted(options)}: {error}") from error
    if not isinstance(policy, Policy):
        raise ConfigError(
            f"{name!r} gave a {type(policy).__name__}, which is no policy (it needs .name and .episode())"
        )
    return policy
