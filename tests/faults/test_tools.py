"""Tool processes that fail, behind a host: what the model sees, what the episode becomes, and how soon all is well."""

import functools
import re

import fault_table
import httpx2
import pytest
import waits
from fault_table import CALL_TIMEOUT_S, HUGE_CHARS, play_tool_fault
from leaks import living_children

GIVEN_UP = rf"gave no answer within {CALL_TIMEOUT_S:g} s; the call was given up"
CUT = f"x{{200}}\n\\[cut: {HUGE_CHARS - 200} of {HUGE_CHARS} characters are not shown\\]"
VALID = "valid, score 1"
DIED = "infra_failure (server_died), no reward"
EXPECTED = {
    "tool process killed (-9) in a call": ("", DIED, "ended during a call. The server was killed by SIGKILL"),
    "tool process hung: answers nothing any more": (GIVEN_UP, VALID, ""),
    "tool sleeping for ever, its process alive": (GIVEN_UP, VALID, ""),
    "tool process flooding stderr": ("late", VALID, ""),
    "tool returning 50 MB": (CUT, VALID, ""),
    "tool returning invalid JSON": ("", "infra_failure (server_protocol), no reward", "is not MCP: it cannot be read"),
    "tool process closing stdout": ("", DIED, "closed its stdout, over which it must answer, and went on running"),
}


@pytest.fixture(scope="module")
def row_of(running):
    """The row of a fault, played once."""
    return functools.cache(lambda fault: play_tool_fault(fault, running))


def test_every_fault_has_a_row():
    assert EXPECTED.keys() == fault_table.TOOL_FAULTS.keys()


@pytest.mark.parametrize("fault", EXPECTED)
def test_a_tool_that_fails(row_of, fault):
    sees, becomes, why = EXPECTED[fault]
    row = row_of(fault)
    assert re.search(sees, row.sees) if sees else row.sees == ""
    assert row.becomes == becomes
    assert re.search(why, row.why) if why else row.why == ""
    assert row.noticed_s < (40.0 if "MB" in fault else CALL_TIMEOUT_S + 2.0)
    assert row.recovered_s < 10.0
    (episode,) = row.episodes
    assert episode.score == (1.0 if becomes == VALID else None) and episode.total_reward == (becomes == VALID)


def test_what_a_hung_tool_held_is_said_to_be_lost(row_of):
    """The model may go on, and has to know what it cannot count on any more."""
    (episode,) = row_of("tool process hung: answers nothing any more").episodes
    after = [step.results[0].text for step in episode.steps[3:] if step.results and step.results[0].error is None]
    assert "the server was restarted: files are kept, anything it held in memory is lost" in after[0]
    (episode,) = row_of("tool sleeping for ever, its process alive").episodes
    assert episode.steps[3].results[0].text == "on"


def test_nothing_is_left_of_the_tools_that_failed(running):
    waits.until(lambda: httpx2.get(running.address + "/ready").json()["sessions"] == 0, what="the end of all sessions")
    waits.until(lambda: not living_children(running.process.pid), what="the end of all tool processes")
