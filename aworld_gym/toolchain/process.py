"""A stdio tool server as a process: started under a supervisor, spoken to by lines, ended for certain.

This is our own transport (the SDK's has no supervisor, keeps no stderr, and logs a traceback for every line that a
server prints to stdout by mistake). It only moves lines; sessions are made of it in ``connection.py``.
"""

from __future__ import annotations

import asyncio
import collections
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aworld_gym.errors import ConfigError, InfraError
from aworld_gym.toolchain import loop
from aworld_gym.toolchain.messages import Wire
from aworld_gym.toolchain.stats import counters

EXIT_GRACE_S = 1.0
"""Seconds a server has to exit after its stdin closed, and again after SIGTERM; then it is killed."""
KILL_WAIT_S = 8.0
"""Seconds to wait for the supervisor after telling it to kill."""
MAX_LINE = 256 * 2**20
"""Bytes of one message at most (images travel as base64)."""
_TAIL_CHARS = 4000

INHERITED_VARS = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR")
"""What servers inherit of the environment; everything else (keys, tokens) must be given in the configuration."""

_SPAWN = str(Path(__file__).with_name("_spawn.py"))
_pipes: set[int] = set()  # our ends of the servers' pipes


class ServerProcess:
    """A running stdio server.

    Args:
        name: the server's name, for messages.
        command: the program, looked up on the ``PATH`` of ``env``.
        args: its arguments.
        env: added to what is inherited.
        cwd: its working directory.

    Raises:
        ConfigError: there is no such program or directory.
    """

    def __init__(self, name: str, command: str, args: Sequence[str], env: Mapping[str, str], cwd: str | None):
        self.name = name
        full_env = {key: os.environ[key] for key in INHERITED_VARS if key in os.environ} | dict(env)
        if cwd is not None and not os.path.isdir(cwd):
            raise ConfigError(f"server {name!r}: its working directory {cwd!r} does not exist; correct `cwd`")
        program = _find(name, command, full_env.get("PATH", os.defpath), cwd)
        self._stderr = _Tail()
        self._noise: collections.deque[str] = collections.deque(maxlen=3)
        self.noise_lines = 0
        """Lines of its stdout so far that are no messages."""
        self._output_over = False  # its stdout has ended
        self._ending = False  # we have begun to end it
        self._left_running = False  # it ran when we began to end it, so its exit status says nothing of it
        self._stdin: asyncio.WriteTransport | None = None
        self._outputs: list[asyncio.BaseTransport] = []
        self.exited = asyncio.get_running_loop().create_future()
        """Resolves to the exit status."""
        lifeline_r, lifeline = os.pipe()
        try:
            self._popen = subprocess.Popen(
                [sys.executable or "python3", "-I", "-S", _SPAWN, str(lifeline_r), str(os.getpid())]
                + [str(EXIT_GRACE_S), program, *args],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=full_env,
                cwd=cwd,
                pass_fds=(lifeline_r,),
                start_new_session=True,  # a Ctrl-C is ours to handle, not the server's
            )
        except (OSError, ValueError) as error:
            os.close(lifeline)
            raise InfraError("server_start_failed", f"cannot start {command!r}: {error}", server=name) from error
        finally:
            os.close(lifeline_r)
        self._lifeline = lifeline
        counters.processes_started += 1
        _pipes.add(self._lifeline)
        self._watch()

    async def connect(self, on_line: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        """Attach to the server's pipes; ``on_line`` is called for every line of its stdout."""
        here = asyncio.get_running_loop()
        stdin, stdout, stderr = self._popen.stdin, self._popen.stdout, self._popen.stderr
        assert stdin is not None
        self._outputs.append((await here.connect_read_pipe(lambda: _Lines(on_line, on_end), stdout))[0])
        self._outputs.append((await here.connect_read_pipe(lambda: self._stderr, stderr))[0])
        self._stdin, _ = await here.connect_write_pipe(lambda: _Stdin(stdin.fileno()), stdin)

    def write(self, line: bytes) -> bool:
        """Send one line; False if the server certainly cannot get it."""
        if self._stdin is None or self._stdin.is_closing() or self.exited.done():
            return False
        self._stdin.write(line)
        return True

    def noise(self, line: bytes) -> None:
        """Note a line of stdout that is no message."""
        self.noise_lines += 1
        self._noise.append(line[:200].decode(errors="replace"))

    def output_over(self) -> None:
        """Note that its stdout has ended, if that is not our doing."""
        self._output_over = self._output_over or not self._ending

    def noise_words(self) -> str:
        """What it printed that is no message, for an error message; empty if nothing."""
        if not self.noise_lines:
            return ""
        return (
            f"It printed {self.noise_lines} lines to stdout that are not MCP messages, such as "
            f"{list(self._noise)}; a stdio server must log to stderr."
        )

    def last_words(self) -> str:
        """What is known of the server's end, for an error message."""
        parts = []
        if self._output_over and (self._left_running or not self.exited.done()):
            parts.append("The server closed its stdout, over which it must answer, and went on running.")
        elif self.exited.done() and not self._left_running:
            status = self.exited.result()
            killer = {number.value + 128: number.name for number in signal.Signals}.get(status)
            parts.append(f"The server was killed by {killer}." if killer else f"The server exited with {status}.")
        tail = self._stderr.text()
        parts.append(f"Its stderr ends:\n{tail}" if tail else "It wrote nothing to stderr.")
        if self.noise_lines:
            parts.append(self.noise_words())
        return " ".join(parts)

    async def settle(self) -> None:
        """Wait a moment for the exit status of a server whose output has ended."""
        await self._wait(EXIT_GRACE_S)

    async def aclose(self, *, kill: bool = False) -> None:
        """End the server and all its children; returns when they are gone.

        Args:
            kill: do not wait for it to exit by itself.
        """
        if self._output_over and not kill:
            await self.settle()  # it has most likely ended, and how is worth knowing
        self._ending, self._left_running = True, self._left_running or not self.exited.done()
        if self._stdin is not None and not self._stdin.is_closing():
            self._stdin.abort() if kill else self._stdin.close()
        elif self._stdin is None:  # connecting was broken off: close what no transport owns
            for pipe in (self._popen.stdin, self._popen.stderr, self._popen.stdout)[: 3 - len(self._outputs)]:
                if pipe is not None:
                    pipe.close()
        if kill or not await self._wait(EXIT_GRACE_S):
            self.kill() if kill else self._signal(signal.SIGTERM)
            if not await self._wait(KILL_WAIT_S):
                self._signal(signal.SIGKILL)
                await self._wait(KILL_WAIT_S)
        for transport in self._outputs:
            transport.close()

    def kill(self) -> None:
        """Have the server ended at once."""
        self._signal(signal.SIGQUIT)

    async def _wait(self, timeout: float) -> bool:
        done, _ = await asyncio.wait((self.exited,), timeout=timeout)
        return bool(done)

    def _signal(self, number: int) -> None:
        if self._popen.returncode is None:  # not yet reaped, so the pid is still ours
            try:
                os.kill(self._popen.pid, number)
            except ProcessLookupError:
                pass

    def _watch(self) -> None:
        """Notice the end of the process. asyncio's own watchers depend on the policy that is installed."""
        here = asyncio.get_running_loop()
        try:
            fd = os.pidfd_open(self._popen.pid)
        except (AttributeError, OSError):  # not Linux
            self._poll(here)
            return
        here.add_reader(fd, self._ended, fd)

    def _poll(self, here: asyncio.AbstractEventLoop) -> None:
        if self._popen.poll() is None:
            here.call_later(0.05, self._poll, here)
        else:
            self._ended(None)

    def _ended(self, pidfd: int | None) -> None:
        if pidfd is not None:
            asyncio.get_running_loop().remove_reader(pidfd)
            os.close(pidfd)
        status = self._popen.wait()
        counters.processes_ended += 1
        _pipes.discard(self._lifeline)
        os.close(self._lifeline)
        if self._stdin is not None and not self._stdin.is_closing():
            self._stdin.abort()
        if not self.exited.done():
            self.exited.set_result(status)


def _find(server: str, command: str, path: str, cwd: str | None) -> str:
    """The program that ``command`` names: on ``path``, or, if it is a path itself, from ``cwd`` on.

    Raises:
        ConfigError: there is none.
    """
    bare = os.sep not in command
    found = shutil.which(command, path=path) if bare else os.path.join(cwd or "", command)
    if found is not None and os.path.isfile(found) and os.access(found, os.X_OK):
        return found if bare else command
    words = command.split()
    if found is not None and os.path.isdir(found):
        problem = "is a directory; `command` must name a program"
    elif found is not None and os.path.isfile(found):
        problem = (
            "is a file that may not be executed; make it executable (chmod +x), or give its interpreter as `command` "
            "and the file in `args`"
        )
    elif len(words) > 1 and shutil.which(words[0], path=path) is not None:
        problem = (
            f'is no program, but {words[0]!r} is; split it: "command": {json.dumps(words[0])}, '
            f'"args": {json.dumps(words[1:])}, and then the `args` there are'
        )
    elif bare:
        problem = f"was not found on PATH={path!r}; install it, or give its full path as `command`"
    else:
        problem = "does not exist; correct `command`, or install it"
    raise ConfigError(f"server {server!r}: the command {command!r} {problem}")


class _Lines(asyncio.Protocol):
    """Splits what comes into lines."""

    def __init__(self, on_line: Callable[[bytes], None], on_end: Callable[[], None]):
        self._on_line, self._on_end = on_line, on_end
        self._parts: list[bytes] = []
        self._size = 0
        self._transport: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        *lines, rest = data.split(b"\n")
        for line in lines:
            if self._parts:
                line = b"".join((*self._parts, line))
                self._parts, self._size = [], 0
            if line.strip():
                self._on_line(line)
        if rest:
            self._parts.append(rest)
            self._size += len(rest)
            if self._size > MAX_LINE and self._transport is not None:
                self._on_line(self._parts[0][:200])  # which is noise, and so will be named
                self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._on_end()


class _Stdin(asyncio.BaseProtocol):
    """Keeps the books of the pipe's descriptor: once it is closed, its number may be anybody's."""

    def __init__(self, fd: int):
        self._fd = fd
        _pipes.add(fd)

    def connection_lost(self, exc: Exception | None) -> None:
        _pipes.discard(self._fd)


class _Tail(asyncio.Protocol):
    """Keeps the end of a stream, and reads all of it (a server must not block on a full stderr)."""

    def __init__(self) -> None:
        self._data = bytearray()

    def data_received(self, data: bytes) -> None:
        self._data += data
        if len(self._data) > 8 * _TAIL_CHARS:
            del self._data[: -2 * _TAIL_CHARS]

    def text(self) -> str:
        text = self._data.decode(errors="replace").strip()
        return text if len(text) <= _TAIL_CHARS else "…" + text[-_TAIL_CHARS:]


class _Writer:
    """The write side of the session's stream pair."""

    def __init__(self, process: ServerProcess, wire: Wire):
        self._process, self._wire = process, wire

    async def send(self, message: Any) -> None:
        if not self._process.write(self._wire.dump(message)):
            import anyio

            raise anyio.BrokenResourceError

    async def aclose(self) -> None:
        """Closing is the process's own business."""

    async def __aenter__(self) -> _Writer:
        return self

    async def __aexit__(self, *exc: object) -> None:
        return None


@asynccontextmanager
async def streams(process: ServerProcess, on_end: Callable[[], None]) -> AsyncIterator[tuple[Any, Any]]:
    """The (read, write) pair that a client session is made of; ``on_end`` is called when the output ends."""
    import math

    import anyio

    send, receive = anyio.create_memory_object_stream[Any](math.inf)

    wire = Wire(process.noise)

    def on_line(line: bytes) -> None:
        message = wire.read(line)
        if message is None:
            return
        try:
            send.send_nowait(message)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # the session is closing

    def ended() -> None:
        process.output_over()
        on_end()
        send.close()

    try:
        await process.connect(on_line, ended)
        yield receive, _Writer(process, wire)
    finally:
        send.close()
        receive.close()


@loop.after_fork
def _let_go() -> None:
    """In a forked child: point the inherited pipe ends elsewhere, or the servers would never see their stdin close.

    The numbers stay occupied, because inherited objects would close them again.
    """
    if _pipes:
        null = os.open(os.devnull, os.O_RDWR)
        for fd in _pipes:
            os.dup2(null, fd, inheritable=False)
        os.close(null)
        _pipes.clear()
