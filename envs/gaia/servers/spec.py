"""What a server of this package is: its tools, its settings, what it needs; and how it is started.

A server's module defines ``SERVER = ServerSpec(...)`` and ends with ``if __name__ == "__main__": SERVER.run()``.
"""

from __future__ import annotations

import argparse
import importlib.util
import logging
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from aworld_gym.errors import ConfigError
from aworld_gym.toolchain.compat import new_server
from aworld_gym.types import EpisodeContext
from envs.gaia.mcp_tools import Tool, mcp_tool
from envs.gaia.servers.settings import ENV_FILE_VAR, Settings, Variable, default_of, env_file
from envs.gaia.tools.workspace import Workspace

PASSED_VARS = (
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR"),
)
"""What of the environment a network needs besides keys; servers get it where it is set."""

CLOSING_S = 10.0
"""Seconds that a session's end may take."""
_HOME = Path(__file__).resolve().parents[3]
"""The folder that ``envs`` stands in."""


@dataclass(frozen=True)
class Setup:
    """What a server's tools are made from."""

    settings: Settings
    workspace: Workspace
    """The episode's; in a server that serves all episodes it is never touched."""
    closing: AsyncExitStack = field(default_factory=AsyncExitStack)
    """What is closed when the session ends."""


@dataclass(frozen=True)
class ServerSpec:
    """One server: what it offers, what it needs, how it is made."""

    name: str
    summary: str
    """One line for people."""
    tools: tuple[str, ...]
    """The names of its tools, in order."""
    build: Callable[[Setup], Sequence[Tool]] = field(repr=False)
    variables: tuple[Variable, ...] = ()
    """All settings that it reads."""
    needs: tuple[tuple[str, ...], ...] = ()
    """Sets of variables; one whole set must be there. None needed where empty."""
    how: str = ""
    """How to get what it needs."""
    scope: str = "shared"
    """``"shared"``: one process for all episodes; ``"episode"``: one for each, because it has state or files."""
    packages: tuple[str, ...] = ()
    """Modules that must be importable."""
    lacks: Callable[[Settings], str | None] = field(default=lambda settings: None, repr=False)
    """Says what else is missing."""

    @property
    def module(self) -> str:
        """The import path of its module."""
        return f"envs.gaia.servers.{self.name}"

    def missing(self, settings: Settings) -> str | None:
        """What it lacks with these settings, in words; None where it can start.

        Raises:
            ConfigError: a setting that cannot be used.
        """
        for package in self.packages:
            if importlib.util.find_spec(package) is None:
                return f"the package {package!r} is not installed"
        lacking = [[name for name in group if not settings.has(name)] for group in self.needs]
        if lacking and all(lacking):
            return _not_set(lacking)
        return self.lacks(settings)

    def check(self, settings: Settings) -> None:
        """Raise ConfigError where it cannot start; the message says what is missing and how to get it."""
        missing = self.missing(settings)
        if missing is not None:
            raise ConfigError(f"the server {self.name!r} cannot start: {missing}. {self.how}".rstrip())

    def make_server(self, context: EpisodeContext, *, settings: Settings | None = None) -> Any:
        """The MCP server object, for use in process: ``{"python": "envs.gaia.servers.NAME:SERVER.make_server"}``.

        Args:
            context: the episode; its workspace is where files go.
            settings: by default those of :meth:`Settings.load`.

        Raises:
            ConfigError: something that it needs is missing.
        """
        settings = Settings.load() if settings is None else settings
        self.check(settings)
        setup = Setup(settings, Workspace(context.workspace))
        tools = [mcp_tool(tool, settings.redact, open_world=True) for tool in self.build(setup)]

        @asynccontextmanager
        async def lifespan(server: Any) -> AsyncIterator[None]:
            try:
                yield
            finally:
                # a session may end by being cancelled, and what it holds outside this process must be let go even so
                with anyio.move_on_after(CLOSING_S, shield=True):
                    await setup.closing.aclose()

        return new_server(self.name, tools=tools, lifespan=lifespan)

    def entry(self, environ: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Its entry of an ``mcpServers`` config, which holds names of variables and no values.

        Raises:
            ConfigError: something that it needs is missing here.
        """
        environ = os.environ if environ is None else environ
        self.check(Settings.load(environ))
        own = [variable.name for variable in self.variables]
        names = [*own, *filter(None, map(default_of, own))]
        env = {name: f"${{{name}}}" for name in (*dict.fromkeys(names), *PASSED_VARS) if environ.get(name)}
        # the server runs in another folder, and reads the file of this one or none
        env[ENV_FILE_VAR] = str(env_file(environ) or os.devnull).replace("${", "$${")
        arguments = ["-m", self.module]
        if self.scope == "episode":
            arguments += ["--workspace", "${AWORLD_WORKSPACE}"]
        # the folder decides which `envs` is imported, whatever else is called so
        return {"command": sys.executable, "args": arguments, "cwd": str(_HOME), "env": env, "scope": self.scope}

    def run(self, arguments: Sequence[str] | None = None) -> None:
        """Serve until the client leaves: over stdio, or (where it has no state) over HTTP on 127.0.0.1."""
        parser = argparse.ArgumentParser(prog=f"python -m {self.module}", description=self.summary)
        if self.scope == "episode":
            workspace = os.environ.get("AWORLD_WORKSPACE")
            parser.add_argument("--workspace", type=Path, default=workspace, help="the episode's directory")
        else:  # one that has an episode's files or state serves that episode alone
            parser.add_argument("--http", type=int, metavar="PORT", help="serve HTTP on 127.0.0.1 instead of stdio")
            parser.set_defaults(workspace=".")
        options = parser.parse_args(arguments)
        if options.workspace is None or not Path(options.workspace).is_dir():
            parser.error("--workspace (or the environment variable AWORLD_WORKSPACE) must be an existing directory")
        logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
        try:
            server = self.make_server(EpisodeContext(Path(options.workspace), {}))
        except ConfigError as error:
            parser.exit(2, f"{error}\n")
        if getattr(options, "http", None) is None:
            server.run("stdio")
        else:
            import uvicorn

            uvicorn.run(server.streamable_http_app(), host="127.0.0.1", port=options.http, log_level="warning")


def _not_set(lacking: list[list[str]]) -> str:
    if len(lacking) > 1:
        return f"it needs {', or '.join(' and '.join(group) for group in lacking)}, and none of these is set"
    return " and ".join(lacking[0]) + (" is not set" if len(lacking[0]) == 1 else " are not set")
