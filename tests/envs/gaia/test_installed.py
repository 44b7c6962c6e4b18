"""An env whose packages are not here says so when it is made, and is no failure of the infrastructure."""

import gymnasium as gym
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import aworld_gym  # noqa: F401
from aworld_gym.errors import MissingDependencyError
from aworld_gym.policies import OraclePolicy
from aworld_gym.rollout import rollout
from envs.gaia import env


@pytest.fixture
def without_one(monkeypatch):
    monkeypatch.setattr(env, "PACKAGES", (*env.PACKAGES, "never_installed"))
    env.check_installed.cache_clear()
    yield
    env.check_installed.cache_clear()


@pytest.mark.usefixtures("without_one")
def test_it_is_said_when_an_env_is_made():
    message = r"pip install 'aworld-gym\[gaia\]' \(cannot import never_installed\)"
    with pytest.raises(MissingDependencyError, match=message):
        gym.make("AWorld/Gaia-v0")
    with pytest.raises(MissingDependencyError, match=message):
        rollout("AWorld/Gaia-v0", OraclePolicy(), episodes=1)
    assert [
        e.score for e in rollout(lambda: gym.make("AWorld/Gaia-v0", preset="mini"), OraclePolicy(), episodes=1)
    ] == [1]


def test_the_extra_has_what_is_asked_for():
    from importlib import metadata

    extra = {
        canonicalize_name(wanted.name)
        for wanted in map(Requirement, metadata.requires("aworld-gym"))
        if wanted.marker is not None and wanted.marker.evaluate({"extra": "gaia"})
    }
    owners = metadata.packages_distributions()
    for package in env.PACKAGES:
        assert {canonicalize_name(owner) for owner in owners[package]} & extra, package
