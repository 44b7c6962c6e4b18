"""Episodes on disk: one JSON object per line, written as each episode finishes.

A line is handed to the operating system in one write, so a killed process loses no finished episode; the only
damage it can leave is a torn last line, which readers skip and the next writer cuts off. The disk itself is
synchronised at most every few seconds and on close, so a power cut may lose that much.

No metrics here (:mod:`aworld_gym.metrics`) and no running of episodes (:mod:`aworld_gym.rollout`).
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from aworld_gym.errors import ConfigError, OutputError, why
from aworld_gym.types import Episode

try:
    import fcntl
except ImportError:  # not on POSIX: two writers of one journal are then not noticed
    fcntl = None  # type: ignore[assignment]

log = logging.getLogger(__name__)

SYNC_EVERY_S = 5.0
APPEND_WAIT_S = 5.0
"""Seconds that :func:`append` waits for others that append to the same file."""
_LOOK_EVERY_S = 0.01
_TAIL_BLOCK = 1 << 16


class Journal:
    """An append-only JSONL file of episodes; safe to append to from several threads of one process.

    Opening it cuts off a torn last line, and takes an advisory lock, so that two runs cannot mix in one file.

    Args:
        path: the file; it and its folder are made where absent.
        sync_every_s: seconds after which an append also has the disk synchronised, without waiting for it.
        wait_s: seconds to wait for another writer to close it.

    Raises:
        ConfigError: another live process writes this journal, or it cannot be written here.

    Example:
        >>> with Journal("/tmp/episodes.jsonl") as journal:  # doctest: +SKIP
        ...     journal.append(episode)
    """

    def __init__(self, path: str | os.PathLike[str], *, sync_every_s: float = SYNC_EVERY_S, wait_s: float = 0.0):
        self.path = Path(path)
        self._lock, self._sync_every_s = threading.Lock(), sync_every_s
        try:
            self._fd = self._opened(wait_s)
        except OSError as error:
            raise ConfigError(f"cannot write episodes to {self.path}: {why(error)}; choose another place") from error
        self._synced = time.monotonic()
        self._syncing = threading.Thread()  # not started: nothing to wait for
        self._failure: OSError | None = None
        """Of the disk's synchronisation beside the caller; the next append or close raises it."""

    def _opened(self, wait_s: float) -> int:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0), 0o644)
        try:
            lock_file(fd, self.path, wait_s)
            _mend_tail(fd, self.path)
        except BaseException:
            os.close(fd)
            raise
        return fd

    @property
    def closed(self) -> bool:
        """True once ``close`` was called."""
        return self._fd < 0

    def append(self, episode: Episode) -> None:
        """Write one episode as one line. When this returns, a kill of the process cannot lose it.

        Raises:
            OutputError: it could not be written (a full disk, say); the journal is then as it was before.
        """
        self.append_line(episode.to_json())

    def append_line(self, text: str) -> None:
        """Write one line of ASCII, as :meth:`append` does an episode.

        Raises:
            OutputError: it could not be written; the file is then as it was before.
        """
        line = text.encode("ascii") + b"\n"
        with self._lock:
            if self.closed:
                raise ValueError(f"journal {self.path} is closed")
            with self._writing():
                self._raise_failure()
                write_whole(self._fd, line)
            if time.monotonic() - self._synced >= self._sync_every_s and not self._syncing.is_alive():
                # Beside the caller: it may be an event loop, and a slow disk takes a second for this.
                self._synced = time.monotonic()
                self._syncing = threading.Thread(target=self._sync, name="aworld-gym-journal")
                self._syncing.start()

    def close(self) -> None:
        """Synchronise and close; more than once is harmless.

        Raises:
            OutputError: the disk did not take what was written.
        """
        with self._lock:
            if not self.closed:
                if self._syncing.ident is not None:
                    self._syncing.join()
                fd, self._fd = self._fd, -1
                with self._writing():
                    try:
                        self._raise_failure()
                        os.fsync(fd)
                    finally:
                        os.close(fd)

    def _sync(self) -> None:
        try:
            os.fsync(self._fd)
        except OSError as error:
            self._failure = error

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OutputError(
                f"cannot write to {self.path}: {why(error)}; the episodes that stand there are kept, and the run can "
                "be resumed once there is room"
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def write_jsonl(path: str | os.PathLike[str], episodes: Iterable[Episode]) -> int:
    """Write the episodes to a new file (an old one is replaced whole, never half); returns how many.

    Raises:
        OutputError: it could not be written. Then, and where ``episodes`` raises, nothing is left behind.
    """
    path, count = Path(path), 0
    partial = path.with_name(path.name + ".partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("w", encoding="ascii") as file:
            for episode in episodes:
                file.write(episode.to_json() + "\n")
                count += 1
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException as error:
        with suppress(OSError):
            partial.unlink()
        if isinstance(error, OSError):
            raise OutputError(f"cannot write {path}: {why(error)}; choose another place") from error
        raise
    return count


def append(path: str | os.PathLike[str], *episodes: Episode) -> None:
    """Append episodes to a file, after others that do the same, in any process.

    For many episodes, one after another, hold a :class:`Journal` open instead.

    Raises:
        ConfigError: another process holds the file for longer than :data:`APPEND_WAIT_S`.
        OutputError: they could not be written.
    """
    with Journal(path, wait_s=APPEND_WAIT_S) as journal:
        for episode in episodes:
            journal.append(episode)


def read_jsonl(path: str | os.PathLike[str]) -> Iterator[Episode]:
    """The episodes of a file, one at a time.

    A torn last line (a writer that was killed, or that is still writing) is left out with a warning.

    Raises:
        ConfigError: the file is not there, or a line before the last is not an episode; it names the line.
    """
    path = Path(path)
    if not path.is_file():
        inside = path / "episodes.jsonl"
        raise ConfigError(f"no episodes file at {path}" + (f"; there is {inside}" if inside.is_file() else ""))
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                yield Episode.from_dict(json.loads(line))
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
                if not line.endswith(b"\n"):
                    log.warning("%s: the last line is torn (%d bytes) and is left out", path, len(line))
                    return
                raise ConfigError(
                    f"{path}:{number} is not an episode record ({type(error).__name__}: {error}); "
                    "repair or delete that line, or choose another file"
                ) from error


@dataclass(frozen=True)
class Resume:
    """What a journal says has been done. An item of a rollout is (seed, sample), or (task, seed, sample).

    The forks of an episode from one step are a group of their own.
    """

    episodes: tuple[Episode, ...] = ()

    @classmethod
    def of(cls, path: str | os.PathLike[str]) -> Resume:
        """The index of a journal; empty where the file does not exist."""
        return cls(tuple(read_jsonl(path)) if Path(path).is_file() else ())

    def __post_init__(self) -> None:
        index: dict[tuple[int | None, int, str | None], list[Episode]] = defaultdict(list)
        for episode in self.episodes:
            fork = None if episode.parent is None else episode.group_id
            index[episode.seed, episode.sample, fork].append(episode)
        object.__setattr__(self, "_index", dict(index))

    def records(
        self, seed: int | None, sample: int = 0, task_id: str | None = None, fork: str | None = None
    ) -> list[Episode]:
        """Every recorded attempt of an item, in the order written; ``fork``: the group id of forks."""
        found: list[Episode] = self._index.get((seed, sample, fork), [])  # type: ignore[attr-defined]
        return [e for e in found if task_id is None or e.task_id == task_id]

    def finished(self, seed: int | None, sample: int = 0, task_id: str | None = None) -> Episode | None:
        """The valid episode of an item; None where it is still to be played (never tried, or only failed)."""
        return next((e for e in self.records(seed, sample, task_id) if e.valid), None)

    def next_attempt(
        self, seed: int | None, sample: int = 0, task_id: str | None = None, fork: str | None = None
    ) -> int:
        """The attempt number that a further try of an item has."""
        return max((e.attempt + 1 for e in self.records(seed, sample, task_id, fork)), default=0)


def write_whole(fd: int, data: bytes) -> None:
    """Append all of it, or nothing: what comes after must not stand behind half a line, which no reader would forgive.

    Raises:
        OSError: it could not be written; the file is then as long as it was before.
    """
    start, rest = os.fstat(fd).st_size, memoryview(data)
    try:
        while rest:
            rest = rest[os.write(fd, rest) :]
    except OSError:
        os.ftruncate(fd, start)
        raise


def lock_file(fd: int, path: Path, wait_s: float = 0.0) -> None:
    """Keep other processes from writing a file until it is closed; where the system has no such locks, nothing is done.

    Raises:
        ConfigError: another process writes it, and still does after ``wait_s`` seconds.
    """
    if fcntl is None:
        return
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError as error:
            if time.monotonic() >= deadline:
                raise ConfigError(
                    f"{path} is being written by another run; wait for it to end, or write to another place"
                ) from error
        time.sleep(_LOOK_EVERY_S)


def _mend_tail(fd: int, path: Path) -> None:
    """Cut off a last line without its newline, or end it where only the newline is missing."""
    size = start = os.fstat(fd).st_size
    blocks: list[bytes] = []  # from the end on; put together once, since a line may be as long as the file
    while start > 0 and not (blocks and b"\n" in blocks[-1]):
        step = min(_TAIL_BLOCK, start)
        start -= step
        blocks.append(os.pread(fd, step, start))
    torn = b"".join(reversed(blocks)).rpartition(b"\n")[2]
    if not torn:
        return
    try:
        Episode.from_dict(json.loads(torn))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        log.warning("%s: cut off a torn last line (%d bytes)", path, len(torn))
        os.ftruncate(fd, size - len(torn))
    else:
        os.write(fd, b"\n")
