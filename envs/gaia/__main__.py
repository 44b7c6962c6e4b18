"""``python -m envs.gaia``: serve GAIA's tools, here or in a container, and say where: {"ip", "port", "token"}.

Takes what ``aworld-gym serve gaia`` takes, which does the serving. With ``--docker_dir`` the host runs in a container
that this command starts, follows and stops (:mod:`envs.gaia.containers`); what it prints is the same.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated, Any

import typer

from aworld_gym import cli
from aworld_gym.cli_output import claim_descriptors, reporting
from aworld_gym.errors import ConfigError
from envs.gaia import sandbox
from envs.gaia.containers import OPTIONS, serve_in_container

logger = logging.getLogger(__name__)
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def main(
    context: typer.Context,
    docker_dir: Annotated[
        Path | None,
        typer.Option(
            "--docker_dir",
            "--docker-dir",
            help="Serve in a container, by the compose file in this folder.",
            metavar="DIR",
        ),
    ] = None,
    require_sandbox: Annotated[
        bool,
        typer.Option(
            "--require-sandbox", help="Do not start where run_python cannot be confined, and so would refuse to run."
        ),
    ] = False,
) -> None:
    """Serve GAIA's tools to training machines; every option of `aworld-gym serve` is taken too (see its --help).

    With --docker_dir: --host, --port, --max-sessions, --drain and --token-ttl; the rest is in the compose file.
    """
    claim_descriptors()
    if docker_dir is None:
        with reporting(as_json=True):
            _check_sandbox(require_sandbox)
        cli.app(["serve", "gaia", *context.args], prog_name="python -m envs.gaia")
        return
    command: Any = typer.main.get_command(cli.app)
    with command.commands["serve"].make_context("python -m envs.gaia", list(context.args)) as parsed:
        with reporting(as_json=True) as out:
            serve_in_container(docker_dir, out, **_options(parsed))


def _check_sandbox(required: bool) -> None:
    found = sandbox.isolation()
    if not found.confined:
        text = f"run_python will refuse to run on this host: {found.detail}"
        if required:
            raise ConfigError(text)
        logger.warning("%s", text)


def _options(parsed: Any) -> dict[str, Any]:
    """Of the options of ``aworld-gym serve``, those that are said outside the container.

    Raises:
        ConfigError: another was given.
    """
    for name in parsed.params:
        if name not in OPTIONS and parsed.get_parameter_source(name).name == "COMMANDLINE":
            known = ", ".join(f"--{option.replace('_', '-')}" for option in OPTIONS)
            raise ConfigError(
                f"--{name.replace('_', '-')} goes into the compose file's command; together with --docker_dir only "
                f"{known} are taken"
            )
    return {name: parsed.params[name] for name in OPTIONS}


if __name__ == "__main__":
    app()
