"""``AWorld/Mcp-v0`` over servers that nobody here wrote: tasks of every form, prompts, specs, and what cannot work."""

import json
import pickle
import warnings

import gymnasium as gym
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env
from interop_servers import EVERYTHING, FILES, TIME, config
from tool_messages import call

import aworld_gym  # noqa: F401
from aworld_gym.errors import ConfigError, UnknownTaskError
from aworld_gym.policies import OraclePolicy, ScriptedPolicy
from aworld_gym.rollout import Item, branch, rollout
from aworld_gym.tasks import TaskList, from_records
from aworld_gym.types import Task

SMALL = {"mcpServers": {"small": {"python": "small_toolchain:make_server", "tools": ["echo", "add", "write"]}}}
NOON = {"prompt": "It is 12:00 in UTC. What time is it in Tokyo (HH:MM)?", "answer": "21:00"}
PLAN = [
    {
        "tool": "convert_time",
        "arguments": {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"},
        "shows": ["21:00"],
    },
    {"tool": "submit_answer", "arguments": {"answer": "21:00"}},
]


def say(text):
    return {"role": "assistant", "content": text}


def made(**kwargs):
    return gym.make("AWorld/Mcp-v0", **{"mcp_config": SMALL, **kwargs})


def test_foreign_servers_are_an_env_in_one_line(tmp_path):
    (tmp_path / "mcp.json").write_text(json.dumps(config(time=TIME, files=FILES)))
    rows = [
        {**NOON, "plan": PLAN},
        {"prompt": "What does note.txt say?", "answer": "Hello", "files": {"note.txt": "hello"}},
    ]
    env = gym.make("AWorld/Mcp-v0", mcp_config=str(tmp_path / "mcp.json"), tasks=rows)
    ids = [task.id for task in env.unwrapped.tasks.source.tasks]
    obs, info = env.reset(options={"task_id": ids[1]})
    names = [tool["function"]["name"] for tool in info["tools"]]
    assert {"convert_time", "read_text_file"} <= set(names) and names[-1] == "submit_answer"
    assert [m["role"] for m in obs] == ["system", "user"] and "call submit_answer once" in obs[0]["content"]
    assert env.step(call("read_text_file", path="note.txt"))[0][0]["content"] == "hello"
    _, reward, terminated, _, info = env.step(call("submit_answer", answer="hello."))
    assert (reward, terminated, info["outcome"]) == (1.0, True, "answered")
    env.close()


def test_the_oracle_plays_plans_in_rows_over_a_foreign_server():
    env = gym.make("AWorld/Mcp-v0", mcp_config=config(time=TIME), tasks=[{**NOON, "plan": PLAN, "level": 1}])
    episodes = rollout(env, OraclePolicy(), episodes=3, concurrency=2)
    assert [(e.score, e.outcome, len(e.steps)) for e in episodes] == [(1.0, "answered", 2)] * 3
    env.close()


def test_three_foreign_servers_at_once_and_an_answer_in_text():
    servers = config(everything=EVERYTHING, time=TIME, files=FILES)
    env = gym.make("AWorld/Mcp-v0", mcp_config=servers, tasks=[NOON], tools=["get-sum", "convert_time"])
    _, info = env.reset(seed=0)
    assert [t["function"]["name"] for t in info["tools"]] == ["get-sum", "convert_time", "submit_answer"]
    assert "is 5" in env.step(call("get-sum", a=2, b=3))[0][0]["content"]
    assert env.step(say("It is <answer>21:00</answer>"))[1] == 1.0
    env.close()


@pytest.mark.parametrize("form", ["list", "file", "mapping", "records", "tasks", "source"])
def test_tasks_of_every_form(form, tmp_path):
    path = tmp_path / "tasks.jsonl"
    path.write_text(json.dumps({"q": "2 + 3?", "prompt": "2 + 3?", "answer": 5, "id": "sum"}) + "\n")
    task = Task("sum", "2 + 3?", "5")
    tasks = {
        "list": [{"id": "sum", "prompt": "2 + 3?", "answer": 5}],
        "file": str(path),
        "mapping": {"rows": str(path), "prompt": "q"},
        "records": from_records([{"id": "sum", "prompt": "2 + 3?", "answer": 5}]),
        "tasks": [task],
        "source": TaskList([task]),
    }[form]
    env = made(tasks=tasks)
    obs, info = env.reset(seed=1)
    assert (obs[-1]["content"], info["task_id"]) == ("2 + 3?", "sum")
    assert env.step(say("<answer>5</answer>"))[1] == 1.0
    if form in ("list", "file", "mapping"):
        again = gym.make(EnvSpec.from_json(env.spec.to_json()))
        assert again.reset(seed=1)[0] == obs
        again.close()
    copy = pickle.loads(pickle.dumps(env.unwrapped))
    assert copy.reset(seed=1)[0] == obs
    copy.close()
    env.close()


def test_a_scorer_by_name_and_by_import_path():
    rows = [{"prompt": "2 + 3?", "answer": "worked out: 5"}]
    for scorer, answer, reward in (
        ("number", "so 5.", 1.0),
        ("exact", "5", 0.0),
        ("record_functions:shorter", "", 1.0),
    ):
        env = made(tasks=rows, scorer=scorer)
        env.reset(seed=0)
        assert env.step(call("submit_answer", answer=answer))[1] == reward, scorer
        assert env.unwrapped.tasks.scorer == scorer
        env.close()
    env = made(tasks={"rows": rows}, scorer="number")
    env.reset(seed=0)
    assert env.step(say("<answer>5</answer>"))[1] == 1.0
    env.close()


def test_without_tasks_a_users_prompt_is_played_without_reward():
    env = made()
    obs, info = env.reset(options={"prompt": "Say hello with a tool."})
    assert obs[-1] == {"role": "user", "content": "Say hello with a tool."}
    assert env.step(call("echo", text="hello"))[0][0]["content"] == "hello"
    _, reward, terminated, _, last = env.step(say("<answer>done</answer>"))
    assert (reward, terminated, last["score"], last["valid"]) == (0.0, True, None, True)
    again, same = env.reset(options={"prompt": "Say hello with a tool."})
    assert (again, same["task_id"]) == (obs, info["task_id"])
    assert env.reset(options={"task_id": info["task_id"]})[0] == obs
    obs, _ = env.reset(seed=3)
    assert obs[-1]["role"] == "user" and obs[-1]["content"]
    with pytest.raises(UnknownTaskError, match="made without tasks"):
        env.reset(options={"task_id": "x"})
    env.close()


def test_a_prompt_may_be_played_beside_tasks():
    env = made(tasks=[NOON])
    env.reset(options={"prompt": "Anything."})
    assert env.step(say("<answer>21:00</answer>"))[4]["score"] is None
    env.reset(seed=0)
    assert env.step(say("<answer>21:00</answer>"))[4]["score"] == 1.0
    env.close()


def test_answers_in_text_only_and_a_tool_of_the_servers_own():
    env = made(tasks=[NOON], submit_tool=None)
    obs, info = env.reset(seed=0)
    assert "submit_answer" not in [t["function"]["name"] for t in info["tools"]]
    assert "<answer>...</answer>" in obs[0]["content"]
    assert env.step(say("<answer>21:00</answer>"))[1] == 1.0
    env.close()
    own = {"mcpServers": {"small": {"python": "small_toolchain:make_server"}}}
    env = made(mcp_config=own, tasks=[NOON])
    with pytest.raises(ConfigError, match=r"small__submit_answer, .*__submit_answer: pass one as submit_tool="):
        env.reset(seed=0)
    env.close()
    env = made(
        mcp_config={"mcpServers": {"b": {"python": "small_toolchain:make_server", "tools": ["echo"]}}},
        submit_tool="echo",
    )
    env.reset(seed=0)
    assert env.step(call("echo", text="x"))[2], "its own tool ends the episode"
    env.close()


def test_gymnasiums_checker_passes_with_warnings_as_errors():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for kwargs in ({}, {"tasks": [NOON]}):
            env = made(**kwargs)
            check_env(env.unwrapped)
            env.close()


def test_a_vector_of_envs():
    rows = [{"prompt": f"{k} + 1?", "answer": k + 1} for k in range(20)]
    envs = gym.make_vec("AWorld/Mcp-v0", 3, vectorization_mode="sync", mcp_config=SMALL, tasks=rows)
    obs, info = envs.reset(seed=0)
    answers = [str(int(messages[-1]["content"].split()[0]) + 1) for messages in obs]
    _, rewards, terminated, *_ = envs.step([say(f"<answer>{answer}</answer>") for answer in answers])
    assert rewards.tolist() == [1.0] * 3 and terminated.all() and len(set(info["task_id"])) > 1
    envs.close()


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"mcp_config": None}, "needs your servers: pass mcp_config="),
        ({"mcp_config": "none.json"}, "cannot read the toolchain configuration 'none.json'"),
        ({"mcp_config": {"servers": {}}}, "expected"),
        ({"mcp_config": {"mcpServers": {"aworld_submission": {"command": "x"}}}}, "rename it"),
        ({"tasks": "none.jsonl"}, "there is no file 'none.jsonl'"),
        ({"tasks": [{"prompt": "x"}]}, "row 1 has no column 'answer'"),
        ({"tasks": []}, "there are no rows"),
        ({"tasks": 3}, "rows must be"),
        ({"tasks": {"rows": [NOON], "scorer": "exact"}, "scorer": "number"}, "two scorers are given"),
        ({"tasks": {"rows": [NOON], "promt": "x"}}, "Did you mean 'prompt'"),
        ({"tasks": [NOON], "scorer": "numbr"}, "Did you mean 'number'"),
        ({"scorer": "exact"}, "pass tasks= too"),
        ({"tasks": TaskList([Task("a", "b")]), "scorer": "exact"}, "a TaskList scores by itself"),
        ({"tools": "echo"}, r"write \['echo'\]"),
        ({"limits": {"max_turn": 1}}, "max_turns"),
    ],
)
def test_what_cannot_work_is_said_when_the_env_is_made(kwargs, message):
    with pytest.raises(ConfigError, match=message):
        made(**kwargs)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prompt": ""}, "the option prompt is a text"),
        ({"prompt": 3}, "the option prompt is a text"),
        ({"prompt": "x", "task_id": "y"}, "either a prompt or a task_id"),
        ({"promt": "x"}, "unknown reset option"),
    ],
)
def test_options_that_cannot_work(options, message):
    env = made()
    with pytest.raises(ConfigError, match=message):
        env.reset(options=options)
    env.close()


