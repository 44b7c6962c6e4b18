"""What belongs to a whole process, so that tests can look whether it was changed; and episodes to play meanwhile.

It runs in the processes that it looks at, and imports nothing of the package before it is asked to play.
"""

from __future__ import annotations

import asyncio
import csv
import ctypes
import decimal
import faulthandler
import gc
import hashlib
import json
import locale
import logging
import mimetypes
import multiprocessing
import os
import random
import resource
import signal
import socket
import sys
import threading
import time
import tracemalloc
import types
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

SMALL = str(Path(__file__).with_name("small_toolchain.py"))
_PRCTL = {"death signal": 2, "dumpable": 3, "seccomp": 21, "no new privileges": 39, "subreaper": 37}


def snapshot() -> dict[str, str]:
    """All that a library could change of its process and should not, as texts by name. For the main thread."""
    return {name: str(value) for name, value in _state()}


def changes(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, tuple[str | None, str | None]]:
    """What of one snapshot is not so in a later one: by name, how it was and how it is."""
    names = sorted({*before, *after})
    return {name: (before.get(name), after.get(name)) for name in names if before.get(name) != after.get(name)}


def _state() -> Iterator[tuple[str, Any]]:
    for number in sorted(signal.valid_signals()):
        yield f"signal {number}", signal.getsignal(number)
    yield "signal mask", sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
    yield "timers", [signal.getitimer(which) for which in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL)]
    wakeup = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(wakeup)
    yield "wakeup descriptor", wakeup
    yield "tracing", (sys.gettrace(), sys.getprofile(), threading.gettrace(), threading.getprofile())
    yield "hooks", (sys.excepthook, sys.unraisablehook, threading.excepthook, sys.displayhook, sys.breakpointhook)
    yield "async generators", (sys.get_asyncgen_hooks(), sys.get_coroutine_origin_tracking_depth())
    yield "interpreter", (sys.getrecursionlimit(), sys.getswitchinterval(), sys.get_int_max_str_digits())
    yield "import", (sys.path, sys.meta_path, sys.path_hooks, sys.dont_write_bytecode, sys.argv)
    yield "streams", (sys.stdin, sys.stdout, sys.stderr)
    yield "warnings", (warnings.filters, warnings.showwarning, warnings.formatwarning)
    yield "logging", (logging.getLoggerClass(), logging.getLogRecordFactory(), logging.root.manager.disable)
    yield "logger", _of_logger(logging.root)
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if isinstance(logger, logging.Logger) and _of_logger(logger) != (0, [], [], True, False):
            yield f"logger {name}", _of_logger(logger)
    for name, value in os.environ.items():
        yield f"variable {name}", value
    yield "folder", os.getcwd()
    umask = os.umask(0o77)
    os.umask(umask)
    yield "umask", umask
    for name in (name for name in dir(resource) if name.startswith("RLIMIT_")):
        yield name, resource.getrlimit(getattr(resource, name))
    yield "scheduling", (os.nice(0), sorted(os.sched_getaffinity(0)))
    for name, option in _PRCTL.items():
        value = ctypes.c_int(0)
        told = ctypes.CDLL(None).prctl(option, ctypes.byref(value), 0, 0, 0) if option in (2, 37) else None
        yield name, value.value if told is not None else ctypes.CDLL(None).prctl(option, 0, 0, 0, 0)
    yield "locale", (locale.setlocale(locale.LC_ALL, None), time.tzname, time.timezone)
    yield "decimal", (decimal.getcontext(), decimal.DefaultContext)
    yield "random", random.getstate()
    if "numpy" in sys.modules:
        import numpy as np

        yield "numpy", ([str(part) for part in np.random.get_state()], np.geterr(), np.get_printoptions())
    if "PIL.ImageFile" in sys.modules:
        from PIL import Image, ImageFile

        yield "Pillow", (Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES)
    yield "garbage", (gc.isenabled(), gc.get_threshold(), gc.get_debug(), gc.get_freeze_count())
    yield "event loops", (type(asyncio.get_event_loop_policy()), asyncio._get_running_loop())
    yield "multiprocessing", (multiprocessing.get_start_method(allow_none=True), multiprocessing.current_process())
    yield "csv", (csv.field_size_limit(), csv.list_dialects())
    yield "mimetypes", len(mimetypes.types_map)
    yield "sockets", (socket.getdefaulttimeout(), socket.socket, socket.getaddrinfo)
    yield "debugging", (tracemalloc.is_tracing(), faulthandler.is_enabled(), threading.stack_size())
    yield "threads", sorted(f"{thread.name} {thread.daemon}" for thread in threading.enumerate())
    yield "children", _children()
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            yield f"descriptor {descriptor}", os.readlink(f"/proc/self/fd/{descriptor}")
        except FileNotFoundError:  # the one by which the folder was listed
            continue


def _of_logger(logger: logging.Logger) -> tuple[Any, ...]:
    return logger.level, logger.handlers, logger.filters, logger.propagate, logger.disabled


