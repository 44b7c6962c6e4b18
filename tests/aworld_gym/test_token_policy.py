"""Token rollouts on a real in-process MCP server, with a scripted sampler."""

import math
import random
import subprocess
import sys
import threading
import time

import gymnasium as gym
import pytest
import say_env
import tiny_model
from hypothesis import given, settings
from hypothesis import strategies as st
from say_env import ENV_ID, SESSIONS, all_closed
from say_sessions import sessions_fixture  # noqa: F401
from scripted_sampler import ScriptedSampler, echo_then_submit, tool_call

from aworld_gym.errors import ConfigError, PolicyError
from aworld_gym.generation import PoolStats
from aworld_gym.play import Item
from aworld_gym.token_policy import token_rollout
from aworld_gym.tokens import ChatCodec
from aworld_gym.toolchain import loop, stats
from aworld_gym.trajectory import Journal, read_jsonl
from aworld_gym.types import Outcome
from aworld_gym.wrappers import RewardShaping


@pytest.fixture(scope="module")
def codec():
    return ChatCodec(tiny_model.tokenizer())


def items(count, seed=0):
    return [Item(k, seed + k) for k in range(count)]


def play(codec, sampler, count=4, env=ENV_ID, **options):
    return token_rollout(env, codec, sampler, items(count), **{"max_tokens": 400, **options})


def test_ids_are_what_was_sampled_and_what_the_codec_appends(codec):
    sampler = ScriptedSampler(codec, echo_then_submit)
    for one in play(codec, sampler):
        episode, trajectory = one.episode, one.trajectory
        assert (episode.outcome, episode.score, len(episode.steps)) == (Outcome.ANSWERED, 1.0, 2)
        prompt = codec.prompt(episode.prompt, episode.tools)
        first, second = (list(step.sampled["token_ids"]) for step in episode.steps)
        appended = codec.extend(first, episode.steps[0].observation)
        assert trajectory.prompt_ids == tuple(prompt)
        assert trajectory.response_ids == tuple(first + appended + second)
        assert trajectory.mask == tuple([1] * len(first) + [0] * len(appended) + [1] * len(second))
        assert trajectory.turn_rewards == (0.0, 1.0)
        assert trajectory.logprobs == tuple(-0.5 * bit for bit in trajectory.mask)
        assert any(prompt + first + appended in prompts for prompts, _ in sampler.batches)


def test_ids_that_no_tokenizer_would_write_survive(codec):
    def spelled_out(word, turn):
        text = codec.tokenizer.decode(codec.encode_assistant(echo_then_submit(word, turn))[1:-2])
        ends = {
            name: codec.tokenizer.convert_tokens_to_ids(name) for name in ("<tool_call>", "</tool_call>", "<|im_end|>")
        }
        letters = [i for c in text for i in codec.tokenizer.encode(c, add_special_tokens=False)]
        return [ends["<tool_call>"], *letters, ends["</tool_call>"], ends["<|im_end|>"]]

    sampler = ScriptedSampler(codec, spelled_out)
    (one,) = play(codec, sampler, 1)
    turns = [list(one.trajectory.response_ids[a:b]) for a, b in one.trajectory.turns]
    assert one.episode.score == 1.0
    assert turns == [spelled_out(one.episode.task_id, k) for k in range(2)]
    assert turns[0] != codec.encode_assistant(echo_then_submit(one.episode.task_id, 0))


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 10**6), max_tokens=st.integers(1, 260), max_turn_tokens=st.integers(1, 80))
def test_any_budget_gives_a_prefix_of_what_was_sampled(codec, seed, max_tokens, max_turn_tokens):
    rng = random.Random(seed)

    def script(word, turn):
        kind = rng.choice(["echo", "submit", "garbage", "cut"])
        ids = codec.encode_assistant(tool_call("echo", text=word) if kind == "echo" else echo_then_submit(word, 1))
        stop = next(iter(codec.stop_ids))
        plain = [i for i in range(len(codec.tokenizer)) if i not in codec.stop_ids]
        return {"garbage": [*rng.choices(plain, k=9), stop], "cut": ids[:-1]}.get(kind, ids)

    sampler = ScriptedSampler(codec, script)
    played = play(codec, sampler, 3, max_tokens=max_tokens, max_turn_tokens=max_turn_tokens)
    outputs = {
        (tuple(p), tuple(o))
        for (ps, _), os in zip(sampler.batches, sampler.outputs, strict=True)
        for p, o in zip(ps, os, strict=True)
    }
    for one in played:
        trajectory = one.trajectory
        assert len(trajectory.response_ids) <= max_tokens
        assert all(stop - start <= max_turn_tokens for start, stop in trajectory.turns)
        for start, stop in trajectory.turns:
            before = trajectory.prompt_ids + trajectory.response_ids[:start]
            assert (before, trajectory.response_ids[start:stop]) in outputs
        assert sum(trajectory.turn_rewards) == pytest.approx(one.episode.total_reward)
        closed = bool(trajectory.response_ids) and trajectory.response_ids[-1] in codec.stop_ids
        if one.episode.outcome is not Outcome.MAX_TOKENS:
            assert closed
        elif trajectory.turns:  # the turn that was cut is in the ids, and was not shown to the env
            assert len(one.episode.steps) == len(trajectory.turns) - (not closed)


