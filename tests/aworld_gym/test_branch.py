"""Forks of recorded episodes: the same state reached again, or refused."""

import dataclasses
import json
import sys
from collections import Counter
from pathlib import Path

import gymnasium as gym
import pytest
import say_env
import tape_server
import tiny_model
from chat_endpoint import ChatEndpoint, completion
from episodes import without_times
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from say_env import SESSIONS, all_closed
from scripted_sampler import ScriptedSampler, echo_then_submit
from tape_server import CALLS, STDIO, TASKS, make_env
from tool_messages import calling

from aworld_gym import Task
from aworld_gym.branch import Prefix
from aworld_gym.errors import ConfigError, ReplayError
from aworld_gym.metrics import summarize
from aworld_gym.play import Item
from aworld_gym.policies import OpenAIPolicy, OraclePolicy, RandomPolicy, ScriptedPolicy
from aworld_gym.rollout import branch, fork_items, rollout
from aworld_gym.tape import Cache, Recorder, Replay
from aworld_gym.token_policy import token_rollout
from aworld_gym.tokens import ChatCodec
from aworld_gym.toolchain import stats
from aworld_gym.trajectory import read_jsonl, write_jsonl
from aworld_gym.types import Episode, Outcome
from aworld_gym.wrappers import RawTextAction, RewardShaping, TranscriptObservation

LOOK, NOTE = calling(("look", {"name": "x"})), calling(("note", {"text": "n"}))
READ, SUBMIT = calling(("notes_so_far", {})), calling(("submit_answer", {"answer": "42"}))
SCRIPT = [NOTE, LOOK, NOTE, READ, SUBMIT]


@pytest.fixture(autouse=True)
def nothing_stays_open():
    before = stats()
    CALLS.clear()
    SESSIONS.reset()
    yield
    SESSIONS.reset()
    all_closed(before)


def one(script=SCRIPT, env=make_env, seed=3, **options):
    return rollout(env, ScriptedPolicy(script), episodes=1, seed=seed, **options)[0]


def finishing(transcript, info):
    """Reads the notes, then submits what it read."""
    last = transcript[-1]
    if last["role"] == "tool" and last["name"] == "notes_so_far":
        return {"role": "assistant", "content": f"<answer>{last['content']}</answer>"}
    return READ


# ---- what a fork is -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [0, 1, 3, 4])
def test_forks_go_on_from_the_same_state(step):
    played = one()
    forks = branch(played, step, 3, ScriptedPolicy(SCRIPT), env=make_env)
    assert len(forks) == 3 and [fork.sample for fork in forks] == [0, 1, 2]
    for fork in forks:
        assert (fork.parent, fork.forked_at, fork.group_id) == (played.key, step, f"{played.key}#{step}")
        assert (fork.task_id, fork.seed, fork.score) == (played.task_id, played.seed, 1.0)
        assert [s.state_key for s in fork.steps] == [s.state_key for s in played.steps]
        again = without_times(fork) | {
            name: without_times(played)[name] for name in ("parent", "forked_at", "group_id", "sample")
        }
        assert again == without_times(played)
    assert len({episode.key for episode in (played, *forks)}) == 4
    assert summarize(forks)["k"] == 3 and Episode.from_dict(forks[0].to_dict()) == forks[0]


def test_another_policy_plays_on_and_sees_all_that_was_said():
    played = one()
    seen = []

    def policy(messages, tools):
        seen.append([m["role"] for m in messages])
        return finishing(messages, tools)

    forks = branch(played, 3, 2, policy, env=make_env)
    assert seen[0] == ["user", "assistant", "tool", "assistant", "tool", "assistant", "tool"]
    assert [fork.submitted for fork in forks] == ["n, n", "n, n"] and [len(f.steps) for f in forks] == [5, 5]
    assert branch(played, 1, 1, policy, env=make_env)[0].submitted == "n"
    assert branch(played, 0, 1, policy, env=make_env)[0].submitted == "none"


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(script=st.lists(st.sampled_from([LOOK, NOTE, READ]), max_size=5), data=st.data())
def test_any_state_is_reached_again(script, data):
    played = one([*script, SUBMIT])
    step = data.draw(st.integers(0, len(script)))
    for fork in branch(played, step, 2, ScriptedPolicy([*script, READ, SUBMIT]), env=make_env):
        assert [s.state_key for s in fork.steps[:step]] == [s.state_key for s in played.steps[:step]]
        assert fork.steps[-2].results[0].text == (", ".join(["n"] * script.count(NOTE)) or "none")


