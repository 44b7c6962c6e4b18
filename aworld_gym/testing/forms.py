"""What an env's reset and step return, message by message and key by key."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import gymnasium as gym
import jsonschema

from aworld_gym.spaces import why_not_a_message
from aworld_gym.testing.rules import Rules
from aworld_gym.types import Message, Outcome

KEYS = {"task_id", "outcome", "valid", "score", "error", "tool_errors", "reward_components", "state_key"}
"""What every ``info`` holds."""


class Forms:
    """The rules of :data:`~aworld_gym.testing.ENV_RULES` on single values."""

    def __init__(self, rules: Rules):
        self.rules = rules

    def observation(self, obs: Any, roles: Sequence[str]) -> None:
        """A tuple of messages of these roles."""
        self.rules.require("observation", isinstance(obs, tuple), f"got a {type(obs).__name__}")
        for message in obs:
            problem = why_not_a_message(message, roles)
            self.rules.require("observation", problem is None, problem)
        self.rules.require("text_is_unicode", _encodes(obs), f"got {obs!r}")

    def tools(self, tools: Any) -> None:
        """OpenAI tool schemas."""
        rules = self.rules
        rules.require("tools", isinstance(tools, list) and tools, f"got {tools!r}")
        names = []
        for tool in tools:
            function = tool.get("function") if isinstance(tool, Mapping) and tool.get("type") == "function" else None
            if not isinstance(function, Mapping):
                rules.broken("tools", f"got {tool!r}")
            names.append(function.get("name"))
            rules.require(
                "tools", re.fullmatch(r"[A-Za-z0-9_-]{1,64}", str(names[-1])), f"a tool is called {names[-1]!r}"
            )
            rules.require("tools", isinstance(function.get("description", ""), str), f"description of {names[-1]}")
            parameters = function.get("parameters", {"type": "object"})
            rules.equal("tools", parameters.get("type", "object"), "object", f"type of the parameters of {names[-1]}")
            try:
                jsonschema.Draft202012Validator.check_schema(parameters)
            except jsonschema.SchemaError as error:
                rules.broken("tools", f"the parameters of {names[-1]} are no JSON schema: {error.message}")
        rules.equal("tools", len(set(names)), len(names), f"number of different names in {names}")
        rules.require("text_is_unicode", _encodes(tools), "a tool's schema is not")

    def info(self, info: Mapping[str, Any], extra: Collection[str] = ()) -> None:
        """The ``info`` of a reset or step; it holds ``extra`` too."""
        rules = self.rules
        missing = (KEYS | set(extra)) - info.keys()
        rules.require("info", not missing, f"it lacks {sorted(missing)}")
        try:
            json.dumps(info, allow_nan=False)
        except (TypeError, ValueError) as error:
            rules.broken("info", f"it is not JSON: {error}")
        rules.require("info", isinstance(info["valid"], bool) and isinstance(info["task_id"], str), f"got {info!r}")
        rules.require("text_is_unicode", _encodes(info), "an info is not")

    def hidden(self, env: gym.Env, info: Mapping[str, Any]) -> None:
        """The answer is not in the ``info`` of a reset."""
        keys = set(_keys({name: value for name, value in info.items() if name != "tools"}))
        found = keys & {"answer", "truth", "ground_truth", "solution", "plan", "expected"}
        self.rules.require("answer_is_hidden", not found, f"info at reset has {sorted(found)}")
        task = env.get_wrapper_attr("task")
        answer, text = str(task.answer), json.dumps({k: v for k, v in info.items() if k != "tools"}, ensure_ascii=False)
        told = task.answer is not None and len(answer) > 6 and answer in text and answer not in task.prompt
        self.rules.require("answer_is_hidden", not told, "info at reset holds the answer")

    def step(self, action: Message, obs: Any, reward: Any, terminated: Any, truncated: Any, info: Any) -> None:
        """All that holds of any step."""
        rules = self.rules
        self.observation(obs, ("tool",))
        self.info(info)
        rules.require("rewards", type(reward) is float, f"a reward is a {type(reward).__name__}")
        parts = sum(info["reward_components"].values())
        rules.require("rewards", abs(parts - reward) < 1e-9, f"components {info['reward_components']} of {reward}")
        score = info["score"]
        rules.require("rewards", score is None or 0.0 <= score <= 1.0, f"score {score!r}")
        outcome = info["outcome"]
        rules.require("end", not (terminated and truncated), "both are true")
        rules.equal("end", terminated or truncated, outcome is not None, f"has it ended, with outcome {outcome!r}")
        if outcome is not None:
            rules.require("end", outcome in set(Outcome), f"outcome {outcome!r} is not one of {[*map(str, Outcome)]}")
            rules.equal("end", terminated, Outcome(outcome).terminated, f"terminated, with outcome {outcome!r}")
            rules.equal("end", info["valid"], Outcome(outcome).valid, f"valid, with outcome {outcome!r}")
        calls = action.get("tool_calls") or ()
        if info["valid"]:
            found = [message["tool_call_id"] for message in obs]
            rules.equal("calls_are_answered", len(found), len(calls), "number of answers")
            asked = [call.get("id") for call in calls]
            same = all(wanted is None or wanted == got for wanted, got in zip(asked, found, strict=True))
            rules.require("calls_are_answered", same, f"asked by {asked}, answered as {found}")


def _encodes(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError:
        return False
    return True


def _keys(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield str(name)
            yield from _keys(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _keys(inner)