def test_a_cut_turn_is_no_answer(codec):
    submit = codec.encode_assistant(tool_call("submit_answer", answer="red"))
    (one,) = play(codec, ScriptedSampler(codec, lambda word, turn: submit), 1, max_turn_tokens=len(submit) - 1)
    assert (one.episode.outcome, one.episode.score, one.episode.steps) == (Outcome.MAX_TOKENS, 0.0, ())
    assert list(one.trajectory.response_ids) == submit[:-1]
    assert one.trajectory.turn_rewards == (0.0,)


def test_an_observation_that_does_not_fit_ends_the_episode_at_the_turn(codec):
    sampler = ScriptedSampler(codec, echo_then_submit)
    first = codec.encode_assistant(tool_call("echo", text="black"))
    for one in play(codec, sampler, 3, max_tokens=len(first) + 3):
        assert one.episode.outcome is Outcome.MAX_TOKENS
        assert len(one.episode.steps) == 1 and len(one.trajectory.turns) == 1
        assert one.trajectory.response_ids[-1] in codec.stop_ids


def test_a_prompt_that_fills_the_context_leaves_nothing_to_sample(codec):
    sampler = ScriptedSampler(codec, echo_then_submit)
    (one,) = play(codec, sampler, 1, max_context=5)
    assert one.episode.outcome is Outcome.MAX_TOKENS and one.episode.valid
    assert one.trajectory.response_ids == () and len(one.trajectory.prompt_ids) > 5
    assert sampler.batches == []


def test_what_comes_after_a_stop_id_is_dropped(codec):
    sampler = ScriptedSampler(codec, lambda word, turn: codec.encode_assistant(echo_then_submit(word, 1)) + [5, 6])
    (one,) = play(codec, sampler, 1)
    assert one.episode.score == 1.0
    assert one.trajectory.response_ids[-1] in codec.stop_ids and one.trajectory.sampled_count == len(
        one.trajectory.mask
    )


