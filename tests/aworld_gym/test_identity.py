"""What tells one run from another, and which journals may be continued."""

import dataclasses
import json

import gymnasium as gym
import pytest
import shaping_functions
from episodes import episode

from aworld_gym.errors import ConfigError
from aworld_gym.identity import check_same_run, env_id_of, settings_json, spec_json, versions
from aworld_gym.policies import OpenAIPolicy, RandomPolicy, ScriptedPolicy
from aworld_gym.types import Outcome

if "IdentityTest/Small-v0" not in gym.registry:
    gym.register("IdentityTest/Small-v0", entry_point="shaping_functions:make_env")


@pytest.fixture
def env():
    made = gym.make("IdentityTest/Small-v0", limits={"max_turns": 9})
    yield made
    made.close()


def of(env, policy, **fields):
    """A record of an episode of these two."""
    played = dataclasses.replace(
        episode(0), env_id=env_id_of(env), spec=spec_json(env), versions=versions(policy), **fields
    )
    return dataclasses.replace(played, prompt=({"role": "user", "content": "?"},))


def check(done, env, policy):
    check_same_run(done, env, policy, where="e.jsonl", also="factory")


class Policy:
    name = "mine"

    def __init__(self, **settings):
        self.settings = settings

    def episode(self, **kwargs): ...


def test_the_same_run_is_continued(env):
    policy = Policy(temperature=1.0, extra={"a": [1]})
    check([], env, policy)
    check([of(env, policy)] * 2, env, Policy(extra={"a": [1]}, temperature=1.0))


@pytest.mark.parametrize(
    ("then", "now", "message"),
    [
        (
            Policy(temperature=0.0),
            Policy(temperature=1.0),
            "policy settings is {'temperature': 0.0}, this one's is",
        ),
        (Policy(x={"a": 1, "b": 2}), Policy(x={"a": 1, "b": 3}), "is {'x': {'b': 2}}, this one's is {'x': {'b': 3}}"),
        (Policy(x={"a": 1}), Policy(x="a"), "is {'x': {'a': 1}}, this one's is {'x': 'a'}"),
        (Policy(x=["a"]), Policy(x={"a": 1}), "is {'x': ['a']}, this one's is {'x': {'a': 1}}"),
        (Policy(), Policy(top_p=0.5), "its policy settings is {}, this one's is {'top_p': 0.5}"),
        (RandomPolicy(1), RandomPolicy(2), "settings is {'seed': 1}, this one's is {'seed': 2}"),
        (RandomPolicy(1), Policy(seed=1), "its policy is 'random', this one's is 'mine'"),
        (ScriptedPolicy([{"role": "assistant", "content": "a"}]), ScriptedPolicy([]), "its policy settings is"),
    ],
)
def test_another_policy_or_other_settings(env, then, now, message):
    with pytest.raises(ConfigError) as error:
        check([of(env, then)], env, now)
    assert message in str(error.value) and "e.jsonl is of another run" in str(error.value)


def test_another_env_or_other_arguments_of_it(env):
    policy, done = Policy(), [of(env, Policy())]
    other = gym.make("IdentityTest/Small-v0", limits={"max_turns": 5})
    with pytest.raises(ConfigError, match=r"env spec is \{'kwargs': \{'limits': \{'max_turns': 9\}\}\}, this one's is"):
        check(done, other, policy)
    with pytest.raises(ConfigError, match="its env is 'IdentityTest/Small-v0', this one's is 'ToolEnv'"):
        check(done, shaping_functions.make_env(), policy)
    # Every record is looked at, not the last alone.
    with pytest.raises(ConfigError, match="its env spec"):
        check([*done, of(other, policy)], other, policy)
    other.close()


def test_an_episode_whose_env_could_not_be_made_says_nothing_of_it(env):
    failed = dataclasses.replace(
        episode(0, outcome=Outcome.INFRA_FAILURE, score=None, task_id=""), env_id="factory", versions=versions(Policy())
    )
    assert failed.spec is None and not failed.prompt
    check([failed], env, Policy())
    with pytest.raises(ConfigError, match="its policy settings"):
        check([failed], env, Policy(a=1))


def test_settings_as_json():
    assert settings_json(Policy(b=1, a={"y": 2, "x": None})) == '{"a": {"x": null, "y": 2}, "b": 1}'
    assert settings_json(Policy(f=len, o=object())) == '{"f": "<builtin_function_or_method>", "o": "<object>"}'
    del (bare := Policy()).settings
    assert settings_json(bare) == "{}" and versions(bare)["policy_settings"] == "{}"
    bare.settings = [1]
    with pytest.raises(ConfigError, match="'mine': settings must be a mapping, got list"):
        settings_json(bare)


def test_what_an_endpoints_policy_says_of_itself():
    options = {"temperature": 0.5, "max_tokens": 64, "extra": {"top_k": 3}}
    here, there = (
        OpenAIPolicy("m", base_url=f"http://127.0.0.1:{port}/v1", api_key="secret-key", **options) for port in (1, 2)
    )
    found = json.loads(settings_json(here))
    assert found == {"model": "m", "images": "user", **options}
    assert settings_json(here) == settings_json(there), "a server may come back on another port"
    assert "secret" not in settings_json(here)
