"""What faults of tools and of the network become: the rows of one table, each played for real.

Every row plays an episode that meets the fault, through an environment host, and then episodes until one is valid.
The tests in ``tests/faults`` say what must come of it, and ``python -m tests.faults`` prints it.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Timer
from typing import Any

from bad_network import BadNetwork
from host_restarts import play_killed_host
from hosts import BASIC, Running, host_process, quick_config
from tool_servers import raw

from aworld_gym.env import ToolEnv
from aworld_gym.rollout import rollout
from aworld_gym.toolchain import loop
from aworld_gym.types import Episode, Task

_SERVED = {
    "raw": {"mcpServers": {"raw": raw()}},
    "flood": {"mcpServers": {"raw": raw("flood")}},
    "basic": BASIC,
}
PATIENCE_S = 60.0
"""In which the episode after a fault must be valid."""
CALL_TIMEOUT_S = 4.0
"""Longer than a host looks whether a server that let a call time out still lives, for which the next call waits."""
HUGE_CHARS = 50 * 2**20
BROKEN_JSON = '{"jsonrpc":"2.0","id":ID,"result":{"content":[}}'


@contextmanager
def fault_host(folder: Path) -> Iterator[Running]:
    """The host that the rows are played with, in a process of its own."""
    args = ["--port", "0", "--max-sessions", "64"]
    for name, config in _SERVED.items():
        (folder / name).mkdir()
        args += ["--mcp-config", f"{name}={quick_config(folder / name, config)}"]
    with host_process(*args, log=folder / "log") as running:
        yield running


@dataclass
class Row:
    """One fault, and what came of it."""

    fault: str
    sees: str
    """The tool message that the model gets; empty where the episode ends without one."""
    becomes: str
    why: str
    """What the record of a failed episode says."""
    noticed_s: float
    """From the call that meets the fault until the model goes on or the episode ends."""
    recovered_s: float
    """From then until the next episode on that host has ended valid."""
    episodes: list[Episode] = field(default_factory=list)


def said(action: str | None = None, **call: Any) -> dict[str, Any]:
    """An assistant message: an answer, or one call."""
    if action is not None:
        return {"role": "assistant", "content": f"<answer>{action}</answer>"}
    function = {"name": call["name"], "arguments": json.dumps(call["arguments"])}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c", "type": "function", "function": function}],
    }


# -- tools ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ToolFault:
    """One thing that a tool's process does wrong: a call that meets it, and what happens to the process besides."""

    call: tuple[str, Mapping[str, Any]]
    toolchain: str = "raw"
    strike: Callable[[int], None] | None = None
    """Given the process's id when the call is made."""


def _killed(pid: int) -> None:
    Timer(0.3, os.kill, (pid, signal.SIGKILL)).start()


TOOL_FAULTS = {
    "tool process killed (-9) in a call": ToolFault(("slow", {"seconds": 20}), strike=_killed),
    "tool process hung: answers nothing any more": ToolFault(("hang", {})),
    "tool sleeping for ever, its process alive": ToolFault(("slow", {"seconds": 3600})),
    "tool process flooding stderr": ToolFault(("slow", {"seconds": 0.5}), toolchain="flood"),
    "tool returning 50 MB": ToolFault(("huge", {"chars": HUGE_CHARS})),
    "tool returning invalid JSON": ToolFault(("line", {"text": BROKEN_JSON})),
    "tool process closing stdout": ToolFault(("mute", {})),
}


def play_tool_fault(name: str, running: Running) -> Row:
    """Meet a fault in the second of three calls; the model's memory of the tool is in the first, its answer the last.

    Args:
        name: of :data:`TOOL_FAULTS`.
        running: a host on this machine that serves what :func:`fault_host` does.
    """
    fault = TOOL_FAULTS[name]
    times: dict[int, float] = {}

    def make() -> ToolEnv:
        entry = running.entry(toolchain=fault.toolchain)
        limits = {"call_timeout_s": 60.0 if "MB" in name else CALL_TIMEOUT_S, "max_result_chars": 200}
        return ToolEnv({"mcpServers": {"it": entry}}, [Task("t", "?", answer="on")], limits=limits, submit_tool=None)

    def act(messages: list[dict[str, Any]], tools: Any, faulty: bool) -> dict[str, Any]:
        told = [message["content"] for message in messages if message["role"] == "tool"]
        times[len(told)] = time.monotonic()
        if len(told) == 0:
            return said(name="pid", arguments={})
        if len(told) == 1:
            return said(name="put", arguments={"text": "kept"})
        if len(told) == 2 and faulty:
            if fault.strike is not None:
                fault.strike(int(told[0]))
            return said(name=fault.call[0], arguments=dict(fault.call[1]))
        if len(told) < 4 or (len(told) < 7 and "gave no answer within" in told[-1]):  # a model tries again, too
            return said(name="echo", arguments={"text": "on"})
        return said("on" if told[-1].splitlines()[-1] == "on" else "off")

    (episode,) = rollout(make, lambda m, t: act(m, t, True), episodes=1, retries=0)
    over = time.monotonic()
    noticed = times.get(3, over) - times[2]
    recovered = _recovered(lambda: rollout(make, lambda m, t: act(m, t, False), episodes=1, retries=0))
    sees = episode.steps[2].results[0].text if len(episode.steps) > 2 and episode.steps[2].results else ""
    return Row(name, sees, _became([episode]), episode.error or "", noticed, recovered, [episode])