def test_tools_run_at_once_and_generation_in_lock_step_on_the_calling_thread(codec):
    SESSIONS.reset(slow=lambda number: 0.25)
    play(codec, ScriptedSampler(codec, echo_then_submit), 8)  # whatever is imported or started once
    runs = []
    for _ in range(3):  # the best of three: other programs run on this machine too
        sampler, pool = ScriptedSampler(codec, echo_then_submit), PoolStats()
        played = play(codec, sampler, 8, stats=pool)
        runs.append(pool.wait_s)
        assert [one.episode.score for one in played] == [1.0] * 8
        assert [len(prompts) for prompts, _ in sampler.batches] == [8, 8]
        assert (pool.batches, pool.requests, pool.late) == (2, 16, 0)
        assert sampler.threads == {threading.current_thread()} and not loop.on_loop()
        prompts = [one.trajectory.prompt_ids for one in played]
        assert [tuple(p) for p in sampler.batches[0][0]] == prompts, "batches are in the order of the items"
        if min(runs) < 0.6:
            break
    assert 0.25 < min(runs) < 0.6, "eight tools of 0.25 s each in a row would be 2 s"


def test_a_hung_tool_delays_nobody_beyond_the_window(codec):
    SESSIONS.reset(slow=lambda number: 2.0 if number == 2 else 0.0)
    sampler, pool = (
        ScriptedSampler(
            codec, lambda word, turn: tool_call("echo", text=word) if turn < 4 else echo_then_submit(word, 1)
        ),
        PoolStats(),
    )
    began, done = time.monotonic(), {}
    env = gym.make(ENV_ID, limits={"call_timeout_s": 1.0})
    played = play(
        codec,
        sampler,
        4,
        env=env,
        stats=pool,
        straggler_s=0.2,
        on_episode=lambda episode: done.setdefault(episode.seed, time.monotonic() - began),
    )
    assert all(one.episode.outcome is Outcome.ANSWERED for one in played)
    assert [len(prompts) for prompts, _ in sampler.batches][:3] == [4, 3, 3]
    late = [seed for seed, when in done.items() if when > 1.0]
    assert len(late) == 1, f"one episode waits for its tool, not four: {done}"
    slow = played[late[0]].episode
    assert {result.error for step in slow.steps for result in step.results} >= {"tool_timeout"}
    assert 1 <= pool.late <= 4, "waited for once per time that its tool hangs"


def test_slow_is_not_hung(codec):
    SESSIONS.reset(slow=lambda number: 0.3 * number)  # one after the other, each within the window of the one before
    sampler, pool = ScriptedSampler(codec, echo_then_submit), PoolStats()
    play(codec, sampler, 4, straggler_s=0.7, stats=pool)
    assert [len(prompts) for prompts, _ in sampler.batches] == [4, 4] and pool.late == 0


def test_a_batch_may_wait_for_all(codec):
    SESSIONS.reset(slow=lambda number: 0.4 if number == 1 else 0.0)
    sampler = ScriptedSampler(codec, echo_then_submit)
    play(codec, sampler, 3, straggler_s=math.inf)
    assert [len(prompts) for prompts, _ in sampler.batches] == [3, 3]


def test_a_spoiled_episode_is_played_again_in_a_fresh_env(codec, tmp_path):
    SESSIONS.reset(broken=lambda number: number < 3)
    with Journal(tmp_path / "episodes.jsonl") as journal:
        played = play(codec, ScriptedSampler(codec, echo_then_submit), 3, journal=journal)
    assert [(one.episode.score, one.episode.attempt, one.attempts) for one in played] == [(1.0, 1, 2)] * 3
    written = list(read_jsonl(tmp_path / "episodes.jsonl"))
    assert sorted((e.seed, e.attempt, e.valid) for e in written) == [(k, a, a == 1) for k in range(3) for a in range(2)]


def test_what_stays_spoiled_is_returned_in_its_place(codec):
    SESSIONS.reset(broken=lambda number: number in (1, 4))
    sampler = ScriptedSampler(codec, echo_then_submit)
    played = play(codec, sampler, 4, retries=0)
    assert [one.episode.seed for one in played] == [0, 1, 2, 3]
    (bad,) = [one for one in played if not one.episode.valid]
    assert (
        bad.trajectory is None
        and bad.episode.outcome is Outcome.INFRA_FAILURE
        and "told to be broken" in bad.episode.error
    )
    assert len(sampler.batches[0][0]) == 3


