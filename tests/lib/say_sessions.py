"""The sessions of :mod:`say_env` around a test; apart from it, as trainers' processes import that without pytest."""

from __future__ import annotations

import pytest
from say_env import SESSIONS, all_closed

from aworld_gym.toolchain import stats


@pytest.fixture(name="sessions", autouse=True)
def sessions_fixture():
    """Well-behaved sessions, none of which is left open."""
    SESSIONS.reset()
    before = stats()
    yield SESSIONS
    SESSIONS.reset()
    all_closed(before)
