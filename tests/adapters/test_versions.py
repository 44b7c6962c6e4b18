"""Guards over versions; and that the doctor and the adapters speak of the same ones."""

import importlib
import importlib.metadata
import logging

import importable_adapters
import pytest

from adapters.versions import require, require_names
from aworld_gym import doctor
from aworld_gym.errors import ConfigError, MissingDependencyError

TRAINERS = {trainer.extra: trainer for trainer in doctor.TRAINERS}
WHERE = {"trl": "adapters.trl._private", "verl": "adapters.verl", "swift": "adapters.swift"}


@pytest.mark.parametrize("name", importable_adapters.here())
def test_the_doctor_knows_what_the_adapter_is_tested_with(name):
    assert importlib.import_module(WHERE[name]).TESTED == TRAINERS[name].tested
    found = doctor.check_trainer(TRAINERS[name], probe=False)
    assert found["can_run"] and found["tested"], "this environment has another version than the tests are for"
    assert found["versions"][importable_adapters.FRAMEWORKS[name]] in TRAINERS[name].tested


@pytest.mark.parametrize("name", importable_adapters.here())
def test_the_doctor_imports_it(name):
    assert doctor.check_trainer(TRAINERS[name])["can_run"]


def test_a_version_that_was_not_tested_is_warned_of(caplog):
    found = importlib.metadata.version("gymnasium")
    with caplog.at_level(logging.WARNING):
        assert require("gymnasium", "gym", (found,)) == found and not caplog.records
        assert require("gymnasium", "gym", ("0.1", "0.2")) == found
    assert f"gymnasium {found} is not among the versions that its adapter is tested with (0.1, 0.2)" in caplog.text


def test_what_is_not_installed():
    with pytest.raises(MissingDependencyError, match=r"needs no-such-thing 1.0: pip install 'aworld-gym\[x\]' \(why\)"):
        require("no-such-thing", "x", ("1.0",), "why")


def test_what_is_too_old():
    with pytest.raises(ConfigError, match=r"gymnasium [\d.]+ is installed, and its adapter needs 99 or later"):
        require("gymnasium", "x", ("99.1",), least="99")


@pytest.mark.skipif("trl" in importable_adapters.here(), reason="here is the TRL that its adapter needs")
def test_the_adapter_of_trl_says_that_it_cannot_work_here():
    with pytest.raises((ConfigError, MissingDependencyError), match=r"pip install 'aworld-gym\[trl\]'"):
        importlib.import_module("adapters.trl").train  # noqa: B018


def test_what_a_class_lacks():
    require_names(dict, ("get", "items"), "gymnasium", ("1.0",))
    with pytest.raises(ConfigError, match="lacks dict.gone; its adapter is tested with 1.0"):
        require_names(dict, ("get", "gone"), "gymnasium", ("1.0",))
