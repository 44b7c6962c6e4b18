"""One host for all rows: what one fault leaves behind, the next would meet."""

import pytest
from fault_table import fault_host
from leaks import nothing_left


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with fault_host(tmp_path_factory.mktemp("host")) as running:
        yield running


@pytest.fixture(autouse=True)
def no_leaks(request):
    """Every test leaves all sessions closed and no process behind."""
    if {"running", "row_of"} & set(request.fixturenames):
        request.getfixturevalue("running")  # it lives longer than the test
    with nothing_left(patience_s=10):
        yield
