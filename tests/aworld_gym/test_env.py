"""The env's contract, on a real in-process MCP server and, where processes matter, on a stdio one."""

import asyncio
import copy
import json
import os
import pickle
import sys
import threading
import warnings
from pathlib import Path

import gymnasium as gym
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env

from aworld_gym import Limits, Task
from aworld_gym.env import ToolEnv
from aworld_gym.errors import ActionError, ConfigError, InfraError, UnknownTaskError
from aworld_gym.types import Score

IN_PROCESS = {"mcpServers": {"small": {"python": "small_toolchain:make_server"}}}
STDIO = {
    "mcpServers": {
        "small": {"command": sys.executable, "args": [str(Path(__file__).parents[1] / "lib/small_toolchain.py")]}
    }
}
TASKS = [Task("one", "How much is 40 + 2?", "42"), Task("two", "How much is 1 + 1?", "2"), Task("open", "Write.", None)]


def calling(*calls, **extra):
    """An action of (name, arguments) pairs."""
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": f"c{k}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for k, (name, arguments) in enumerate(calls)
        ],
        **extra,
    }


SUBMIT = calling(("submit_answer", {"answer": "42"}))


@pytest.fixture
def make():
    made = []

    def make(toolchain=IN_PROCESS, tasks=TASKS, **kwargs):
        made.append(ToolEnv(toolchain, tasks, **kwargs))
        return made[-1]

    yield make
    for env in made:
        env.close()


@pytest.fixture
def env(make):
    env = make(system_prompt="Be brief.")
    env.reset(seed=0, options={"task_id": "one"})
    return env


# ---- the Gymnasium contract ----------------------------------------------------------------------------------


FOREIGN = {
    "mcpServers": {
        "everything": {
            "command": str(Path(__file__).parents[2] / ".interop/node_modules/.bin/mcp-server-everything"),
            "tools": ["echo", "get-sum"],  # of its tools those that no clock or file decides
        }
    }
}


@pytest.mark.parametrize("toolchain", [IN_PROCESS, FOREIGN], ids=["in process", "a foreign stdio server"])
def test_gymnasiums_checker_passes_with_warnings_as_errors(toolchain):
    gym.register("Test/Small-v0", entry_point=lambda **kw: ToolEnv(toolchain, TASKS, **kw))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            env = gym.make("Test/Small-v0")
            check_env(env.unwrapped)
        env.close()
    finally:
        del gym.registry["Test/Small-v0"]


def test_the_seed_decides_the_task(make):
    one, other = make(), make()
    for seed in range(8):
        assert one.reset(seed=seed)[0] == other.reset(seed=seed)[0]
    assert len({one.reset(seed=seed)[1]["task_id"] for seed in range(20)}) == 3
    one.reset(seed=7)
    assert [one.reset()[1]["task_id"] for _ in range(8)] == [other.reset()[1]["task_id"] for _ in range(8)]


def test_a_reset_without_a_seed_works(make):
    obs, info = make().reset()
    assert obs[-1]["role"] == "user" and info["task_id"] in {"one", "two", "open"}


def test_pickle_and_deepcopy_before_and_after_reset(make):
    env = make()
    env.reset(seed=1)
    for duplicate in (copy.deepcopy(env), pickle.loads(pickle.dumps(env))):
        assert duplicate.task is None
        assert duplicate.reset(seed=1)[0] == env.reset(seed=1)[0]
        duplicate.close()


def test_render_shows_the_transcript(make):
    env = make(render_mode="ansi")
    env.reset(options={"task_id": "one"})
    env.step(calling(("add", {"a": 40, "b": 2})))
    assert env.render().splitlines() == [
        "[user] How much is 40 + 2?",
        '[assistant] add({"a": 40, "b": 2})',
        "[tool] 42",
    ]


def test_close_is_idempotent_and_an_env_may_be_reset_after_it(env):
    env.close()
    env.close()
    assert env.reset(seed=0)[1]["tools"]


# ---- reset -----------------------------------------------------------------------------------------------------


