"""Supervises one stdio tool server, so that nothing of it survives the program that uses it.

Run as a script, with nothing imported but the standard library (it starts in some 20 ms):

    python -I -S _spawn.py LIFELINE_FD PARENT_PID GRACE_S COMMAND [ARGUMENT ...]

The server gets this process's stdin, stdout and stderr untouched. The supervisor ends the server, and everything
that descends from it, when

* the parent dies, however (the kernel signals it: ``PR_SET_PDEATHSIG``; and the lifeline, a pipe of which the
  parent holds the other end, closes),
* it is told to: SIGTERM (the server is asked first, and has GRACE_S seconds) or SIGQUIT (at once),
* the server has ended by itself and left children behind.

It is the subreaper of its descendants: a grandchild that was orphaned or has detached itself (``npx`` runs the
server as one, daemons do ``setsid``) becomes its child, and so is found and killed. If the supervisor itself is
killed, the server dies with it (``PR_SET_PDEATHSIG`` again). Where the system has no ``prctl``, the server's process
group is what is killed. It exits with the server's exit status (128 + signal number if it was killed).

GRACE_S may be two numbers, ``15+5``: what the ended server leaves behind then has five seconds to end by itself (such
as the helper process by which Python removes shared memory).
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
KILL_TIMEOUT_S = 5.0  # only processes stuck in the kernel outlive a SIGKILL by more than moments


def prctl(option: int, value: int) -> bool:
    """Call ``prctl``; False where it does not exist."""
    try:
        import ctypes

        return ctypes.CDLL(None).prctl(option, value, 0, 0, 0) == 0
    except (ImportError, OSError, AttributeError):
        return False


def start(command: list[str], supervisor: int) -> int:
    """Fork the server, in a process group of its own; its pid."""
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setpgid(0, 0)
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != supervisor:
            os._exit(1)
        for number in (signal.SIGTERM, signal.SIGQUIT, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"cannot run {command[0]!r}: {error.strerror}\n".encode())
    os._exit(127)


def children() -> dict[int, int]:
    """Every process's parent, by pid; empty where there is no ``/proc``."""
    parents = {}
    try:
        entries = os.listdir("/proc")
    except OSError:
        return {}
    for entry in entries:
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", "rb") as file:
                    # pid (name, which may hold anything) state ppid ...
                    parents[int(entry)] = int(file.read().rpartition(b")")[2].split()[1])
            except (OSError, IndexError, ValueError):
                continue
    return parents


def descendants(root: int) -> list[int]:
    """The pids of all that descends from ``root``."""
    parents = children()
    found: list[int] = []
    layer = {root}
    while layer:
        layer = {pid for pid, parent in parents.items() if parent in layer and pid not in found}
        found += layer
    return found


def send(pids: list[int], number: int) -> None:
    """Signal each process that still exists."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            pass


class Supervisor:
    """Waits for the server, the parent and signals; then leaves nothing behind."""

    def __init__(self, lifeline: int, parent: int, grace_s: float, command: list[str], linger_s: float = 0.0):
        self.lifeline, self.grace_s, self.linger_s = lifeline, grace_s, linger_s
        self.signals: set[int] = set()
        self.status: int | None = None
        self.wake_r, wake_w = os.pipe()
        for fd in (self.wake_r, wake_w):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(wake_w, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGQUIT, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda number, frame: self.signals.add(number))
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        # What the thread that started us has blocked is blocked here as well, and would be in the server.
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.set_inheritable(lifeline, False)
        prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        if os.getppid() != parent:  # it died before we asked to be told
            sys.exit(1)
        self.server = start(command, os.getpid())
        # The server alone shall hold the pipes, so that its end is seen as theirs.
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        os.close(null)

    def reap(self) -> bool:
        """Collect ended children; False if none is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self.server:
                self.status = os.waitstatus_to_exitcode(status)

    def wait(self, timeout_s: float | None, *, lifeline: bool) -> bool:
        """Wait for a signal (the end of a child is one); True if the parent is gone."""
        poll = select.poll()
        poll.register(self.wake_r, select.POLLIN)
        if lifeline:
            poll.register(self.lifeline, select.POLLIN)
        ready = dict(poll.poll(None if timeout_s is None else max(0.0, timeout_s) * 1000))
        if self.wake_r in ready:
            os.read(self.wake_r, 4096)
        return self.lifeline in ready

    def run(self) -> int:
        """Until the server ends or has to; its exit status."""
        while self.reap() and self.status is None:
            if self.signals or self.wait(None, lifeline=True):
                self.ask()
                break
        self.linger()
        self.kill()
        status = self.status if self.status is not None else -signal.SIGKILL
        return status if status >= 0 else 128 - status

    def ask(self) -> None:
        """SIGTERM to the server's group, and its grace; nothing at SIGQUIT."""
        if signal.SIGQUIT in self.signals:
            return
        self.group(signal.SIGTERM)
        end = time.monotonic() + self.grace_s
        while self.reap() and self.status is None and time.monotonic() < end and signal.SIGQUIT not in self.signals:
            self.wait(end - time.monotonic(), lifeline=False)

    def linger(self) -> None:
        """Let what an ended server left behind end by itself."""
        end = time.monotonic() + (self.linger_s if self.status is not None else 0.0)
        while time.monotonic() < end and signal.SIGQUIT not in self.signals and self.reap():
            self.wait(end - time.monotonic(), lifeline=False)

    def kill(self) -> None:
        """SIGKILL to all that is left, until nothing is."""
        end = time.monotonic() + KILL_TIMEOUT_S
        pause = 0.001
        while self.reap() and time.monotonic() < end:
            self.group(signal.SIGKILL)
            send(descendants(os.getpid()), signal.SIGKILL)
            self.wait(pause, lifeline=False)
            pause = min(pause * 2, 0.1)

    def group(self, number: int) -> None:
        """Signal the server's process group."""
        try:
            os.killpg(self.server, number)
        except (ProcessLookupError, PermissionError):
            pass  # it is gone, or not yet a group of its own: `descendants` finds it


def main(argv: list[str]) -> int:
    """Parse the command line and supervise."""
    lifeline, parent, times, *command = argv
    grace_s, _, linger_s = times.partition("+")
    return Supervisor(int(lifeline), int(parent), float(grace_s), command, float(linger_s or 0)).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