def test_from_a_file_through_wrappers_by_the_episodes_own_spec(tmp_path):
    env = RewardShaping(gym.make("AWorld/Gaia-v0", level=1), "step_penalty", amount=0.25)
    played = rollout(env, OraclePolicy(), episodes=2, seed=4)[1]
    env.close()
    write_jsonl(tmp_path / "episodes.jsonl", [played])
    (read,) = read_jsonl(tmp_path / "episodes.jsonl")
    forks = branch(read, 2, 2, OraclePolicy())
    assert [f.score for f in forks] == [1.0, 1.0] and forks[0].total_reward == played.total_reward
    assert forks[0].spec == played.spec and forks[0].steps[0].components == {"task": 0.0, "step_penalty": -0.25}
    different = branch(read, 1, 4, RandomPolicy())
    assert len({json.dumps(f.steps[1].action) for f in different}) > 1, "forks of a random policy differ"


def test_over_stdio_and_with_a_whole_transcript():
    def env():
        return TranscriptObservation(make_env(STDIO))

    played = one(env=env)
    seen = []

    def policy(messages, tools):
        seen.append(len(messages))
        return finishing(messages, tools)

    assert branch(played, 3, 2, policy, env=env)[0].submitted == "n, n"
    assert seen[0] == 7 and Counter(seen) == {7: 2, 9: 2}


def test_a_fork_can_be_forked():
    first = branch(one(), 2, 1, ScriptedPolicy(SCRIPT), env=make_env)[0]
    second = branch(first, 4, 2, ScriptedPolicy(finishing), env=make_env)[1]
    assert (second.parent, second.forked_at, second.submitted) == (first.key, 4, "n, n")


def test_options_of_the_reset_are_given_again():
    options = {"components": {"system_prompt": "Be brief."}}
    played = rollout(make_env, ScriptedPolicy(SCRIPT), items=[Item(0, 3, options=options)])[0]
    with pytest.raises(ReplayError, match="the env begins with other messages: message 0 is another"):
        branch(played, 2, 1, ScriptedPolicy(SCRIPT), env=make_env)
    assert branch(played, 2, 1, ScriptedPolicy(SCRIPT), env=make_env, options=options)[0].score == 1.0


# ---- what is refused ----------------------------------------------------------------------------------------------


def test_a_result_that_differs_is_named():
    played = one([LOOK, calling(("look", {"name": "y"}), ("roll", {})), SUBMIT])
    with pytest.raises(ReplayError) as error:
        branch(played, 2, 4, ScriptedPolicy([SUBMIT]), env=make_env)
    said, was = str(error.value), played.steps[1].results[1].text
    assert f"episode {played.key} cannot be forked after 2 steps: step 1, call 2 (roll) gave another text" in said
    assert f"{was!r} was recorded, now it is" in said
    assert branch(played, 1, 2, ScriptedPolicy([LOOK, SUBMIT]), env=make_env)[0].score == 1.0  # before it, all is well


def changed(played, step, **fields):
    """The episode with another first result in that step."""
    result = dataclasses.replace(played.steps[step].results[0], **fields)
    steps = list(played.steps)
    steps[step] = dataclasses.replace(steps[step], results=(result,))
    return dataclasses.replace(played, steps=tuple(steps))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"content": ({"type": "text", "text": "x: 2"},)},
            "step 1, call 1 (look) gave another text: 'x: 2' was recorded, now it is 'x: 1' "
            "(they differ from character 3 on)",
        ),
        ({"error": "tool_error"}, "gave another error: 'tool_error' was recorded, now it is None"),
        ({"structured": {"result": 1}}, "gave another structured: {'result': 1} was recorded, now it is None"),
    ],
)
def test_each_part_of_a_result_counts(fields, said):
    with pytest.raises(ReplayError) as error:
        branch(changed(one(), 1, **fields), 3, 1, ScriptedPolicy(SCRIPT), env=make_env)
    assert said in str(error.value)


