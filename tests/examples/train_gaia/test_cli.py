"""The command line: where a run goes, what is refused and how."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from aworld_gym.errors import ConfigError
from examples.train_gaia import cli

ROOT = Path(__file__).parents[3]


def start(*arguments: str, **env: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "examples.train_gaia", *arguments],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1", **env},
        capture_output=True,
        text=True,
        timeout=280,
    )


def test_a_name_that_is_taken_gets_a_number(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.folder(None, "gaia", resume=False) == Path("runs/gaia")
    Path("runs/gaia").mkdir(parents=True)
    assert cli.folder(None, "gaia", resume=False) == Path("runs/gaia-2")
    assert cli.folder(None, "gaia", resume=True) == Path("runs/gaia")


def test_a_folder_that_was_asked_for_must_be_free(tmp_path):
    assert cli.folder(tmp_path, "gaia", resume=False) == tmp_path
    (tmp_path / "episodes.jsonl").touch()
    with pytest.raises(ConfigError, match="another --output"):
        cli.folder(tmp_path, "gaia", resume=False)
    assert cli.folder(tmp_path, "gaia", resume=True) == tmp_path


def test_a_config_file_that_is_none_is_refused(tmp_path):
    broken = tmp_path / "config.yaml"
    with pytest.raises(ConfigError, match="cannot be read"):
        cli.read(broken)
    broken.write_text("- a list")
    with pytest.raises(ConfigError, match="got list"):
        cli.read(broken)
    broken.write_text("learning_rate: 1.0e-4")
    assert cli.read(broken) == {"learning_rate": 1e-4}


def test_a_model_that_cannot_be_had_is_a_clear_error(tmp_path):
    ran = start("--model", "nobody/no-such-model", "--output", str(tmp_path / "run"), HF_HUB_OFFLINE="1")
    assert ran.returncode == 2
    assert "nobody/no-such-model" in ran.stderr and "save_pretrained" in ran.stderr and "Traceback" not in ran.stderr
