"""What the worlds are made of, behind :mod:`envs.gaia.world`."""
