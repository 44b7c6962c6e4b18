"""The client's side of an environment host: which of several, what it is told, the episode's files, and presence.

A host (:mod:`aworld_gym.host`) serves toolchains to other machines over streamable HTTP. Beside MCP, a session with
one has the episode's public facts in the request that opens it, an upload of the task's files, and a stream that is
held open as long as the session is in use, so that the host knows at once when this process is gone.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlsplit

from aworld_gym.errors import InfraError

if TYPE_CHECKING:
    from aworld_gym.toolchain.config import ServerConfig

logger = logging.getLogger(__name__)

EPISODE_META = "aworld-gym/episode"
"""Key, in the ``_meta`` of ``initialize``, of ``{"public": {...}}``: what the task lets tool servers know."""
FILES_PATH = "/workspace/"
"""Where a host takes files, one ``PUT`` each."""
UPLOADS = 8
"""Files under way at once."""
PIECE_BYTES = 1 << 20
"""Of a file that is sent, in memory at once."""
_UNREACHED = "is the host up, and is its address (MCP_SERVER_URL, or `url`) right?"
_TRIES = 3
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 8.0
_jitter = random.Random()  # of its own, seeded by the system: many clients must not come back at the same moment
_turn = itertools.count(_jitter.randrange(1 << 16))

T = TypeVar("T")


def greeting(public: Mapping[str, Any]) -> dict[str, Any]:
    """What a host is told when a session opens."""
    return {EPISODE_META: {"public": dict(public)}}


async def open_somewhere(
    config: ServerConfig, timeout: float, attempt: Callable[[ServerConfig, float], Awaitable[T]]
) -> T:
    """Open a session with one of the configured hosts: the next in turn that lets it in.

    A host that cannot be reached, or is full, is tried again until ``timeout`` is over; it says how long to wait, and
    the pauses of many clients differ.

    Args:
        config: of a host; its ``url`` may be several.
        timeout: seconds for all attempts.
        attempt: opens a session with one host in at most so many seconds.

    Raises:
        InfraError: no host let it in, or one refused for good.
    """
    deadline = time.monotonic() + timeout
    urls = config.url.split()
    start = next(_turn) % len(urls)
    urls = urls[start:] + urls[:start]
    for once_more in itertools.count():
        waits = []
        for k, url in enumerate(urls):
            left = deadline - time.monotonic()
            try:
                return await attempt(replace(config, url=url), max(left / (len(urls) - k), 0.1))
            except InfraError as error:
                if not _passes(error):
                    raise
                last = error
                waits.append(error.retry_after_s or 0.0)
        # those who were sent away together come back over as long a time as they were asked to wait
        wait = min(waits)
        pause = wait + _jitter.uniform(0.1, min(max(2.0**once_more, wait), _LONGEST_PAUSE_S))
        if time.monotonic() + pause >= deadline:
            last.add_note(f"tried for {timeout:g} s")
            if last.kind == "host_unreachable":
                last.add_note(_UNREACHED)
            raise last
        if once_more == 0:
            hint = f"; {_UNREACHED}" if last.kind == "host_unreachable" else ""
            logger.warning("no environment host lets a session in yet (trying for %g s): %s%s", timeout, last, hint)
        await asyncio.sleep(pause)
    raise AssertionError("unreachable")


def _passes(error: InfraError) -> bool:
    """Whether another host, or the same one later, may do better."""
    if error.kind == "host_refused":
        return error.retry_after_s is not None
    return error.kind in ("host_unreachable", "session_timeout", "session_lost")


async def file_pieces(path: Path) -> AsyncIterator[bytes]:
    """A file's content, a piece at a time, read off the loop."""
    with path.open("rb") as file:
        while piece := await asyncio.to_thread(file.read, PIECE_BYTES):
            yield piece


class Link:
    """What an open session with a host needs beside MCP.

    Args:
        config: the host's, with the one URL of this session.
        client: the session's HTTP client, which knows its id.
    """

    def __init__(self, config: ServerConfig, client: Any):
        self._config, self._client = config, client
        split = urlsplit(config.url)
        self._files = f"{split.scheme}://{split.netloc}{split.path.rpartition('/')[0]}{FILES_PATH}"
        self._uploads = asyncio.Semaphore(UPLOADS)

    @asynccontextmanager
    async def held(self, report: Callable[[InfraError], None]) -> AsyncIterator[Link]:
        """Be present while it is entered; ``report`` is told if the host has no such session any more."""
        if self._client.session_id is None:
            text = f"{self._config.url} is no environment host: it gave the session no id"
            raise InfraError("server_protocol", text, server=self._config.name)
        presence = asyncio.create_task(self._be_present(report))
        try:
            yield self
        finally:
            presence.cancel()
            await asyncio.wait((presence,))

    async def upload(self, workspace: Path) -> None:
        """Bring every file of ``workspace`` into the session's own.

        Raises:
            InfraError: the host did not take one.
        """
        files = sorted(path for path in workspace.rglob("*") if path.is_file())
        try:
            async with asyncio.TaskGroup() as group:
                for path in files:
                    group.create_task(self._put(path, path.relative_to(workspace).as_posix()))
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None

    async def _put(self, path: Path, name: str) -> None:
        async with self._uploads:
            # of large files, so many at once, no more than a piece each is in memory
            content = path if path.stat().st_size > PIECE_BYTES else await asyncio.to_thread(path.read_bytes)
            for left in reversed(range(_TRIES)):
                try:
                    status, said = await self._client.put(self._files + quote(name), content)
                    break
                except InfraError as error:
                    if not left:
                        text = f"the file {name!r} could not be sent: {error.args[0]}"
                        raise InfraError("host_unreachable", text, server=self._config.name) from error
                    await asyncio.sleep(_jitter.uniform(0.1, 1.0))
        if status >= 400:
            kind = "session_lost" if status == 404 else "host_refused"
            text = f"the file {name!r} was refused with {status}: {said[:500]}"
            raise InfraError(kind, text, server=self._config.name)

    async def _be_present(self, report: Callable[[InfraError], None]) -> None:
        longest_s = _FIRST_PAUSE_S
        while True:
            began = time.monotonic()
            try:
                if await self._client.hold() == 404:
                    text = f"{self._config.url} has no such session any more"
                    report(InfraError("session_lost", text, server=self._config.name, delivered=False))
                    return
            except InfraError as error:
                logger.debug("the stream to %s broke: %s", self._config.url, error)
            if time.monotonic() - began > _LONGEST_PAUSE_S:  # it was held, and then broke
                longest_s = _FIRST_PAUSE_S
            # soon at first, because a host does not wait long; then ever more rarely, or one that comes back would meet
            # all its former clients at once, as well as those of the next episodes
            await asyncio.sleep(_jitter.uniform(0.2, longest_s))
            longest_s = min(1.5 * longest_s, _LONGEST_PAUSE_S)