def _children() -> list[str]:
    tasks = Path("/proc/self/task").iterdir()
    return sorted(child for task in tasks for child in (task / "children").read_text().split())


def members() -> dict[tuple[str, str], Any]:
    """What all loaded modules and their classes hold that can be called: what another package could have replaced."""
    found: dict[tuple[str, str], Any] = {}
    for name, module in list(sys.modules.items()):
        if isinstance(module, types.ModuleType):
            for key, value in list(vars(module).items()):
                if callable(value):
                    found[name, key] = value
                if isinstance(value, type) and value.__module__ == name:
                    inner = {f"{key}.{k}": v for k, v in list(vars(value).items()) if callable(v)}
                    found |= {(name, k): v for k, v in inner.items()}
    return found


def replaced(before: Mapping[tuple[str, str], Any], after: Mapping[tuple[str, str], Any]) -> list[str]:
    """Names of what has been put in the place of something else."""
    return sorted(".".join(key) for key in before if key in after and before[key] is not after[key])


# ---- episodes --------------------------------------------------------------------------------------------------------


def calls(*named: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    """An assistant message with so many tool calls."""
    made = [
        {"id": f"c{k}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for k, (name, arguments) in enumerate(named)
    ]
    return {"role": "assistant", "content": None, "tool_calls": made}


def gaia(seeds: Iterable[int] = (0,), **options: Any) -> str:
    """Play GAIA episodes as the oracle does, after every tool has read files of its kind, whole and broken; a digest.

    Raises:
        AssertionError: an episode was not solved.
    """
    import gymnasium as gym

    import aworld_gym  # noqa: F401

    env = gym.make("AWorld/Gaia-v0", **options)
    told: list[Any] = []
    for seed in seeds:
        told.append(env.reset(seed=seed))
        _put_files(env.unwrapped.workspace)
        for turn in _TURNS:
            told.append(env.step(calls(*turn)))
        for step in env.unwrapped.task.plan:
            told.append(env.step(calls((step.tool, dict(step.arguments)))))
        _solved(told[-1])
    env.close()
    return _digest(told)


_TURNS = (
    [("read_document", {"path": name}) for name in ("a.pdf", "broken.pdf", "a.html", "broken.docx", "none.txt")],
    [("describe_image", {"path": name}) for name in ("a.png", "broken.png", "a.jpg")]
    + [("view_image", {"path": "a.gif"}), ("read_qr", {"path": "a.png"}), ("read_table", {"path": "a.csv"})],
    [("run_python", {"code": "import os; print(sorted(os.environ), sorted(os.listdir()))"})]
    + [("run_python", {"code": "import signal; print(signal.pthread_sigmask(0, ())); 1 / 0"})]
    + [("query_sqlite", {"path": "a.csv"}), ("calculate", {"expression": "1/0"}), ("nope", {})],
)


def _put_files(folder: Path) -> None:
    from fpdf import FPDF
    from PIL import Image

    pdf = FPDF()
    pdf.add_page()
    pdf.set_font("helvetica")
    pdf.cell(text="some words")
    whole = bytes(pdf.output())
    (folder / "a.pdf").write_bytes(whole)
    (folder / "broken.pdf").write_bytes(whole.replace(b"startxref\n", b"startxref\n9"))  # which pypdf warns of
    (folder / "broken.docx").write_bytes(b"PK\3\4 broken")
    (folder / "a.html").write_text("<p>wörds", encoding="utf-8")
    (folder / "a.csv").write_text('a,b\n1,"2\n', encoding="utf-8")
    for name in ("a.png", "a.jpg", "a.gif"):
        Image.new("RGB", (60, 40), "red").save(folder / name)
    (folder / "broken.png").write_bytes((folder / "a.png").read_bytes()[:60])


def mcp_env(**limits: Any) -> Any:
    """``AWorld/Mcp-v0`` over a real stdio server."""
    import gymnasium as gym

    import aworld_gym  # noqa: F401

    server = {"command": sys.executable, "args": [SMALL], "tools": ["echo", "fail", "wait", "die"]}
    tasks = [{"prompt": "say yes", "answer": "yes"}]
    return gym.make("AWorld/Mcp-v0", mcp_config={"mcpServers": {"small": server}}, tasks=tasks, limits=limits)


def mcp() -> str:
    """Play an MCP episode with a failing and an unknown tool; a digest."""
    env = mcp_env()
    told = [
        env.reset(seed=0),
        env.step(calls(("echo", {"text": "ü"}), ("fail", {"message": "no"}), ("nope", {}), ("echo", {}))),
        env.step(calls(("submit_answer", {"answer": "yes"}))),
    ]
    _solved(told[-1])
    env.close()
    return _digest(told)


def both() -> str:
    """:func:`gaia` and :func:`mcp`."""
    return f"{gaia()} {mcp()}"


def _solved(last: Any) -> None:
    if last[4]["score"] != 1.0:  # no assert statement: there are none under -O
        raise AssertionError(last)


def _digest(told: list[Any]) -> str:
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]
