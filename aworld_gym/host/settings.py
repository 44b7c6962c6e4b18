"""What a host is told: where it listens, how much it takes, for how long, and from whom."""

from __future__ import annotations

import dataclasses
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from aworld_gym.errors import ConfigError

MIB = 2**20


@dataclass(frozen=True)
class HostSettings:
    """Settings of one host. Sizes are bytes, times seconds.

    Raises:
        ConfigError: a value that cannot work; the message names it.
    """

    host: str = "127.0.0.1"
    """The address to bind; only this machine reaches the default."""
    port: int = 8000
    """0: one that is free."""
    max_sessions: int = 64
    queue: int = 256
    """Clients that may wait for a session; more are refused at once."""
    queue_wait_s: float = 20.0
    """A waiting client is sent away after this, to come again."""
    idle_s: float = 1800.0
    """A session without a request, and without a stream that is held open, ends after this."""
    max_age_s: float = 6 * 3600.0
    """Every session ends after this."""
    absence_s: float = 5.0
    """A client of this project that holds no stream any more is taken to be gone after this."""
    foreign_absence_s: float = 120.0
    """The same for other clients, which may give up a broken stream and go on without."""
    handshake_s: float = 30.0
    """A session whose client does not go on after the first reply ends after this."""
    call_timeout_s: float = 600.0
    """No call takes longer, whatever its client allows."""
    open_timeout_s: float = 60.0
    """In which the servers of a session have to start."""
    drain_s: float = 300.0
    """After SIGTERM, what sessions have to end by themselves."""
    max_calls: int = 32
    """Calls of one session that run at once; more wait for their turn, and many more are refused."""
    head_timeout_s: float = 15.0
    """In which the line and headers of a request have to arrive."""
    body_timeout_s: float = 30.0
    """In which its body has to arrive; large ones get more time, see ``bodies.SLOWEST``."""
    max_request_bytes: int = 8 * MIB
    """One MCP message."""
    max_file_bytes: int = 64 * MIB
    max_workspace_bytes: int = 512 * MIB
    """Uploaded files of one session together."""
    allowed_hosts: tuple[str, ...] = ()
    """Names by which clients may address the host, beside IP addresses, ``localhost`` and ``host``."""
    allowed_origins: tuple[str, ...] = ()
    """Web pages (``https://example.org``) whose scripts may call; none by default."""
    ssl_certfile: Path | None = None
    ssl_keyfile: Path | None = None

    def __post_init__(self) -> None:
        for f in dataclasses.fields(self):
            value = getattr(self, f.name)
            if f.type in ("int", "float") and f.name not in ("port", "queue"):
                if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
                    raise ConfigError(f"{f.name} must be a positive number, got {value!r}")
        if not isinstance(self.port, int) or not 0 <= self.port < 65536:
            raise ConfigError(f"port must be 0 (any that is free) to 65535, got {self.port!r}")
        if self.queue < 0:
            raise ConfigError(f"queue must be 0 (nobody waits) or more, got {self.queue!r}")
        if (self.ssl_certfile is None) != (self.ssl_keyfile is None):
            raise ConfigError("TLS needs both --ssl-certfile and --ssl-keyfile")
        for path in (self.ssl_certfile, self.ssl_keyfile):
            if path is not None and not path.is_file():
                raise ConfigError(f"there is no file {str(path)!r} for TLS")

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"
