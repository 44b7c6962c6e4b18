"""The report says what was measured; the table and the curve come from the numbers alone."""

import json
import re
from pathlib import Path

from examples.train_gaia import report
from examples.train_gaia.evaluation import Measurement
from examples.train_gaia.settings import given_model, small_model
from examples.train_gaia.train import Run


def measured(tasks: str, sampled: bool, success: float) -> Measurement:
    return Measurement(tasks, sampled, 200, 0, success, (success - 0.05, success + 0.05), 3.5, {"answered": 200}, 4.0)


def a_run(folder: Path, **more) -> Run:
    settings = small_model(folder, seed=7)
    rows = [{"step": k, "env/score": 0.01 * k} for k in range(1, 41)] + [{"step": 40, "train_loss": 0.0}]
    return Run(
        settings,
        parameters=443_616,
        warm_from_cache=False,
        before=[measured("held-out tasks", True, 0.3), measured("held-out tasks", False, 0.5)],
        after=[measured("held-out tasks", True, 0.7), measured("held-out tasks", False, 0.6)],
        metrics=rows,
        counts={"episodes": 2560, "answered": 2500},
        checkpoint=folder / "final",
        wall_s={"warm start": 100.0, "GRPO": 200.4},
        cpu_s={"warm start": 90.0, "GRPO": 190.0},
        **more,
    )


def test_it_writes_page_curve_and_numbers(tmp_path):
    page = report.write(a_run(tmp_path)).read_text()
    assert "| held-out tasks, sampled | 200 | 0.300 [0.25, 0.35] | 0.700 [0.65, 0.75] | +0.400 |" in page
    assert "443,616 parameters" in page and "seed 7" in page and "a script in a hurry" in page
    assert re.search(r"succeeds on 4\d% of tasks", page)
    assert "| all | 300 | 280 |" in page and "`final`" in page and "answered 2500" in page
    settings = json.loads(page.split("```json\n")[1].split("```")[0])
    assert settings["seed"] == 7 and settings["warm"]["first"] == 0.5 and settings["grpo"]["num_generations"] == 8
    evaluation = json.loads((tmp_path / "evaluation.json").read_text())
    assert evaluation["after"][0]["success"] == 0.7
    assert (tmp_path / "learning_curve.png").read_bytes().startswith(b"\x89PNG")


def test_a_given_model_had_no_warm_start(tmp_path):
    run = a_run(tmp_path)
    run.settings = given_model(tmp_path, "some/model", seed=7, preset="mini")
    page = report.page(run)
    assert "there was no warm start" in page and "hurry" not in page and "`some/model`" in page


def test_gain_and_running_mean(tmp_path):
    run = a_run(tmp_path)
    assert abs(run.gain("held-out tasks, sampled") - 0.4) < 1e-9
    assert report.smooth([1.0, 0.0, 0.0, 4.0], width=2) == [1.0, 0.5, 0.0, 2.0]
