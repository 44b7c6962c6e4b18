"""Recording: every tool result, as it comes, to a file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from aworld_gym.actions import canonical_json
from aworld_gym.episode_state import digest
from aworld_gym.errors import InfraError
from aworld_gym.redaction import Secrets
from aworld_gym.tape.base import PLAYING, after, listings, same_task
from aworld_gym.tape.files import Writer
from aworld_gym.toolchain import Toolchain
from aworld_gym.toolchain.connection import CallTimeout
from aworld_gym.toolchain.session import Route, ToolSession
from aworld_gym.types import Task


class Recorder:
    """Writes every tool result to a folder.

    A call's line is written as it ends, so a killed process loses no finished call. Failures are recorded too (what a
    tool reported, calls that timed out, servers that died), and a replay repeats them.

    Args:
        path: the folder; it is made with the first session.
        extend: add to a tape that has sessions already.

    Raises:
        ConfigError: the folder has a tape and ``extend`` is false, or it cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str], *, extend: bool = False):
        self.path, self._extend = Path(path), extend
        self._writer = Writer(self.path, extend=extend)
        self._sessions = 0
        self._listings: set[str] = set()

    async def open(self, toolchain: Toolchain, task: Task) -> ToolSession:
        """A session of the toolchain, recorded."""
        number, self._sessions = self._sessions, self._sessions + 1
        label, secrets = PLAYING.get(), Secrets.of(toolchain.config)
        about = {"what": "session", "session": number, "task": task.id, "key": same_task(task)}
        about |= {} if label is None else label._asdict()
        try:
            session = await toolchain.open(public=task.public)
        except InfraError as error:
            self._writer.write(about | {"failure": _failure(error, secrets)})
            raise
        servers = secrets.removed(listings(session))
        listing = digest(canonical_json(servers))
        if listing not in self._listings:
            self._listings.add(listing)
            self._writer.write({"what": "tools", "listing": listing, "servers": servers})
        self._writer.write(about | {"listing": listing})
        return _Recorded(session, self._writer, secrets, {"what": "call", "session": number}, same_task(task))

    def close(self) -> None:
        """Synchronise and close the file; nothing can be recorded any more."""
        self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def __reduce__(self) -> Any:  # another process writes a file of its own beside this one
        return _extending, (self.path,)


def _extending(path: Path) -> Recorder:
    return Recorder(path, extend=True)


class _Recorded(ToolSession):
    """A session whose calls are written down."""

    def __init__(self, inner: ToolSession, writer: Writer, secrets: Secrets, line: Mapping[str, Any], state: str):
        super().__init__(inner._grant, inner._limits, inner._owner)
        self._writer, self._secrets, self._line, self._state = writer, secrets, line, state

    async def _send(self, route: Route, arguments: dict[str, Any], *more: Any) -> dict[str, Any]:
        asked = {"server": route.server, "tool": route.tool, "arguments": self._secrets.removed(arguments)}
        line = {**self._line, "state": self._state, **asked}
        self._state = after(self._state, asked)
        try:
            raw = await super()._send(route, arguments, *more)
        except CallTimeout as timeout:
            self._writer.write(line | {"timeout": self._secrets.removed(str(timeout))})
            raise
        except InfraError as error:
            self._writer.write(line | {"failure": _failure(error, self._secrets)})
            raise
        self._writer.write(line | {"result": self._secrets.removed(raw)})
        return raw


def _failure(error: InfraError, secrets: Secrets) -> dict[str, Any]:
    return {"kind": error.kind, "message": secrets.removed(str(error.args[0])), "server": error.server}
