"""The connection to a Ray cluster: one that is there, or one that is started here and ended afterwards.

Only what was begun here is ended here, once no rollout of this process uses it any more.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

from aworld_gym.errors import ConfigError, MissingDependencyError, describe

log = logging.getLogger(__name__)

REACH_S = 5.0
"""Seconds that a cluster's address may take to accept a connection; Ray itself tries for minutes."""
ALL_ADDRESSES = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Ray reads this variable as it is imported. With 0, as is its default on other systems than Linux, all that it starts
listens on 127.0.0.1; else, on Linux, on every address of the machine, and whoever reaches it may run anything."""

_lock = threading.Lock()
_users = 0
_began = False  # whether the connection is of our making
_folder: str | None = None  # of the cluster that was started here
_this_machine_alone = False  # whether Ray was imported so that it listens on 127.0.0.1 and speaks from there


def load_ray(address: str | None = None) -> ModuleType:
    """The package, which is an extra.

    Args:
        address: that it will be connected to, see :func:`connect`.

    Raises:
        MissingDependencyError: it is not installed, or does not import.
    """
    global _this_machine_alone
    if _chosen(address) == "local" and "ray" not in sys.modules and ALL_ADDRESSES not in os.environ:
        os.environ[ALL_ADDRESSES] = "0"
        _this_machine_alone = True
    try:
        import ray
        import ray.exceptions
    except ImportError as error:
        raise MissingDependencyError(
            f"engine 'ray' needs the package ray: pip install 'aworld-gym[ray]' ({error}); "
            "without it episodes are played by engine 'local'"
        ) from error
    return ray


def connect(address: str | None, *, temp_dir: str | None = None, log_to_driver: bool = False) -> None:
    """Connect this process to a cluster, or use the connection that it has. Blocks for seconds.

    Args:
        address: of a cluster (``host:port``, ``auto``), or ``local`` to start one here; where None,
            ``RAY_ADDRESS`` is taken, and without that one is started here.
        temp_dir: where a cluster that is started here keeps its logs; where None, in a folder that is removed with it.
        log_to_driver: print what the workers print.

    Raises:
        ConfigError: no cluster answers there, or this process is connected to another one.
    """
    global _users, _began
    ray, address = load_ray(address), _chosen(address)
    with _lock:
        if ray.is_initialized():
            _check_same(ray, address)
        else:
            _connect(ray, address, temp_dir, log_to_driver)
            _began = True
        _users += 1


def take_back_signals() -> None:
    """Let SIGTERM mean what it meant before Ray was started; on the main thread, else there is nothing to be done.

    Ray puts a handler of its own below Python's, which prints a stack and aborts the process three seconds later, in
    the middle of closing envs.
    """
    if _began and threading.current_thread() is threading.main_thread():
        handler = signal.getsignal(signal.SIGTERM)
        if handler is not None:  # None: it was set by others than Python
            signal.signal(signal.SIGTERM, handler)


def disconnect() -> None:
    """Undo one :func:`connect`; the last one ends what was begun here."""
    global _users, _began, _folder
    ray = load_ray()
    with _lock:
        _users -= 1
        if _users or not _began:
            return
        _began, folder, _folder = False, _folder, None
        try:
            ray.shutdown()
        finally:
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)  # a last process may still write its log


def _chosen(address: str | None) -> str:
    return address or os.environ.get("RAY_ADDRESS") or "local"


def _connect(ray: ModuleType, address: str, temp_dir: str | None, log_to_driver: bool) -> None:
    global _folder
    options: dict[str, Any] = {"log_to_driver": log_to_driver, "logging_level": logging.ERROR}
    if address == "local":
        folder = temp_dir
        if folder is None:
            # Sockets are made below it, and their paths may have some hundred characters: TMPDIR may be too long.
            short = "/tmp" if Path("/tmp").is_dir() and os.access("/tmp", os.W_OK) else None
            folder = _folder = tempfile.mkdtemp(prefix="aworld-ray-", dir=short)
        options |= {"include_dashboard": False, "_temp_dir": folder}
    else:
        if _this_machine_alone:
            raise ConfigError(
                f"Ray was loaded in this process for a cluster of this machine alone, and cannot speak to {address}: "
                f"use another process, or set {ALL_ADDRESSES}=1 before the first rollout on Ray"
            )
        if address != "auto":
            _reach(address)
    try:
        ray.init(address=address, **options)
    except (Exception, SystemExit) as error:
        if _folder is not None:
            shutil.rmtree(_folder, ignore_errors=True)
            _folder = None
        if address == "local":
            raise ConfigError(f"a Ray cluster could not be started here: {describe(error)}") from error
        raise ConfigError(
            f"the Ray cluster at {address} was not joined: {describe(error)}. One of `ray start` asks for a token: "
            "set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN where ~/.ray/auth_token is not its own"
        ) from error


def _reach(address: str) -> None:
    host, colon, port = address.rpartition(":")
    if not (colon and host and port.isdecimal()):
        raise ConfigError(
            "the address of a Ray cluster is host:port (as `ray start --head` prints it), auto or local, "
            f"got {address!r}"
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=REACH_S).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"no Ray cluster answers at {address} ({error}): start one with `ray start --head`, name another with "
            "--ray-address or RAY_ADDRESS, or leave both out to have one started here"
        ) from error


def _check_same(ray: ModuleType, address: str) -> None:
    if address in ("auto", "local"):
        return
    there = ray.get_runtime_context().gcs_address
    if there != address:
        raise ConfigError(
            f"this process is connected to the Ray cluster at {there} and cannot use the one at {address}: "
            "leave the address out, or call ray.shutdown() first"
        )
