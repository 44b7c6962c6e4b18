"""The host in a container, by Docker Compose: started, waited for, followed, and stopped with this process.

What is asked of Docker is asked through its command line; how the container is made and confined is the compose file's
to say. The secret goes in as a file, and the token is made out here, so that neither is in a log of the container's.
"""

from __future__ import annotations

import os
import secrets as random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

from aworld_gym.cli_host import Signals, reachable, seconds
from aworld_gym.cli_output import Output
from aworld_gym.errors import ConfigError, InfraError

OPTIONS = ("host", "port", "max_sessions", "drain", "token_ttl")
"""Options of ``aworld-gym serve`` that are said outside the container."""
COMPOSE_FILE = "compose.yaml"
SERVICE = "gaia"
INNER_PORT = 8000
"""Of the host within its container."""
HEALTHY_S = 180
"""In which the container has to be healthy, once its image is there."""
READY_S = 30
"""In which the published address then has to answer."""
STOP_MARGIN_S = 30
"""What a container has to end after its host has drained."""
_RESTART_S = 60
"""In which a container that ended by itself has to run again."""
_LAST_WORDS_S = 10
"""In which the log of a container that has ended has to be copied."""
_QUICK_S = 60
"""For commands of Docker's that only look."""
_NO_DOCKER = "or serve without a container: python -m envs.gaia"


def serve_in_container(
    folder: Path, out: Output, *, host: str, port: int, max_sessions: int, drain: float, token_ttl: str
) -> None:
    """Run the host of a compose file's service until a signal comes, and print ``{"ip", "port", "token"}``.

    Args:
        folder: it has a ``compose.yaml`` with the service ``gaia``.
        out: where the result goes.
        host: the address to publish at.
        port: the port to publish; 0 for any that is free.
        max_sessions: the host's.
        drain: seconds that sessions have to end by themselves.
        token_ttl: how long the token is good for, such as ``24h``.

    Raises:
        ConfigError: Docker or the compose file is missing, or the name is taken.
        InfraError: the container does not start, or ends by itself.
    """
    from aworld_gym.host.installed import check_installed

    check_installed()
    from aworld_gym.host import HostSettings, credentials

    settings = HostSettings(host=host, port=port, max_sessions=max_sessions, drain_s=drain)  # checks them
    ttl_s = seconds(token_ttl)
    file = folder / COMPOSE_FILE
    if not file.is_file():
        raise ConfigError(
            f"there is no {COMPOSE_FILE} in {str(folder)!r}; the project's sources have one in envs/gaia/docker"
        )
    check_docker()
    secrets = credentials.find_secrets() or (credentials.new_secret(),)
    with _secret_file(",".join(secrets)) as secret:
        variables = {
            credentials.SECRET_FILE_VAR: str(secret),
            "AWORLD_BIND": f"[{host}]" if ":" in host else host,
            "AWORLD_PORT": str(port or ""),
            "AWORLD_MAX_SESSIONS": str(max_sessions),
            "AWORLD_DRAIN_S": f"{drain:g}",
            "AWORLD_STOP_GRACE": f"{int(drain + STOP_MARGIN_S)}s",
        }
        name = f"aworld-gaia-{port or random.token_hex(3)}"
        container = Container(file, name, variables, settings.drain_s)
        if container.exists():
            raise ConfigError(
                f"there is a container of the project {name!r}; choose another --port, or stop that one: docker "
                f"compose -p {name} down"
            )
        try:
            address, bound = container.start()
            ip = reachable(address)
            container.wait_ready(ip, bound)
            signals = Signals()
            token = credentials.mint(secrets[0], [credentials.ALL], ttl_s)
            out.result({"ip": ip, "port": bound, "token": token}, show=print)
            container.follow(signals)
            container.stop(signals)
        finally:
            container.remove()


def check_docker() -> None:
    """Say what is missing, if anything is.

    Raises:
        ConfigError: no docker, no Compose, or an engine that does not answer.
    """
    if shutil.which("docker") is None:
        raise ConfigError(f"there is no docker on PATH: install Docker Engine and its Compose plugin, {_NO_DOCKER}")
    said = _asked("docker", "compose", "version")
    if said is not None:
        raise ConfigError(
            f"docker has no Compose (docker compose version: {said}): install its plugin docker-compose-plugin, "
            f"{_NO_DOCKER}"
        )
    said = _asked("docker", "version", "--format", "{{.Server.Version}}")
    if said is not None:
        raise ConfigError(
            f"Docker's engine does not answer ({said}): start it, or see to it that this user may use it, {_NO_DOCKER}"
        )


