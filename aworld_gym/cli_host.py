"""``aworld-gym serve`` and ``aworld-gym token``. Read options, call :mod:`aworld_gym.host`, print."""

from __future__ import annotations

import gc
import logging
import os
import re
import signal
import socket
import threading
from pathlib import Path
from typing import Annotated, Any

import typer

from aworld_gym.cli_output import reporting
from aworld_gym.cli_support import choose_env
from aworld_gym.errors import ConfigError, did_you_mean

logger = logging.getLogger(__name__)

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
Duration = Annotated[str, typer.Option(metavar="TIME", help="A time to live, such as 45m, 12h or 30d.")]


def serve(
    toolchains: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOOLCHAIN", help="Tools of an env, by its id (AWorld/Gaia-v0) or its short name (gaia)."
        ),
    ] = None,
    mcp_config: Annotated[
        list[str] | None,
        typer.Option(metavar="[NAME=]FILE", help="Serve an mcpServers file, under its own name or NAME. Repeatable."),
    ] = None,
    host: Annotated[str, typer.Option(help="The address to bind. Only this machine reaches the default.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(help="0: any that is free.")] = 8000,
    max_sessions: Annotated[int, typer.Option(help="Episodes at once.")] = 64,
    queue: Annotated[int, typer.Option(help="Clients that may wait for a session.")] = 256,
    queue_wait: Annotated[float, typer.Option(help="Seconds that one waits before it is sent away for a while.")] = 20,
    idle: Annotated[float, typer.Option(help="Seconds after which an unused session ends.")] = 1800,
    max_age: Annotated[float, typer.Option(help="Seconds after which every session ends.")] = 21600,
    call_timeout: Annotated[float, typer.Option(help="Seconds of one call, at most.")] = 600,
    open_timeout: Annotated[float, typer.Option(help="Seconds in which a session's servers have to start.")] = 60,
    drain: Annotated[float, typer.Option(help="Seconds that sessions have to end by themselves after SIGTERM.")] = 300,
    pool: Annotated[int, typer.Option(help="Sessions kept started ahead for stdio servers without a pool.")] = 0,
    max_request_mb: Annotated[int, typer.Option(help="Of one message.")] = 8,
    max_file_mb: Annotated[int, typer.Option(help="Of one uploaded file.")] = 64,
    max_workspace_mb: Annotated[int, typer.Option(help="Of all uploaded files of a session.")] = 512,
    allowed_host: Annotated[
        list[str] | None, typer.Option(help="A name that clients may call this host by, beside its addresses.")
    ] = None,
    allowed_origin: Annotated[list[str] | None, typer.Option(help="A web page whose scripts may call.")] = None,
    ssl_certfile: Annotated[Path | None, typer.Option(help="TLS: the certificate chain, PEM.")] = None,
    ssl_keyfile: Annotated[Path | None, typer.Option(help="TLS: the private key, PEM.")] = None,
    token_ttl: Duration = "24h",
    no_token: Annotated[
        bool, typer.Option("--no-token", help="Print null instead of a token, where what is printed is kept in a log.")
    ] = False,
    env_args: Annotated[
        list[str] | None, typer.Option("-k", metavar="KEY=VALUE", help="One argument of the env. Repeatable.")
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Log every request, health checks included.")] = False,
) -> None:
    """Serve toolchains to training machines.

    Prints {"ip", "port", "token"} when it is ready. The token is signed with
    AWORLD_HOST_SECRET, or with a secret that is made up now and forgotten with
    the process. SIGTERM drains: sessions may end, new ones are sent elsewhere.
    """
    with reporting(as_json=True) as out:
        from aworld_gym.host import HostSettings, logs
        from aworld_gym.host.installed import check_installed

        check_installed()
        from aworld_gym.host import credentials
        from aworld_gym.host.connections import more_descriptors
        from aworld_gym.host.server import Host
        from aworld_gym.toolchain import loop

        logs.set_up(logging.DEBUG if verbose else logging.INFO)
        more_descriptors()
        mib = 2**20
        settings = HostSettings(
            host=host,
            port=port,
            max_sessions=max_sessions,
            queue=queue,
            queue_wait_s=queue_wait,
            idle_s=idle,
            max_age_s=max_age,
            call_timeout_s=call_timeout,
            open_timeout_s=open_timeout,
            drain_s=drain,
            max_request_bytes=max_request_mb * mib,
            max_file_bytes=max_file_mb * mib,
            max_workspace_bytes=max_workspace_mb * mib,
            allowed_hosts=tuple(allowed_host or ()),
            allowed_origins=tuple(allowed_origin or ()),
            ssl_certfile=ssl_certfile,
            ssl_keyfile=ssl_keyfile,
        )
        served = _served(toolchains or [], mcp_config or [], env_args)
        found = credentials.find_secrets()
        if no_token and found is None:
            raise ConfigError(
                f"--no-token needs {credentials.SECRET_VAR} or {credentials.SECRET_FILE_VAR}: nobody could make a "
                "token with a secret that is made up here"
            )
        secrets = found or (credentials.new_secret(),)
        for variable in (credentials.SECRET_VAR, credentials.SECRET_FILE_VAR):
            os.environ.pop(variable, None)  # nothing that is started from here needs it
        credentials.keep_to_oneself()
        token = None if no_token else credentials.mint(secrets[0], [credentials.ALL], seconds(token_ttl))
        if not settings.loopback and settings.ssl_certfile is None:
            logger.warning("tokens cross the network in clear text: give --ssl-certfile, or put TLS in front")
        running = Host(served, settings, secrets, pool)
        # What sessions hold is much and lives long: with Python's own thresholds, going over it again and again takes
        # more than half of the time of a busy host (benchmarks/host.py: 0.9 ms a call instead of 0.4).
        gc.set_threshold(50_000, 20, 100)
        address, bound = loop.run(running.start())
        gc.collect()
        gc.freeze()
        signals = Signals()
        out.result({"ip": reachable(address), "port": bound, "token": token}, show=print)
        signals.wait()
        stopping = loop.submit(running.stop(settings.drain_s))
        while not stopping.done():
            if signals.wait(0.1):  # a second one: do not wait for anybody
                loop.run(_hurried(running))
        stopping.result()


def token(
    scope: Annotated[list[str], typer.Option(help="A toolchain that it is good for, or *. Repeatable.")],
    ttl: Duration = "12h",
    subject: Annotated[
        str | None, typer.Option(help="Whose it is: tokens of one subject share sessions. Random where left out.")
    ] = None,
) -> None:
    """Print a token for a host that has the same AWORLD_HOST_SECRET."""
    with reporting(as_json=False):
        from aworld_gym.host import credentials

        secrets = credentials.find_secrets()
        if secrets is None:
            raise ConfigError(
                f"{credentials.SECRET_VAR} is not set: a host and its tokens need the same secret (make one with "
                "openssl rand -hex 32). A host without one made its own up, and printed its only token when it started"
            )
        print(credentials.mint(secrets[0], scope, seconds(ttl), subject))


def seconds(text: str) -> float:
    """A duration such as ``90s``, ``45m``, ``12h`` or ``30d``.

    Raises:
        ConfigError: it is none.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text.strip())
    if match is None or not float(match[1]) > 0:
        raise ConfigError(f"a time is a number with s, m, h or d, such as 12h, got {text!r}")
    return float(match[1]) * _UNITS[match[2] or "s"]


class Signals:
    """SIGTERM and SIGINT, counted."""

    def __init__(self) -> None:
        self._came = threading.Semaphore(0)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._came.release())

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for one more; whether it came."""
        return self._came.acquire(timeout=timeout)


async def _hurried(running: Any) -> None:
    running.hurry()


def _served(envs: list[str], files: list[str], env_args: list[str] | None) -> dict[str, Any]:
    from aworld_gym.toolchain import load_config

    found: dict[str, Any] = {}
    for name in envs:
        env_id = _env_id(name)
        _add(found, _short(env_id), _env_config(env_id, env_args))
    for text in files:
        name, equals, path = text.partition("=")
        if not equals:
            name, path = Path(text).stem, text
        _add(found, name, load_config(Path(path)))
    if not found:
        raise ConfigError("say what to serve: a toolchain, such as gaia, or --mcp-config FILE")
    return found


def _add(found: dict[str, Any], name: str, config: Any) -> None:
    if not re.fullmatch(r"[A-Za-z0-9_.-]+", name):
        raise ConfigError(f"a toolchain's name has letters, digits, _ . and - only, got {name!r}; say NAME=FILE")
    if name in found:
        raise ConfigError(f"two toolchains are called {name!r}; say NAME=FILE for one")
    found[name] = config


def _env_id(name: str) -> str:
    import gymnasium as gym

    import aworld_gym  # noqa: F401

    if "/" in name or ":" in name or name in gym.registry:
        return name
    known = {_short(one): one for one in gym.registry if one.startswith("AWorld/")}
    if name.lower() not in known:
        raise ConfigError(f"no toolchain {name!r}; known are {', '.join(known)}.{did_you_mean(name, known)}")
    return known[name.lower()]


def _short(env_id: str) -> str:
    return re.sub(r"-v\d+$", "", env_id.rpartition("/")[2]).lower()


def _env_config(env_id: str, env_args: list[str] | None) -> Any:
    from aworld_gym.making import make_tool_env

    env = make_tool_env(choose_env(env_id, None, env_args).spec)
    try:
        return env.get_wrapper_attr("toolchain").config
    finally:
        env.close()


def reachable(address: str) -> str:
    """An address that other machines may use: this machine's own, where all are bound."""
    if address not in ("0.0.0.0", "::"):
        return address
    family = socket.AF_INET if address == "0.0.0.0" else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:  # nothing is sent: the system says which address it would use
            probe.connect(("192.0.2.1" if family == socket.AF_INET else "2001:db8::1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1" if family == socket.AF_INET else "::1"
