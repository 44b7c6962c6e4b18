"""Recording on real servers, in process and over stdio, and replaying without any."""

import copy
import json
import pickle
import sys
from pathlib import Path

import gymnasium as gym
import pytest
import tape_server
from episodes import without_times
from gymnasium.wrappers import TransformReward
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from leaks import commands_below
from say_env import all_closed
from tape_server import CALLS, CONFIG, STDIO, TASKS, make_env
from tool_messages import calling

from aworld_gym import Limits, Task, tape
from aworld_gym.env import ToolEnv
from aworld_gym.errors import ConfigError, ReplayError
from aworld_gym.policies import OraclePolicy, RandomPolicy, ScriptedPolicy
from aworld_gym.rollout import Item, rollout
from aworld_gym.tape import Recorder, Replay, attach
from aworld_gym.toolchain import stats
from aworld_gym.types import Outcome

SUBMIT = calling(("submit_answer", {"answer": "42"}))


@pytest.fixture(autouse=True)
def nothing_stays_open():
    before = stats()
    CALLS.clear()
    yield
    all_closed(before)


def recorded(path, policy=None, env=make_env, **options):
    with Recorder(path) as recorder:
        return rollout(env, policy or OraclePolicy(), tape=recorder, **options)


def played(env, *actions, **reset):
    """The results of these actions in one episode."""
    env.reset(**reset)
    for action in actions:
        env.step(action)
    return [result for step in env.unwrapped.episode.steps for result in step.results]


def lines(path):
    return [json.loads(line) for file in sorted(path.glob("*.jsonl")) for line in file.read_text().splitlines()]


# ---- the same again, without servers ------------------------------------------------------------------------------


def test_a_replay_is_the_recording_and_asks_no_server(tmp_path):
    first = recorded(tmp_path / "t", episodes=12, group_size=3, concurrency=5)
    asked, opened = dict(CALLS), stats().connections_opened
    again = rollout(make_env, OraclePolicy(), episodes=12, group_size=3, concurrency=7, tape=Replay(tmp_path / "t"))
    assert [without_times(e) for e in again] == [without_times(e) for e in first]
    assert asked["roll"] == 12 and dict(CALLS) == asked and stats().connections_opened == opened
    results = [step.results[0] for step in again[0].steps]
    assert results[1].content[1]["image_url"]["url"].endswith(tape_server.PIXEL)
    assert results[2].error == "tool_error" and "told to" in results[2].text and again[0].score == 1.0
    # the tools are not deterministic: samples of one task were given different numbers, and each has its own back
    assert len({e.steps[0].results[0].text for e in again}) == 12


def test_over_stdio_and_in_another_process(tmp_path):
    first = recorded(tmp_path / "t", env=lambda: make_env(STDIO), episodes=2)
    started = stats().processes_started
    again = rollout(lambda: make_env(STDIO), OraclePolicy(), episodes=2, tape=Replay(tmp_path / "t"))
    assert [without_times(e) for e in again] == [without_times(e) for e in first]
    assert stats().processes_started == started
    assert not [command for command in commands_below() if "tape_server" in command]


def test_gaia_without_its_server(tmp_path):
    first = recorded(tmp_path / "t", RandomPolicy(), "AWorld/Gaia-v0", episodes=4, group_size=2)
    again = rollout("AWorld/Gaia-v0", RandomPolicy(), episodes=4, group_size=2, tape=Replay(tmp_path / "t"))
    assert [without_times(e) for e in again] == [without_times(e) for e in first]
    assert sum(len(e.steps) for e in again) > 8


def test_a_timeout_comes_back_as_it_was_and_at_once(tmp_path):
    env = attach(make_env(limits={"call_timeout_s": 1.5}), Recorder(tmp_path / "t"))
    first = played(env, calling(("wait", {"seconds": 4})), SUBMIT, seed=0)
    env.close()
    env = attach(make_env(limits={"call_timeout_s": 1.5}), Replay(tmp_path / "t"))
    again = played(env, calling(("wait", {"seconds": 4})), SUBMIT, seed=0)
    env.close()
    assert [r.error for r in again] == ["tool_timeout", None] and again[0].text == first[0].text
    assert again[0].duration_s < 1.4 < first[0].duration_s


