"""The benchmark's page and plot come from its runs alone, and a broken-off benchmark goes on where it stopped."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from benchmarks import learning

ROOT = Path(__file__).parents[2]


def row(seed: int, variant: str, before: float, after: float, cpu: float | None = 100.0) -> dict:
    def success(value: float) -> dict:
        return dict.fromkeys(learning.COLUMNS, value)

    curve = [] if variant == "more imitation" else [before, after]
    return {
        "seed": seed,
        "variant": variant,
        "before": {"success": success(before), "cpu_s": cpu},
        "after": {"success": success(after), "cpu_s": 200.0, "curve": curve},
    }


ROWS = [
    row(11, "task reward", 0.3, 0.7),
    row(12, "task reward", 0.2, 0.5, cpu=None),
    row(11, "more imitation", 0.3, 0.35),
]


def test_the_table_has_each_run_and_the_mean_over_seeds():
    lines = learning.table(ROWS).splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert len({len(line) for line in cells}) == 1
    assert cells[2][:3] == ["task reward", "11", "0.300 -> 0.700"] and cells[2][-3:] == ["+0.400", "100", "200"]
    assert cells[3][-3:] == ["+0.300", "cached", "200"]
    assert cells[4][:3] == ["**task reward**", "**mean**", "0.250 -> 0.600"] and cells[4][-3:] == [
        "+0.350",
        "100",
        "200",
    ]
    assert cells[5][:2] == ["more imitation", "11"] and len(cells) == 6


def test_page_and_plot(tmp_path):
    about = {"steps": 40, "tasks": 200, "shaping": 0.5, "script": 0.45, "versions": {"Python": "3.11", "torch": "2"}}
    page = learning.page(ROWS, about)
    assert "succeeds on 45% of tasks" in page and "the control" in page and "With shaping" not in page
    assert learning.table(ROWS) in page and "40 GRPO steps" in page and "torch 2" in page
    learning.plot(ROWS, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_what_was_measured_is_not_measured_again(tmp_path):
    path, calls = tmp_path / "deep" / "after.json", []

    def make() -> dict:
        calls.append(1)
        return {"success": 0.5}

    assert learning._once(path, make) == learning._once(path, make) == {"success": 0.5}
    assert len(calls) == 1 and json.loads(path.read_text()) == {"success": 0.5}


@pytest.mark.parametrize("variants", ["task rewards", "more imitation"])
def test_variants_that_cannot_be_run_are_refused(variants, tmp_path):
    with pytest.raises(typer.BadParameter, match="task reward"):
        learning.main(variants=variants, work=tmp_path, output=tmp_path)


def test_it_starts_as_a_file_and_as_a_module():
    for how in (["benchmarks/learning.py"], ["-m", "benchmarks.learning"]):
        ran = subprocess.run(
            [sys.executable, *how, "--help"], cwd=ROOT, env=os.environ, capture_output=True, text=True, timeout=120
        )
        assert ran.returncode == 0 and "--seeds" in ran.stdout, ran.stderr
