"""What goes from ``train`` to whoever plays episodes: an env as its spec, and the codec of a model's tokenizer."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from aworld_gym.errors import AWorldGymError, ConfigError
from aworld_gym.making import make_tool_env
from aworld_gym.tokens import ChatCodec, UnsupportedTemplateError

log = logging.getLogger(__name__)

Env = str | EnvSpec | gym.Env
"""What ``train`` takes: an id, a spec, or an env made by ``gym.make``, whose spec is rebuilt."""

FAMILIES = {
    "hermes": "Qwen2.5, Qwen3, Hermes, SmolLM2 with a Hermes template",
    "qwen_xml": "Qwen3.5, Nemotron 3",
    "glm": "GLM 4.5 and later",
    "llama": "Llama 3.1 and later",
}
"""Forms of tool calls, and model families that write them, whose episodes are trained on token-exactly."""


def env_spec(env: Env) -> EnvSpec:
    """The spec that ``env`` is rebuilt from, wrappers included; proved by making it once.

    Raises:
        ConfigError: no such env, an env that was not made by ``gym.make``, one that cannot be made, or no tool env.
    """
    named = env.spec if isinstance(env, gym.Env) else env
    if named is None:
        raise ConfigError(
            f"{env!r} has no spec to rebuild it from, and live envs are not shared with a trainer; "
            "register it and make it with gym.make"
        )
    if not isinstance(named, str | EnvSpec):
        raise ConfigError(f"env must be an id, an EnvSpec or an env made by gym.make, got {type(env).__name__}")
    made = make_tool_env(named)
    spec = named if isinstance(named, EnvSpec) else made.spec
    made.close()
    assert spec is not None  # gym.make has just given it one
    return copy.deepcopy(spec)


def spec_json(spec: EnvSpec) -> str:
    """The spec as JSON, for workers.

    Raises:
        ConfigError: it holds what JSON cannot.
    """
    try:
        return str(spec.to_json())
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"the spec of {spec.id} does not go through JSON, so no worker can rebuild it: {error}"
        ) from error


@lru_cache(maxsize=256)
def spec_of(text: str) -> EnvSpec:
    """The spec that :func:`spec_json` gave ``text`` for; read once for many rows."""
    return EnvSpec.from_json(text)


def checked_codec(
    tokenizer: Any, ends: int | Iterable[int] | None = None, *, given: ChatCodec | None = None, **settings: Any
) -> ChatCodec:
    """A codec for a tokenizer, checked (:meth:`~aworld_gym.tokens.ChatCodec.self_check`).

    Args:
        tokenizer: the model's.
        ends: ids that the model itself declares as ends of generation; they end a turn too.
        given: the user's own, checked and used instead of one made here.
        **settings: ChatCodec's, for one made here.

    Raises:
        UnsupportedTemplateError: the chat template cannot be used token-exactly; it names those that can.
    """
    try:
        codec = given or ChatCodec(tokenizer, **settings)
        also = {ends} if isinstance(ends, int) else set(ends or ())
        if given is None and "stop_ids" not in settings and not also <= codec.stop_ids:
            codec = ChatCodec(tokenizer, stop_ids=codec.stop_ids | also, **settings)
        codec.self_check()
    except UnsupportedTemplateError as error:
        known = "; ".join(f"{names} (form {form!r})" for form, names in FAMILIES.items())
        raise UnsupportedTemplateError(f"{error}. Families whose templates work: {known}") from error
    return codec


def prompt_length(spec: EnvSpec, codec: ChatCodec, seed: int) -> int | None:
    """Ids of the prompt of one task, from one reset in this process; None, and a warning, where it cannot be reset."""
    env = make_tool_env(spec)
    try:
        messages, info = env.reset(seed=seed)
        return len(codec.prompt(messages, info["tools"]))
    except AWorldGymError as error:
        log.warning("the env could not be reset before the run, so its prompts were not measured: %s", error)
        return None
    finally:
        env.close()
