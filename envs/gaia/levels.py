"""What GAIA's three levels mean here, and whether a plan has the level that its task claims.

==========  ====================  ==================
level       calls                 kinds of tool
==========  ====================  ==================
1           up to 5               1
2           5 to 10               2 or 3
3           more than 10          any, or 4 and more
==========  ====================  ==================

Calls are those of the oracle plan, the submission included; a plan of level 3 has more than ten calls, or four kinds
of tool and more. :mod:`envs.gaia.tasks` draws again where a question does not have its template's level.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from aworld_gym.types import PlanStep

LEVELS = (1, 2, 3)
MOST_STEPS = 20
"""Calls of the longest plan. An episode's limit of turns (:data:`envs.gaia.env.LIMITS`) is twice as many."""

TOOL_KINDS: Mapping[str, str] = MappingProxyType(
    {
        "search": "web",
        "open_page": "web",
        "find_in_page": "web",
        "read_document": "document",
        "read_table": "table",
        "query_sqlite": "database",
        "view_image": "image",
        "describe_image": "image",
        "read_qr": "image",
        "decode_audio": "audio",
        "unpack_archive": "archive",
        "run_python": "code",
    }
)
"""What counts as a kind of tool in a task's level. Listing, the calculator and the submission do not."""


def kinds_of(plan: Iterable[PlanStep]) -> list[str]:
    """The kinds of tool that a plan uses, in alphabetical order."""
    return sorted({TOOL_KINDS[step.tool] for step in plan if step.tool in TOOL_KINDS})


def fits(level: int, plan: tuple[PlanStep, ...]) -> bool:
    """Whether a plan has that level."""
    calls, kinds = len(plan), len(kinds_of(plan))
    if level == 1:
        return calls <= 5 and kinds == 1
    if level == 2:
        return 5 <= calls <= 10 and 2 <= kinds <= 3
    return calls <= MOST_STEPS and (calls > 10 or kinds >= 4)
