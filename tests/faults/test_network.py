"""A network that fails between client and host: nothing hangs, and what was not measured is no score."""

import time

import fault_table
import pytest
from fault_table import EPISODES, counted_right, play_network_fault
from hosts import session_at
from http_clients import each_http_client  # noqa: F401

from aworld_gym.errors import InfraError
from aworld_gym.toolchain import loop

SPOILT = {"host_unreachable", "session_timeout", "session_lost"}
AT_LEAST = {  # valid ones; a call under way when its connection breaks may have been taken, and is not repeated
    "connections refused for 1.5 s": EPISODES // 2,
    "10 % of replies reset in the middle": 2,
    "10 % of replies dropped": 2,
    "every reply 2 s late": EPISODES,
}


@pytest.mark.usefixtures("each_http_client")
@pytest.mark.slow
@pytest.mark.parametrize("fault", fault_table.NETWORK_FAULTS)
def test_episodes_are_right_or_invalid(running, fault):
    row = play_network_fault(fault, running)
    assert len(row.episodes) == EPISODES
    for episode in row.episodes:
        assert counted_right(episode)
        if episode.valid:
            assert episode.score == 1.0
        else:
            assert (episode.outcome, episode.score, episode.total_reward) == ("infra_failure", None, 0.0)
            assert episode.error_kind in SPOILT
    assert sum(episode.valid for episode in row.episodes) >= AT_LEAST[fault]
    assert row.noticed_s < 60 and row.recovered_s < 10


@pytest.mark.usefixtures("each_http_client")
def test_a_host_that_nobody_listens_for_is_said_within_the_time(caplog):
    async def attempt():
        async with session_at(None, entry={"type": "aworld-host", "url": "http://127.0.0.1:1/mcp"}, open_timeout_s=1.5):
            pass

    began = time.monotonic()
    with pytest.raises(InfraError, match="127.0.0.1:1") as caught:
        loop.run(attempt(), timeout=30)
    assert caught.value.kind == "host_unreachable" and time.monotonic() - began < 4
    assert "no environment host lets a session in yet" in caplog.text and "is the host up" in caplog.text
