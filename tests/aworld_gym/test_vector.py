"""The vector env: Gymnasium's contract, as SyncVectorEnv keeps it, with all sub-envs at once."""

import asyncio
import copy
import json
import sys
import threading
import time
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import ClosedEnvironmentError, ResetNeeded
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import TimeLimit
from gymnasium.wrappers import vector as wrappers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from say_env import all_closed
from tape_server import TASKS, make_env
from tool_messages import calling

from aworld_gym import Score, Task
from aworld_gym.errors import ActionError, ConfigError, InfraError, UnknownTaskError
from aworld_gym.tape import Recorder, Replay, attach
from aworld_gym.toolchain import close_idle, loop, stats
from aworld_gym.vector import ToolVectorEnv, vector_of
from aworld_gym.wrappers import RewardShaping, TranscriptObservation

LOOK, SUBMIT = calling(("look", {"name": "x"})), calling(("submit_answer", {"answer": "42"}))
WRONG = {"role": "assistant", "content": "<answer>7</answer>"}
MODES = list(AutoresetMode)


@pytest.fixture(autouse=True)
def nothing_stays_open():
    before = stats()
    yield
    all_closed(before)


def envs_of(count=3, mode=AutoresetMode.NEXT_STEP, make=make_env):
    return ToolVectorEnv([make] * count, autoreset_mode=mode)


def plain(value):
    """Infos and observations as JSON, so that they can be compared whole."""
    return json.loads(json.dumps(value, default=lambda x: x.tolist()))


# ---- the same as Gymnasium's own ----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(turns=st.lists(st.tuples(*[st.sampled_from([LOOK, SUBMIT, WRONG])] * 3), max_size=6), seed=st.integers(0, 9))
def test_what_it_returns_is_what_sync_returns(mode, turns, seed):
    vectors = [envs_of(mode=mode), SyncVectorEnv([make_env] * 3, autoreset_mode=mode)]
    try:
        resets = [envs.reset(seed=seed) for envs in vectors]
        assert plain(resets[0]) == plain(resets[1])
        for actions in turns:
            ours, theirs = (envs.step(actions) for envs in vectors)
            assert plain(ours[:4]) == plain(theirs[:4])
            assert [a.dtype for a in ours[1:4]] == [a.dtype for a in theirs[1:4]]
            ours, theirs = plain(ours[4]), plain(theirs[4])
            for found in (ours, theirs):  # NaN or None, by which came first, in Gymnasium's
                found.pop("score"), found.get("final_info", {}).pop("score", None)
            assert ours == theirs
            ended = vectors[0]._ended.copy()
            if mode is AutoresetMode.DISABLED and ended.any():
                given = [envs.reset(options={"reset_mask": ended.copy()}) for envs in vectors]
                assert plain(given[0]) == plain(given[1])
    finally:
        for envs in vectors:
            envs.close()


def test_make_vec_uses_it_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        envs = gym.make_vec("AWorld/Gaia-v0", num_envs=3, preset="mini")
        assert isinstance(envs, ToolVectorEnv) and envs.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
        obs, infos = envs.reset(seed=5)
        assert obs in envs.observation_space and len(set(infos["task_id"])) == 3
        sync = gym.make_vec("AWorld/Gaia-v0", num_envs=3, vectorization_mode="sync", preset="mini")
        assert plain(sync.reset(seed=5)) == plain((obs, infos))
        assert all(action in envs.single_action_space for action in envs.action_space.sample())
        obs, *_ = envs.step(envs.action_space.sample())
        assert obs in envs.observation_space
        again = gym.make_vec(envs.spec)
        assert (
            isinstance(again, ToolVectorEnv) and again.num_envs == 3 and again.reset(seed=5)[0] == sync.reset(seed=5)[0]
        )
        for each in (envs, sync, again):
            each.close()
            each.close()


def test_make_vec_passes_arguments_on():
    kwargs = {"autoreset_mode": "Disabled", "preset": "mini", "max_episode_steps": 1, "render_mode": "ansi"}
    envs = gym.make_vec("AWorld/Gaia-v0", num_envs=2, **kwargs)
    assert envs.autoreset_mode is AutoresetMode.DISABLED and envs.render_mode == "ansi"
    envs.reset(seed=0)
    *_, truncations, infos = envs.step(envs.action_space.sample())
    assert truncations.all() and all("[user]" in text for text in envs.render())
    envs.close()
    rows = [{"prompt": "2 + 3?", "answer": "5"}]
    config = {"it": {"python": "small_toolchain:make_server", "tools": ["add"]}}
    envs = gym.make_vec("AWorld/Mcp-v0", 2, mcp_config={"mcpServers": config}, tasks=rows)
    assert envs.reset(seed=0)[0][1][-1]["content"] == "2 + 3?"
    envs.close()


