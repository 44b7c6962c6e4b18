"""What the three levels mean: calls and kinds of tool, at their edges."""

from __future__ import annotations

import pytest

from aworld_gym.types import PlanStep
from envs.gaia.env import LIMITS
from envs.gaia.levels import LEVELS, MOST_STEPS, TOOL_KINDS, fits, kinds_of
from envs.gaia.tools import NAMES

ONE_OF_A_KIND = {kind: tool for tool, kind in TOOL_KINDS.items()}


def plan(calls: int, kinds: int) -> tuple[PlanStep, ...]:
    """A plan of so many calls, the submission included, with so many kinds of tool."""
    tools = list(ONE_OF_A_KIND.values())[:kinds]
    steps = [PlanStep(tools[i % kinds], {"n": i}) for i in range(calls - 1)]
    return (*steps, PlanStep("submit_answer", {"answer": "x"}))


@pytest.mark.parametrize(
    ("calls", "kinds", "levels"),
    [
        (2, 1, [1]),
        (5, 1, [1]),
        (6, 1, []),  # too long for level 1, of too few kinds for level 2
        (5, 2, [2]),
        (4, 2, []),
        (10, 3, [2]),
        (10, 4, [3]),
        (11, 3, [3]),
        (11, 1, [3]),
        (6, 4, [3]),
        (MOST_STEPS, 2, [3]),
        (MOST_STEPS + 1, 5, []),
    ],
)
def test_a_plan_has_at_most_one_level(calls: int, kinds: int, levels: list[int]) -> None:
    steps = plan(calls, kinds)
    assert len(kinds_of(steps)) == kinds
    assert [level for level in LEVELS if fits(level, steps)] == levels


def test_the_calculator_listing_and_the_submission_are_no_kind() -> None:
    assert kinds_of([PlanStep(tool, {}) for tool in ("calculate", "list_files", "submit_answer")]) == []


def test_every_tool_counts_or_is_one_of_those_three() -> None:
    assert {*NAMES} - set(TOOL_KINDS) == {"list_files", "calculate", "submit_answer"}


def test_the_longest_plan_fits_well_into_an_episode() -> None:
    assert LIMITS.max_turns == 2 * MOST_STEPS
