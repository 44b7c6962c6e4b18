"""Fixtures of more than one file."""

from gaia_cheats import cheat_env, play

__all__ = ["cheat_env", "play"]
