"""MCP servers as tools: configuration, sessions, and the loop they live on.

Example:
    >>> from aworld_gym.toolchain import Toolchain, loop
    >>> toolchain = Toolchain({"mcpServers": {"demo": {"python": "my_package.server:make_server"}}})
    >>> async def episode():
    ...     session = await toolchain.open()
    ...     try:
    ...         return await session.call("call_1", "add", {"a": 1, "b": 2})
    ...     finally:
    ...         await session.aclose()
    >>> loop.run(episode()).text  # doctest: +SKIP
    '3'

Sessions and toolchains are used on the background loop only; ``loop.run`` and ``loop.call`` get there. The ``mcp``
package is imported when the first session opens.
"""

from aworld_gym.toolchain import compat, loop
from aworld_gym.toolchain.config import ServerConfig, ToolchainConfig, load_config
from aworld_gym.toolchain.session import ToolSession
from aworld_gym.toolchain.shared import close_idle
from aworld_gym.toolchain.stats import Stats, stats
from aworld_gym.toolchain.toolchain import Toolchain

__all__ = [
    "ServerConfig",
    "Stats",
    "ToolSession",
    "Toolchain",
    "ToolchainConfig",
    "close_idle",
    "compat",
    "load_config",
    "loop",
    "stats",
]
