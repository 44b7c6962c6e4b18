"""Watching and ending a program from outside: its processes and threads, and the files it writes."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import time
from pathlib import Path


def files_of(folder: Path, *, limit: int | None = None) -> dict[str, int]:
    """Everything below a directory, by path: bytes on disk. Links are not followed; what vanishes is left out.

    Directories that their owner could not enter or empty are opened up on the way.

    Args:
        folder: where to look.
        limit: the number of entries after which to stop.
    """
    found: dict[str, int] = {}
    todo = [str(folder)]
    while todo:
        try:
            with os.scandir(todo.pop()) as scan:
                for entry in scan:
                    if limit is not None and len(found) >= limit:
                        return found
                    status = entry.stat(follow_symlinks=False)
                    found[entry.path] = status.st_blocks * 512
                    if stat.S_ISDIR(status.st_mode):
                        if status.st_mode & stat.S_IRWXU != stat.S_IRWXU:
                            _open_up(entry.path)
                        todo.append(entry.path)
        except OSError:  # the program removes things while they are counted
            continue
    return found


def _open_up(path: str) -> None:
    """Give a directory's owner all rights to it; a link put in its place is left alone."""
    descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.chmod(f"/proc/self/fd/{descriptor}", 0o700)
    finally:
        os.close(descriptor)


def remove_new(folder: Path, before: dict[str, int]) -> None:
    """Take away what a stopped program filled the workspace with."""
    for path in sorted(files_of(folder), reverse=True):  # what a directory holds comes before it
        if path not in before:
            if os.path.isdir(path) and not os.path.islink(path):
                os.rmdir(path)
            else:
                os.unlink(path)


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
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            return
        if state in "ZX":
            return
        time.sleep(0.001)
