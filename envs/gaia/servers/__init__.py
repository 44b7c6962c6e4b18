"""GAIA tools that need a network, a key or a browser: one MCP server each, off unless they are asked for by name.

    gym.make("AWorld/Gaia-v0", servers=["search", "wikipedia"])
    python -m envs.gaia.servers                    # what there is, what each lacks, how to get it
    python -m envs.gaia.servers.wikipedia          # one of them, over stdio

Keys come from the environment or from an ``.env`` file (``.env_template`` lists them), and each server reads them in
its own process. :mod:`envs.gaia.servers.catalog` knows them all; a server is one module of this package.
"""
