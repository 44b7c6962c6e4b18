"""``python -m aworld_gym``: the command line, as ``aworld-gym`` is."""

import os
import sys

if not sys.flags.safe_path and sys.path[:1] == [os.getcwd()]:
    del sys.path[0]  # `python -m` puts the current folder first; the command line itself puts it last

from aworld_gym.cli import app

app(prog_name="python -m aworld_gym")