def test_reset_returns_the_prompt_and_the_tools(make):
    obs, info = make(system_prompt="Be brief.").reset(options={"task_id": "two"})
    assert obs == ({"role": "system", "content": "Be brief."}, {"role": "user", "content": "How much is 1 + 1?"})
    assert info["task_id"] == "two" and info["valid"] is True and info["outcome"] is None
    add = next(t["function"] for t in info["tools"] if t["function"]["name"] == "add")
    assert add["parameters"]["required"] == ["a"] and add["description"] == "Add two integers."
    assert "42" not in json.dumps(info)


def test_components_override_texts_for_one_episode(make):
    env = make(system_prompt="old")
    components = {"system_prompt": "new", "tool:add.description": "Sum."}
    obs, info = env.reset(options={"components": components})
    assert obs[0]["content"] == "new"
    assert {t["function"]["description"] for t in info["tools"]} >= {"Sum."}
    obs, info = env.reset()
    assert obs[0]["content"] == "old" and "Sum." not in json.dumps(info["tools"])


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"task_id": "onr"}, UnknownTaskError, "unknown task id 'onr'.*Did you mean 'one'"),
        ({"taks_id": "one"}, ConfigError, "unknown reset option 'taks_id'.*Did you mean 'task_id'"),
        ({"components": {"tool:ad.description": "x"}}, ConfigError, "Did you mean 'tool:add.description'"),
        ({"components": {"system_prompt": 3}}, ConfigError, "must be a string, got int"),
        ({"components": 5}, ConfigError, "components map names to texts, got int"),
        ({5: 1}, ConfigError, "unknown reset option '5'"),
        ([1], ConfigError, "reset options are a mapping, got list"),
    ],
)
def test_bad_options_name_the_fix(make, options, error, message):
    env = make()
    with pytest.raises(error, match=message):
        env.reset(options=options)
    assert env.reset(seed=0)[0]


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"tasks": []}, "at least one task"),
        ({"tasks": "tasks.json"}, "there is no file .tasks.json."),
        ({"tasks": 3}, "tasks must be a TaskSource"),
        ({"tasks": [{"prompt": "x"}]}, "each task needs 'id' and 'prompt'"),
        ({"limits": {"max_turn": 3}}, "unknown limit 'max_turn'.*Did you mean 'max_turns'"),
        ({"limits": 3}, "limits must be"),
        ({"limits": {"max_turns": 0}}, "max_turns must be a positive number, got 0"),
        ({"limits": {"max_turns": 1.5}}, "max_turns is a count: expected a whole number, got 1.5"),
        ({"limits": {"call_timeout_s": "30"}}, "call_timeout_s must be a positive number"),
        ({"system_prompt": 5}, "system_prompt must be a string or None, got int"),
        ({"render_mode": "human"}, "render_mode"),
    ],
)
def test_bad_arguments_name_the_fix(make, kwargs, message):
    with pytest.raises(ConfigError, match=message):
        make(**kwargs)


# ---- step ------------------------------------------------------------------------------------------------------


def test_one_message_runs_all_its_calls_at_once_and_keeps_their_order(env):
    obs, reward, terminated, truncated, info = env.step(
        calling(("wait", {"seconds": 0.4}), ("wait", {"seconds": 0.5}), ("echo", {"text": "hi"}), ("add", {"a": 1}))
    )
    assert [m["content"] for m in obs] == ["waited 0.4", "waited 0.5", "hi", "2"]
    assert [(m["role"], m["name"], m["tool_call_id"]) for m in obs][2] == ("tool", "echo", "c2")
    assert (reward, terminated, truncated, info["tool_errors"]) == (0.0, False, False, {})
    assert env.last_step.duration_s < 0.85


@pytest.mark.parametrize(
    ("call", "kind", "says"),
    [
        (("ehco", {"text": "x"}), "call_unknown_tool", "echo"),
        (("add", {"a": "one"}), "call_bad_arguments", "integer"),
        (("add", {}), "call_bad_arguments", "`a` is required"),
        (("fail", {"message": "the disk is full"}), "tool_error", "the disk is full"),
    ],
)
def test_what_the_model_does_wrong_becomes_a_tool_message(env, call, kind, says):
    obs, reward, terminated, truncated, info = env.step(calling(call))
    assert says in obs[0]["content"] and info["tool_errors"] == {kind: 1}
    assert obs[0]["content"].startswith("Error")
    assert not terminated and not truncated and info["valid"]
    assert env.step(SUBMIT)[1] == 1.0


