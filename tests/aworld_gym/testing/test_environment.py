"""The check of envs, on envs that keep the contract and on one broken env for each rule."""

import copy
import itertools
import time

import gymnasium as gym
import pytest
import say_env
from gymnasium.error import ResetNeeded

from aworld_gym.env import ToolEnv
from aworld_gym.errors import ActionError, ConfigError
from aworld_gym.testing import ENV_RULES, EnvError, check_toolchain_env
from aworld_gym.types import PlanStep, Task

TASKS = [Task(word, f"say {word}", f"{word} {word} {word}") for word in ("red", "blue", "green", "pink")]
SERVERS = {"mcpServers": {"say": {"python": "say_env:make_server"}}}


def changed(env, **methods):
    """The env with methods replaced: each is given the original, and the arguments."""

    class Changed(type(env)):
        pass

    for name, function in methods.items():
        original = getattr(type(env), name)
        setattr(Changed, name, lambda self, *args, _f=function, _o=original, **kw: _f(self, _o, *args, **kw))
    env.__class__ = Changed
    return env


def say(**kwargs):
    return ToolEnv(SERVERS, TASKS, **kwargs)


counter = itertools.count()


def on_reset(change):
    async def areset(self, original, **kwargs):
        return change(self, *await original(self, **kwargs))

    return {"areset": areset}


def on_step(change):
    async def astep(self, original, action):
        return change(self, *await original(self, action))

    return {"astep": astep}


def info_with(**values):
    return {
        **on_reset(lambda self, obs, info: (obs, info | values)),
        **on_step(lambda self, obs, r, te, tr, info: (obs, r, te, tr, info | values)),
    }


def without(name):
    def drop(info):
        return {key: value for key, value in info.items() if key != name}

    return {
        **on_reset(lambda self, obs, info: (obs, drop(info))),
        **on_step(lambda self, obs, r, te, tr, info: (obs, r, te, tr, drop(info))),
    }


def tool_with(**values):
    def change(self, obs, info):
        info["tools"][0]["function"] |= values
        return obs, info

    return on_reset(change)


async def raises_at_bad_json(self, original, action):
    for call in action.get("tool_calls") or ():
        if call["function"]["arguments"] == '{"answer": ':
            raise ValueError("cannot read this")
    return await original(self, action)


async def takes_anything(self, original, action):
    try:
        return await original(self, action)
    except ActionError:
        return (), 0.0, False, False, {}


async def goes_on(self, original, action):
    try:
        return await original(self, action)
    except ResetNeeded:
        return (), 0.0, False, False, {}


async def never_closes(self, original):
    pass


async def same_task(self, original, *, seed=None, options=None):
    return await original(self, seed=seed, options={"task_id": "red", **(options or {})})


async def deaf_to_options(self, original, *, seed=None, options=None):
    return await original(self, seed=seed)


async def deaf_to_components(self, original, *, seed=None, options=None):
    return await original(self, seed=seed, options={k: v for k, v in (options or {}).items() if k != "components"})


def shared(self, obs, info):
    self._run.messages[:] = obs
    return obs, info


def undo(self, obs, reward, terminated, truncated, info):
    if obs:  # the answers to calls, a submission among them
        return obs, reward, terminated, truncated, info
    return obs, reward, False, False, info | {"outcome": None, "score": None}


def says_no_word(self, obs, reward, terminated, truncated, info):
    return tuple(m | {"content": ""} for m in obs), reward, terminated, truncated, info


def sync_reset(self, original, *, seed=None, options=None):
    obs, info = original(self, seed=seed, options=options)
    return ({"role": "system", "content": "Only in sync."}, *obs), info


def unplanned(**kwargs):
    plan = (PlanStep("submit_answer", {"answer": "another word"}),)
    return ToolEnv(SERVERS, [Task(w, f"say {w}", w, plan=plan) for w in ("red", "blue", "green", "pink")])


