"""The environment host: serves toolchains to training machines over streamable HTTP.

One MCP session is one episode: its own workspace and its own sessions with the servers behind, started ahead where the
configuration has a pool. The layers, from the ground up: ``settings``, ``credentials`` (tokens), ``metrics`` and
``logs``, ``catalogue`` (what is served), ``sessions`` (slots, queue, time limits), ``files`` (uploads), ``exchange``
(one tool call over HTTP), ``endpoint`` (MCP), ``guard`` (who may come in) and ``app``, ``server`` (the process).

The handshake, pings and streams of MCP are the SDK's; tool lists and calls pass through untouched, so that an odd
server behind is as odd for the client as it would be without a host between.
"""

from aworld_gym.host.credentials import mint
from aworld_gym.host.settings import HostSettings

__all__ = ["HostSettings", "mint"]
