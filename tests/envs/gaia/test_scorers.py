"""GAIA's scorers are the package's own."""

from aworld_gym import scorers as shared
from envs.gaia import scorers


def test_they_are_the_same():
    assert all(getattr(scorers, name) is getattr(shared, name) for name in scorers.__all__)
    assert scorers.SCORERS == ("strict", "official")
