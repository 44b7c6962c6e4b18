"""What a host serves: toolchains by name, whole or some servers of them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

from aworld_gym.errors import ConfigError, did_you_mean
from aworld_gym.toolchain import Toolchain, ToolchainConfig
from aworld_gym.types import Limits


class Catalogue:
    """Toolchains by name. Runs on the background loop.

    Args:
        served: the configuration of each.
        limits: deadlines of calls and openings; results are never cut here, which is the client's to do.
        pool: sessions kept started ahead for every stdio server that has no ``pool`` of its own.

    Raises:
        ConfigError: there is nothing to serve, or a toolchain's own servers are on another host.
    """

    def __init__(self, served: Mapping[str, ToolchainConfig], limits: Limits, pool: int = 0):
        if not served:
            raise ConfigError("there is nothing to serve")
        for name, config in served.items():
            for server in config.servers:
                if server.kind == "host":
                    raise ConfigError(
                        f"toolchain {name!r} has its server {server.name!r} on another environment host; serve it "
                        "there (is MCP_SERVER_URL set where this host starts? unset it)"
                    )
        self._configs = {name: _pooled(config, pool) for name, config in served.items()}
        self._limits = limits
        self._toolchains: dict[tuple[str, frozenset[str] | None], Toolchain] = {}

    @property
    def names(self) -> list[str]:
        """The toolchains' names."""
        return list(self._configs)

    def choose(self, name: str | None) -> str:
        """The toolchain that a client means: the one it names, or the only one.

        Raises:
            ConfigError: it must be named, or there is none of that name.
        """
        if name is None:
            if len(self._configs) == 1:
                return self.names[0]
            raise ConfigError(f"several toolchains are served: name one of {', '.join(self.names)} in Env-Code")
        if name not in self._configs:
            hint = did_you_mean(name, self.names)
            raise ConfigError(f"no toolchain {name[:64]!r} is served here; there is {', '.join(self.names)}.{hint}")
        return name

    def check_servers(self, name: str, servers: Sequence[str] | None) -> frozenset[str] | None:
        """A client's choice of servers; None for all of them.

        Raises:
            ConfigError: the toolchain has no such server.
        """
        if servers is None:
            return None
        known = [server.name for server in self._configs[name].servers]
        for server in servers:
            if server not in known:
                hint = did_you_mean(server, known)
                raise ConfigError(f"toolchain {name!r} has no server {server[:64]!r}; it has {', '.join(known)}.{hint}")
        return None if set(servers) == set(known) else frozenset(servers)

    def toolchain(self, name: str, servers: frozenset[str] | None) -> Toolchain:
        """The toolchain, or that part of it; arguments as they were checked."""
        key = (name, servers)
        if key not in self._toolchains:
            config = self._configs[name]
            if servers is not None:  # whole toolchains alone are started ahead: a pool for every choice would be many
                chosen = tuple(replace(one, pool=0) for one in config.servers if one.name in servers)
                config = ToolchainConfig(chosen, config.source)
            self._toolchains[key] = Toolchain(config, self._limits)
        return self._toolchains[key]

    async def warm(self) -> None:
        """Open and close one session of each toolchain: what cannot work shows now, and pools begin to fill.

        Raises:
            AWorldGymError: what opening raises.
        """
        for name in self.names:
            session = await self.toolchain(name, None).open({})
            await session.aclose()

    async def aclose(self) -> None:
        """Close every session, pooled ones included."""
        await asyncio.gather(*(toolchain.aclose() for toolchain in self._toolchains.values()))


def _pooled(config: ToolchainConfig, pool: int) -> ToolchainConfig:
    servers = [
        replace(one, pool=pool) if pool and one.kind == "stdio" and one.scope == "episode" and not one.pool else one
        for one in config.servers
    ]
    return ToolchainConfig(tuple(servers), config.source)