def test_malformed_arguments_and_unreadable_calls_become_tool_messages(env):
    action = {
        "role": "assistant",
        "content": "x",
        "tool_calls": [{"id": "c", "type": "function", "function": {"name": "echo", "arguments": '{"text": '}}],
        "parse_errors": [{"type": "unclosed", "raw": "<tool_call>{", "detail": "no </tool_call>"}],
    }
    obs, _, terminated, _, info = env.step(action)
    assert [m["name"] for m in obs] == ["echo", "invalid_call"] and "no </tool_call>" in obs[1]["content"]
    assert info["tool_errors"] == {"call_invalid_json": 1, "call_malformed": 1} and not terminated


def test_a_slow_tool_is_a_result_and_not_an_exception(make):
    env = make(STDIO, limits={"call_timeout_s": 0.5})
    env.reset(options={"task_id": "one"})
    obs, _, _, truncated, info = env.step(calling(("wait", {"seconds": 30})))
    assert info["tool_errors"] == {"tool_timeout": 1} and "0.5" in obs[0]["content"] and not truncated


@pytest.mark.parametrize(
    "action",
    ["text", None, 3, {"role": "user", "content": "x"}, {"role": "assistant", "content": 1}, SUBMIT | {"sampled": 5}],
)
def test_an_action_that_is_no_message_is_the_callers_mistake(env, action):
    with pytest.raises(ActionError):
        env.step(action)
    assert len(env.messages) == 2
    assert env.step(SUBMIT)[1] == 1.0


def test_nothing_returned_is_shared(env):
    action = calling(("echo", {"text": "x"}))
    obs, *_, info = env.step(action)
    obs[0]["content"] = action["tool_calls"][0]["id"] = "changed"
    info["tool_errors"]["x"] = 1
    env.messages[0]["content"] = "changed"
    assert "changed" not in json.dumps(env.messages) + json.dumps(env.episode.to_dict())
    assert env.step(calling(("echo", {"text": "x"})))[-1]["tool_errors"] == {}


# ---- the end ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "score"),
    [
        (SUBMIT, 1.0),
        (calling(("submit_answer", {"answer": "41"})), 0.0),
        (calling(("submit_answer", {"answer": "41"}), ("submit_answer", {"answer": "42"})), 0.0),
        (calling(("submit_answer", {}), ("submit_answer", {"answer": "42"})), 1.0),
        ({"role": "assistant", "content": "<answer>42</answer>"}, 1.0),
        ({"role": "assistant", "content": "FINAL ANSWER: 42"}, 1.0),
    ],
)
def test_an_answer_ends_the_episode(env, action, score):
    _, reward, terminated, truncated, info = env.step(action)
    assert (reward, terminated, truncated) == (score, True, False)
    assert (info["outcome"], info["score"], info["reward_components"]) == ("answered", score, {"task": score})
    with pytest.raises(ResetNeeded, match="answered"):
        env.step(action)


@pytest.mark.parametrize("content", ["42", None, "Let me first look at the file."])
def test_a_message_with_neither_calls_nor_an_answer_ends_the_episode_without_one(env, content):
    _, reward, terminated, truncated, info = env.step({"role": "assistant", "content": content})
    assert (reward, terminated, truncated, info["outcome"], info["score"]) == (0.0, True, False, "no_answer", 0.0)
    assert env.episode.submitted is None and info["valid"]


def test_a_tool_that_echoes_an_answer_tag_does_not_score(env):
    env.step(calling(("echo", {"text": "<answer>42</answer>"})))
    assert env.step({"role": "assistant", "content": "done"})[1] == 0.0


def test_a_task_without_an_answer_has_no_score(make):
    env = make()
    env.reset(options={"task_id": "open"})
    _, reward, terminated, _, info = env.step(SUBMIT)
    assert (reward, terminated, info["score"], info["valid"]) == (0.0, True, None, True)