BROKEN = [
    ("observation", on_reset(lambda self, obs, info: (list(obs), info)), "got a list"),
    ("observation", on_reset(lambda self, obs, info: ((*obs, {"role": "tool", "content": ""}), info)), "expected role"),
    ("tools", tool_with(name="not a name!"), "a tool is called 'not a name!'"),
    ("tools", tool_with(parameters={"type": "object", "properties": {"a": {"type": 3}}}), "no JSON schema"),
    ("tools", on_reset(lambda self, obs, info: (obs, info | {"tools": info["tools"] * 2})), "different names"),
    ("info", without("state_key"), "it lacks ['state_key']"),
    ("info", info_with(extra=object()), "it is not JSON"),
    ("answer_is_hidden", info_with(answer="red"), "info at reset has ['answer']"),
    ("answer_is_hidden", on_reset(lambda s, obs, info: (obs, info | {"hint": s.task.answer})), "holds the answer"),
    ("nothing_is_shared", on_reset(shared), "the transcript after a change"),
    ("text_is_unicode", info_with(extra="\ud800"), "an info is not"),
    ("calls_are_answered", on_step(lambda s, obs, r, te, tr, i: (obs[:-1], r, te, tr, i)), "number of answers"),
    ("mistakes_are_answered", {"astep": raises_at_bad_json}, "arguments that are not JSON: step() raised ValueError"),
    ("mistakes_are_answered", on_step(says_no_word), "the model is told nothing"),
    ("no_action_raises", {"astep": takes_anything}, "step(None): expected ActionError, nothing was raised"),
    ("rewards", on_step(lambda s, obs, r, te, tr, i: (obs, int(r), te, tr, i)), "a reward is a int"),
    ("rewards", on_step(lambda s, obs, r, te, tr, i: (obs, r + 1.0, te, tr, i)), "components {'task': 0.0} of 1.0"),
    ("end", on_step(lambda s, obs, r, te, tr, i: (obs, r, True, True, i)), "both are true"),
    ("end", on_step(lambda s, obs, r, te, tr, i: (obs, r, te, tr, i | {"outcome": "won"})), "'won'"),
    ("text_ends", on_step(undo), "None"),
    ("step_needs_reset", {"astep": goes_on}, "step() before reset: expected ResetNeeded"),
    ("seed_decides", info_with(when="clock"), "in another env"),
    ("seeds_differ", {"areset": same_task}, "16 seeds: only {'red'}"),
    ("task_id", {"areset": deaf_to_options}, "task_id: "),
    ("components", {"areset": deaf_to_components}, "the first message"),
    ("async_is_sync", {"reset": sync_reset}, "an awaited episode"),
    ("nothing_left_open", {"_aclose": never_closes, "_end_run": never_closes}, "tool sessions"),
]
LATE = {"task_id": ["seed_decides"], "text_ends": ["end"], "async_is_sync": ["no_action_raises", "components"]}
"""Rules that such an env breaks as well, and sooner."""
ALWAYS = ("gymnasium_checker", "copies")  # a class made in a test cannot be pickled; Gymnasium finds some of these too


@pytest.mark.parametrize(("rule", "methods", "message"), BROKEN, ids=[f"{r}-{k}" for k, (r, *_) in enumerate(BROKEN)])
def test_a_broken_env_is_found_out(rule, methods, message, monkeypatch):
    monkeypatch.setattr("aworld_gym.testing.played.SETTLE_S", 1.0)
    if message == "in another env":
        methods = on_reset(lambda self, obs, info: (obs, info | {"when": time.monotonic_ns() + next(counter)}))
    with pytest.raises(EnvError) as caught:
        check_toolchain_env(lambda: changed(say(), **methods), skip=[*ALWAYS, *LATE.get(rule, [])])
    assert caught.value.rule == rule and message in str(caught.value), str(caught.value)
    assert str(caught.value).startswith(f"{rule}: {ENV_RULES[rule]}")


def test_gymnasiums_checker_is_asked():
    class Wrong(ToolEnv):
        def __init__(self):
            super().__init__(SERVERS, TASKS)
            self.action_space = gym.spaces.Discrete(2)

    with pytest.raises(EnvError, match="^gymnasium_checker: "):
        check_toolchain_env(Wrong)


