"""A host that ends without a word, and comes back."""

import pytest
from fault_table import play_host_fault


@pytest.mark.slow
def test_a_host_that_is_killed_and_comes_back_costs_attempts_and_no_score(tmp_path):
    row = play_host_fault(tmp_path)
    failed = [e for e in row.episodes if not e.valid]
    assert failed and all(e.score is None and e.outcome == "infra_failure" for e in failed)
    assert {e.error_kind for e in failed} <= {"host_unreachable", "session_lost"}
    assert [e.score for e in row.episodes if e.valid] == [1.0] * 64  # each was tried again
    assert sorted(e.seed for e in row.episodes if e.valid) == list(range(64))
    assert row.noticed_s < 120
