"""In-process servers: from an import path to a server object that a session can be opened with."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

from aworld_gym.errors import AWorldGymError, ConfigError, InfraError, describe, did_you_mean
from aworld_gym.toolchain import compat, threads
from aworld_gym.toolchain.config import ServerConfig
from aworld_gym.toolchain.serving import offload
from aworld_gym.types import EpisodeContext


async def make_server(config: ServerConfig, context: EpisodeContext) -> Any:
    """Call the server's factory, off the loop; it may be a coroutine function.

    Raises:
        ConfigError: there is no such factory.
        InfraError: it raised something.
    """
    try:
        factory: Any = config.factory
        with compat.making_servers():
            if isinstance(factory, str):
                factory = await threads.factories.run(_resolve, factory, config.name)
            server = await threads.factories.run(factory, context, **config.kwargs)
            if inspect.isawaitable(server):
                server = await server
    except AWorldGymError:
        raise
    except Exception as error:
        text = f"its factory raised {describe(error)}"
        raise InfraError("server_start_failed", text, server=config.name) from error
    offload(server)
    return server


def _resolve(path: str, server: str) -> Any:
    """The object that ``package.module:name`` names.

    Raises:
        ConfigError: there is none.
    """
    module_name, _, attribute = path.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
    except ImportError as error:
        raise ConfigError(f"server {server!r}: cannot import {module_name!r} for `python`: {error}") from error
    for name in attribute.split("."):
        if not hasattr(found, name):
            hint = did_you_mean(name, vars(found))
            raise ConfigError(f"server {server!r}: {module_name!r} has no {attribute!r}.{hint}")
        found = getattr(found, name)
    if not callable(found):
        raise ConfigError(f"server {server!r}: {path!r} is not callable; `python` names a server factory")
    return found
