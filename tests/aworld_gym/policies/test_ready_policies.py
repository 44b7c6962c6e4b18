"""Random, scripted and oracle policies by themselves; what they do in episodes is in test_rollout.py."""

import asyncio
import json
import types

import jsonschema
import numpy as np
import pytest

from aworld_gym import Task
from aworld_gym.errors import ConfigError
from aworld_gym.policies import OraclePolicy, RandomPolicy, ScriptedPolicy, make
from aworld_gym.policies.random_calls import random_arguments
from aworld_gym.types import PlanStep

SCHEMA = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "minLength": 1},
        "rows": {"type": "integer", "minimum": 1, "maximum": 9},
        "mode": {"enum": ["a", "b"]},
        "sheet": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        "nested": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]},
        "many": {"type": "array", "items": {"type": "boolean"}, "minItems": 1},
    },
    "required": ["path", "rows", "nested"],
    "additionalProperties": False,
}
TOOLS = [
    {"type": "function", "function": {"name": name, "description": "", "parameters": SCHEMA}} for name in ("one", "two")
]


def calls_of(policy, seed, index, turns=20):
    agent = policy.episode(obs=(), info={"tools": TOOLS}, seed=seed, index=index, attempt=0, env=None)

    async def all_of_them():
        return [await agent.act(()) for _ in range(turns)]

    return asyncio.run(all_of_them())


def test_random_calls_fit_the_schema():
    rng = np.random.default_rng(0)
    for _ in range(300):
        jsonschema.validate(random_arguments(TOOLS[0]["function"], rng), SCHEMA)


def test_random_calls_depend_on_the_seeds_and_nothing_else():
    said = calls_of(RandomPolicy(), 3, 5)
    assert said == calls_of(RandomPolicy(), 3, 5)
    assert {m["tool_calls"][0]["function"]["name"] for m in said} == {"one", "two"}
    others = [calls_of(RandomPolicy(), 4, 5), calls_of(RandomPolicy(), 3, 6), calls_of(RandomPolicy(1), 3, 5)]
    assert all(said != other for other in others)
    assert len({m["tool_calls"][0]["id"] for m in said}) == len(said)


def test_a_tool_without_parameters_is_called_without_arguments():
    assert random_arguments({"name": "now"}, np.random.default_rng(0)) == {}


def env_with(task):
    return types.SimpleNamespace(get_wrapper_attr=lambda name: {"task": task, "submit_tool": "submit_answer"}[name])


def oracle(task):
    info = {"tools": [{"type": "function", "function": {"name": name}} for name in ("look", "submit_answer")]}
    return OraclePolicy().episode(obs=(), info=info, seed=0, index=0, attempt=0, env=env_with(task))


def test_the_oracle_plays_the_plan_and_then_owns_up():
    plan = (PlanStep("look", {"at": "ü"}, content="I look."), PlanStep("submit_answer", {"answer": "7"}))
    agent = oracle(Task("t", "?", "7", plan=plan))
    said = [asyncio.run(agent.act(())) for _ in range(3)]
    assert [m["content"] for m in said[:2]] == ["I look.", None]
    assert [m["tool_calls"][0]["function"]["name"] for m in said[:2]] == ["look", "submit_answer"]
    assert json.loads(said[0]["tool_calls"][0]["function"]["arguments"]) == {"at": "ü"}
    assert "tool_calls" not in said[2]


def test_the_oracle_needs_a_plan():
    with pytest.raises(ConfigError, match="'t' has no plan"):
        oracle(Task("t", "?", "7"))
    with pytest.raises(ConfigError, match="step 1 .* calls 'lok', .* offers look, submit_answer. Did you mean 'look'"):
        oracle(Task("t", "?", "7", plan=(PlanStep("lok", {}),)))


def test_a_script_that_is_too_short_is_an_error():
    policy = ScriptedPolicy([{"role": "assistant", "content": "a"}])
    agent = policy.episode(obs=(), info={}, seed=0, index=0, attempt=0, env=None)
    assert asyncio.run(agent.act(()))["content"] == "a"
    with pytest.raises(ConfigError, match="the script has 1 messages"):
        asyncio.run(agent.act(()))


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_function_sees_the_transcript(asynchronous):
    seen = []

    def say(transcript, info):
        seen.append([m["content"] for m in transcript])
        return {"role": "assistant", "content": info["greeting"]}

    async def say_later(transcript, info):
        await asyncio.sleep(0)
        return say(transcript, info)

    policy = ScriptedPolicy(say_later if asynchronous else say, name="mine")
    agent = policy.episode(obs=(), info={"greeting": "hi"}, seed=0, index=0, attempt=0, env=None)
    for content in ("one", "two"):
        asyncio.run(agent.act(({"role": "user", "content": content},)))
    assert seen == [["one"], ["one", "hi", "two"]] and policy.name == "mine"


def test_policies_by_name():
    assert make("random", seed=3).seed == 3
    assert make("aworld_gym.policies:RandomPolicy").name == "random"
    with pytest.raises(ConfigError, match="Did you mean 'random'"):
        make("randm")
    with pytest.raises(ConfigError, match="options \\['speed'\\]"):
        make("oracle", speed=1)
    with pytest.raises(ConfigError, match="is no policy"):
        make("builtins:dict")