def test_rewards_of_wrappers_stand_at_their_turns(codec):
    env = RewardShaping(gym.make(ENV_ID), "say_env:by_answer", scale=0.5)
    for one in play(codec, ScriptedSampler(codec, echo_then_submit), 3, env=env):
        assert one.trajectory.turn_rewards == tuple(step.reward for step in one.episode.steps)
        assert set(one.episode.steps[0].components) == {"task", "by_answer"}
        assert one.trajectory.turn_rewards[0] > 0.0


@pytest.mark.parametrize("error", [ValueError("out of memory"), KeyboardInterrupt()])
def test_what_generate_raises_comes_through_and_everything_is_closed(codec, error):
    SESSIONS.reset(slow=lambda number: 0.3)
    calls = []

    def generate(prompts, limits):
        calls.append(len(prompts))
        if len(calls) == 2:
            raise error
        return ScriptedSampler(codec, echo_then_submit)(prompts, limits)

    before = stats()
    with pytest.raises(type(error)) as caught:
        play(codec, generate, 4)
    assert caught.value is error
    assert all_closed(before) == 4


def test_a_policy_that_cannot_tokenise_stops_the_rollout(codec):
    broken = ChatCodec(codec.tokenizer, template=codec.template.replace("{{ m.role }} {{ m.content }}", "{{ m.role }}"))
    with pytest.raises((ConfigError, PolicyError), match="drops a message"):
        play(broken, ScriptedSampler(codec, echo_then_submit), 2)


@pytest.mark.parametrize("turn", [1, 2])
@pytest.mark.parametrize("missing", ["one", "all"])
def test_log_probabilities_that_are_not_all_given_are_none(codec, turn, missing):
    scripted = ScriptedSampler(codec, echo_then_submit)

    def generate(prompts, limits):
        outputs = list(scripted(prompts, limits))
        if len(scripted.batches) == turn:
            ids, logprobs = outputs[0]
            outputs[0] = ids, None if missing == "all" else [*logprobs[:-1], float("nan")]
        return outputs

    first, second = play(codec, generate, 2)
    assert first.episode.score == second.episode.score == 1.0
    assert first.trajectory.logprobs is None and second.trajectory.logprobs is not None
    assert first.episode.steps[turn - 1].sampled["logprobs"] is None


def test_batches_wait_for_episodes_that_begin_later_too(codec):
    """With more episodes than are played at once, batches are as large as they can be, and the same again."""
    sampler = ScriptedSampler(codec, echo_then_submit)
    play(codec, sampler, 10, concurrency=4, straggler_s=math.inf)
    assert [len(prompts) for prompts, _ in sampler.batches] == [4, 4, 4, 4, 2, 2]


def test_items_must_be_told_apart(codec):
    with pytest.raises(ConfigError, match="unique"):
        token_rollout(ENV_ID, codec, lambda p, n: [], [Item(0, 1), Item(1, 1)], max_tokens=9)


@pytest.mark.parametrize("option", ["max_tokens", "max_turn_tokens", "max_context"])
def test_budgets_are_positive(codec, option):
    with pytest.raises(ConfigError, match=f"{option} must be at least 1"):
        play(codec, lambda p, n: [], 1, **{option: 0})


def test_concurrency_bounds_what_runs_at_once(codec):
    sampler = ScriptedSampler(codec, echo_then_submit)
    played = play(codec, sampler, 6, concurrency=2)
    assert [one.episode.score for one in played] == [1.0] * 6
    assert max(len(prompts) for prompts, _ in sampler.batches) == 2


def test_no_torch_is_imported():
    code = "import sys, aworld_gym.token_policy, aworld_gym.policies.transformers; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_the_env_of_these_tests_is_what_it_says():
    assert gym.spec(ENV_ID).entry_point == "say_env:make_env" and len(say_env.WORDS) == 8
