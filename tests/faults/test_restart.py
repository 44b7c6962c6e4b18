"""A host that ends without a word, and comes back."""

import asyncio
import time

import pytest
from bad_network import BadNetwork
from fault_table import play_host_fault
from hosts import host_here, session_at

from aworld_gym.errors import InfraError
from aworld_gym.toolchain import loop

SESSIONS = 40
DOWN_S = 6.0


@pytest.mark.slow
def test_a_host_that_is_killed_and_comes_back_costs_attempts_and_no_score(tmp_path):
    row = play_host_fault(tmp_path)
    failed = [e for e in row.episodes if not e.valid]
    assert failed and all(e.score is None and e.outcome == "infra_failure" for e in failed)
    assert {e.error_kind for e in failed} <= {"host_unreachable", "session_lost"}
    assert [e.score for e in row.episodes if e.valid] == [1.0] * 64  # each was tried again
    assert sorted(e.seed for e in row.episodes if e.valid) == list(range(64))
    assert row.noticed_s < 120


@pytest.mark.slow
def test_a_host_that_comes_back_is_not_run_over():
    """Many sessions at once lose their host, and each wants another: they come back spread over seconds, and rarely."""
    stopped, back, opened = 0.0, 0.0, []

    async def episode(running, entry, held):
        async with session_at(running, entry=entry, open_timeout_s=60.0) as session:
            assert (await session.call("1", "note", {"text": "x"})).text == "1"
            held.release()
            await asyncio.sleep(0.2)
            while True:  # until its host has gone
                try:
                    await session.call("2", "note", {"text": "x"})
                    await asyncio.sleep(0.3)
                except InfraError:
                    break
        async with session_at(running, entry=entry, open_timeout_s=60.0) as session:
            assert (await session.call("1", "note", {"text": "x"})).text == "1"
            opened.append(time.monotonic())

    with host_here(max_sessions=SESSIONS) as first, host_here(max_sessions=SESSIONS) as second:
        network = BadNetwork(first.port)

        async def play():
            nonlocal stopped, back
            port = await network.start()
            entry = first.entry(url=f"http://127.0.0.1:{port}/mcp")
            held = asyncio.Semaphore(0)
            async with asyncio.TaskGroup() as group:
                for _ in range(SESSIONS):
                    group.create_task(episode(first, entry, held))
                for _ in range(SESSIONS):
                    await held.acquire()
                network.port = 1  # where nobody listens: connections break, and so does every further one
                network.cut()
                stopped = time.monotonic()
                await asyncio.sleep(DOWN_S)
                network.port = second.port
                back = time.monotonic()
            await network.stop()

        loop.run(play(), timeout=150)
    assert len(opened) == SESSIONS
    came = [at for at in network.accepted if at > stopped]
    assert sum(at < back for at in came) < 15 * SESSIONS
    after = sorted(at for at in came if at > back)
    assert len(after) < 5 * SESSIONS  # each has two connections in the end
    crowd = max(sum(at <= other < at + 0.25 for other in after) for at in after)
    assert crowd < 1.5 * SESSIONS, crowd  # of two of each
    assert max(opened) - back < 30
