"""Waits of tests, each with a deadline: a test that waits for ever says nothing, and stops all those behind it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any


def until(condition: Callable[[], Any], seconds: float = 30.0, what: str = "it") -> Any:
    """Wait for something to become true; its value. For tests on a thread of their own."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, f"{what} did not happen within {seconds:g} s"
        time.sleep(0.02)
    return value


def still(look: Callable[[], Any], quiet_s: float = 0.4, seconds: float = 20.0) -> Any:
    """Wait until something has not changed for a while; what it is then. It fails where that never comes."""
    end, value, since = time.monotonic() + seconds, look(), time.monotonic()
    while time.monotonic() - since < quiet_s:
        assert time.monotonic() < end, f"it still changes after {seconds:g} s"
        time.sleep(0.02)
        if (now := look()) != value:
            value, since = now, time.monotonic()
    return value


def free_port() -> int:
    """A port of this machine that nobody listens on, unless somebody else asks for one in the same moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def for_port(port: int, process: subprocess.Popen, seconds: float = 60.0) -> None:
    """Wait until a process listens on a port of this machine."""

    def listens() -> bool:
        assert process.poll() is None, f"it ended, with status {process.returncode}, and never listened"
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            return False
        return True

    until(listens, seconds, f"listening on port {port}")


def first_line(process: subprocess.Popen, seconds: float = 60.0) -> str:
    """The next line that a process prints; it is killed, and the line empty or cut, if none comes in time."""
    with killed_after(process, seconds):
        return process.stdout.readline()


@contextmanager
def killed_after(process: subprocess.Popen, seconds: float):
    """While it is entered, a process has so many seconds: its streams end then, and with them whoever reads them."""
    late = threading.Timer(seconds, process.kill)
    late.daemon = True
    late.start()
    try:
        yield
    finally:
        late.cancel()


def end(process: subprocess.Popen, seconds: float = 20.0) -> int:
    """Ask a process to end, kill it if it does not in time; its exit status."""
    process.terminate()
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return kill(process)
    finally:
        if process.stdout is not None:
            process.stdout.close()


def kill(process: subprocess.Popen) -> int:
    """Kill a process; its exit status."""
    process.kill()
    return process.wait(20)


def for_child(pid: int, seconds: float = 60.0) -> int:
    """The exit status of a forked child; one that hangs is killed, because it keeps this process's pipes open."""

    def ended() -> tuple[int, int] | None:
        done, status = os.waitpid(pid, os.WNOHANG)
        return (done, status) if done else None

    try:
        return os.waitstatus_to_exitcode(until(ended, seconds, "the child's end")[1])
    except AssertionError:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise


@contextmanager
def meanwhile(work: Callable[[], None], seconds: float = 120.0):
    """Run ``work`` in another thread; what it raised is raised at the end."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as failure:
            failures.append(failure)

    other = threading.Thread(target=run, daemon=True)
    other.start()
    yield
    other.join(seconds)
    assert not other.is_alive(), f"what ran beside did not end within {seconds:g} s"
    if failures:
        raise failures[0]
