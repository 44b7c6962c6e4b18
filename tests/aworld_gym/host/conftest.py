"""Every test of the host also looks for leaks, by the same means as the toolchain's."""

import pytest
from leaks import nothing_left


@pytest.fixture(autouse=True)
def no_leaks():
    """Every test leaves all sessions closed and no process behind."""
    with nothing_left(patience_s=10):
        yield
