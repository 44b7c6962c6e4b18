"""Plain functions as policies, and what is said of things that are no policy."""

import asyncio
import functools
import os
import subprocess
import sys
import threading
import time

import pytest
import shaping_functions

from aworld_gym.errors import ConfigError, PolicyError
from aworld_gym.policies import FunctionPolicy, OraclePolicy, RandomPolicy, as_policy, make, tool_call
from aworld_gym.rollout import rollout
from aworld_gym.types import Outcome


def adds(messages, tools):
    """Calls a tool, then answers with what it gave; checks what it is told."""
    assert {t["function"]["name"] for t in tools} >= {"add", "submit_answer"}
    if messages[-1]["role"] == "user":
        assert [m["role"] for m in messages] == ["user"]
        return {"role": "assistant", "content": None, "tool_calls": [tool_call("c", "add", {"a": 40, "b": 2})]}
    assert [m["role"] for m in messages] == ["user", "assistant", "tool"]
    return {"role": "assistant", "content": f"<answer>{messages[-1]['content']}</answer>"}


async def adds_later(messages, tools):
    await asyncio.sleep(0.01)
    return adds(messages, tools)


class Adder:
    async def __call__(self, messages, tools):
        return await adds_later(messages, tools)


POLICIES = {
    "function": adds,
    "coroutine function": adds_later,
    "lambda": lambda messages, tools: adds(messages, tools),
    "lambda of a coroutine": lambda messages, tools: adds_later(messages, tools),
    "object": Adder(),
    "partial": functools.partial(adds),
}


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_a_function_plays(policy):
    episodes = rollout(shaping_functions.make_env, policy, episodes=6, concurrency=3)
    assert [(e.score, len(e.steps)) for e in episodes] == [(1.0, 2)] * 6
    assert {e.versions["policy"] for e in episodes} == {FunctionPolicy(policy).name}


def test_a_function_that_blocks_holds_up_nobody_and_runs_one_call_at_a_time():
    running, most, threads = [], [], set()

    def blocks(messages, tools):
        running.append(1)
        most.append(len(running))
        threads.add(threading.current_thread())
        time.sleep(0.02)
        running.pop()
        return {"role": "assistant", "content": "<answer>42</answer>"}

    assert all(e.score == 1.0 for e in rollout(shaping_functions.make_env, blocks, episodes=8, concurrency=8))
    assert max(most) == 1 and len(threads) == 1
    (thread,) = threads
    thread.join(timeout=5)
    assert not thread.is_alive(), "the thread ends with the rollout"


def test_a_rollout_that_ends_takes_nothing_from_another_with_the_same_policy():
    began = threading.Event()

    def slow(messages, tools):
        began.set()
        time.sleep(0.1)
        return {"role": "assistant", "content": "<answer>42</answer>"}

    policy, long = FunctionPolicy(slow), []
    other = threading.Thread(
        target=lambda: long.extend(rollout(shaping_functions.make_env, policy, episodes=6, concurrency=6))
    )
    other.start()
    assert began.wait(30)
    assert len(rollout(shaping_functions.make_env, policy, episodes=1)) == 1
    other.join(30)
    assert [episode.score for episode in long] == [1.0] * 6


def test_a_function_that_hangs_keeps_no_interrupted_program_alive():
    code = """
import signal, threading
from shaping_functions import make_env
from aworld_gym.rollout import rollout

def hangs(messages, tools):
    signal.raise_signal(signal.SIGINT)
    threading.Event().wait()

try:
    rollout(make_env, hangs, episodes=1)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "interrupted\n"), done.stderr


def test_coroutine_functions_of_many_episodes_run_together():
    async def waits(messages, tools):
        await asyncio.sleep(0.5)
        return {"role": "assistant", "content": "<answer>42</answer>"}

    began = time.monotonic()
    assert len(rollout(shaping_functions.make_env, waits, episodes=16, concurrency=16)) == 16
    assert time.monotonic() - began < 6.0  # one after another: 8


def test_none_is_a_used_up_budget():
    (episode,) = rollout(shaping_functions.make_env, lambda messages, tools: None, episodes=1)
    assert episode.outcome is Outcome.MAX_TOKENS


@pytest.mark.parametrize("kind", [KeyError, StopIteration])
def test_a_function_that_raises(kind):
    def broken(messages, tools):
        raise kind("a bug")

    with pytest.raises(PolicyError, match=f"policy 'broken' raised in act.*{kind.__name__}"):
        rollout(shaping_functions.make_env, broken, episodes=2)


class NoName:
    def episode(self, **kwargs): ...


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (OraclePolicy, r"OraclePolicy is a class, not a policy: pass one made of it, OraclePolicy\(...\)"),
        ("oracle", "a policy is an object with .name and .episode.*or a function.*got str"),
        (None, "a policy is an object.*got NoneType"),
        (NoName(), "got NoName. It has episode.. and lacks a name"),
        (lambda messages: None, r"called as <lambda>\(messages, tools\).*too many positional arguments"),
    ],
)
def test_what_is_no_policy_is_told_what_one_is(value, message):
    with pytest.raises(ConfigError, match=message):
        rollout(shaping_functions.make_env, value, episodes=1)


def test_what_is_a_policy_stays_itself():
    policy = RandomPolicy(3)
    assert as_policy(policy) is policy


# ---- by import path -------------------------------------------------------------------------------------------


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "some_policies.py").write_text(
        "from dataclasses import dataclass\n"
        "from aworld_gym.policies import OraclePolicy\n"
        "def say(messages, tools): return {'role': 'assistant', 'content': '<answer>42</answer>'}\n"
        "def factory(style='plain', api_key=None): return say\n"
        "def oracle(x=1): return OraclePolicy()\n"
        "def buggy(): raise TypeError('inside the factory')\n"
        "def nothing(): return None\n"
        "@dataclass(frozen=True)\n"
        "class Frozen:\n"
        "    name: str = 'frozen'\n"
        "    def episode(self, **kwargs): ...\n"
        "ready = OraclePolicy()\n"
        "number = 3\n"
    )
    monkeypatch.syspath_prepend(tmp_path)


def test_by_import_path(module, caplog):
    assert make("some_policies:say").name == "say"
    made = make("some_policies:factory", style="terse", api_key="secret")
    assert made.settings == {"function": "some_policies:say", "style": "terse"}
    assert make("some_policies:oracle", x=2).settings == {"x": 2}
    assert make("some_policies:ready").name == "oracle"
    assert not caplog.records
    assert make("some_policies:Frozen", name="ice").name == "ice"
    assert "'ice' takes no attribute `settings`" in caplog.text


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("some_policies:factory", {"stile": 1}, r"options \['stile'\]: got an unexpected keyword argument 'stile'"),
        ("some_policies:factory", {"stile": 1}, r"It takes style, .*Did you mean 'style'\?"),
        ("openai", {"temprature": 1}, r"It takes model, .*Did you mean 'temperature'\?"),
        ("some_policies:say", {"x": 1}, "expected a factory that takes them, or a policy function"),
        ("some_policies:nothing", {}, "'some_policies:nothing' gave what is no policy.*got NoneType"),
        ("some_policies:number", {}, "a policy is an object.*got int"),
    ],
)
def test_import_paths_that_lead_to_no_policy(module, name, options, message):
    with pytest.raises(ConfigError, match=message):
        make(name, **options)


def test_a_factorys_own_bug_is_not_hidden(module):
    with pytest.raises(TypeError, match="inside the factory"):
        make("some_policies:buggy")