def test_what_the_model_does_wrong_is_told_as_ever_and_is_no_call(tmp_path):
    actions = [calling(("lok", {})), calling(("look", {"nam": 1})), calling(("look", {"name": "x"})), SUBMIT]
    env = attach(make_env(), Recorder(tmp_path / "t"))
    first = played(env, *actions, seed=0)
    env.close()
    assert sum(line["what"] == "call" for line in lines(tmp_path / "t")) == 2
    env = attach(make_env(), Replay(tmp_path / "t"))
    again = played(env, *actions, seed=0)
    env.close()
    assert [(r.error, r.text) for r in again] == [(r.error, r.text) for r in first]
    assert [r.error for r in again] == ["call_unknown_tool", "call_bad_arguments", None, None]


def test_limits_of_the_replay_hold_not_those_of_the_recording(tmp_path):
    env = attach(make_env(limits={"max_result_chars": 10}), Recorder(tmp_path / "t"))
    cut = played(env, calling(("look", {"name": "x" * 40})), SUBMIT, seed=0)[0]
    env.close()
    env = attach(make_env(), Replay(tmp_path / "t"))
    whole = played(env, calling(("look", {"name": "x" * 40})), SUBMIT, seed=0)[0]
    env.close()
    assert cut.cut_chars > 0 and whole.text == "x" * 40 + ": 40"


def test_calls_of_one_message_are_told_apart_whatever_ends_first(tmp_path):
    both = calling(("wait", {"seconds": 0.2}), ("look", {"name": "y"}), ("roll", {}), ("roll", {}))
    env = attach(make_env(), Recorder(tmp_path / "t"))
    first = played(env, both, SUBMIT, seed=0)
    env.close()
    env = attach(make_env(), Replay(tmp_path / "t"))
    again = played(env, both, SUBMIT, seed=0)
    env.close()
    assert [r.text for r in again] == [r.text for r in first] and first[2].text != first[3].text


def test_through_wrappers_of_others(tmp_path):
    def env():
        return TransformReward(make_env(), lambda reward: 2 * reward)

    first = recorded(tmp_path / "t", env=env, episodes=4, group_size=2)
    again = rollout(env, OraclePolicy(), episodes=4, group_size=2, concurrency=1, tape=Replay(tmp_path / "t"))
    assert [without_times(e) for e in again] == [without_times(e) for e in first] and again[0].total_reward == 2.0


def test_a_loop_of_ones_own_gets_recorded_episodes_in_their_order(tmp_path):
    with Recorder(tmp_path / "t") as recorder:
        env = attach(make_env(), recorder)
        first = [played(env, calling(("roll", {})), seed=3)[0].text for _ in range(3)]
        env.close()
    env = attach(make_env(), Replay(tmp_path / "t"))
    assert [played(env, calling(("roll", {})), seed=3)[0].text for _ in range(3)] == first
    env.close()


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.lists(
            st.sampled_from(
                [
                    ("roll", {}),
                    ("note", {"text": "n"}),
                    ("notes_so_far", {}),
                    ("look", {"name": "ü\ud800"}),
                    ("fail", {"message": "no"}),
                    ("look", {}),
                ]
            ),
            max_size=3,
        ),
        max_size=4,
    )
)
def test_any_episode_comes_back(tmp_path, turns):
    place = tmp_path / str(len(list(tmp_path.iterdir())))
    actions = [calling(*calls) for calls in turns if calls]
    with Recorder(place) as recorder:
        env = attach(make_env(limits=Limits(max_invalid_turns=9)), recorder)
        first = played(env, *actions, seed=1)
        env.close()
    env = attach(make_env(limits=Limits(max_invalid_turns=9)), Replay(place))
    again = played(env, *actions, seed=1)
    env.close()
    assert [(r.error, r.content, r.structured) for r in again] == [(r.error, r.content, r.structured) for r in first]


# ---- what is not on the tape --------------------------------------------------------------------------------------


def test_a_call_that_was_not_recorded_names_what_was(tmp_path):
    recorded(tmp_path / "t", items=[Item(0, 0, options={"task_id": "a"})])
    env = attach(make_env(), Replay(tmp_path / "t"))
    env.reset(options={"task_id": "a"})
    env.step(calling(("roll", {})))
    with pytest.raises(ReplayError) as error:
        env.step(calling(("roll", {"sides": 20})))
    said = str(error.value)
    assert "call 2 of task 'a': it.roll({\"sides\": 20}), after it.roll({})" in said
    assert "Recorded here: it.picture({})" in said and str(tmp_path / "t") in said
    env.close()


def test_after_the_end_of_the_recording_the_nearest_call_is_named(tmp_path):
    env = attach(make_env(), Recorder(tmp_path / "t"))
    played(env, calling(("look", {"name": "alpha"})), seed=0)
    env.close()
    env = attach(make_env(), Replay(tmp_path / "t"))
    with pytest.raises(ReplayError, match=r'ends before this call; its nearest is it\.look\({"name": "alpha"}\)'):
        played(env, calling(("look", {"name": "alpha"})), calling(("look", {"name": "alphabet"})), seed=0)
    env.close()