class Container:
    """One compose project of one service.

    Args:
        file: the compose file.
        name: the project's; what is stopped and removed is what has this name.
        variables: what the compose file takes from its environment.
        drain_s: how long its host may take to drain.
    """

    def __init__(self, file: Path, name: str, variables: Mapping[str, str], drain_s: float):
        from aworld_gym.host.credentials import SECRET_VAR

        self._command = ("docker", "compose", "--project-name", name, "--file", str(file.resolve()))
        own = {key: value for key, value in os.environ.items() if key != SECRET_VAR}
        self._environ = own | dict(variables)
        self._drain_s = drain_s

    def exists(self) -> bool:
        """Whether the project has a container, running or not."""
        return bool(self._told("ps", "--all", "--quiet"))

    def running(self) -> bool:
        """Whether its container runs now."""
        return bool(self._told("ps", "--quiet", "--status", "running", SERVICE))

    def start(self) -> tuple[str, int]:
        """Build the image, start the container and wait until it is healthy; the address and port it is published at.

        Raises:
            InfraError: one of these fails.
        """
        if self._run("build") != 0:
            raise InfraError("server_start_failed", "docker compose build failed; what it said stands above")
        if self._run("up", "--no-build", "--detach", "--wait", "--wait-timeout", str(HEALTHY_S), SERVICE) != 0:
            said = self._told("logs", "--no-log-prefix", "--tail", "20", SERVICE)
            raise InfraError("server_start_failed", f"the container did not become healthy; its log ends with:\n{said}")
        published = self._told("port", SERVICE, str(INNER_PORT)).splitlines()
        address, _, port = published[0].strip().rpartition(":") if published else ("", "", "")
        if not port.isdigit() or port == "0":
            raise InfraError("server_start_failed", f"docker compose publishes no port {INNER_PORT} of {SERVICE}")
        return address.strip("[]"), int(port)

    def wait_ready(self, ip: str, port: int) -> None:
        """Wait until the host answers where its clients will ask.

        Raises:
            InfraError: it does not.
        """
        opener = build_opener(ProxyHandler({}))  # a published port is this machine's own: no proxy between
        url = f"http://[{ip}]:{port}/ready" if ":" in ip else f"http://{ip}:{port}/ready"
        deadline = time.monotonic() + READY_S
        while True:
            try:
                opener.open(url, timeout=5).close()
                return
            except (URLError, OSError) as error:
                if time.monotonic() > deadline:
                    raise InfraError(
                        "host_unreachable", f"the container is healthy, and {url} does not answer: {error}"
                    ) from error
            time.sleep(0.2)

    def follow(self, signals: Signals) -> None:
        """Copy the container's log to stderr until a signal comes.

        Raises:
            InfraError: the container ended by itself, and did not come back.
        """
        since: float | None = None
        while True:
            with self._log(since) as log:
                while log.poll() is None:
                    if signals.wait(0.2):
                        return
            since = time.time()
            deadline = time.monotonic() + _RESTART_S
            while not self.running():
                if time.monotonic() > deadline:
                    raise InfraError("server_died", "the container ended by itself; its log stands above")
                if signals.wait(1):
                    return

    def stop(self, signals: Signals) -> None:
        """Have the host drain and end; a second signal is passed on, and it ends at once."""
        with self._log(since=time.time()) as log:
            stopping = self._started("stop", "--timeout", str(int(self._drain_s + STOP_MARGIN_S)))
            while stopping.poll() is None:
                if signals.wait(0.2):
                    self._run("kill", "--signal", "SIGTERM", SERVICE)
            with suppress(subprocess.TimeoutExpired):  # it ends with the container, once it has copied the last words
                log.wait(_LAST_WORDS_S)

    def remove(self) -> None:
        """Remove the container and its network; stops it where it runs."""
        self._run("down", "--timeout", "10")

    @contextmanager
    def _log(self, since: float | None) -> Iterator[subprocess.Popen[bytes]]:
        """While it is entered, the container's log from then on, or all of it, is copied to stderr."""
        from_then = () if since is None else ("--since", str(int(since)))
        process = self._started("logs", "--follow", "--no-log-prefix", *from_then, SERVICE)
        try:
            yield process
        finally:
            _end(process)

    def _started(self, *arguments: str) -> subprocess.Popen[bytes]:
        """A command of Compose; an interrupt at the terminal does not reach it, but this process, which decides."""
        return subprocess.Popen(
            [*self._command, *arguments], env=self._environ, stdin=subprocess.DEVNULL, start_new_session=True
        )

    def _run(self, *arguments: str) -> int:
        """Run a command to its end; what it prints goes to stderr, where stdout is kept for a result."""
        process = self._started(*arguments)
        try:
            return process.wait()
        finally:
            _end(process)

    def _told(self, *arguments: str) -> str:
        """What a command prints; nothing where it fails.

        Raises:
            InfraError: Docker does not answer.
        """
        try:
            done = subprocess.run(
                [*self._command, *arguments],
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT if arguments[0] == "logs" else None,
                text=True,
                errors="replace",
                timeout=_QUICK_S,
            )
        except subprocess.TimeoutExpired:
            raise InfraError(
                "host_unreachable", f"docker compose {arguments[0]} did not answer within {_QUICK_S:g} s"
            ) from None
        return done.stdout.strip() if done.returncode == 0 else ""


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a command that is not to go on."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _asked(*command: str) -> str | None:
    """None where a command succeeds; else what it said."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_QUICK_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    said = " ".join((done.stderr or done.stdout).split())
    return None if done.returncode == 0 else said[:300] or f"exit status {done.returncode}"


@contextmanager
def _secret_file(text: str) -> Iterator[Path]:
    """A file with the secret, in a folder that only this user can enter.

    The file itself can be read by all, because the container's user, who is another, finds it mounted.
    """
    with tempfile.TemporaryDirectory(prefix="aworld-secret-") as folder:
        path = Path(folder, "secret")
        path.write_text(text, encoding="ascii")
        path.chmod(0o444)
        yield path
