"""The env's contract, on a real in-process MCP server and, where processes matter, on a stdio one."""

import copy
import json
import pickle
import warnings
from pathlib import Path

import gymnasium as gym
import pytest
from gymnasium.utils.env_checker import check_env
from small_env import SUBMIT, TASKS, env_fixture, make_fixture  # noqa: F401
from small_toolchain import IN_PROCESS, STDIO
from tool_messages import calling

from aworld_gym import Limits
from aworld_gym.env import ToolEnv
from aworld_gym.errors import ActionError, ConfigError, UnknownTaskError

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


def test_tasks_of_plain_fields_have_their_plans(make):
    fields = json.loads('{"id": "a", "prompt": "?", "plan": [{"tool": "add", "arguments": {"a": 1}, "shows": ["2"]}]}')
    (step,) = make(tasks=[fields]).tasks.get("a").plan
    assert (step.tool, step.arguments) == ("add", {"a": 1})


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
        ({"task_id": 5}, ConfigError, "the option task_id is a text, got int: 5"),
        ({"task_id": ["one"]}, ConfigError, "the option task_id is a text, got list"),
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
        ({"tasks": [{"id": 1, "prompt": "x"}]}, "a task's id is a text, got int: 1"),
        ({"tasks": [{"id": "a", "prompt": None}]}, "a task's prompt is a text, got NoneType"),
        ({"tasks": [{"id": "a", "prompt": "x", "plan": ["submit"]}]}, "plan of task 'a' is made of PlanStep, got 'sub"),
        ({"tasks": [{"id": "a", "prompt": "x", "plan": [{"arguments": {}}]}]}, "may have other fields of Task: .*tool"),
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
        calling(("wait", {"seconds": 1.4}), ("wait", {"seconds": 1.5}), ("echo", {"text": "hi"}), ("add", {"a": 1}))
    )
    assert [m["content"] for m in obs] == ["waited 1.4", "waited 1.5", "hi", "2"]
    assert [(m["role"], m["name"], m["tool_call_id"]) for m in obs][2] == ("tool", "echo", "c2")
    assert (reward, terminated, truncated, info["tool_errors"]) == (0.0, False, False, {})
    assert env.last_step.duration_s < 2.8  # one after another: 2.9


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
    [
        "text",
        None,
        3,
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": 1},
        {"role": "assistant", "content": [{"type": "image", "data": b"no JSON, so no record could hold it"}]},
        SUBMIT | {"sampled": 5},
    ],
    ids=repr,
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


def test_limits_say_what_they_are():
    assert Limits.of({"max_turns": 3}).max_turns == 3
    assert Limits.of(None) == Limits()