def test_a_submission_that_no_tool_is_called(tmp_path):
    env = made(submit_tool="finish")
    with pytest.raises(ConfigError, match="`tools`|no tool is called 'finish'"):
        env.reset(seed=0)
    env.close()


FINISHING = {"mcpServers": {"own": {"python": "finishing_server:make_server"}}}
SUM = {
    "prompt": "How much is 40 + 2?",
    "answer": 42,
    "plan": [
        {"tool": "add", "arguments": {"a": 40, "b": 2}},
        {"tool": "submit_answer", "arguments": {"answer": "42"}},
    ],
}


@pytest.mark.parametrize("submit_tool", ["submit_answer", "finish", None])
def test_a_plans_submission_is_made_in_the_way_that_the_env_takes(submit_tool):
    env = made(mcp_config=FINISHING, tasks=[SUM], submit_tool=submit_tool)
    (episode,) = rollout(env, OraclePolicy(), episodes=1)
    assert (episode.score, episode.outcome, episode.submitted) == (1.0, "answered", "42")
    last = episode.steps[-1].action
    if submit_tool is None:
        assert last["content"] == "<answer>42</answer>"
    else:
        assert [one["function"]["name"] for one in last["tool_calls"]] == [submit_tool]
    env.close()


def test_a_plan_of_tools_that_are_not_offered_is_refused_and_scores_nothing():
    env = made(mcp_config=FINISHING, tasks=[SUM], tools=["report"])
    with pytest.raises(ConfigError, match="step 1 of the plan of task .* calls 'add', which this env does not offer"):
        rollout(env, OraclePolicy(), episodes=1)
    env.close()


