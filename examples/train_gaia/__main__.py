"""The command line: ``python -m examples.train_gaia --help``."""

from examples.train_gaia.cli import main

main()