BAD, GOOD = calling(("nope", {})), calling(("echo", {"text": "x"}))


def test_invalid_turns_in_a_row_end_the_episode(env):
    for action in (BAD, BAD, GOOD, calling(("fail", {"message": "x"})), BAD, BAD):
        assert env.step(action)[2:4] == (False, False)
    _, reward, terminated, _, info = env.step(BAD)
    assert (terminated, info["outcome"], reward, info["valid"], info["score"]) == (
        True,
        "invalid_calls",
        0.0,
        True,
        0.0,
    )


@pytest.mark.parametrize(
    ("limits", "actions", "outcome"),
    [
        ({"max_turns": 2}, [GOOD, GOOD], "max_turns"),
        ({"max_tool_calls": 3}, [GOOD, calling(("count", {}), ("count", {}))], "max_tool_calls"),
        ({"max_tokens": 5}, [GOOD | {"sampled": {"token_ids": [1] * 5}}], "max_tokens"),
        ({"max_seconds": 0.3}, [calling(("wait", {"seconds": 0.35}))], "timeout"),
    ],
)
def test_a_limit_truncates_and_is_a_valid_zero(make, limits, actions, outcome):
    env = make(limits=limits)
    env.reset(options={"task_id": "one"})
    for action in actions[:-1]:
        assert env.step(action)[2:4] == (False, False)
    _, reward, terminated, truncated, info = env.step(actions[-1])
    assert (reward, terminated, truncated) == (0.0, False, True)
    assert (info["outcome"], info["valid"], info["score"]) == (outcome, True, 0.0)


def test_an_answer_in_the_last_turn_counts(make):
    env = make(limits={"max_turns": 1})
    env.reset(options={"task_id": "one"})
    assert env.step(SUBMIT)[1:4] == (1.0, True, False)


def test_calls_beyond_the_limit_are_answered_and_not_run(make):
    env = make(limits={"max_calls_per_turn": 2})
    env.reset(options={"task_id": "one"})
    obs, *_, info = env.step(calling(*[("count", {})] * 4))
    assert info["tool_errors"] == {"call_over_limit": 2}
    assert env.step(calling(("count", {})))[0][0]["content"] == "3"


def test_a_server_that_dies_is_an_infrastructure_failure_and_not_a_reward(make):
    env = make(STDIO)
    env.reset(options={"task_id": "one"})
    obs, reward, terminated, truncated, info = env.step(calling(("die", {}), ("submit_answer", {"answer": "42"})))
    assert (obs, reward, terminated, truncated) == ((), 0.0, False, True)
    assert (info["outcome"], info["valid"], info["score"]) == ("infra_failure", False, None)
    assert info["error"] == "server_died" and "server_died" in env.episode.error and not env.episode.valid
    env.reset(options={"task_id": "one"})
    assert env.step(SUBMIT)[1] == 1.0


class BrokenTasks:
    """Fails where it is told to."""

    def __init__(self, where):
        self.where = where

    def _fail(self, where):
        if where == self.where:
            raise OSError("disk full")

    def sample(self, rng):
        self._fail("sample")
        return TASKS[0]

    def get(self, task_id):
        return TASKS[0]

    def setup(self, task, workspace):
        self._fail("setup")

    def score(self, task, answer):
        self._fail("score")
        return Score(1.0)


@pytest.mark.parametrize("where", ["sample", "setup"])
def test_a_task_that_cannot_be_set_up_is_an_infrastructure_failure(make, where):
    env = make(tasks=BrokenTasks(where))
    with pytest.raises(InfraError, match="env_failed: OSError: disk full"):
        env.reset(seed=0)


def test_a_scorer_that_raises_is_no_zero_reward(make):
    env = make(tasks=BrokenTasks("score"))
    env.reset(seed=0)
    _, _, _, truncated, info = env.step(SUBMIT)
    assert truncated and info["outcome"] == "infra_failure" and not info["valid"]


# ---- records ---------------------------------------------------------------------------------------------------


