"""``python -m aworld_gym``: the command line."""

from aworld_gym.cli import app

app(prog_name="python -m aworld_gym")
