"""What every fault becomes, as a table, from the code that the tests run: ``python -m tests.faults [--save]``."""

from __future__ import annotations

import argparse
import logging
import os
import platform
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests/lib"))

from benchmarks.common import needs  # noqa: E402

with needs("gaia,dev"):
    import fault_table

RESULTS = ROOT / "benchmarks/results/faults.md"
WORDS = 110
HEAD = """# Faults

`python -m tests.faults --save`

Each row is played for real: a host in a process of its own, tools in processes of theirs, an episode of a few calls
(or {episodes} side by side where the network fails), no attempt repeated but where the row says so, and then episodes
until one is valid. *Noticed*: from the call that meets the fault until the model goes on or the episode ends (for the
network and the host: until all episodes have ended). *Recovered*: from then (from the host's return) until the next
episode has ended valid, that episode included. A call may take {timeout:g} s here (3 s where the network fails).

| fault | the model sees | the episode becomes | the record says | noticed (s) | recovered (s) |
|---|---|---|---|---:|---:|
"""


def line(row: fault_table.Row) -> str:
    """One row, in Markdown."""
    sees = cell(row.sees) if row.sees else "nothing: the episode ends" if row.why else "nothing of it"
    return f"| {row.fault} | {sees} | {row.becomes} | {cell(row.why)} | {row.noticed_s:.1f} | {row.recovered_s:.1f} |\n"


def cell(text: str) -> str:
    """The first words of a text, fit for a table."""
    text = " ".join(text.split()).replace("|", "\\|")
    return "" if not text else f"`{text if len(text) <= WORDS else text[:WORDS] + '…'}`"


def main() -> None:
    """Play every row, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS.relative_to(ROOT)}")
    options = parser.parse_args()
    logging.disable(logging.WARNING)  # they are what the rows are about
    load = os.getloadavg()[0]
    text = HEAD.format(timeout=fault_table.CALL_TIMEOUT_S, episodes=fault_table.EPISODES)
    with tempfile.TemporaryDirectory() as folder:
        with fault_table.fault_host(Path(folder)) as running:
            for name in fault_table.TOOL_FAULTS:
                text += line(fault_table.play_tool_fault(name, running))
            for name in fault_table.NETWORK_FAULTS:
                text += line(fault_table.play_network_fault(name, running))
        text += line(fault_table.play_host_fault(Path(folder)))
    text += (
        f"\n{time.strftime('%Y-%m-%d')}, Python {platform.python_version()}, aworld-gym "
        f"{metadata.version('aworld-gym')}, mcp {metadata.version('mcp')}; {os.cpu_count()} cores, load {load:.1f} "
        f"before and {os.getloadavg()[0]:.1f} after.\n"
    )
    print(text)
    if options.save:
        RESULTS.write_text(text)


if __name__ == "__main__":
    main()