def test_a_submission_without_an_answer_is_refused_where_there_is_one():
    env = made(mcp_config=FINISHING, tasks=[SUM], submit_tool="report")
    with pytest.raises(ConfigError, match="argument 'answer', and this tool takes text"):
        env.reset(seed=0)
    assert env.reset(options={"prompt": "Report."})[0], "there is nothing to be right about"
    env.close()


@pytest.mark.parametrize("options", [{"prompt": "Say hello."}, None])
def test_an_episode_of_a_prompt_can_be_forked(options):
    script = [call("echo", text="hello"), say("<answer>done</answer>")]
    items = [Item(0, 0, options=options)]
    env = made()
    (played,) = rollout(env, ScriptedPolicy(script), items=items)
    (fork,) = branch(played, 1, 1, ScriptedPolicy(script), options=options)
    assert (fork.task_id, fork.prompt, fork.submitted) == (played.task_id, played.prompt, "done")
    env.close()


def test_prompts_of_a_long_run_are_forgotten(monkeypatch):
    monkeypatch.setattr("envs.mcp.env.MAX_PROMPTS", 3)
    env = made()
    ids = [env.reset(options={"prompt": f"Prompt {k}."})[1]["task_id"] for k in range(4)]
    assert env.reset(options={"task_id": ids[-1]})[0][-1]["content"] == "Prompt 3."
    with pytest.raises(UnknownTaskError):
        env.reset(options={"task_id": ids[0]})
    assert env.reset(seed=0)[0], "the open question stays"
    env.close()
