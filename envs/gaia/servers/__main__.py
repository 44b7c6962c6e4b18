"""``python -m envs.gaia.servers``: what there is and what it lacks; ``--config NAME ...`` and ``--env-template``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from aworld_gym.errors import ConfigError
from envs.gaia.servers import catalog


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what is asked for; 1 where it cannot be."""
    parser = argparse.ArgumentParser(prog="python -m envs.gaia.servers", description=__doc__)
    parser.add_argument("--config", nargs="+", metavar="NAME", help="the mcpServers config of these servers")
    parser.add_argument("--env-template", action="store_true", help="the text of .env_template")
    options = parser.parse_args(arguments)
    try:
        if options.env_template:
            sys.stdout.write(catalog.template())
        elif options.config:
            print(json.dumps({"mcpServers": catalog.config(options.config)}, indent=2))
        else:
            for row in catalog.status():
                print(f"{row['name']:14} {'ready' if row['ready'] else 'off':6} {', '.join(row['tools'])}")
                if not row["ready"]:
                    print(f"{'':21} {row['lacks']}. {row['how']}".rstrip())
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
