"""What goes to another process, and what cannot."""

import gymnasium as gym
import pytest
import ray_policies
from gymnasium.envs.registration import EnvSpec
from say_env import make_env

from aworld_gym import policies
from aworld_gym.engines.envs import maker
from aworld_gym.engines.travel import (
    Failure,
    RemoteTraceback,
    pack_env,
    pack_item,
    pack_policy,
    unpack_env,
    unpack_item,
    unpack_policy,
)
from aworld_gym.errors import ConfigError, InfraError, PolicyError, UnknownTaskError
from aworld_gym.identity import settings_json
from aworld_gym.policies import FunctionPolicy, OpenAIPolicy, OraclePolicy, RandomPolicy, Recipe, ScriptedPolicy
from aworld_gym.rollout import Item, fork_items, make_items, rollout
from aworld_gym.wrappers import RewardShaping

SAYS = {"role": "assistant", "content": "<answer>red</answer>"}


@pytest.mark.parametrize("what", ["id", "spec", "wrapped", "factory"])
def test_an_env_travels_as_json(what):
    env = RewardShaping(gym.make("Test/Say-v0"), fn="step_penalty", amount=0.25)
    source = {"id": "Test/Say-v0", "spec": gym.spec("Test/Say-v0"), "wrapped": env, "factory": ray_policies.make_env}
    there = unpack_env(pack_env(source[what]))
    _, make = maker(there)
    made = make()
    if what == "factory":
        assert there is ray_policies.make_env
    else:
        assert isinstance(there, EnvSpec)
        assert made.spec.to_json() == (env.spec if what == "wrapped" else maker("Test/Say-v0")[1]().spec).to_json()
    made.close()
    env.close()


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (lambda: make_env(), r"the function '.*<lambda>' that makes the env cannot be sent.*importable module"),
        (EnvSpec("X-v0", entry_point=make_env), "env X-v0 cannot be sent to another process.*by import path"),
        (EnvSpec("X-v0", entry_point="say_env:make_env", kwargs={"x": {1, 2}}), "its spec holds what JSON lacks"),
        ("NoSuch-v0", "no env 'NoSuch-v0'"),
        (3, "got int"),
    ],
)
def test_an_env_that_cannot_travel_is_refused_in_words(env, message):
    with pytest.raises(ConfigError, match=message):
        pack_env(env)


@pytest.mark.parametrize(
    "policy",
    [
        OraclePolicy(),
        RandomPolicy(7),
        ScriptedPolicy([SAYS], name="mine"),
        OpenAIPolicy(
            "m", base_url="http://127.0.0.1:1/v1", api_key="k" * 9, temperature=0.5, extra={"a": 1}, retries=2
        ),
        FunctionPolicy(ray_policies.answer),
        policies.make("ray_policies:place", seconds=1.5),
        policies.make("ray_policies:answer"),
        policies.make("random", seed=3),
    ],
    ids=lambda policy: policy.name,
)
def test_a_policy_travels_by_its_recipe(policy):
    there = unpack_policy(pack_policy(policy))
    assert type(there) is type(policy) and there.name == policy.name
    assert settings_json(there) == settings_json(policy)
    assert vars(there).get("recipe", there.recipe).options == dict(policy.recipe.options)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (FunctionPolicy(lambda messages, tools: SAYS), r"'<lambda>' cannot be sent.*policies\.make\("),
        (FunctionPolicy(ray_policies.answer, name="another"), "'another' cannot be sent"),
        (ScriptedPolicy(lambda transcript, info: SAYS), "'scripted' cannot be sent"),
        (policies.make("ray_policies:place", seconds={1}), "its options must be JSON"),
        (policies.make("ray_policies:Slotted"), "'slotted' cannot be sent"),
    ],
)
def test_a_policy_that_cannot_travel_is_refused_in_words(policy, message):
    with pytest.raises(ConfigError, match=message):
        pack_policy(policy)


def test_a_recipe_shows_no_secret():
    policy = OpenAIPolicy("m", base_url="http://127.0.0.1:1/v1", api_key="sk-very-secret")
    assert policy.recipe.options["api_key"] == "sk-very-secret"
    assert "sk-very" not in repr(policy.recipe) and "sk-very" not in settings_json(policy)
    assert repr(Recipe("random", {"seed": 1})) == "Recipe(name='random')"


def test_items_travel_whole():
    played = rollout("Test/Say-v0", ScriptedPolicy([SAYS]), episodes=1)
    items = [*make_items(2, seed=4, group_size=2), *fork_items(played[0], 0, 2, options={"components": {}})]
    for item in [*items, Item(3, None, options={"task_id": "red"}, manifest="sha256:1")]:
        assert unpack_item(pack_item(item)) == item
    with pytest.raises(ConfigError, match="item 5 cannot be sent to another process: its options must be JSON"):
        pack_item(Item(5, 0, options={"task_id": {1}}))


class Stubborn(Exception):
    def __init__(self, one, two):
        super().__init__(one)


@pytest.mark.parametrize(
    "error",
    [
        PolicyError("p"),
        ConfigError("c"),
        UnknownTaskError("unknown task id 'g'"),
        InfraError("host_refused", "429", server="llm"),
        ZeroDivisionError("z"),
        Stubborn("one", "two"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_failures_travel(error):
    try:
        error.add_note("In the episode with seed 3.")
        raise error
    except Exception as raised:
        there = Failure.of(raised).error()
    if isinstance(error, Stubborn):  # it cannot be made again, but is not lost
        assert type(there) is RuntimeError and str(there) == "Stubborn: one"
    else:
        assert type(there) is type(error) and str(there) == str(error)
    assert there.__notes__ == ["In the episode with seed 3."]
    assert isinstance(there.__cause__, RemoteTraceback) and "test_failures_travel" in str(there.__cause__)
