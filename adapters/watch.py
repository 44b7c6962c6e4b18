"""Waiting for a framework that waits for ever: its run is given up where nothing happens any more."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

LOOK_S = 1.0
"""Seconds between two looks at the files."""


def run_watched(name: str, run: Callable[[], Any], folder: Path, stall_s: float, advice: str) -> None:
    """``run()``, on a thread of its own.

    Args:
        name: the framework's.
        run: its blocking call.
        folder: its ``*.jsonl`` files grow while something happens.
        stall_s: seconds without that after which it is given up; the thread, a daemon, stays behind.
        advice: what to do then.

    Raises:
        RuntimeError: it failed (the cause is chained), or nothing happened for so long.
    """
    done: Future[Any] = Future()

    def work() -> None:
        try:
            done.set_result(run())
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=work, name=name, daemon=True).start()
    seen, since = None, time.monotonic()
    while not done.done():
        time.sleep(LOOK_S)
        now = sorted((str(path), path.stat().st_size) for path in folder.glob("*.jsonl"))
        if now != seen:
            seen, since = now, time.monotonic()
        elif time.monotonic() - since > stall_s:
            raise RuntimeError(f"{name} did nothing for {stall_s:g} s: no episode and no step. {advice}")
    if error := done.exception():
        raise RuntimeError(f"{name}'s run failed: {error}") from error