# -- the network ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NetworkFault:
    """One thing that a network does wrong."""

    kind: str = "drop"
    share: float = 0.0
    delay_s: float = 0.0
    outage_s: float = 0.0
    """Seconds for which nothing can be connected, once episodes are under way; every connection breaks."""


NETWORK_FAULTS = {
    "connections refused for 1.5 s": NetworkFault(outage_s=1.5),
    "10 % of replies reset in the middle": NetworkFault("reset", share=0.1),
    "10 % of replies dropped": NetworkFault(share=0.1),
    "every reply 2 s late": NetworkFault(delay_s=2.0),
}
NOTES = 3
EPISODES = 16


def take_notes(messages: list[dict[str, Any]], tools: Any) -> dict[str, Any]:
    """Write notes until the tool, which counts them, says that there are enough."""
    told = [message["content"] for message in messages if message["role"] == "tool"]
    if any(text.isdigit() and int(text) >= NOTES for text in told):
        return said("done")
    return said(name="note", arguments={"text": "x"})


def play_network_fault(name: str, running: Running) -> Row:
    """Episodes side by side through a network with a fault, no attempt repeated; and one when it is gone.

    Args:
        name: of :data:`NETWORK_FAULTS`.
        running: a host on this machine that serves what :func:`fault_host` does.
    """
    fault = NETWORK_FAULTS[name]
    network = BadNetwork(running.port, share=fault.share, delay_s=fault.delay_s)
    network.kind = fault.kind
    port = loop.run(network.start(), timeout=20)

    def make() -> ToolEnv:
        entry = running.entry(url=f"http://127.0.0.1:{port}/mcp", toolchain="basic")
        limits = {"call_timeout_s": 3.0, "open_timeout_s": 10.0}
        tasks = [Task(f"t{k}", "?", answer="done") for k in range(EPISODES)]
        return ToolEnv({"mcpServers": {"it": entry}}, tasks, limits=limits, submit_tool=None)

    outages: list[asyncio.Task[None]] = []

    async def act(messages: list[dict[str, Any]], tools: Any) -> dict[str, Any]:
        if fault.outage_s:
            if len(messages) > 2 and not outages:
                outages.append(asyncio.create_task(network.outage(fault.outage_s)))
            await asyncio.sleep(0.3)  # so that it falls between calls as well as into some
        return take_notes(messages, tools)

    try:
        began = time.monotonic()
        episodes = rollout(make, act, episodes=EPISODES, retries=0)
        took = time.monotonic() - began
        network.share = network.delay_s = 0.0
        recovered = _recovered(lambda: rollout(make, take_notes, episodes=1, retries=0))
    finally:
        loop.run(network.stop(), timeout=20)
    if not fault.delay_s:
        assert network.spoilt, "the network spoilt nothing"
    odd = [r.text for e in episodes for s in e.steps for r in s.results if not r.text.isdigit()]
    failed = [e.error for e in episodes if e.error]
    return Row(name, odd[0] if odd else "", _became(episodes), failed[0] if failed else "", took, recovered, episodes)


def counted_right(episode: Episode) -> bool:
    """Whether every note that the model was told of was taken once, and none was taken twice."""
    last = late = 0
    for step in episode.steps:
        for result in step.results:
            if result.error == "tool_timeout":  # it may have been taken, and may not
                late += 1
            elif result.error is None:
                if not last < int(result.text) <= last + 1 + late:
                    return False
                last, late = int(result.text), 0
    return True


# -- the host itself -----------------------------------------------------------------------------------------

HOST_FAULT = "host killed (-9) in the middle of 64 episodes, and started again"


def play_host_fault(folder: Path) -> Row:
    """A host that is killed while 64 episodes run, each tried again up to three times."""
    episodes, took, recovered = play_killed_host(folder)
    failed = [e.error for e in episodes if e.error]
    return Row(HOST_FAULT, "", _became(episodes), failed[0] if failed else "", took, recovered, episodes)


# -- all ------------------------------------------------------------------------------------------------------


def _recovered(play: Callable[[], list[Episode]]) -> float:
    """Seconds until an episode is valid, with a full score."""
    began = time.monotonic()
    while True:
        (episode,) = play()
        took = time.monotonic() - began
        if episode.valid:
            assert episode.score == 1.0, episode
            return took
        assert took < PATIENCE_S, f"no valid episode {took:.0f} s after the fault: {episode.error}"


def _became(episodes: list[Episode]) -> str:
    """How episodes ended, in words."""
    ends = Counter(
        f"valid, score {episode.score:g}" if episode.valid else f"infra_failure ({episode.error_kind}), no reward"
        for episode in episodes
    )
    if len(episodes) == 1:
        return next(iter(ends))
    words = "; ".join(f"{count} {end}" for end, count in sorted(ends.items(), reverse=True))
    again = sum(episode.attempt > 0 for episode in episodes)
    return f"{len(episodes)} attempts{f' ({again} of them retries)' if again else ''}: {words}"
