"""Policies for rollouts: the protocols, and ready ones. Nothing here imports a client library until it is used."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from aworld_gym.errors import ConfigError, did_you_mean
from aworld_gym.imports import load
from aworld_gym.policies.base import Agent, Policy, Recipe, tool_call
from aworld_gym.policies.endpoint import OpenAIPolicy
from aworld_gym.policies.function import FunctionPolicy, PolicyFunction, as_policy, mismatch
from aworld_gym.policies.oracle import OraclePolicy
from aworld_gym.policies.random_calls import RandomPolicy
from aworld_gym.policies.scripted import ScriptedPolicy

__all__ = [
    "Agent",
    "FunctionPolicy",
    "OpenAIPolicy",
    "OraclePolicy",
    "Policy",
    "PolicyFunction",
    "RandomPolicy",
    "Recipe",
    "ScriptedPolicy",
    "as_policy",
    "make",
    "tool_call",
]

log = logging.getLogger(__name__)

POLICIES: Mapping[str, Callable[..., Policy] | str] = {
    "oracle": OraclePolicy,
    "random": RandomPolicy,
    "openai": OpenAIPolicy,
    "vllm": "aworld_gym.vllm:VllmPolicy",
}
"""Ready policies by short name; by import path where they stand on more than is known here."""

SECRETS = frozenset({"api_key"})
"""Options of policies that are never recorded."""


def make(name: str, /, **options: Any) -> Policy:
    """A policy by short name (:data:`POLICIES`) or by import path ``package.module:name``.

    What stands there is a factory that takes ``options``, or a policy function of (messages, tools).

    Raises:
        ConfigError: no such policy, options that it does not take, or what was made is not a policy.
    """
    factory = load(name, POLICIES)
    if name in POLICIES and isinstance(factory, str):
        factory = load(factory)
    if not callable(factory):
        return as_policy(factory)
    why_not = mismatch(factory, **options)
    if why_not is not None:
        if not options and mismatch(factory, [], []) is None:
            return as_policy(factory)
        raise ConfigError(
            f"policy {name!r} cannot be made with options {sorted(options)}: {why_not}; "
            f"expected a factory that takes them, or a policy function of (messages, tools){_takes(factory, options)}"
        )
    made = factory(**options)
    try:
        policy = as_policy(made)
    except ConfigError as error:
        raise ConfigError(f"{name!r} gave what is no policy: {error}") from error
    if isinstance(policy, FunctionPolicy) or not hasattr(policy, "settings"):
        _record(policy, options)
    if getattr(policy, "recipe", None) is None:
        with suppress(AttributeError):  # slots, or a frozen dataclass: an engine that needs it will say so
            policy.recipe = Recipe(name, options)  # type: ignore[attr-defined]
    return policy


def _takes(factory: Callable[..., Any], options: Mapping[str, Any]) -> str:
    """Of a factory that refused options: which it takes, and which were meant."""
    try:
        known = list(inspect.signature(factory).parameters)
    except (TypeError, ValueError):  # what is written in C may have no signature
        return ""
    hints = "".join(did_you_mean(name, known) for name in options if name not in known)
    return f". It takes {', '.join(known) or 'no options'}.{hints}"


def _record(policy: Any, options: Mapping[str, Any]) -> None:
    """Let the policy carry the options it was made with, by which a journal tells runs apart."""
    settings = {**getattr(policy, "settings", {}), **{k: v for k, v in options.items() if k not in SECRETS}}
    try:
        policy.settings = settings
    except AttributeError:  # slots, or a frozen dataclass
        log.warning(
            "policy %r takes no attribute `settings`: a resumed run cannot see whether its options changed", policy.name
        )