# ---- all at once --------------------------------------------------------------------------------------------------


def test_sub_envs_wait_side_by_side():
    envs = envs_of(16)
    envs.reset(seed=0)
    began = time.monotonic()
    obs, *_ = envs.step([calling(("wait", {"seconds": 0.5}))] * 16)
    took = time.monotonic() - began
    assert [o[0]["content"] for o in obs] == ["waited"] * 16 and took < 4  # 8 s one after another
    envs.close()


@pytest.mark.parametrize(
    "wrap", [lambda env: TimeLimit(env, 9), lambda env: RewardShaping(env, "step_penalty", amount=0.5)]
)
def test_wrapped_sub_envs_too(wrap):
    envs = envs_of(4, make=lambda: wrap(make_env()))
    envs.reset(seed=0)
    _, rewards, *_ = envs.step([LOOK] * 4)
    assert set(rewards) <= {0.0, -0.5}
    envs.close()


def test_works_inside_a_running_loop_and_from_threads():
    envs = envs_of(2)

    async def inside():
        return envs.reset(seed=0)

    first = asyncio.run(inside())
    found = []
    thread = threading.Thread(target=lambda: found.append(envs.reset(seed=0)), daemon=True)
    thread.start()
    thread.join(60)
    assert plain(found[0]) == plain(first)
    envs.close()


# ---- resets of some, and options for each -------------------------------------------------------------------------


def test_a_mask_resets_some_and_leaves_the_others_where_they_are():
    envs = envs_of(3, AutoresetMode.DISABLED)
    first, _ = envs.reset(seed=0)
    obs, _, terminations, *_ = envs.step([LOOK, SUBMIT, LOOK])
    assert terminations.tolist() == [False, True, False]
    with pytest.raises(ResetNeeded, match="sub-envs 1 have ended"):
        envs.step([LOOK] * 3)
    mask = np.array([False, True, False])
    options = {"reset_mask": mask, "task_id": [None, "e", "not looked at"]}
    before = copy.deepcopy(options)
    again, infos = envs.reset(seed=[None, 7, None], options=options)
    assert data_equivalence(options, before), "the options are the caller's"
    assert infos["task_id"].tolist() == [None, "e", None] and infos["_task_id"].tolist() == mask.tolist()
    assert again[0] == obs[0] and again[2] == obs[2] and again[1][-1]["content"] == "Question e?"
    assert again[0] is not obs[0] and again[0][0] is not obs[0][0]
    again[0][0]["content"] = "changed"
    assert envs.call("messages")[0][-1]["content"] == "x: 1"
    _, _, terminations, *_ = envs.step([SUBMIT, LOOK, SUBMIT])
    assert terminations.tolist() == [True, False, True] and len(first) == 3
    envs.close()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"task_id": "b"}, ["b", "b", "b"]),
        ({"task_id": ["a", "b", "c"]}, ["a", "b", "c"]),
        ({"task_id": ("a", "f", "a")}, ["a", "f", "a"]),
    ],
)
def test_options_for_all_or_for_each(options, expected):
    envs = envs_of()
    _, infos = envs.reset(options=options)
    assert infos["task_id"].tolist() == expected
    words = {"system_prompt": "Be brief."}
    obs, _ = envs.reset(options={"task_id": ["a", "b", None], "components": [words, None, words]}, seed=3)
    assert [o[0]["role"] for o in obs] == ["system", "user", "system"]
    envs.close()


@pytest.mark.parametrize(
    ("seed", "options", "error", "said"),
    [
        ([1, 2], None, ConfigError, "one for each of the 3 sub-envs, got 2"),
        (None, {"task_id": ["a", "b"]}, ConfigError, "2 values for 3 sub-envs"),
        (None, {"task_di": "a"}, ConfigError, "unknown reset option 'task_di'"),
        (None, {"task_id": ["a", "b", "zz"]}, UnknownTaskError, "zz"),
        (None, {"reset_mask": [True, False, True]}, ConfigError, "NumPy array of bool and of shape \\(3,\\), got list"),
        (None, {"reset_mask": np.ones(3)}, ConfigError, "got float64 of shape \\(3,\\)"),
        (None, {"reset_mask": np.ones(2, dtype=bool)}, ConfigError, "got bool of shape \\(2,\\)"),
        (None, {"reset_mask": np.zeros(3, dtype=bool)}, ConfigError, "names no sub-env"),
    ],
)
def test_resets_that_cannot_be(seed, options, error, said):
    envs = envs_of()
    with pytest.raises(error, match=said) as failure:
        envs.reset(seed=seed, options=options)
    if error is UnknownTaskError:
        assert failure.value.__notes__ == ["In sub-env 2 of 3."]
    envs.close()


