"""The cache: tools that only read are asked once, and never something stale."""

import pytest
from say_env import all_closed
from tape_server import CALLS, TASKS, make_env
from tool_messages import calling
from tool_servers import http_server

from aworld_gym.errors import ConfigError
from aworld_gym.policies import OraclePolicy, ScriptedPolicy
from aworld_gym.rollout import rollout
from aworld_gym.tape import Cache, attach
from aworld_gym.toolchain import close_idle, loop, stats

SUBMIT = calling(("submit_answer", {"answer": "42"}))
READ, LOOK, NOTE = calling(("notes_so_far", {})), calling(("look", {"name": "x"})), calling(("note", {"text": "n"}))


@pytest.fixture(autouse=True)
def nothing_stays_open():
    before = stats()
    CALLS.clear()
    yield
    loop.run(close_idle())
    all_closed(before)


def played(env, *actions, **reset):
    env.reset(**reset)
    for action in actions:
        env.step(action)
    return [result.text for step in env.unwrapped.episode.steps for result in step.results]


def test_what_was_read_is_not_asked_again_in_this_run_or_a_later_one(tmp_path):
    looking = ScriptedPolicy([LOOK, calling(("roll", {})), SUBMIT])
    with Cache(tmp_path / "c") as cache:
        first = rollout(make_env, looking, episodes=6, group_size=2, concurrency=1, tape=cache)
        assert (cache.misses, cache.hits) == (CALLS["look"], 6 - CALLS["look"]) and CALLS["look"] <= 3
    CALLS.clear()
    with Cache(tmp_path / "c") as cache:
        again = rollout(make_env, looking, episodes=6, group_size=2, tape=cache)
        assert (cache.misses, cache.hits) == (0, 6)
    assert CALLS["look"] == 0 and CALLS["roll"] == 6  # what does not say that it reads is asked
    assert [e.steps[0].results[0].text for e in again] == [e.steps[0].results[0].text for e in first]
    assert [e.score for e in again] == [1.0] * 6


def test_after_a_change_that_gave_something_else_nothing_is_taken_over(tmp_path):
    with Cache(tmp_path / "c") as cache:  # the plan rolls a number before it looks
        rollout(make_env, OraclePolicy(), episodes=4, group_size=4, tape=cache)
        assert (cache.hits, CALLS["look"]) == (0, 4)


def test_a_change_makes_another_state_and_the_same_changes_the_same(tmp_path):
    with Cache(tmp_path / "c") as cache:
        env = attach(make_env(), cache)
        assert played(env, READ, NOTE, READ, READ, NOTE, READ, seed=0) == [
            "none", "1 notes", "n", "n", "2 notes", "n, n"
        ]  # fmt: skip
        assert CALLS["notes_so_far"] == 3
        assert played(env, READ, NOTE, READ, seed=0) == ["none", "1 notes", "n"] and CALLS["notes_so_far"] == 3
        other = calling(("note", {"text": "m"}))
        assert played(env, other, READ, seed=0) == ["1 notes", "m"] and CALLS["notes_so_far"] == 4
        env.close()


def test_other_tasks_have_other_workspaces(tmp_path):
    with Cache(tmp_path / "c") as cache:
        env = attach(make_env(), cache)
        for task in TASKS[:3]:
            played(env, READ, options={"task_id": task.id})
        assert CALLS["notes_so_far"] == 3
        env.close()


def test_reads_beside_a_change_are_neither_taken_nor_kept(tmp_path):
    both = calling(("notes_so_far", {}), ("note", {"text": "n"}), ("notes_so_far", {}))
    with Cache(tmp_path / "c") as cache:
        env = attach(make_env(), cache)
        played(env, both, seed=0)
        played(env, both, seed=0)
        assert cache.hits == 0 and CALLS["notes_so_far"] == 4 and not cache.results
        env.close()


def test_failures_are_not_kept(tmp_path):
    nothing = calling(("look", {"name": "nothing"}))
    with Cache(tmp_path / "c") as cache:
        env = attach(make_env(), cache)
        played(env, nothing, nothing, LOOK, LOOK, seed=0)
        assert CALLS["look"] == 3 and len(cache.results) == 1
        env.close()


def test_a_result_is_shared_with_nobody(tmp_path):
    with Cache(tmp_path / "c") as cache:
        env = attach(make_env(), cache)
        env.reset(seed=0)
        for _ in range(2):
            obs, *_ = env.step(LOOK)
            assert obs[0]["content"] == "x: 1"
            obs[0]["content"] = "changed"
            env.unwrapped.last_step.results[0].content[0]["text"] = "changed"
        env.close()


def test_a_shared_server_is_asked_once_for_all_tasks_until_something_is_changed_there(tmp_path):
    with http_server("../../../lib/tape_http.py") as (port, _), Cache(tmp_path / "c") as cache:
        url = f"http://127.0.0.1:{port}/mcp"

        def env():
            return make_env({"mcpServers": {"it": {"url": url}}})

        looking = ScriptedPolicy([LOOK, SUBMIT])
        rollout(env, looking, episodes=6, concurrency=1, tape=cache)
        # submit_answer does not say that it reads: it may have changed the server for all
        assert (cache.misses, cache.hits) == (6, 0)
        reading = ScriptedPolicy([LOOK, LOOK, {"role": "assistant", "content": "<answer>42</answer>"}])
    with http_server("../../../lib/tape_http.py") as (port, _), Cache(tmp_path / "d") as cache:
        url = f"http://127.0.0.1:{port}/mcp"
        found = rollout(env, reading, episodes=6, concurrency=1, tape=cache)
        assert (cache.misses, cache.hits) == (1, 11) and [e.score for e in found] == [1.0] * 6


@pytest.mark.parametrize(
    "line",
    [
        '{"what": "cached"}',
        '{"what": "cached", "place": [], "result": {}}',
        '{"what": "cached", "place": "p", "result": "text"}',
    ],
)
def test_a_line_of_another_form_is_named(tmp_path, line):
    (tmp_path / "calls-0000.jsonl").write_text('{"what": "tape", "format": 1}\n' + line + "\n")
    with pytest.raises(ConfigError, match=r"calls-0000\.jsonl:2 is not a line of a tape"):
        Cache(tmp_path)


def test_a_cache_that_cannot_be(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match="a tape is a folder"):
        Cache(tmp_path / "file")