def test_other_tools_another_task_and_an_end_are_refused():
    played = one()
    with pytest.raises(ReplayError, match="begins with other tools: tool 4 is another"):
        names = [tool["function"]["name"] for tool in played.tools if tool["function"]["name"] != "picture"]
        branch(played, 1, 1, ScriptedPolicy(SCRIPT), env=lambda: make_env(tools=names))
    with pytest.raises(ReplayError, match="message 0 is another: .*Question.* was recorded"):
        tasks = [dataclasses.replace(task, prompt="Something else?") for task in TASKS]
        branch(played, 1, 1, ScriptedPolicy(SCRIPT), env=lambda: make_env(tasks=tasks))
    with pytest.raises(ReplayError, match=r"step 4 ends the episode \(answered\), so there is nothing to go on with"):
        branch(played, 5, 1, ScriptedPolicy(SCRIPT), env=make_env)
    with pytest.raises(ReplayError, match=r"step 1 ends the episode \(max_turns\)"):
        branch(played, 3, 1, ScriptedPolicy(SCRIPT), env=lambda: make_env(limits={"max_turns": 2}))


@pytest.mark.parametrize("step", [-1, 6, 1.5, True, None])
def test_steps_that_there_are_not(step):
    with pytest.raises(ConfigError, match="0 to 5"):
        branch(one(), step, 1, ScriptedPolicy(SCRIPT), env=make_env)


def test_what_cannot_be_forked():
    played = one()
    with pytest.raises(ConfigError, match="n must be a whole number of at least 1, got 0"):
        fork_items(played, 1, 0)
    with pytest.raises(ConfigError, match="has no env spec"):
        branch(played, 1, 1, ScriptedPolicy(SCRIPT))
    with pytest.raises(ConfigError, match="never began"):
        Prefix(Episode("E-v0", "a", 0), 0)
    with pytest.raises(ReplayError, match="does not take the recorded action of step 0: expected the model's text"):
        branch(played, 1, 1, ScriptedPolicy(["text"]), env=lambda: RawTextAction(make_env()))


# ---- with tapes, journals, failures -------------------------------------------------------------------------------


def test_the_prefix_comes_from_a_tape_and_so_does_the_rest(tmp_path):
    script = [calling(("roll", {})), *SCRIPT]
    with Recorder(tmp_path / "t") as recorder:
        group = rollout(make_env, ScriptedPolicy(script), episodes=3, group_size=3, tape=recorder)
    asked = dict(CALLS)
    # a tool that gives something else each time: only the tape can reach these states, each of them its own
    for played in group:
        forks = branch(played, 2, 3, ScriptedPolicy(script), env=make_env, tape=Replay(tmp_path / "t"))
        assert [f.steps[0].results[0].text for f in forks] == [played.steps[0].results[0].text] * 3
    assert dict(CALLS) == asked
    with pytest.raises(ReplayError, match="no result for call 3"):
        branch(group[0], 2, 1, ScriptedPolicy(SCRIPT), env=make_env, tape=Replay(tmp_path / "t"))


def test_what_only_reads_comes_from_a_cache_and_the_rest_is_live(tmp_path):
    with Cache(tmp_path / "c") as cache:
        played = one([LOOK, LOOK, NOTE, SUBMIT], tape=cache)
        forks = branch(played, 3, 4, ScriptedPolicy(finishing), env=make_env, tape=cache)
    assert CALLS["look"] == 1 and CALLS["note"] == 5 and [f.submitted for f in forks] == ["n"] * 4


def test_a_journal_of_forks_is_resumed(tmp_path):
    played, journal = one(), tmp_path / "forks.jsonl"
    policy = ScriptedPolicy(SCRIPT)
    branch(played, 2, 2, policy, env=make_env, journal=journal)
    CALLS.clear()
    both = branch(played, 2, 4, policy, env=make_env, journal=journal, resume=True)
    assert len(both) == 4 and CALLS["submit_answer"] == 2
    branch(played, 3, 2, policy, env=make_env, journal=journal, resume=True)
    assert CALLS["submit_answer"] == 4  # from another step: other forks
    rollout(make_env, policy, episodes=1, seed=3, journal=journal, resume=True)
    assert CALLS["submit_answer"] == 5  # and the episode itself is none of them
    assert Counter(e.group_id for e in read_jsonl(journal)) == {
        f"{played.key}#2": 4, f"{played.key}#3": 2, "3": 1
    }  # fmt: skip