def test_the_same_calls_in_another_order_are_not_the_same(tmp_path):
    one, two = calling(("note", {"text": "x"})), calling(("notes_so_far", {}))
    env = attach(make_env(), Recorder(tmp_path / "t"))
    assert [r.text for r in played(env, two, one, seed=0)] == ["none", "1 notes"]
    env.close()
    env = attach(make_env(), Replay(tmp_path / "t"))
    with pytest.raises(ReplayError, match="call 1"):
        played(env, one, two, seed=0)
    env.close()


def test_a_rollout_ends_at_a_miss_and_says_where(tmp_path):
    recorded(tmp_path / "t", episodes=3)
    other = ScriptedPolicy([calling(("note", {"text": "new"})), SUBMIT])
    with pytest.raises(ReplayError) as error:
        rollout(make_env, other, episodes=3, tape=Replay(tmp_path / "t"))
    assert "it.note" in str(error.value) and "the episode with seed" in error.value.__notes__[0]


@pytest.mark.parametrize(
    ("tasks", "config", "said"),
    [
        ([Task("zz", "Question a?", "42")], CONFIG, "task 'zz' is not on the tape"),
        ([Task("a", "Another question?", "42", public={"corpus": "a"})], CONFIG, "of another version of the task"),
        ([Task("a", "Question a?", "42")], CONFIG, "of another version of the task"),
        (TASKS[:1], {"mcpServers": {"its": {"python": "tape_server:make_server"}}}, "server 'its' is not on the tape"),
    ],
)
def test_another_task_or_toolchain_is_refused_at_reset(tmp_path, tasks, config, said):
    recorded(tmp_path / "t", env=lambda: make_env(tasks=TASKS[:1]), episodes=1)
    env = attach(make_env(config, tasks), Replay(tmp_path / "t"))
    with pytest.raises(ReplayError, match=said):
        env.reset(seed=0)
    env.close()


def test_other_answers_limits_and_tools_offered_need_no_new_recording(tmp_path):
    recorded(tmp_path / "t", env=lambda: make_env(tasks=TASKS[:1]), episodes=1)
    again = [Task("a", "Question a?", "43", public={"corpus": "a"}, plan=tape_server.PLAN)]
    tools = ["roll", "picture", "fail", "look", "submit_answer"]
    found = rollout(lambda: make_env(tasks=again, tools=tools), OraclePolicy(), episodes=1, tape=Replay(tmp_path / "t"))
    assert found[0].score == 0.0 and len(found[0].tools) == 5


def test_no_tape_there(tmp_path):
    with pytest.raises(ConfigError, match="there is no tape at"):
        Replay(tmp_path / "nowhere")
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match="a tape is a folder"):
        Recorder(tmp_path / "file")
    with pytest.raises(ConfigError, match="only a tool env"):
        attach(gym.make("CartPole-v1"), Recorder(tmp_path / "t"))


# ---- failures of infrastructure -----------------------------------------------------------------------------------


def test_failures_are_replayed_with_their_retries(tmp_path):
    """A server that dies at the first attempt of some episodes: each attempt comes back as it was."""

    def script(transcript, info):
        return calling(("roll", {})) if transcript[-1]["role"] == "user" else SUBMIT

    class Dying(ScriptedPolicy):
        def episode(self, *, seed, attempt, **more):
            dies = seed % 2 == 0 and attempt == 0
            policy = ScriptedPolicy([calling(("die", {}))]) if dies else ScriptedPolicy(script)
            return policy.episode(seed=seed, attempt=attempt, **more)

    def env():
        return make_env(STDIO)

    first = recorded(tmp_path / "t", Dying(script, name="dying"), env, episodes=4)
    again = rollout(env, Dying(script, name="dying"), episodes=4, tape=Replay(tmp_path / "t"))
    assert [e.outcome for e in first].count(Outcome.INFRA_FAILURE) == 2 and len(first) == 6
    assert [without_times(e) for e in again] == [without_times(e) for e in first]


def test_a_server_that_does_not_start_does_not_in_the_replay(tmp_path):
    config = {"mcpServers": {"it": {"command": sys.executable, "args": ["-c", "raise SystemExit('no licence')"]}}}
    first = recorded(tmp_path / "t", env=lambda: make_env(config), episodes=1, retries=0)
    again = rollout(lambda: make_env(config), OraclePolicy(), episodes=1, retries=0, tape=Replay(tmp_path / "t"))
    assert first[0].error_kind == again[0].error_kind == "server_start_failed" and first[0].error == again[0].error


