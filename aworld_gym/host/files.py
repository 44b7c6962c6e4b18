"""``PUT /workspace/<path>``: a file of the task into the session's own directory; ``GET`` brings one back."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import os
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import BinaryIO

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from aworld_gym.host.bodies import Body, Gone, TooLarge, TooSlow, reply
from aworld_gym.host.endpoint import SESSION_HEADER
from aworld_gym.host.metrics import HostMetrics
from aworld_gym.host.sessions import Session, Sessions
from aworld_gym.host.settings import HostSettings
from aworld_gym.toolchain import threads
from aworld_gym.toolchain.hosted import FILES_PATH

MAX_PATH_CHARS = 1024
MAX_DEPTH = 16
PIECE_BYTES = 1 << 18
"""Of a file that is sent or comes, in memory at once."""
_numbers = itertools.count()


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
            # a task of its own, which ends with the session: its workspace may be the next one's
            upload = asyncio.create_task(self._taken(session, parts, receive, headers))
            session.uploads.add(upload)
            upload.add_done_callback(session.uploads.discard)
            try:
                await asyncio.wait((upload,))
            finally:
                upload.cancel()
            return _no(404, "the session has ended") if upload.cancelled() else upload.result()

    async def _taken(self, session: Session, parts: list[str], receive: Receive, headers: Headers) -> Response | None:
        """Take a file as it comes, no more of it in memory than a piece; None if its sender left."""
        arriving = Arriving(session.tools.workspace, parts)
        size, whole = 0, False
        try:
            limit = min(self._settings.max_file_bytes, self._settings.max_workspace_bytes - session.uploaded)
            body = Body(receive, headers, limit, self._settings.body_timeout_s)
            held: list[bytes] = []
            in_memory = 0
            while piece := await body.piece():
                if session.uploaded + len(piece) > self._settings.max_workspace_bytes:  # others come meanwhile
                    raise TooLarge
                session.uploaded += len(piece)
                size += len(piece)
                held.append(piece)
                in_memory += len(piece)
                if in_memory >= PIECE_BYTES:
                    await threads.files.run_through(arriving.write, held)
                    held, in_memory = [], 0
            await threads.files.run_through(arriving.finish, held)
            whole = True
        except TooLarge:
            return self._too_large()
        except TooSlow as late:
            return reply({"error": str(late)}, 408, {"connection": "close"})
        except Gone:
            return None
        except OSError as error:
            return _no(409, f"the file cannot be written: {error.strerror}")
        finally:
            if not whole:
                session.uploaded -= size
                await threads.files.run_through(arriving.abandon)
        self._metrics.uploaded.inc(size)
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


class Arriving:
    """A file that comes piece by piece, and gets its name when it is whole. All methods block: they are for a thread.

    Until then it stands beside the workspace, on the same disk, where no tool sees a part of it and takes that for the
    file. No symbolic link is followed, and no pipe is waited for: tools may have put some there.

    Args:
        workspace: the session's.
        parts: of the path within it, none of them empty or dots.
    """

    def __init__(self, workspace: Path, parts: Sequence[str]):
        self._workspace, self._folders, self._name = workspace, parts[:-1], parts[-1]
        self._part = workspace.with_name(f".arriving-{next(_numbers)}")
        self._out: BinaryIO | None = None

    def write(self, pieces: Iterable[bytes]) -> None:
        """Add what came.

        Raises:
            OSError: it cannot be written.
        """
        if self._out is None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            self._out = open(os.open(self._part, flags, 0o644), "wb", buffering=0)
        for piece in pieces:
            left = memoryview(piece)
            while left:
                left = left[self._out.write(left) :]

    def finish(self, pieces: Iterable[bytes]) -> None:
        """Add the rest, and put the file in its place, whatever file was there.

        Raises:
            OSError: it cannot be written, or something else than a file has its name.
        """
        self.write(pieces)
        assert self._out is not None
        self._out.close()
        folder = _workspace(self._workspace)
        try:
            for part in self._folders:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=folder)
                folder = _enter(folder, part)
            with contextlib.suppress(FileNotFoundError):
                if not stat.S_ISREG(os.stat(self._name, dir_fd=folder, follow_symlinks=False).st_mode):
                    raise OSError(errno.EEXIST, "something else than a file has this name")
            os.rename(self._part, self._name, dst_dir_fd=folder)
        finally:
            os.close(folder)

    def abandon(self) -> None:
        """Leave nothing of it."""
        if self._out is not None:
            self._out.close()
            self._part.unlink(missing_ok=True)


def _opened(workspace: Path, parts: list[str], limit: int) -> BinaryIO | None:
    """A regular file, to be read and closed; None where there is none, or it is larger than ``limit``."""
    try:
        folder = _workspace(workspace)
        try:
            for part in parts[:-1]:
                folder = _enter(folder, part)
            file = open(os.open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder), "rb")
        finally:
            os.close(folder)
    except OSError:
        return None
    state = os.fstat(file.fileno())
    if stat.S_ISREG(state.st_mode) and state.st_size <= limit:
        return file
    file.close()
    return None


def _workspace(path: Path) -> int:
    """The descriptor of a workspace; a program that runs as this user may have put a link in its place."""
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)


def _enter(folder: int, name: str) -> int:
    """The descriptor of a folder within ``folder``, which is closed."""
    inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
    os.close(folder)
    return inner
