"""Random valid tool calls: a lower bound, and a way to exercise tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import jsonschema
import numpy as np

from aworld_gym.errors import ConfigError
from aworld_gym.policies.base import Recipe, tool_call
from aworld_gym.spaces import sample_json
from aworld_gym.types import Message

MAX_DRAWS = 20
"""Draws of arguments until they fit the schema; the last one is sent whether it fits or not."""


class RandomPolicy:
    """Calls one uniformly drawn tool a turn, with random arguments that fit its schema.

    What an episode's calls are depends on ``seed`` here, the episode's seed and its index alone: a retried
    episode repeats its calls.

    Args:
        seed: the policy's own seed.

    Raises:
        ConfigError: it is no whole number from 0.
    """

    name = "random"

    def __init__(self, seed: int = 0):
        if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
            raise ConfigError(f"seed must be a whole number of at least 0, got {seed!r}")
        self.seed = seed
        self.settings = {"seed": seed}
        self.recipe = Recipe("random", self.settings)

    def episode(
        self, *, obs: Any, info: Mapping[str, Any], seed: int | None, index: int, attempt: int, env: gym.Env
    ) -> RandomAgent:
        """An agent with a generator of its own."""
        return RandomAgent(info["tools"], np.random.default_rng([self.seed, 0 if seed is None else seed, index]))


class RandomAgent:
    """Draws calls from ``tools`` (OpenAI schemas) with ``rng``."""

    def __init__(self, tools: Sequence[Mapping[str, Any]], rng: np.random.Generator):
        self._rng, self._turn = rng, 0
        self._functions = [tool["function"] for tool in tools]

    async def act(self, messages: tuple[Message, ...]) -> Message:
        """One random call."""
        function = self._functions[int(self._rng.integers(len(self._functions)))]
        call = tool_call(f"call_{self._turn}", function["name"], random_arguments(function, self._rng))
        self._turn += 1
        return {"role": "assistant", "content": None, "tool_calls": [call]}


def random_arguments(function: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Arguments drawn from the schema of an OpenAI function; they fit it unless it defies random drawing."""
    schema = function.get("parameters") or {"type": "object"}
    validator = jsonschema.validators.validator_for(schema)(schema)
    for _ in range(MAX_DRAWS):
        arguments = sample_json(schema, rng)
        if validator.is_valid(arguments):
            break
    return arguments
