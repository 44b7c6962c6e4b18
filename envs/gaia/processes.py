"""Watching and ending a program from outside: its processes and threads, and the files it writes."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

MAX_DEPTH = 32
"""Directories below one another that tools look into; what lies deeper counts as more than any limit."""
_BEYOND = 1 << 60
_READ_WRITE = stat.S_IRUSR | stat.S_IWUSR
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def files_of(folder: Path, *, limit: int | None = None, mend: bool = False) -> dict[str, int]:
    """Everything below a directory, by relative path: bytes on disk. What vanishes meanwhile is left out.

    Goes by descriptors: no link is followed, and no path is too long. Directories that their owner could not enter
    or empty are opened up on the way, the first one too.

    Args:
        folder: where to look.
        limit: the number of entries after which to stop.
        mend: also give the owner of each file the right to read and write it.
    """
    found: dict[str, int] = {}
    if os.lstat(folder).st_mode & stat.S_IRWXU != stat.S_IRWXU:
        _open_up(folder)
    with _opened(folder) as root:
        _Count(found, limit, mend).below(root, "", 0)
    return found


def remove_new(folder: Path, before: Mapping[str, int]) -> None:
    """Take away what was not there before, however deep it goes."""
    with _opened(folder) as root:
        _prune(root, "", before)


@dataclass(frozen=True)
class _Count:
    """One walk of :func:`files_of`."""

    found: dict[str, int]
    limit: int | None
    mend: bool

    def below(self, directory: int, prefix: str, depth: int) -> None:
        with suppress(NotADirectoryError, PermissionError), os.scandir(directory) as scan:
            for entry in scan:
                if self.limit is not None and len(self.found) >= self.limit:
                    return
                # swapped, closed or removed by the program while it is counted
                with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
                    self._entry(directory, entry, prefix + entry.name, depth)

    def _entry(self, directory: int, entry: os.DirEntry[str], path: str, depth: int) -> None:
        status = entry.stat(follow_symlinks=False)
        self.found[path] = status.st_blocks * 512
        if self.mend and stat.S_ISREG(status.st_mode) and status.st_mode & _READ_WRITE != _READ_WRITE:
            _open_up(entry.name, directory, file=True)
        if not stat.S_ISDIR(status.st_mode):
            return
        if depth == MAX_DEPTH:
            self.found[path] = _BEYOND
            return
        if status.st_mode & stat.S_IRWXU != stat.S_IRWXU:
            _open_up(entry.name, directory)
        with _opened(entry.name, directory) as inner:
            self.below(inner, f"{path}/", depth + 1)


def _prune(directory: int, prefix: str, before: Mapping[str, int]) -> None:
    with os.scandir(directory) as scan:
        entries = list(scan)
    for entry in entries:
        path = prefix + entry.name
        with suppress(FileNotFoundError):
            if not entry.is_dir(follow_symlinks=False):
                if path not in before:
                    os.unlink(entry.name, dir_fd=directory)
            elif path not in before:
                _remove_tree(entry.name, directory)
            else:
                with _opened(entry.name, directory) as inner:
                    _prune(inner, f"{path}/", before)


def _remove_tree(name: str, parent: int) -> None:
    """Remove a directory of any depth: what is below it is moved up to ``parent`` and removed from there."""
    token, moved = os.urandom(8).hex(), 0
    todo = [name]
    while todo:
        current = todo.pop()
        _open_up(current, parent)
        with _opened(current, parent) as directory:
            with os.scandir(directory) as scan:
                entries = list(scan)
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    moved += 1
                    todo.append(f".removed-{token}-{moved}")
                    _open_up(entry.name, directory)  # its own link to its parent is about to be rewritten
                    os.rename(entry.name, todo[-1], src_dir_fd=directory, dst_dir_fd=parent)
                else:
                    os.unlink(entry.name, dir_fd=directory)
        os.rmdir(current, dir_fd=parent)


@contextmanager
def _opened(path: str | Path, parent: int | None = None) -> Iterator[int]:
    descriptor = os.open(path, _DIRECTORY, dir_fd=parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _open_up(path: str | Path, parent: int | None = None, *, file: bool = False) -> None:
    """Give a directory (or a regular file) to its owner; a link put in its place is left alone."""
    kind = 0 if file else os.O_DIRECTORY
    descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | kind | os.O_CLOEXEC, dir_fd=parent)
    try:
        mode = os.fstat(descriptor).st_mode
        if not file or stat.S_ISREG(mode):
            os.chmod(f"/proc/self/fd/{descriptor}", mode & 0o777 | _READ_WRITE if file else stat.S_IRWXU)
    finally:
        os.close(descriptor)


def heeding_signals(command: list[str], python: str) -> list[str]:
    """The command, so that it starts with no signal blocked, and hears of its children's ends.

    A new process inherits what the program has set for itself, and bubblewrap waits for ever where SIGCHLD is ignored
    (as servers that fork ignore it). Popen has no word for it but code that runs between fork and exec, which may
    hang where there are threads; so where something is to be put right, an interpreter comes first and does it.
    """
    if signal.getsignal(signal.SIGCHLD) != signal.SIG_IGN and not signal.pthread_sigmask(signal.SIG_BLOCK, ()):
        return command
    return [python, "-I", "-S", "-c", _HEED, *command]


_HEED = """
import os, signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_DFL)
signal.pthread_sigmask(signal.SIG_SETMASK, ())
os.execv(sys.argv[1], sys.argv[1:])
"""


def descendants(pid: int) -> list[int]:
    """Living processes below ``pid``; none where the system does not list children."""
    found: list[int] = []
    todo = [pid]
    while todo:
        here = todo.pop()
        try:
            listed = Path(f"/proc/{here}/task/{here}/children").read_text()
        except OSError:
            continue
        children = [int(child) for child in listed.split()]
        found += children
        todo += children
    return found


def threads_of(pid: int) -> int:
    """Threads of the processes below ``pid``."""
    count = 0
    for child in descendants(pid):
        try:
            count += len(os.listdir(f"/proc/{child}/task"))
        except OSError:
            continue
    return count


def kill_tree(process: subprocess.Popen[bytes], *, waits_for_children: bool = False) -> None:
    """End the whole tree and wait for it.

    Children first: bubblewrap then reaps its own and leaves no zombie to whoever runs this program. A namespace dies
    with its first process.
    """
    for pid in descendants(process.pid):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    try:
        if process.poll() is None and waits_for_children:
            process.wait(timeout=1.0)
    except subprocess.TimeoutExpired:
        pass  # killed with the rest now
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def wait_gone(pid: int | None, *, timeout_s: float = 5.0) -> None:
    """Wait until a namespace's first process is dead: then nothing of the namespace is alive."""
    deadline = time.monotonic() + timeout_s
    while pid is not None and time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_bytes().rsplit(b")", 1)[1].split()[0]  # its name need not be text
        except OSError:
            return
        if state in b"ZX":
            return
        time.sleep(0.001)
