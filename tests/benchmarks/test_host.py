"""The benchmark of the host counts right, and the tests that it runs by name are there."""

import argparse
import asyncio
import re

import psutil
import pytest

from benchmarks import common, host


async def test_each_call_that_failed_is_counted():
    async def call():
        await asyncio.sleep(0.001)  # others are in the middle of theirs meanwhile
        return False

    options = argparse.Namespace(calls=5, tool_s=0.0, think_s=0.0)
    found = await host._played([call] * 10, psutil.Process(), options)
    assert found["failed"] == found["calls"] == 50
    assert 0.0 < found["added_median_ms"] <= found["added_p99_ms"] and found["calls_per_s"] > 0.0


@pytest.mark.parametrize("node", [*host.APART, *host.TOKENS])
def test_the_tests_that_it_runs_are_there(node):
    path, name = node.split("::")
    assert re.search(rf"^(async )?def {name}\(", (common.REPOSITORY / path).read_text(encoding="utf-8"), re.MULTILINE)