DIES_THE_SECOND_TIME = """
import os, sys, threading
from pathlib import Path
sys.path.insert(0, {lib!r})
from episodes import without_times
from tape_server import make_server
from aworld_gym.types import EpisodeContext
with open({starts!r}, "a") as file:
    file.write("x")
if os.path.getsize({starts!r}) == 2:
    threading.Timer(1.0, os._exit, (3,)).start()
make_server(EpisodeContext(Path("."))).run("stdio")
"""


def test_a_server_that_dies_in_the_prefix_spoils_one_attempt(tmp_path):
    server = tmp_path / "server.py"
    server.write_text(
        DIES_THE_SECOND_TIME.format(lib=str(Path(tape_server.__file__).parent), starts=str(tmp_path / "starts"))
    )
    config = {"mcpServers": {"it": {"command": sys.executable, "args": [str(server)]}}}

    script = [NOTE, calling(("wait", {"seconds": 1.5})), SUBMIT]

    def env():
        return make_env(config)

    played = one(script, env)
    forks = branch(played, 2, 1, ScriptedPolicy(script), env=env, concurrency=1)
    assert [(f.outcome, f.attempt, f.parent, f.forked_at) for f in forks] == [
        (Outcome.INFRA_FAILURE, 0, played.key, 2),
        (Outcome.ANSWERED, 1, played.key, 2),
    ]
    assert summarize(forks)["retried"] == 1 and summarize(forks)["episodes"] == 1


# ---- policies that hold a conversation ----------------------------------------------------------------------------


def test_an_endpoint_is_asked_with_the_conversation_so_far():
    played = one()
    with ChatEndpoint(lambda request, number: completion({"content": "<answer>42</answer>"})) as endpoint:
        policy = OpenAIPolicy("m", base_url=endpoint.url, api_key="k")
        fork = branch(played, 3, 1, policy, env=make_env)[0]
        (request,) = endpoint.requests
    roles = [m["role"] for m in request["messages"]]
    assert fork.score == 1.0 and roles == ["user", *["assistant", "tool"] * 3]
    assert request["messages"][1]["tool_calls"][0]["function"]["name"] == "note"


def test_ids_that_were_sampled_are_prompted_as_they_were_and_not_trained_on():
    codec = ChatCodec(tiny_model.tokenizer())
    sampler = ScriptedSampler(codec, echo_then_submit)
    parent = token_rollout(say_env.ENV_ID, codec, sampler, [Item(0, 0)], max_tokens=400)[0]
    (fork,) = token_rollout(say_env.ENV_ID, codec, sampler, fork_items(parent.episode, 1, 1), max_tokens=400)
    whole, rest = parent.trajectory, fork.trajectory
    assert fork.episode.score == 1.0 and fork.episode.forked_at == 1
    assert [*rest.prompt_ids, *rest.response_ids] == [*whole.prompt_ids, *whole.response_ids]
    first = len(parent.episode.steps[0].sampled["token_ids"])
    assert len(rest.prompt_ids) > len(whole.prompt_ids) + first and all(rest.mask) and len(rest.turn_rewards) == 1
    bare = json.loads(parent.episode.to_json())
    bare["steps"][0]["action"].pop("sampled")
    (fork,) = token_rollout(say_env.ENV_ID, codec, sampler, fork_items(Episode.from_dict(bare), 1, 1), max_tokens=400)
    said = [*parent.episode.prompt, Episode.from_dict(bare).steps[0].action, *parent.episode.steps[0].observation]
    assert list(fork.trajectory.prompt_ids) == codec.prompt(said, parent.episode.tools) and fork.episode.score == 1.0


def test_tasks_that_are_not_there_are_said():
    played = dataclasses.replace(one(), task_id="nowhere")
    with pytest.raises(KeyError, match="unknown task id 'nowhere'"):
        branch(played, 1, 1, ScriptedPolicy(SCRIPT), env=lambda: make_env(tasks=[Task("a", "Question a?", "42")]))