def test_a_plan_that_does_not_score_is_found_out():
    with pytest.raises(EnvError, match="^plan_scores: .*seed 0: answered, 0.0"):
        check_toolchain_env(unplanned, skip=ALWAYS)


class NotRebuilt(ToolEnv):
    """Forgets what it was told, once it was told once."""

    made = 0

    def __init__(self, greeting="hello"):
        NotRebuilt.made += 1
        super().__init__(SERVERS, TASKS, system_prompt=f"{greeting} {NotRebuilt.made > 8}")


@pytest.fixture
def registered():
    ids = []

    def register(entry_point, **kwargs):
        ids.append(f"Test/Checked{len(ids)}-v0")
        gym.register(ids[-1], entry_point=entry_point, **kwargs)
        return ids[-1]

    yield register
    for name in ids:
        del gym.registry[name]


def test_what_another_process_sees_counts(registered):
    name = registered("env_by_hash:make_env")
    with pytest.raises(EnvError, match="^seed_decides_elsewhere: .*seed 0, step 0"):
        check_toolchain_env(name)
    assert "seed_decides_elsewhere" not in check_toolchain_env(name, processes=False)


def test_a_spec_that_is_no_json(registered):
    name = registered(lambda **kwargs: say())
    with pytest.raises(EnvError, match="^spec_round_trip: "):
        check_toolchain_env(name)


def test_a_copy_that_cannot_be_made():
    def make():
        env = say()
        env.handle = (k for k in range(3))
        return env

    with pytest.raises(EnvError, match="^copies: "):
        check_toolchain_env(make, skip=["gymnasium_checker"])


def test_a_close_that_raises_the_second_time():
    async def aclose(self, original):
        await original(self)
        self.closes = getattr(self, "closes", 0) + 1
        if self.closes > 1:
            raise RuntimeError("closed already")

    def close(self, original):
        return original(self) if not getattr(self, "closes", 0) else self.not_there

    with pytest.raises((EnvError, AttributeError)):
        check_toolchain_env(lambda: changed(say(), aclose=aclose, close=close), skip=ALWAYS)


@pytest.mark.parametrize("env", [say_env.ENV_ID, gym.spec(say_env.ENV_ID), say], ids=["id", "spec", "function"])
def test_sound_envs_pass(env):
    checked = set(check_toolchain_env(env, seeds=(0, 3)))
    own = {"spec_round_trip", "seed_decides_elsewhere"} if env is say else set()
    assert checked == ENV_RULES.keys() - own


def test_actions_of_ones_own():
    seen = []

    def actions(tools, seed):
        seen.append(([tool["function"]["name"] for tool in tools], seed))
        return [{"role": "assistant", "content": "FINAL ANSWER: red"}]

    checked = check_toolchain_env(say_env.ENV_ID, actions=actions, seeds=(4, 5))
    assert "seed_decides" in checked and "seed_decides_elsewhere" not in checked
    assert {seed for _, seed in seen} == {4, 5} and seen[0][0] == ["echo", "submit_answer"]


def test_what_cannot_be_checked():
    with pytest.raises(ConfigError, match="no rule 'coppies'.*Did you mean 'copies'"):
        check_toolchain_env(say_env.ENV_ID, skip=["coppies"])
    with pytest.raises(ConfigError, match="two seeds at least"):
        check_toolchain_env(say_env.ENV_ID, seeds=[1])
    with pytest.raises(ConfigError, match="is not a tool env"):
        check_toolchain_env("CartPole-v1")
    with pytest.raises(ConfigError, match="no env 'Test/Nothing-v0'"):
        check_toolchain_env("Test/Nothing-v0")
    with pytest.raises(ConfigError, match="a function that makes one, got int"):
        check_toolchain_env(3)
    env = say()
    with pytest.raises(ConfigError, match="give a function that makes it"):
        check_toolchain_env(env)


def test_the_env_given_is_not_touched():
    env = gym.make(say_env.ENV_ID)
    env.reset(seed=5)
    before = copy.deepcopy(env.get_wrapper_attr("messages"))
    check_toolchain_env(env, processes=False)
    assert env.get_wrapper_attr("messages") == before and env.unwrapped.toolchain.opened
    env.close()
