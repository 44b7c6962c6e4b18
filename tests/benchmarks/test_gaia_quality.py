"""Each gate measures what it says and fails where it should; the command prints the table and tells by its status."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from benchmarks import gaia_gates, gaia_quality
from benchmarks.gaia_guesser import GuessingReader
from benchmarks.gaia_quality import Counts, Gate, Gates

ROOT = Path(__file__).parents[2]
TINY = Counts(
    solver=9,
    needs=9,
    oracle=3,
    random=3,
    guessing=3,
    majority=20,
    closed_book=12,
    webless=9,
    duplicates=60,
    same=1,
    times=2,
)
SOLVED = {"level": 1, "tasks": 4, "solver": 4, "scorers": 4, "failures": []}
PLAYED = {"level": 1, "episodes": 4, "invalid": 0, "right": 4, "failures": []}


def gates(results):
    """All gates over what ``results`` says that the measurements gave, whatever is asked of them."""
    return Gates(TINY, 0, lambda measurement, items: list(results))


@pytest.mark.parametrize(
    ("results", "passed"),
    [
        ([SOLVED, SOLVED | {"level": 2}], (True, True)),
        ([SOLVED, SOLVED | {"level": 2, "solver": 3, "failures": [{"task": "t"}]}], (False, True)),
        ([SOLVED, SOLVED | {"level": 2, "scorers": 3}], (True, False)),
    ],
)
def test_the_truth(results, passed):
    solver, scorers = gates(results).truth()
    assert (solver.passed, scorers.passed) == passed
    assert ("(level 2)" in solver.measured) is not passed[0]


@pytest.mark.parametrize(
    ("results", "oracle", "random"),
    [
        ([PLAYED], True, False),
        ([PLAYED, PLAYED | {"level": 2, "right": 3}], False, False),
        ([PLAYED | {"right": 0}], False, True),
        ([PLAYED | {"invalid": 1, "right": 3}], False, False),
    ],
)
def test_policies(results, oracle, random):
    made = gates(results)
    assert made.policy("oracle", "", lambda shares: min(shares) == 1).passed is oracle
    assert made.policy("random", "", lambda shares: max(shares) < 0.01).passed is random


@pytest.mark.parametrize(("share", "passed"), [(0.05, True), (0.051, False)])
def test_the_commonest_answer_of_the_worst_template_counts(share, passed):
    one = {"template": "a", "answer": "7", "share": 0.01, "tasks": 100}
    gate = gates([one, one | {"template": "b", "share": share}]).majority()
    assert gate.passed is passed and "(b)" in gate.measured


def test_closed_book_takes_the_better_of_recall_and_habit():
    def item(answer, recall, question="Find the mayor of the town Arl."):
        spec = {"text": answer, "type": "string"}
        return {"question": question, "answer": spec, "recall": recall, "shapes": gaia_gates.shapes(question)}

    known = [item("Bo", None)] * 40
    asked = [item("Bo", None), item("Cy", "Cy"), item("Cy", "Bo"), item("Dee", None)]
    assert gaia_gates.guessed(known, asked) == {"recall": 0.25, "constant": 0.25, "both": 0.5}
    assert not gates([asked * 10]).closed_book().passed
    assert gates([[item(f"x{i}", None) for i in range(99)]]).closed_book().passed


@pytest.mark.parametrize(("tasks", "right", "passed"), [(9, 1, True), (9, 2, False), (270, 6, True), (270, 7, False)])
def test_the_web_is_needed(tasks, right, passed):
    results = [{"tasks": 30, "right": 0}, {"tasks": tasks, "right": right}]
    assert gates(results).webless().passed is passed


def test_questions_alike_have_a_shape_in_common():
    one, other, third = (
        gaia_gates.shapes(f"{question} Answer with a whole number.")
        for question in (
            "Find the population of the town Arl Heights that notes_17.txt is about.",
            "Find the population of the town Bo that memo_3.pdf is about.",
            "Work out the area in square kilometres of the country Bo.",
        )
    )
    assert one == other and one[0] != third[0]
    assert (one[1], third[1]) == ("population", "area in square kilometres") and one[2:] == third[2:]


def test_twins_are_found_and_files_tell_them_apart(monkeypatch):
    monkeypatch.setattr(gaia_gates, "files_digest", lambda task_id: task_id[0])
    twins, misfits = gates([[("q", "a1", True), ("q", "a2", True), ("r", "b1", False)]]).contents()
    assert (twins.measured, misfits.measured) == ("1", "1") and not twins.passed and not misfits.passed
    twins, misfits = gates([[("q", "a1", True), ("q", "b1", True), ("q", "a1", True)]]).contents()
    assert twins.passed and misfits.passed and twins.details["same question and answer"] == 1


def test_what_is_solved_without_its_evidence_is_told():
    assert gates([{"tasks": 2, "removals": 9, "failures": []}]).needs().passed
    gate = gates([{"tasks": 2, "removals": 9, "failures": [{"task": "t", "without": "a.csv"}]}]).needs()
    assert not gate.passed and gate.details["failures"] == [{"task": "t", "without": "a.csv"}]


def test_a_slow_level_fails():
    assert gates([{1: 3.0, 2: 49.9}]).time().passed
    assert not gates([{1: 3.0, 2: 50.0}]).time().passed


def test_draws_are_even_and_the_same_each_time():
    made = gaia_gates.draws(20, 3)
    assert {one.level for one in made} == {1, 2, 3}
    assert [sum(one.count for one in made if one.level == level) for level in (1, 2, 3)] == [20, 20, 20]
    ids = [[task.id for task in made[0].tasks()] for _ in range(2)]
    assert ids[0] == ids[1] and len(set(ids[0])) == made[0].count


def test_a_broken_solver_is_no_agreement(monkeypatch):
    """An error that is none of the solver's is one of the benchmark's, and is not counted away."""
    draw = gaia_gates.draws(9, 1, levels=(2,))[0]
    right = gaia_gates.solved(draw)
    assert right["solver"] == right["tasks"] == right["scorers"] == draw.count
    monkeypatch.setattr(gaia_gates.gaia_evidence, "answer_of", lambda *_, **__: "something else")
    wrong = gaia_gates.solved(draw)
    assert wrong["solver"] == 0 and len(wrong["failures"]) == draw.count

    def broken(*_, **__):
        raise AttributeError("a bug")

    monkeypatch.setattr(gaia_gates.gaia_evidence, "answer_of", broken)
    with pytest.raises(AttributeError):
        gaia_gates.solved(draw)


@pytest.mark.parametrize("passed", [True, False])
def test_the_exit_status_says_whether_a_bar_is_missed(passed, monkeypatch, tmp_path, capsys):
    made = [Gate("a", "0", "0", True), Gate("b", "1", "2", passed)]
    monkeypatch.setattr(Gates, "all", lambda self: iter(made))
    options = {"quick": True, "count": ["solver=7"], "seed": 3, "processes": 1, "output": tmp_path}
    if passed:
        gaia_quality.main(**options)
    else:
        with pytest.raises(typer.Exit) as exit_:
            gaia_quality.main(**options)
        assert exit_.value.exit_code == 1
    said = capsys.readouterr().out.splitlines()
    assert said[:2] == ["| gate | bar | measured | passed |", "|---|---|---|---|"] and len(said) == 4
    assert said[3] == f"| b | 1 | 2 | {'yes' if passed else '**no**'} |"
    content = json.loads((tmp_path / "gaia_quality.json").read_text())
    assert [gate["passed"] for gate in content["gates"]] == [True, passed] and content["counts"]["solver"] == 7
    assert content["date"] and content["versions"]["aworld-gym"] and sum(content["templates"].values()) > 24
    assert "\n".join(said) in (tmp_path / "gaia_quality.md").read_text()


@pytest.mark.parametrize("change", ["solvers=7", "solver", "solver=0", "solver=x", "=7"])
def test_a_count_that_cannot_be_is_refused(change):
    with pytest.raises(typer.BadParameter, match="NAME=NUMBER with one of solver, needs"):
        gaia_quality.main(count=[change])


def test_what_was_measured_before_a_gate_broke_is_kept(monkeypatch, tmp_path):
    def broken(self):
        yield Gate("a", "0", "0", True)
        raise RuntimeError("a bug")

    monkeypatch.setattr(Gates, "all", broken)
    with pytest.raises(RuntimeError):
        gaia_quality.main(processes=1, output=tmp_path)
    assert [gate["name"] for gate in json.loads((tmp_path / "gaia_quality.json").read_text())["gates"]] == ["a"]


async def test_the_guessing_reader_reads_then_answers_in_the_right_form():
    prompt = "Find the sum. Answer with a whole number.\n\nAttached files: a.csv, b.png, c.docx"
    agent = GuessingReader().episode(
        obs=({"role": "user", "content": prompt},), info={}, seed=1, index=0, attempt=0, env=None
    )
    calls = []
    seen = ({"role": "tool", "content": "Arl 2019-03-04 x 17, 3.5 A4"},)
    for _ in range(5):
        function = (await agent.act(seen))["tool_calls"][0]["function"]
        calls.append((function["name"], json.loads(function["arguments"])))
    paths = [("read_table", "a.csv"), ("describe_image", "b.png"), ("read_qr", "b.png"), ("read_document", "c.docx")]
    assert calls == [*((name, {"path": path}) for name, path in paths), ("submit_answer", {"answer": "17"})]


@pytest.mark.slow
def test_the_whole_command(tmp_path):
    command = [sys.executable, "-m", "benchmarks.gaia_quality", "--quick", "--seed", "5", "--output", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "COLUMNS": "400"})
    rows = [line for line in done.stdout.splitlines() if line.startswith("| ")]
    assert done.returncode == 0 and len(rows) == 15 and "**no**" not in done.stdout, done.stdout + done.stderr
    assert "same bytes | same bytes | yes" in done.stdout
