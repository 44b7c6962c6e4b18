"""What benchmarks share: tables, drivers that take turns, and what is kept and said of the bars."""

import argparse
import json
import signal
import sys

import pytest

from benchmarks import common

DRIVER = """
import asyncio, os, sys, time
sys.path.insert(0, {drivers!r})
import measure

async def episode(number):
    if {fails} and number > 2:
        raise RuntimeError("the fourth episode was too much")
    end = time.process_time() + 0.02
    while time.process_time() < end:
        pass
    print("noise of a library")
    return 4 - ({short} and number == 1)

async def main():
    await measure.serve(measure.each(episode), ["pytest"])

measure.run(main)
"""


@pytest.fixture
def driver(tmp_path, monkeypatch):
    """Starts a driver of such a script."""
    monkeypatch.setattr(common, "DRIVERS", tmp_path)
    started = []

    def start(*, fails=False, short=False):
        script = DRIVER.format(drivers=str(common.REPOSITORY / "benchmarks/drivers"), fails=fails, short=short)
        (tmp_path / "drive.py").write_text(script)
        started.append(common.Driver(sys.executable, "drive.py", [], tmp_path / f"{len(started)}.log", start_s=60))
        return started[-1]

    yield start
    for one in started:
        one.close()


def test_a_driver_tells_what_its_episodes_took_whatever_else_is_printed(driver):
    one = driver()
    assert set(one.told["ready"]) == {"pytest"} and one.told["start_s"] > 0
    answer = one.ask(5, 2, limit_s=60)
    assert answer["episodes"] == 5 and 0.1 <= answer["cpu_s"] < 1.0 and answer["rss_mb"] > 1
    assert 20 <= common.ms(answer) < 200


def test_drivers_take_turns_and_one_that_fails_leaves_the_others_alone(driver, tmp_path):
    good, bad, said = driver(), driver(fails=True), []
    answers, failed = common.rounds({"good": good, "bad": bad}, lambda name: {1: 2, 2: 4}, lambda name: 3, said.append)
    assert [len(answers["good", c]) for c in (1, 2)] == [3, 3] and len(answers["bad", 1]) == 1
    assert list(failed) == ["bad"] and "the fourth episode was too much" in failed["bad"]
    assert len(said) == 8


def test_an_episode_that_made_too_few_calls_is_a_failure(driver):
    with pytest.raises(common.DriverError, match="expected 4 tool calls in each of 2 episodes, got 7"):
        driver(short=True).ask(2, 1, limit_s=60)


def test_a_table_has_as_many_cells_in_each_row():
    table = common.markdown(["what", ">how much"], [["a|b", 1], ["c\nd", 2]])
    assert table.splitlines() == ["| what | how much |", "|---|---:|", "| a\\|b | 1 |", "| c d | 2 |"]
    with pytest.raises(ValueError, match="expected 2 cells"):
        common.markdown(["one", "two"], [["alone"]])


def test_a_bar_that_is_missed_is_said_kept_and_an_exit_status(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(common, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(sys, "argv", ["x.py", "--save"])
    options = argparse.Namespace(only=["one", "two"], repeat=1, save=True)
    measures = {
        "one": (lambda: [1], lambda found: ("| 1 |", [])),
        "two": (lambda: [2], lambda found: ("| 2 |", ["two is slow"])),
    }
    with pytest.raises(SystemExit) as end:
        common.report("x", "X", measures, options)
    assert end.value.code == 1 and "bars missed: two is slow" in capsys.readouterr().out
    page = (tmp_path / "results/x.md").read_text()
    assert "`python -m benchmarks.x --save`" in page and "| 1 |\n\n| 2 |" in page and "cores, load" in page
    assert json.loads((tmp_path / "results/x.json").read_text())["two"] == [2]
    options.only = ["one"]
    common.report("x", "X", measures, options)
    assert "every bar is met" in capsys.readouterr().out


def test_a_program_tells_where_it_is_and_is_ended_after():
    code = "import json, time; print(json.dumps({'port': 5}), flush=True); time.sleep(600)"
    with common.program([sys.executable, "-c", code]) as (told, process):
        assert told == {"port": 5} and process.poll() is None
    assert process.returncode == -signal.SIGTERM


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import sys; print('no licence', file=sys.stderr); sys.exit(7)", r"ended with status 7:\nno licence"),
        ("import time; time.sleep(600)", "ended with status -9:"),
    ],
    ids=["dies", "says nothing"],
)
def test_a_program_that_is_not_ready_ends_the_benchmark_with_its_last_words(code, message):
    with pytest.raises(SystemExit, match=message), common.program([sys.executable, "-c", code], start_s=4.0):
        pass
