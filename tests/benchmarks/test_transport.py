"""The benchmark of HTTP clients measures both, and tells ratios of the same round."""

import json

import pytest

pytest.importorskip("aiohttp")

from benchmarks import transport


def test_both_clients_are_measured(monkeypatch):
    monkeypatch.setattr(transport, "CALLS", 8)
    found = transport.run([2], 2)
    json.dumps(found)
    assert [(row["round"], row["client"]) for row in found] == [(0, "sdk"), (0, "lean"), (1, "lean"), (1, "sdk")]
    assert all(row["call_ms"] > 0 and row["session_ms"] > 0 and row["calls_per_s"] > 0 for row in found)


def test_the_table_has_the_median_of_the_ratios():
    rows = [
        {"sessions": 1, "client": client, "call_ms": ms, "session_ms": 1.0, "calls_per_s": 1.0}
        for pair in ((2.0, 1.0), (9.0, 3.0), (8.0, 1.0))
        for client, ms in zip(("sdk", "lean"), pair, strict=True)
    ]
    assert "| 1 | 8.000 (2.000-9.000) | 1.000 (1.000-3.000) | 3.0 (2.0-8.0) |" in transport.table(rows, [1])
