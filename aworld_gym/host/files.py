"""``PUT /workspace/<path>``: a file of the task into the session's own directory; ``GET`` brings one back."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from aworld_gym.host.bodies import TooLarge, TooSlow, read, reply
from aworld_gym.host.endpoint import SESSION_HEADER
from aworld_gym.host.metrics import HostMetrics
from aworld_gym.host.sessions import Sessions
from aworld_gym.host.settings import HostSettings
from aworld_gym.toolchain import threads
from aworld_gym.toolchain.hosted import FILES_PATH

MAX_PATH_CHARS = 1024
MAX_DEPTH = 16
PIECE_BYTES = 1 << 18
"""Of a file that is sent, in memory at once."""


class Files:
    """The endpoint of a session's files.

    Args:
        settings: the host's.
        sessions: where sessions live.
        metrics: where bytes are counted.
    """

    def __init__(self, settings: HostSettings, sessions: Sessions, metrics: HostMetrics):
        self._settings, self._sessions, self._metrics = settings, sessions, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        response = await self._answer(scope, receive)
        if response is not None:
            await response(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive) -> ASGIApp | None:
        headers = Headers(scope=scope)
        session = self._sessions.find(headers.get(SESSION_HEADER, ""), scope["claims"].subject)
        if session is None:
            return _no(404, f"no such session; name one in {SESSION_HEADER}")
        parts = scope["path"].removeprefix(FILES_PATH).split("/")
        if any(part in ("", ".", "..") or "\0" in part for part in parts) or len(parts) > MAX_DEPTH:
            return _no(400, "the path must be one of a file inside the workspace")
        if len(scope["path"]) > MAX_PATH_CHARS or any(len(os.fsencode(part)) > 255 for part in parts):
            return _no(400, "the path is too long")
        if scope["method"] not in ("PUT", "GET"):
            return _no(405, "use PUT or GET")
        with session.used():
            if scope["method"] == "GET":
                limit = self._settings.max_file_bytes
                found = await threads.files.run(_opened, session.tools.workspace, parts, limit)
                return _no(404, "no such file") if found is None else _Download(found)
            limit = min(self._settings.max_file_bytes, self._settings.max_workspace_bytes - session.uploaded)
            try:
                body = await read(receive, headers, limit, self._settings.body_timeout_s)
            except TooLarge:
                return self._too_large()
            except TooSlow as late:
                return reply({"error": str(late)}, 408, {"connection": "close"})
            if body is None:
                return None
            if session.uploaded + len(body) > self._settings.max_workspace_bytes:  # others came meanwhile
                return self._too_large()
            session.uploaded += len(body)
            try:
                await threads.files.run(_write, session.tools.workspace, parts, body)
            except OSError as error:
                return _no(409, f"the file cannot be written: {error.strerror}")
            self._metrics.uploaded.inc(len(body))
            return Response(status_code=204)

    def _too_large(self) -> Response:
        size, all_files = self._settings.max_file_bytes, self._settings.max_workspace_bytes
        return _no(413, f"a file may have {size} bytes, and a session's files {all_files} together")


class _Download:
    """Sends a file piece by piece, as fast as it is taken: many that are not taken must not fill the memory."""

    def __init__(self, file: BinaryIO):
        self._file = file

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._file:
            left = os.fstat(self._file.fileno()).st_size
            headers = [(b"content-length", str(left).encode()), (b"content-type", b"application/octet-stream")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            while left:
                piece = await threads.files.run(self._file.read, min(left, PIECE_BYTES))
                if not piece:
                    raise OSError(errno.EIO, "the file became shorter while it was sent")
                left -= len(piece)
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b""})


def _no(status: int, reason: str) -> Response:
    return reply({"error": reason}, status)


def _write(workspace: Path, parts: list[str], content: bytes) -> None:
    """Write a file. No symbolic link is followed, and no pipe is waited for: tools may have put some there.

    Raises:
        OSError: it cannot be written.
    """
    folder = os.open(workspace, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for part in parts[:-1]:
            try:
                os.mkdir(part, dir_fd=folder)
            except FileExistsError:
                pass
            folder = _enter(folder, part)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK
        with open(os.open(parts[-1], flags, 0o644, dir_fd=folder), "wb") as out:
            if not stat.S_ISREG(os.fstat(out.fileno()).st_mode):
                raise OSError(errno.EEXIST, "something else than a file has this name")
            try:
                out.write(content)
                out.flush()
            except OSError:  # a part of it would be taken for the file, and keeps a full disk full
                os.unlink(parts[-1], dir_fd=folder)
                raise
    finally:
        os.close(folder)


def _opened(workspace: Path, parts: list[str], limit: int) -> BinaryIO | None:
    """A regular file, to be read and closed; None where there is none, or it is larger than ``limit``."""
    folder = os.open(workspace, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for part in parts[:-1]:
            folder = _enter(folder, part)
        file = open(os.open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder), "rb")
    except OSError:
        return None
    finally:
        os.close(folder)
    state = os.fstat(file.fileno())
    if stat.S_ISREG(state.st_mode) and state.st_size <= limit:
        return file
    file.close()
    return None


def _enter(folder: int, name: str) -> int:
    """The descriptor of a folder within ``folder``, which is closed."""
    inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
    os.close(folder)
    return inner
