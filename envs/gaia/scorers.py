"""GAIA's scorers, which score other task sources too: they stand in :mod:`aworld_gym.scorers`."""

from aworld_gym.scorers import SCORERS, TYPES, Truth, check_which, official, score

__all__ = ["SCORERS", "TYPES", "Truth", "check_which", "official", "score"]
