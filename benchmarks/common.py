"""What benchmarks share: a table with the machine's state and versions beside it, and drivers that are measured.

Tables are Markdown; ``keep`` writes one with its numbers to ``benchmarks/results/``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import queue
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
DRIVERS = Path(__file__).parent / "drivers"
REPOSITORY = Path(__file__).parents[1]
REPEAT = 5
"""Measurements of which a table has the median."""
START_S, ORDER_S = 240.0, 300.0
"""Seconds that a driver may take to be ready, and for one order."""


@contextmanager
def needs(extras: str) -> Iterator[None]:
    """Imports that only these extras bring: where one fails, the program ends with what to install.

    Raises:
        SystemExit: a package is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("adapters", "aworld_gym", "benchmarks", "envs", "examples"):
            raise  # a module of our own, whose absence is a fault
        sys.exit(f"this needs: pip install 'aworld-gym[{extras}]' ({error})")


class Machine:
    """The machine's state while a benchmark runs: made before it, told after it."""

    def __init__(self, packages: Sequence[str] = ("aworld-gym", "gymnasium", "mcp", "openai")):
        self._load, self._packages = os.getloadavg(), packages

    def told(self, more: str = "") -> str:
        """Date, versions, cores and load, and what else is to be known."""
        packages = ", ".join(f"{name} {version(name)}" for name in self._packages)
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        text = (
            f"{date.today()}, Python {platform.python_version()}, {packages}; {cores} cores, load {self._load[0]:.1f} "
            f"before and {os.getloadavg()[0]:.1f} after"
        )
        return f"{text}; {more}." if more else f"{text}."


def markdown(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A Markdown table; columns whose name begins with ``>`` stand to the right."""
    names = [name.removeprefix(">") for name in columns]
    lines = ["| " + " | ".join(names) + " |", "|" + "|".join("---:" if c[:1] == ">" else "---" for c in columns) + "|"]
    for row in rows:
        if len(row) != len(columns):
            raise ValueError(f"expected {len(columns)} cells ({names}), got {len(row)}: {row}")
        lines.append("| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in row) + " |")
    return "\n".join(lines)


def command(name: str) -> str:
    """The command that is running, as a person would type it."""
    return " ".join(["python", "-m", f"benchmarks.{name}", *sys.argv[1:]])


def keep(name: str, title: str, text: str, data: Any) -> None:
    """Write a benchmark's tables (``name.md``) and numbers (``name.json``)."""
    RESULTS.mkdir(exist_ok=True)
    page = f"# {title}\n\n`{command(name)}`\n\n{text}\n"
    (RESULTS / f"{name}.md").write_text(page, encoding="utf-8")
    (RESULTS / f"{name}.json").write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")


def parser(doc: str | None, *, repeat: int = REPEAT) -> argparse.ArgumentParser:
    """A parser with what all benchmarks take: ``--repeat`` and ``--save``."""
    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--repeat", type=int, default=repeat, help="measurements of which the median is told")
    made.add_argument("--save", action="store_true", help="keep the result in benchmarks/results/")
    return made


def spread(values: Sequence[float], digits: int = 2) -> str:
    """The median, and the least and most: how far a number can be trusted."""
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}-{max(values):.{digits}f})"


class DriverError(Exception):
    """A driver could not be started, or gave up; its text ends with the driver's last words."""