# ---- actions that cannot be ---------------------------------------------------------------------------------------


def test_steps_that_cannot_be():
    envs = envs_of()
    with pytest.raises(ResetNeeded, match="sub-envs 0, 1, 2 never began"):
        envs.step([LOOK] * 3)
    envs.reset(seed=0)
    for actions in ([LOOK] * 2, LOOK, "text", None):
        with pytest.raises(ActionError, match="sequence of 3 actions"):
            envs.step(actions)
    with pytest.raises(ActionError) as failure:
        envs.step([SUBMIT, {"role": "user", "content": "?"}, LOOK])
    assert failure.value.__notes__ == ["In sub-env 1 of 3."]
    # the others have stepped, and it goes on from there: the first is reset by this step
    obs, *_ = envs.step([LOOK] * 3)
    assert obs[0][-1]["role"] == "user" and obs[1][0]["role"] == obs[2][0]["role"] == "tool"
    envs.close()


def test_a_closed_vector_starts_nothing_again():
    envs = envs_of(2)
    envs.reset(seed=np.array([3, 4]))
    assert envs.np_random_seed == (3, 4)
    envs.close()
    for again in (envs.reset, lambda: envs.step([WRONG] * 2)):
        with pytest.raises(ClosedEnvironmentError, match="was closed; make another"):
            again()
    envs.close()


def test_vectors_that_cannot_be():
    with pytest.raises(ConfigError, match="at least one"):
        ToolVectorEnv([])
    with pytest.raises(ConfigError, match="one of 'NextStep', 'SameStep', 'Disabled', got 'next'"):
        envs_of(mode="next")
    with pytest.raises(ConfigError, match="sub-envs share one observation_space|sub-envs share one action_space"):
        ToolVectorEnv([make_env, lambda: gym.make("CartPole-v1")])


# ---- infrastructure -----------------------------------------------------------------------------------------------


class Unsteady:
    """A task source whose setup fails when it is told to."""

    def __init__(self):
        self.broken = False

    def sample(self, rng):
        return TASKS[int(rng.integers(3))]

    def get(self, task_id):
        return TASKS[0]

    def setup(self, task: Task, workspace):
        if self.broken:
            raise OSError("the disk is gone")

    def score(self, task, answer):
        return Score(1.0 if answer == "42" else 0.0)


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_a_sub_env_that_cannot_begin_anew_takes_nothing_from_the_others(mode):
    source = Unsteady()
    envs = ToolVectorEnv([make_env, lambda: make_env(tasks=source)], autoreset_mode=mode)
    envs.reset(seed=0)
    source.broken = True
    obs, rewards, terminations, truncations, infos = envs.step([LOOK, SUBMIT])
    assert rewards.tolist() == [0.0, 1.0] and terminations.tolist() == [False, True]
    if mode is AutoresetMode.SAME_STEP:
        assert infos["final_info"]["score"][1] == 1.0 and infos["outcome"][1] == "infra_failure"
    for _ in range(2):
        obs, rewards, terminations, truncations, infos = envs.step([LOOK, LOOK])
        assert obs[0][0]["content"] == "x: 1" and obs[1] == () and rewards[1] == 0.0
        assert truncations.tolist() == [False, True] and not terminations.any()
        assert infos["outcome"].tolist() == [None, "infra_failure"] and infos["valid"].tolist() == [True, False]
    source.broken = False
    obs, _, _, truncations, infos = envs.step([LOOK, LOOK])
    assert obs[1][-1]["role"] == "user" and not truncations.any() and infos["valid"].all()
    obs, *_ = envs.step([LOOK, LOOK])
    assert obs[1][0]["role"] == "tool"
    envs.close()


def test_an_explicit_reset_says_that_it_failed_and_where():
    source = Unsteady()
    source.broken = True
    envs = ToolVectorEnv([make_env, lambda: make_env(tasks=source)])
    with pytest.raises(InfraError, match="the disk is gone") as failure:
        envs.reset(seed=0)
    assert failure.value.__notes__ == ["In sub-env 1 of 2."]
    with pytest.raises(ResetNeeded, match="sub-envs 1 never began"):
        envs.step([LOOK, LOOK])
    source.broken = False
    envs.reset(options={"reset_mask": np.array([False, True])})
    obs, *_ = envs.step([LOOK, LOOK])
    assert [o[0]["content"] for o in obs] == ["x: 1", "x: 1"]
    envs.close()


