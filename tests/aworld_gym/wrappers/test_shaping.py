"""Step-wise shaping: what each shaper pays, that it is visible, and that specs carry it."""

import json

import gymnasium as gym
import pytest
from gymnasium.envs.registration import EnvSpec
from hypothesis import given, settings
from hypothesis import strategies as st
from shaping_functions import TASKS

from aworld_gym import aio
from aworld_gym.env import ToolEnv
from aworld_gym.errors import ConfigError
from aworld_gym.wrappers import RawTextAction, RewardShaping
from aworld_gym.wrappers.shapers import PotentialShaping


def calling(*calls):
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"type": "function", "function": {"name": n, "arguments": json.dumps(a)}} for n, a in calls],
    }


ECHO, ADD = calling(("echo", {"text": "alpha"})), calling(("add", {"a": 40, "b": 2}))
BAD, SUBMIT = calling(("nope", {})), calling(("submit_answer", {"answer": "42"}))


@pytest.fixture(scope="module", autouse=True)
def registered():
    gym.register("Test/Shaped-v0", entry_point="shaping_functions:make_env")
    yield
    del gym.registry["Test/Shaped-v0"]


def play(env, *actions):
    """The (reward, components) of each step."""
    env.reset(seed=0)
    steps = []
    for action in actions:
        _, reward, terminated, truncated, info = env.step(action)
        assert reward == pytest.approx(sum(info["reward_components"].values()))
        assert "ended" not in info
        steps.append((reward, info["reward_components"]))
        if terminated or truncated:
            break
    env.close()
    return steps


def shaped(fn, *actions, **kwargs):
    return [c.get(fn) for _, c in play(RewardShaping(gym.make("Test/Shaped-v0"), fn, **kwargs), *actions)]


@pytest.mark.parametrize(
    ("fn", "kwargs", "actions", "pays"),
    [
        ("step_penalty", {"amount": 0.1}, [ECHO, BAD, SUBMIT], [-0.1, -0.1, -0.1]),
        ("tool_error_penalty", {"amount": 0.5}, [ECHO, calling(("nope", {}), ("fail", {"message": "x"}))], [0, -1.0]),
        ("repeated_call_penalty", {"amount": 1.0}, [ECHO, ADD, ECHO, calling(*[("count", {})] * 3)], [0, 0, -1, -2]),
        ("valid_call_bonus", {"amount": 0.1}, [BAD, ECHO, ADD], [0, 0.1, 0]),
        ("valid_call_bonus", {"amount": 0.1, "times": None}, [ECHO, BAD, ADD], [0.1, 0, 0.1]),
        ("valid_call_bonus", {"amount": 0.1}, [{"role": "assistant", "content": "no call"}], [0]),
        ("plan_progress", {"amount": 0.4}, [ADD, ADD, ECHO, SUBMIT], [0.2, 0, 0.2, 0]),
        ("plan_progress", {"amount": 0.4}, [{"role": "assistant", "content": "alpha 42"}], [0]),
        (
            "plan_progress",
            {"amount": 0.4},
            [calling(("alpha 42", {})), calling(("fail", {"message": "alpha 42"}))],
            [0, 0],
        ),
        ("plan_progress", {"amount": 0.4}, [calling(("echo", {"text": "alpha 42 x"})), ECHO], [0, 0.2]),
        ("plan_progress", {"amount": 0.4}, [calling(("add", {"a": 42, "b": 0})), ECHO], [0, 0.2]),
        ("plan_progress", {"amount": 0.4}, [ECHO, calling(("add", {"a": 41}))], [0.2, 0.2]),
        ("plan_progress", {"amount": 0.4}, [calling(("add", {"a": 41})), ECHO], [0, 0.2]),
        ("plan_progress", {"amount": 0.4}, [ECHO, calling(("add", {"a": 142, "b": 0})), ADD], [0.2, 0, 0.2]),
    ],
)
def test_what_each_shaper_pays(fn, kwargs, actions, pays):
    assert shaped(fn, *actions, **kwargs) == pytest.approx(pays)


def test_shapers_see_the_action_as_the_env_read_it():
    text = '<tool_call>{"name": "echo", "arguments": {"text": "alpha"}}</tool_call>'
    for fn in ("repeated_call_penalty", "valid_call_bonus", "plan_progress"):
        env = RewardShaping(RawTextAction(gym.make("Test/Shaped-v0")), fn, amount=0.5)
        last = play(env, text, text)[-1][1][fn]
        assert last == (-0.5 if fn == "repeated_call_penalty" else 0.0)


def test_a_stateful_shaper_forgets_the_last_episode():
    env = RewardShaping(gym.make("Test/Shaped-v0"), "plan_progress", amount=1.0)
    assert play(env, ADD)[0][0] == play(env, ADD)[0][0] == 0.5


def test_shapers_add_up_and_names_stay_apart():
    env = gym.make("Test/Shaped-v0")
    env = RewardShaping(env, "step_penalty", amount=0.1)
    env = RewardShaping(env, "step_penalty", amount=0.2)
    ((reward, components),) = play(env, SUBMIT)
    assert components == {"task": 1.0, "step_penalty": -0.1, "step_penalty_2": -0.2}
    assert reward == pytest.approx(0.7)


def test_a_function_of_ones_own_is_named_by_import_path():
    env = RewardShaping(gym.make("Test/Shaped-v0"), "shaping_functions:by_length", weight=0.25)
    assert play(env, calling(("echo", {"text": "a"}), ("count", {})))[0][1] == {"task": 0.0, "by_length": 0.5}


