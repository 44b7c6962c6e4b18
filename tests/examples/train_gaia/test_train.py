"""Whole runs in small: every phase on the real env, and every file that should be there."""

import dataclasses
import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from aworld_gym.errors import ConfigError
from examples.train_gaia import report, train
from examples.train_gaia.settings import Settings, given_model, small_model
from examples.train_gaia.warm import WarmSettings

FEW = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 1, "num_generations": 4}


def tiny(settings: Settings, **more) -> Settings:
    """The same run with next to nothing in each phase."""
    sets = tuple(dataclasses.replace(tasks, tasks=4) for tasks in settings.held_out)
    warm = WarmSettings(seed=3, drill_steps=2, imitation_steps=3, batch=2)
    grpo = {**settings.grpo, **FEW, "max_steps": 2}
    return dataclasses.replace(settings, warm=warm, held_out=sets, grpo=grpo, **more)


@pytest.fixture
def console():
    return Console(file=io.StringIO(), width=200)


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


START = Path(__file__).parents[2] / "data" / "warm_start"


@pytest.mark.slow
def test_from_noise_to_report_and_on_from_there(tmp_path, monkeypatch, console):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    first = train.run(tiny(small_model(tmp_path / "a", seed=3), shaping=0.5), console)
    report.write(first)
    wanted = "final start metrics.jsonl episodes.jsonl learning_curve.png report.md evaluation.json warm_start.jsonl"
    assert set(wanted.split()) <= {path.name for path in (tmp_path / "a").iterdir()}
    assert [m.name for m in first.after] == [m.name for m in first.before]
    assert len(first.before) == 4 and all(m.valid == 4 and m.invalid == 0 for m in first.before + first.after)
    steps = [row for row in lines(tmp_path / "a" / "metrics.jsonl") if "env/score" in row]
    assert [row["step"] for row in steps] == [1, 2]
    assert all("plan_progress" in row["spec"] for row in lines(tmp_path / "a" / "episodes.jsonl"))
    episodes = lines(tmp_path / "a" / "episodes.jsonl")
    assert len(episodes) == 16 and all(e["task_id"].startswith("gaia-mini/train/seen/") for e in episodes)
    assert len(lines(tmp_path / "a" / "warm_start.jsonl")) == 5 and first.warm_from_cache is False
    final = train.load(first.checkpoint)
    assert not any(layer.self_attn.o_proj.bias.any() for layer in final.model.layers), "engines have no such weight"
    shown = console.file.getvalue()
    assert "warm start" in shown and "GRPO" in shown and "before: held-out tasks, sampled" in shown

    # The same warm start again comes from the cache, to the byte; without the cache it is made anew, alike.
    weights = (tmp_path / "a" / "start" / "model.safetensors").read_bytes()
    for name, use_cache in (("b", True), ("c", False)):
        settings = tiny(small_model(tmp_path / name, seed=3), use_cache=use_cache)
        run = train.Run(settings)
        start = train.warm_checkpoint(settings, run, console)
        assert run.warm_from_cache is use_cache and (start / "model.safetensors").read_bytes() == weights

    # A model that exists already: no warm start, and its own chat template.
    given = tiny(given_model(tmp_path / "d", str(tmp_path / "a" / "final"), seed=4, preset="mini"))
    page = report.write(train.run(given, console)).read_text()
    assert not (tmp_path / "d" / "start").exists() and "there was no warm start" in page

    # The control goes on imitating, from the warm start.
    longer = train.imitate_longer(tmp_path / "a" / "start", tiny(small_model(tmp_path / "e", seed=3)), 0.1, console)
    assert (longer / "model.safetensors").read_bytes() != weights


def test_a_folder_that_holds_a_run_is_refused(tmp_path, console):
    (tmp_path / "episodes.jsonl").write_text("{}\n")
    with pytest.raises(ConfigError, match="episodes.jsonl"):
        train.train(START, tiny(small_model(tmp_path)), console)