# ---- the files ----------------------------------------------------------------------------------------------------


def test_a_tape_is_not_recorded_over_but_can_be_gone_on_with(tmp_path):
    recorded(tmp_path / "t", episodes=3)
    with pytest.raises(ConfigError, match="already has a tape"):
        Recorder(tmp_path / "t")
    with Recorder(tmp_path / "t", extend=True) as more:
        rollout(make_env, OraclePolicy(), episodes=6, seed=3, tape=more)
    found = rollout(make_env, OraclePolicy(), episodes=9, tape=Replay(tmp_path / "t"))
    assert len(found) == 9 and len(list((tmp_path / "t").iterdir())) == 2


def test_a_torn_last_line_is_left_out_and_a_broken_one_named(tmp_path):
    recorded(tmp_path / "t", episodes=2)
    file = tmp_path / "t/calls-0000.jsonl"
    whole = file.read_bytes()
    file.write_bytes(whole[:-20])
    assert len(Replay(tmp_path / "t")) == 2
    first = whole.splitlines(keepends=True)
    file.write_bytes(b"".join([first[0], b"{broken\n", *first[1:]]))
    with pytest.raises(ConfigError, match=r"calls-0000\.jsonl:2 is not a line of a tape"):
        Replay(tmp_path / "t")
    file.write_bytes(b"".join([first[0], b'{"what": "call", "session": 7}\n', *first[1:]]))
    with pytest.raises(ConfigError, match=r"calls-0000\.jsonl:2 is not a line of a tape"):
        Replay(tmp_path / "t")
    file.write_bytes(whole.replace(b'"format": 1', b'"format": 99'))
    with pytest.raises(ConfigError, match="format 99, and this version reads 1"):
        Replay(tmp_path / "t")


@pytest.mark.parametrize(
    ("what", "name", "value"),
    [
        ("tools", "servers", 1),
        ("tools", "servers", {"it": None}),
        ("tools", "servers", {"it": [{"description": "no name"}]}),
        ("tools", "listing", "other"),  # the session's is not there then
        ("session", "listing", []),
        ("session", "task", {}),
        ("session", "failure", {"kind": "session_lost"}),
        ("call", "result", "text"),
        ("call", "result", None),
        ("call", "timeout", 3),
        ("call", "state", [1]),
    ],
)
def test_a_line_of_another_form_is_named(tmp_path, what, name, value):
    recorded(tmp_path / "t", episodes=1)
    changed = [line | {name: value} if line["what"] == what else line for line in lines(tmp_path / "t")]
    (tmp_path / "t/calls-0000.jsonl").write_text("".join(json.dumps(line) + "\n" for line in changed))
    with pytest.raises(ConfigError, match=r"calls-0000\.jsonl:\d+ is not a line of a tape"):
        Replay(tmp_path / "t")


def test_a_closed_recorder_records_nothing_in_silence(tmp_path):
    recorder = Recorder(tmp_path / "t")
    env = attach(make_env(), recorder)
    env.reset(seed=0)
    env.step(calling(("roll", {})))
    recorder.close()
    with pytest.raises(ConfigError, match="was closed while an env still used it"):
        env.step(calling(("roll", {})))
    env.close()


def test_copies_go_on_beside_the_original(tmp_path):
    env = attach(make_env(), Recorder(tmp_path / "t"))
    copies = [copy.deepcopy(env), pickle.loads(pickle.dumps(env))]
    for one in (env, *copies):
        played(one, calling(("roll", {})), seed=0)
        one.close()
    assert len(Replay(tmp_path / "t")) == 3 and len(list((tmp_path / "t").iterdir())) == 3
    replaying = pickle.loads(pickle.dumps(attach(make_env(), Replay(tmp_path / "t"))))
    assert played(replaying, calling(("roll", {})), seed=0)[0].error is None
    replaying.close()


def test_detached_it_asks_its_servers_again(tmp_path):
    env = attach(make_env(), Recorder(tmp_path / "t"))
    played(env, calling(("roll", {})), seed=0)
    attach(env, None)
    played(env, calling(("look", {"name": "live"})), seed=0)
    assert CALLS["look"] == 1 and len(Replay(tmp_path / "t")) == 1
    env.close()
    assert isinstance(env, ToolEnv) and Path(tmp_path / "t").is_dir() and tape.PLAYING.get() is None
