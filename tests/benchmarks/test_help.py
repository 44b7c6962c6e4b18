"""Where what a command needs is not installed, it says what to install."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import common

ROOT = Path(__file__).parents[2]
PARTS = ("common", "gaia_gates", "gaia_guesser")  # no commands
COMMANDS = [f"benchmarks.{path.stem}" for path in sorted((ROOT / "benchmarks").glob("*.py")) if path.stem not in PARTS]
ABSENT = ("torch", "transformers", "trl", "yaml", "matplotlib", "psutil", "prometheus_client", "ray", "aiohttp")
BARE = f"import runpy, sys; sys.modules.update(dict.fromkeys({ABSENT})); "
BARE += "runpy.run_module(sys.argv.pop(1), None, '__main__')"


@pytest.mark.parametrize("command", [*COMMANDS, "examples.train_gaia", "tests.faults", "envs.gaia"])
def test_help_does_not_fail_where_extras_are_missing(command):
    asked = [sys.executable, "-c", BARE, command, "--help"]
    done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert "Traceback" not in done.stderr
    assert "usage: " in done.stdout.lower() if done.returncode == 0 else "pip install 'aworld-gym[" in done.stderr


def test_training_says_what_it_needs(tmp_path):
    asked = [sys.executable, "-c", BARE, "examples.train_gaia", "--output", str(tmp_path / "run")]
    done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and "pip install 'aworld-gym[gaia,trl]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_module_of_our_own_that_is_missing_is_a_fault():
    with pytest.raises(ModuleNotFoundError), common.needs("dev"):
        import benchmarks.no_such_module  # noqa: F401
    with pytest.raises(SystemExit, match=r"aworld-gym\[dev\]"), common.needs("dev"):
        import no_such_package  # noqa: F401