class Driver:
    """A process that plays episodes on order (``drivers/measure.py``), in the environment of what it drives.

    Args:
        python: the environment's interpreter.
        script: a file of ``drivers/``.
        arguments: of the script.
        log: where its standard error goes.
        start_s: seconds in which it has to be ready.
    """

    def __init__(self, python: str, script: str, arguments: Sequence[str], log: Path, start_s: float = START_S):
        self._log = log
        # Bytecode is kept as usual: without it every start of a peer's own processes would compile its imports.
        env = {k: v for k, v in os.environ.items() if k not in ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH")}
        with open(log, "wb") as errors:
            self._process = subprocess.Popen(
                [python, str(DRIVERS / script), *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=env,
                cwd=REPOSITORY,
            )
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()
        self.told: dict[str, Any] = {}
        try:
            self.told = self._answer(start_s)
        except BaseException:
            self.close()
            raise

    def ask(self, episodes: int, concurrency: int, limit_s: float = ORDER_S) -> dict[str, Any]:
        """Have episodes played; what they took.

        Raises:
            DriverError: it ended, or did not answer within ``limit_s``.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"episodes": episodes, "concurrency": concurrency}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it ended; the answer below says why
        return self._answer(limit_s)

    def close(self) -> None:
        """End it: by the end of its input, else by force."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.close()
        except BrokenPipeError:
            pass
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.terminate()
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def _answer(self, limit_s: float) -> dict[str, Any]:
        try:
            line = self._lines.get(timeout=limit_s)
        except queue.Empty:
            raise DriverError(f"no answer within {limit_s:g} s. {self._last_words()}") from None
        if not line:
            raise DriverError(f"it ended with status {self._process.wait()}. {self._last_words()}")
        found: dict[str, Any] = json.loads(line)
        return found

    def _last_words(self) -> str:
        lines = [line.strip() for line in self._log.read_text(errors="replace").splitlines() if line.strip()]
        return lines[-1][:300] if lines else "It said nothing."


@contextmanager
def program(command: Sequence[str], start_s: float = START_S) -> Iterator[tuple[Any, subprocess.Popen[str]]]:
    """A program that prints a line of JSON once it is ready: what it printed, and its process, which is ended after.

    Raises:
        SystemExit: it ended before that, or was not ready within ``start_s``; with what it said last.
    """
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            assert process.stdout is not None
            late = threading.Timer(start_s, process.kill)
            late.start()
            try:
                line = process.stdout.readline()
            finally:
                late.cancel()
            if not line:
                status = process.wait(30)
                log.seek(0)
                sys.exit(f"{' '.join(command)} ended with status {status}:\n{log.read()[-2000:]}")
            yield json.loads(line), process
        finally:
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(30)
            assert process.stdout is not None
            process.stdout.close()


@contextmanager
def host(make: str, *options: str) -> Iterator[tuple[dict[str, Any], int]]:
    """An environment host with one in-process server: what it printed (ip, port, token), and its process id.

    Args:
        make: the server's factory, as ``module:function``.
        options: of ``aworld-gym serve``.
    """
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "bench.json"
        config.write_text(json.dumps({"mcpServers": {"bench": {"python": make}}}))
        command = [sys.executable, "-m", "aworld_gym", "serve", "--mcp-config", str(config), "--port", "0", *options]
        with program(command) as (told, process):
            yield told, process.pid


@contextmanager
def chat_server(turns: int = 4, latency_s: float = 0.0) -> Iterator[str]:
    """The URL of a model endpoint in a process of its own (``drivers/chat_server.py``)."""
    script = str(DRIVERS / "chat_server.py")
    with program([sys.executable, script, "--turns", str(turns), "--latency-s", str(latency_s)]) as (port, _):
        yield f"http://127.0.0.1:{port}/v1"


Sizes = Mapping[int, int]
"""Episodes of one measurement, by how many at once."""


def rounds(
    drivers: Mapping[str, Driver],
    sizes: Callable[[str], Sizes],
    repeat: Callable[[str], int],
    tell: Callable[[str], None] = lambda text: None,
) -> tuple[dict[tuple[str, int], list[dict[str, Any]]], dict[str, str]]:
    """Have the drivers take turns: in each round every driver plays each of its sizes once, smallest first.

    What the machine does besides then meets all of them alike, and a ratio within a round means something where two
    numbers of different times would not. In every other round they come in the opposite order.

    Returns:
        The answers by (driver, concurrency), in the order of rounds; and why a driver gave up, by driver.
    """
    answers: dict[tuple[str, int], list[dict[str, Any]]] = {}
    failed: dict[str, str] = {}
    names = list(drivers)
    concurrencies = sorted({c for name in names for c in sizes(name)})
    for number in range(max((repeat(name) for name in names), default=0)):
        for concurrency in concurrencies:
            for name in names if number % 2 == 0 else reversed(names):
                if name in failed or number >= repeat(name) or concurrency not in sizes(name):
                    continue
                try:
                    answer = drivers[name].ask(sizes(name)[concurrency], concurrency)
                except DriverError as error:
                    failed[name] = str(error)
                    tell(f"{name}: {error}")
                    continue
                answers.setdefault((name, concurrency), []).append(answer)
                tell(f"round {number + 1}, {name}, {concurrency} at once: {ms(answer):.1f} ms CPU an episode")
    return answers, failed


def ms(answer: Mapping[str, Any]) -> float:
    """CPU milliseconds per episode of a driver's answer."""
    return 1e3 * answer["cpu_s"] / answer["episodes"]


def tell(text: str) -> None:
    """Say how far it is, on standard error."""
    print(text, file=sys.stderr, flush=True)


Measure = tuple[Callable[[], Any], Callable[[Any], tuple[str, list[str]]]]
"""What measures, and what makes of that a table and a list of the bars that were missed."""


def report(name: str, title: str, measures: Mapping[str, Measure], options: argparse.Namespace) -> None:
    """Measure each part that ``options.only`` names, print the tables, and keep them where ``options.save`` says so.

    Raises:
        SystemExit: a bar was missed; after everything was printed and kept.
    """
    machine, tables, data, missed = Machine(), [], {}, []
    for part in options.only:
        tell(f"-- {part}")
        measure, table = measures[part]
        data[part] = measure()
        text, short = table(data[part])
        tables.append(text)
        missed += short
    bars = "bars missed: " + "; ".join(missed) if missed else "every bar is met"
    about = machine.told(f"medians of {options.repeat} (least-most); {bars}")
    text = "\n\n".join([*tables, about])
    print(text)
    if options.save:
        keep(name, title, text, {"about": about, **data})
    if missed:
        sys.exit(1)
