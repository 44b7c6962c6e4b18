"""What a run of verl's leaves in its folder, however it ends, and what the next one makes of that; verl is played."""

import json
from contextlib import nullcontext

import pytest
from say_env import ENV_ID

from adapters.common import MetricsFile
from adapters.verl import run

SETTINGS = {"data": {"train_batch_size": 1, "max_prompt_length": 400}, "trainer.total_training_steps": 3}


class Killed(BaseException):
    """Ends a run so that nothing is cleaned up."""


@pytest.fixture
def verl(untaught, tmp_path, monkeypatch):
    """A function that trains with a verl that logs these steps, and ends as it is told to; the steps in the metrics."""
    folder = tmp_path / "run"

    def verl(steps, *, end=None, begins=True, resume=False):
        def played(cfg, environment, *args):
            if begins:
                rows = [{"step": step, "data": {"a": step}} for step in steps]
                (folder / "verl_metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
            if end is Killed:
                patch.setattr(MetricsFile, "move", lambda *args, **kwargs: [])
            if end is not None:
                raise end("verl ended")

        with monkeypatch.context() as patch:
            patch.setattr(run, "_run", played)
            patch.setattr(run, "ray_session", lambda *args, **kwargs: nullcontext())
            try:
                run.train(ENV_ID, model=untaught, output_dir=folder, config=SETTINGS, resume_from_checkpoint=resume)
            except BaseException as error:
                assert end is not None and isinstance(error, end), error
        lines = (folder / "metrics.jsonl").read_text().splitlines()
        return [json.loads(line)["step"] for line in lines]

    return verl


def test_metrics_of_a_run_that_was_killed_are_kept(verl):
    assert verl([1, 2], end=Killed) == []
    assert verl([3], resume=True) == [1, 2, 3]


def test_steps_that_are_taken_again_are_written_once(verl):
    assert verl([1, 2, 3], end=RuntimeError) == [1, 2, 3]
    assert verl([2, 3, 4], resume=True) == [1, 2, 3, 4]


@pytest.mark.parametrize("begins", [True, False])
def test_a_run_that_fails_before_its_first_step_loses_no_earlier_metrics(verl, begins):
    assert verl([1, 2]) == [1, 2]
    assert verl([], begins=begins, end=RuntimeError, resume=True) == [1, 2]
    assert verl([3], resume=True) == [1, 2, 3]


def test_a_new_run_begins_new_metrics(verl):
    assert verl([1, 2], end=Killed) == []
    assert verl([], begins=False, end=RuntimeError) == []