def test_the_record_holds_the_episode_whole(env):
    sampled = {"token_ids": [5, 6], "logprobs": [-0.5, -0.25], "model_version": "m1"}
    env.step(calling(("add", {"a": 40, "b": 2}), sampled=sampled))
    env.step(SUBMIT)
    episode = env.episode
    assert (episode.task_id, episode.outcome, episode.score, episode.submitted, episode.answer) == (
        "one", "answered", 1.0, "42", "42",
    )  # fmt: skip
    assert episode.valid and episode.total_reward == 1.0 and len(episode.steps) == 2
    assert episode.steps[0].sampled == sampled and episode.steps[0].results[0].text == "42"
    assert type(episode).from_dict(json.loads(json.dumps(episode.to_dict()))).to_dict() == episode.to_dict()


def test_equal_states_share_a_key_and_others_do_not(make):
    def key_after(*actions, task="one"):
        env = make()
        info = env.reset(options={"task_id": task})[1]
        for action in actions:
            info = env.step(action)[-1]
        return info["state_key"]

    one, two = calling(("echo", {"text": "a"})), calling(("add", {"a": 1, "b": 2}))
    reordered = calling(("add", {"b": 2, "a": 1}))
    assert key_after(one, two) == key_after(reordered, one)
    assert len({key_after(), key_after(one), key_after(two), key_after(one, one), key_after(task="two")}) == 5


# ---- threads, loops and processes ---------------------------------------------------------------------------------


async def test_the_facade_works_inside_a_running_loop(make):
    env = make()
    env.reset(options={"task_id": "one"})
    assert env.step(SUBMIT)[1] == 1.0


async def test_the_core_works_from_any_loop(make):
    env = make()
    await env.areset(options={"task_id": "one"})
    assert (await env.astep(SUBMIT))[1] == 1.0
    await env.aclose()


def test_an_env_may_be_used_from_several_threads_in_turn(env):
    rewards = []
    thread = threading.Thread(target=lambda: rewards.append(env.step(SUBMIT)[1]))
    thread.start()
    thread.join(20)
    assert rewards == [1.0]


async def test_one_env_runs_one_step_at_a_time(env):
    slow = asyncio.create_task(env.astep(calling(("wait", {"seconds": 0.5}))))
    await asyncio.sleep(0.1)
    with pytest.raises(RuntimeError, match="in the middle of a reset or step"):
        await env.astep(GOOD)
    assert (await slow)[0][0]["content"] == "waited 0.5"


async def test_a_cancelled_step_ends_the_episode_and_the_env_can_go_on(env):
    slow = asyncio.create_task(env.astep(calling(("wait", {"seconds": 30}))))
    await asyncio.sleep(0.2)
    slow.cancel()
    with pytest.raises(asyncio.CancelledError):
        await slow
    assert env.episode.outcome == "cancelled" and not env.episode.valid
    env.reset(options={"task_id": "one"})
    assert env.step(SUBMIT)[1] == 1.0


def in_child(work):
    """Run ``work`` in a forked child; its return value must be true."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if work() else 2
        finally:
            os._exit(code)
    for _ in range(600):
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        threading.Event().wait(0.1)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return "hung"


def test_after_fork_the_copy_can_be_reset_and_the_original_goes_on(env):
    env.step(GOOD)

    def child():
        _, _, _, truncated, info = env.step(GOOD)
        lost = truncated and info["outcome"] == "infra_failure"
        env.reset(options={"task_id": "one"})
        return lost and env.step(SUBMIT)[1] == 1.0

    assert in_child(child) == 0
    assert env.step(SUBMIT)[1] == 1.0


def test_an_env_that_is_dropped_closes_its_session(make):
    import gc

    from aworld_gym import toolchain

    before = toolchain.stats()
    env = ToolEnv(IN_PROCESS, TASKS)
    env.reset(seed=0)
    assert toolchain.stats().opened == before.opened + 1
    del env
    gc.collect()
    for _ in range(100):
        now = toolchain.stats()
        if now.opened - before.opened == now.closed - before.closed:
            break
        threading.Event().wait(0.05)
    assert now.opened - before.opened == now.closed - before.closed == 1


def test_limits_say_what_they_are():
    assert Limits.of({"max_turns": 3}).max_turns == 3
    assert Limits.of(None) == Limits()