@pytest.mark.parametrize(
    ("fn", "kwargs", "message"),
    [
        ("step_penalt", {"amount": 1}, "Did you mean 'step_penalty'"),
        ("step_penalty", {}, "f\\(obs, action, reward, info, .*amount"),
        ("step_penalty", {"amount": 1, "wieght": 2}, "wieght"),
        ("plan_progress", {"amonut": 1}, "C\\(.*amonut"),
        ("no_such_module_x:f", {}, "cannot import 'no_such_module_x'"),
        ("shaping_functions:by_lenght", {}, "Did you mean 'by_length'"),
        (len, {}, "a spec must rebuild it"),
        ("potential", {"gamma": 1.5}, "gamma must be in"),
        ("potential", {"potential": "progres"}, "Did you mean 'progress'"),
    ],
)
def test_a_shaper_that_cannot_work_is_refused_at_once(fn, kwargs, message):
    with pytest.raises(ConfigError, match=message):
        RewardShaping(gym.make("Test/Shaped-v0"), fn, **kwargs)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), None, "0.5"])
def test_a_value_that_is_no_finite_number_is_refused(value):
    with pytest.raises(ValueError, match="shaping function 'returns' must return a finite number, got"):
        play(RewardShaping(gym.make("Test/Shaped-v0"), "shaping_functions:returns", value=value), ECHO)


ACTIONS = st.lists(st.sampled_from([ECHO, ADD, BAD]), max_size=5)


@settings(max_examples=25, deadline=None)
@given(actions=ACTIONS, gamma=st.sampled_from([1.0, 0.9]), submit=st.booleans())
def test_potential_based_shaping_telescopes(actions, gamma, submit):
    """sum of gamma^t F_t over an episode is -phi(s_0), whatever the policy did (Ng, Harada and Russell 1999)."""
    env = RewardShaping(
        gym.make("Test/Shaped-v0", limits={"max_turns": len(actions) + 1, "max_invalid_turns": 9}),
        "potential", potential="shaping_functions:Offset", gamma=gamma, offset=0.75,
    )  # fmt: skip
    steps = play(env, *actions, SUBMIT if submit else ECHO)
    assert len(steps) == len(actions) + 1
    total = sum(gamma**t * components["potential"] for t, (_, components) in enumerate(steps))
    assert total == pytest.approx(-0.75)


def test_potential_based_shaping_pays_the_difference():
    assert shaped("potential", ADD, BAD, ECHO, SUBMIT, gamma=1.0, scale=2.0) == pytest.approx([1.0, 0.0, 1.0, -2.0])
    assert PotentialShaping(gamma=0.5).gamma == 0.5


def test_a_spec_rebuilds_the_shaped_env_from_json():
    env = RewardShaping(gym.make("Test/Shaped-v0", limits={"max_turns": 3}), "step_penalty", amount=0.1)
    env = RewardShaping(env, "plan_progress", name="progress", amount=0.4)
    rebuilt = gym.make(EnvSpec.from_json(env.spec.to_json()))
    assert play(rebuilt, ECHO, ADD, SUBMIT) == play(env, ECHO, ADD, SUBMIT)
    assert rebuilt.unwrapped.limits.max_turns == 3


def test_the_stock_wrappers_go_along():
    env = gym.wrappers.TransformReward(gym.make("Test/Shaped-v0"), lambda r: 10 * r)
    env = gym.wrappers.RecordEpisodeStatistics(RewardShaping(env, "step_penalty", amount=1.0))
    env.reset(seed=0)
    env.step(ECHO)
    _, reward, _, _, info = env.step(SUBMIT)
    assert reward == 9.0 and info["episode"]["r"] == 8.0 and info["episode"]["l"] == 2
    limited = gym.wrappers.TimeLimit(RewardShaping(gym.make("Test/Shaped-v0"), "potential", scale=4.0), 1)
    limited.reset(seed=0)
    assert limited.step(ADD)[1:4] == (2.0, False, True)
    env.close()
    limited.close()


@pytest.mark.parametrize("foreign", [False, True], ids=["own wrappers", "a synchronous wrapper inside"])
async def test_the_async_path_gives_the_same(foreign):
    def make():
        env = RewardShaping(gym.make("Test/Shaped-v0"), "step_penalty", amount=0.1)
        if foreign:
            env = gym.wrappers.TransformReward(env, lambda r: 2 * r)
        return RewardShaping(env, "plan_progress", amount=0.4)

    sync, other = make(), make()
    assert sync.reset(seed=0)[0] == (await aio.areset(other, seed=0))[0]
    for action in (ECHO, BAD, ADD, SUBMIT):
        assert sync.step(action) == await aio.astep(other, action)
    sync.close()
    await aio.aclose(other)


def test_an_invalid_step_is_not_shaped():
    import sys
    from pathlib import Path

    script = str(Path(__file__).parents[2] / "lib/small_toolchain.py")
    stdio = {"mcpServers": {"small": {"command": sys.executable, "args": [script]}}}
    env = RewardShaping(ToolEnv(stdio, TASKS), "step_penalty", amount=0.1)
    env.reset(seed=0)
    _, reward, _, truncated, info = env.step(calling(("die", {})))
    assert (reward, truncated, info["valid"]) == (0.0, True, False)
    assert info["reward_components"] == {"task": 0.0}
    env.close()
