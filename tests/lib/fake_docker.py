"""A stand-in for the ``docker`` command, for tests of what is said to it. There is no container: ``up`` starts a host.

It runs as a program: what it was told goes to ``calls.jsonl`` in the folder that FAKE_DOCKER names, where files of a
test's say what it is to fail at. What it proves is the command line of :mod:`envs.gaia.containers`, and no more.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

TAKEN = ("AWORLD_HOST_SECRET_FILE", "AWORLD_BIND", "AWORLD_PORT", "AWORLD_MAX_SESSIONS", "AWORLD_DRAIN_S")


def main(folder: Path, arguments: list[str]) -> int:
    """One call of ``docker``."""
    if arguments[:2] == ["compose", "version"] or arguments[0] == "version":
        failing = folder / f"no-{arguments[0]}"
        print(failing.read_text() if failing.exists() else "v2", file=sys.stderr if failing.exists() else sys.stdout)
        return int(failing.exists())
    assert arguments[0] == "compose" and arguments[1] == "--project-name" and arguments[3] == "--file", arguments
    name, what, rest = arguments[2], arguments[5], arguments[6:]
    note = {"name": name, "file": arguments[4], "what": what, "rest": rest}
    note |= {"env": {key: os.environ.get(key) for key in (*TAKEN, "AWORLD_STOP_GRACE", "AWORLD_HOST_SECRET")}}
    with (folder / "calls.jsonl").open("a") as calls:
        calls.write(json.dumps(note) + "\n")
    if (folder / f"fail-{what}").exists():
        return 1
    if (folder / f"hang-{what}").exists():
        time.sleep(60)
    return {"ps": ps, "build": build, "up": up, "logs": logs, "port": port, "stop": stop, "kill": kill, "down": down}[
        what
    ](folder, rest)


def ps(folder: Path, rest: list[str]) -> int:
    """Print the container's id, if there is one."""
    if alive(folder) or (folder / "taken").exists():
        print("0123456789ab")
    return 0


def build(folder: Path, rest: list[str]) -> int:
    """Print, as builders do, where results go."""
    print("building")
    return 0


def up(folder: Path, rest: list[str]) -> int:
    """Start a host that takes the secret from the file that the container would find mounted."""
    assert "--wait" in rest and "--detach" in rest
    path = Path(os.environ["AWORLD_HOST_SECRET_FILE"])
    assert path.stat().st_mode & 0o777 == 0o444 and path.parent.stat().st_mode & 0o077 == 0
    own = {"AWORLD_HOST_SECRET_FILE": str(path), "PATH": os.environ["PATH"], "HOME": "/nowhere"}
    own["PYTHONPATH"] = os.environ["PYTHONPATH"]
    with (folder / "out").open("w") as out, (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "aworld_gym", "serve", "--mcp-config", str(folder / "mcp.json"), "--port", "0"]
            + ["--no-token", "--drain", os.environ["AWORLD_DRAIN_S"]],
            stdout=out,
            stderr=log,
            env=own,
            start_new_session=True,
        )
    (folder / "pid").write_text(str(process.pid))
    deadline = time.monotonic() + 60
    while not (folder / "out").read_text().endswith("\n"):
        if process.poll() is not None or time.monotonic() > deadline:
            return 1
        time.sleep(0.05)
    return 0


def logs(folder: Path, rest: list[str]) -> int:
    """Print the log; with --follow until the container ends."""
    if "--follow" not in rest:
        print("the last words of the container")
        return 0
    if (folder / "slow-logs").exists():
        time.sleep(2)
    print("the container's log", flush=True)
    while alive(folder):
        time.sleep(0.05)
    return 0


def port(folder: Path, rest: list[str]) -> int:
    """Print where the container's port is published."""
    told = json.loads((folder / "out").read_text())
    print(f"127.0.0.1:{told['port']}")
    return 0


def stop(folder: Path, rest: list[str]) -> int:
    """SIGTERM, and the time that is allowed."""
    send(folder, signal.SIGTERM)
    deadline = time.monotonic() + int(rest[rest.index("--timeout") + 1])
    while alive(folder) and time.monotonic() < deadline:
        time.sleep(0.05)
    return 0


def kill(folder: Path, rest: list[str]) -> int:
    """A signal."""
    send(folder, signal.Signals[rest[rest.index("--signal") + 1]])
    return 0


def down(folder: Path, rest: list[str]) -> int:
    """What is left is ended."""
    send(folder, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while alive(folder) and time.monotonic() < deadline:
        time.sleep(0.02)
    return 0


def alive(folder: Path) -> bool:
    """Whether the host runs."""
    try:
        pid = int((folder / "pid").read_text())
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def send(folder: Path, number: signal.Signals) -> None:
    """A signal to the host, if it runs."""
    if alive(folder):
        os.kill(int((folder / "pid").read_text()), number)


if __name__ == "__main__":
    sys.exit(main(Path(os.environ["FAKE_DOCKER"]), sys.argv[1:]))
