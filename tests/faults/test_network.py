"""A network that fails between client and host: nothing hangs, and what was not measured is no score."""

import json
import time

import pytest
from bad_network import BadNetwork
from hosts import host_here, session_at

from aworld_gym.env import ToolEnv
from aworld_gym.errors import InfraError
from aworld_gym.rollout import rollout
from aworld_gym.toolchain import loop
from aworld_gym.types import Task

CALLS = 4


def act(messages, tools):
    """Notes, of which each says how many there are: a lost or doubled one would be seen."""
    done = sum(message["role"] == "tool" for message in messages)
    if done >= CALLS:
        said = messages[-1]["content"]
        return {"role": "assistant", "content": f"<answer>{said}</answer>"}
    call = {"name": "note", "arguments": json.dumps({"text": "x"})}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": str(done), "type": "function", "function": call}],
    }


@pytest.mark.parametrize(
    ("kind", "share", "delay_s"), [("drop", 0.1, 0.0), ("reset", 0.1, 0.0), ("drop", 0.0, 2.0)], ids=str
)
def test_episodes_are_right_or_invalid(kind, share, delay_s):
    count = 24

    def make():
        entry = {"type": "aworld-host", "url": f"http://127.0.0.1:{port}/mcp", "token": running.token}
        tasks = [Task(f"t{k}", "How many?", answer=str(CALLS)) for k in range(count)]
        limits = {"call_timeout_s": 3.0, "open_timeout_s": 12.0}
        return ToolEnv({"mcpServers": {"it": entry}}, tasks, limits=limits, submit_tool=None)

    with host_here() as running:
        inner = int(running.url.rpartition(":")[2].partition("/")[0])
        network = BadNetwork(inner, share=share, delay_s=delay_s)
        network.kind = kind
        port = loop.run(network.start())
        began = time.monotonic()
        try:
            episodes = rollout(make, act, episodes=count, concurrency=count, retries=0)
        finally:
            loop.run(network.stop())
    assert time.monotonic() - began < 60
    assert len(episodes) == count
    for episode in episodes:
        timed_out = any(result.error == "tool_timeout" for step in episode.steps for result in step.results)
        if not episode.valid:
            assert episode.outcome == "infra_failure" and episode.score is None
        elif not timed_out:  # a model that was told of it may go on, and count wrong
            assert episode.score == 1.0
    right = sum(episode.score == 1.0 for episode in episodes)
    assert right == count if delay_s else (network.spoilt and right)


def test_a_host_that_nobody_listens_for_is_said_within_the_time(caplog):
    async def attempt():
        async with session_at(None, entry={"type": "aworld-host", "url": "http://127.0.0.1:1/mcp"}, open_timeout_s=1.5):
            pass

    began = time.monotonic()
    with pytest.raises(InfraError, match="127.0.0.1:1") as caught:
        loop.run(attempt())
    assert caught.value.kind == "host_unreachable" and time.monotonic() - began < 4
    assert "no environment host lets a session in yet" in caplog.text