# ---- Gymnasium's vector wrappers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_episode_statistics(mode):
    envs = wrappers.RecordEpisodeStatistics(envs_of(2, mode))
    envs.reset(seed=0)
    envs.step([LOOK, LOOK])
    *_, infos = envs.step([LOOK, SUBMIT])
    assert infos["episode"]["r"].tolist() == [0.0, 1.0] and infos["episode"]["l"].tolist() == [0, 2]
    if mode is AutoresetMode.DISABLED:
        envs.reset(options={"reset_mask": np.array([False, True])})
    *_, infos = envs.step([SUBMIT, LOOK])
    assert infos["episode"]["l"].tolist() == [3, 0]
    envs.close()


def test_infos_as_a_list_and_transformed_rewards_and_observations():
    envs = wrappers.TransformReward(envs_of(2), lambda rewards: 10 * rewards)
    envs = wrappers.DictInfoToList(envs)
    _, infos = envs.reset(seed=0)
    assert all(info["task_id"] in "abcdef" for info in infos)
    assert infos[0]["tools"][0]["type"] == "function" and infos[1]["reward_components"] == {"task": 0.0}
    _, rewards, _, _, infos = envs.step([SUBMIT, LOOK])
    assert rewards.tolist() == [10.0, 0.0] and infos[0]["score"] == 1.0 and infos[1]["score"] is None
    envs.close()
    envs = wrappers.TransformObservation(envs_of(2), lambda obs: tuple(len(o) for o in obs))
    assert envs.reset(seed=0)[0] == (1, 1)
    envs.close()


# ---- what it costs ------------------------------------------------------------------------------------------------


def test_observations_do_not_grow_with_the_episode():
    envs = envs_of(1, make=lambda: make_env(limits={"max_turns": None, "max_tool_calls": None}))
    envs.reset(seed=0)
    sizes = [len(json.dumps(envs.step([LOOK])[0])) for _ in range(30)]
    assert len(set(sizes)) == 1
    envs.close()
    whole = envs_of(1, make=lambda: TranscriptObservation(make_env()))
    whole.reset(seed=0)
    assert [len(whole.step([LOOK])[0][0]) for _ in range(3)] == [3, 5, 7]
    whole.close()


def test_attributes_of_sub_envs():
    envs = envs_of(2)
    envs.reset(seed=[4, 5])
    assert envs.np_random_seed == (4, 5) and len(envs.np_random) == 2
    envs.set_attr("system_prompt", ["one", "two"])
    assert envs.get_attr("system_prompt") == ("one", "two") and envs.reset()[0][1][0]["content"] == "two"
    with pytest.raises(ConfigError, match="one value for each of the 2"):
        envs.set_attr("system_prompt", ["one"])
    assert [task.id for task in envs.get_attr("task")] and "ToolVectorEnv(num_envs=2)" in repr(envs)
    envs.close()


def test_servers_of_their_own_end_with_it():
    loop.run(close_idle())
    before = stats()
    config = {
        "mcpServers": {
            "it": {"command": sys.executable, "args": [__file__.replace("aworld_gym/test_vector", "lib/tape_server")]}
        }
    }
    envs = envs_of(2, make=lambda: make_env(config))
    envs.reset(seed=0)
    assert [o[0]["content"] for o in envs.step([LOOK, LOOK])[0]] == ["x: 1", "x: 1"]
    envs.close()
    after = stats()
    assert after.processes_started - before.processes_started == after.processes_ended - before.processes_ended == 2


def test_all_sub_envs_play_from_one_tape(tmp_path):
    roll = calling(("roll", {}))
    with Recorder(tmp_path / "t") as recorder:
        envs = attach(envs_of(3), recorder)
        envs.reset(options={"task_id": "a"})
        first = envs.step([roll, roll, LOOK])[0]
        envs.close()
    envs = attach(envs_of(3), Replay(tmp_path / "t"))
    envs.reset(options={"task_id": "a"})
    again = envs.step([roll, roll, LOOK])[0]
    envs.close()
    assert sorted(o[0]["content"] for o in again) == sorted(o[0]["content"] for o in first)
    assert again[2] == first[2] and len({o[0]["content"] for o in again}) == 3


def test_a_registration_of_ones_own():
    def make_vec(num_envs, **kwargs):
        return vector_of("VectorTest/Own-v0", num_envs, **kwargs)

    gym.register("VectorTest/Own-v0", entry_point=make_env, vector_entry_point=make_vec)
    envs = gym.make_vec("VectorTest/Own-v0", num_envs=2, autoreset_mode=AutoresetMode.SAME_STEP)
    envs.reset(seed=0)
    *_, infos = envs.step([SUBMIT, LOOK])
    assert infos["final_info"]["outcome"].tolist() == ["answered", None]
    envs.close()
    gym.registry.pop("VectorTest/Own-v0")
