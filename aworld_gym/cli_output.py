"""How the command line prints: results on stdout, everything else on stderr, one exit status for each kind of end."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import IO, Any

import gymnasium as gym
import typer
from rich.console import Console
from rich.table import Table

from aworld_gym.errors import AWorldGymError, InfraError, PolicyError

FAILED, UNUSABLE, INTERRUPTED, TERMINATED = 1, 2, 130, 143
"""Exit statuses beside 0."""


@contextmanager
def reporting(as_json: bool) -> Iterator[Output]:
    """The frame of every command: sets up logging and signals, and turns errors into a message and an exit status.

    With ``as_json`` the file descriptor of stdout is given to stderr for the duration, so that neither a library
    nor a child process can write between the braces.
    """
    logging.basicConfig(level=logging.WARNING, format="%(message)s", handlers=[_Lines()])
    before = signal.signal(signal.SIGTERM, _terminate)
    with _stdout(as_json) as file:
        out = Output(file, as_json)
        try:
            yield out
        except AWorldGymError as error:
            # MissingDependencyError and ConfigError ask for another command; these two do not.
            failed = isinstance(error, InfraError | PolicyError)
            out.error(error)
            raise typer.Exit(FAILED if failed else UNUSABLE) from error
        except gym.error.Error as error:
            out.error(error)
            raise typer.Exit(UNUSABLE) from error
        except KeyboardInterrupt as error:
            out.error(error, "interrupted; finished episodes are kept")
            raise typer.Exit(INTERRUPTED) from error
        except _Terminated as error:
            out.error(error, "terminated; finished episodes are kept")
            raise typer.Exit(TERMINATED) from error
        except typer.Exit:
            raise
        except Exception as error:  # a bug: the traceback is wanted, and one object is still promised
            out.error(error)
            raise
        finally:
            signal.signal(signal.SIGTERM, before)


class Output:
    """Where a command's result goes."""

    def __init__(self, file: IO[str], as_json: bool):
        self._file, self._as_json = file, as_json
        self._console = Console(file=file)
        self._printed = False

    def result(self, value: Mapping[str, Any], *, show: Callable[[Mapping[str, Any]], None]) -> None:
        """Print the command's one result: as JSON, or for people by ``show``."""
        if self._as_json:
            self._print(value)
        else:
            show(value)

    def error(self, error: BaseException, text: str | None = None) -> None:
        """Say on stderr what went wrong; with ``--json`` also as the one object, unless the result is out."""
        lines = [text or str(error) or type(error).__name__, *getattr(error, "__notes__", ())]
        _stderr(f"error: {' '.join(lines)}", style="bold red")
        if self._as_json and not self._printed:
            self._print({"error": {"type": type(error).__name__, "message": " ".join(lines)}})

    def note(self, text: str) -> None:
        """Say on stderr what is going on."""
        _stderr(text)

    def write(self, path: Path, value: Mapping[str, Any]) -> None:
        """Write a result beside the episodes, readable."""
        path.write_text(json.dumps(value, indent=2, default=str) + "\n", encoding="utf-8")

    def tools(self, value: Mapping[str, Any]) -> None:
        """Tools for people: name, arguments, first lines of the description."""
        table = Table("tool", "arguments", "description", title=f"{len(value['tools'])} tools of {value['source']}")
        for tool in value["tools"]:
            function = tool["function"]
            schema = function.get("parameters") or {}
            required = set(schema.get("required", ()))
            names = [name if name in required else f"[{name}]" for name in schema.get("properties", {})]
            table.add_row(_plain(function["name"]), _plain(", ".join(names)), _plain(function.get("description", "")))
        self._console.print(table)

    def summary(self, value: Mapping[str, Any]) -> None:
        """An evaluation for people."""
        table = Table(title=f"{value['policy']} on {value['env_id']}", show_header=False)
        interval = value["success_ci95"]
        success = _number(value["success_rate"])
        if interval is not None:
            success += f"  (95 % interval {interval[0]:.3f} to {interval[1]:.3f})"
        rows = {
            "episodes": f"{value['episodes']} ({value['invalid']} invalid, {value['retried']} attempts retried)",
            "success": success,
            **({f"pass@{value['k']}": _number(value["pass_at_k"])} if value["pass_at_k"] is not None else {}),
            "mean return": _number(value["mean_return"]),
            "mean turns": _number(value["mean_turns"]),
            "tool calls": f"{value['tool_calls']} ({value['tool_errors']} errors)",
            "outcomes": _counted(value["outcomes"]),
            **({"failures": _counted(value["failures"])} if value["failures"] else {}),
            "wall time": f"{value['wall_s']:.1f} s",
        }
        for level, numbers in value["by_level"].items():
            rows[f"level {level}"] = f"success {_number(numbers['success_rate'])} of {numbers['episodes']}"
        if value["episodes_path"]:
            rows["episodes file"] = value["episodes_path"]
        for name, text in rows.items():
            table.add_row(name, _plain(text))
        self._console.print(table)

    def fields(self, value: Mapping[str, Any]) -> None:
        """Any result for people: one line a field."""
        table = Table(show_header=False)
        for name, item in value.items():
            text = item if isinstance(item, str) else json.dumps(item, default=str)
            table.add_row(name, _plain(text if len(text) < 2000 else text[:1999] + "…"))
        self._console.print(table)

    def findings(self, value: Mapping[str, Any]) -> None:
        """The doctor's findings for people."""
        table = Table(show_header=False)
        table.add_row("Python", f"{value['python']['version']} ({_plain(value['python']['executable'])})")
        table.add_row("platform", value["platform"])
        for name, version in value["packages"].items():
            table.add_row(name, version or "not installed")
        for name, trainer in value["trainers"].items():
            text = "can run" if trainer["can_run"] else f"cannot run: {trainer['why_not']}"
            table.add_row(f"trainer {name}", _plain(text + (f"\n{trainer['how']}" if trainer["how"] else "")))
        table.add_row("GAIA", "complete" if value["gaia"]["complete"] else _plain("; ".join(value["gaia"]["missing"])))
        table.add_row("run_python", _plain(f"{value['isolation']['mechanism']}: {value['isolation']['detail']}"))
        table.add_row("GPU", _plain("\n".join(value["gpu"]["devices"]) or "none"))
        for name, version in value["node"].items():
            table.add_row(name, version or "not here")
        for name, setting in value["endpoint"].items():
            table.add_row(name, _plain(setting or "not set"))
        self._console.print(table)
        for problem in value["problems"]:
            self._console.print(f"! {problem['what']}\n  fix: {problem['fix']}", markup=False, highlight=False)
        if not value["problems"]:
            self._console.print("No problems found.")

    def _print(self, value: Mapping[str, Any]) -> None:
        self._printed = True
        self._file.write(json.dumps(value, default=str) + "\n")
        self._file.flush()


class _Lines(logging.Handler):
    """Records on stderr, above a progress bar where there is one; wrapping is left to the terminal."""

    def emit(self, record: logging.LogRecord) -> None:
        level = "" if record.levelno == logging.INFO else f"{record.levelname.lower()}: "
        _stderr(level + self.format(record))


class _Terminated(BaseException):
    """SIGTERM, as an exception, so that it closes what is open as an interrupt does."""


def _terminate(number: int, frame: Any) -> None:
    raise _Terminated


@contextmanager
def _stdout(apart: bool) -> Iterator[IO[str]]:
    """Stdout to write the result to; with ``apart``, the rest of the process has stderr for its stdout."""
    if not apart:
        yield sys.stdout
        return
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with os.fdopen(os.dup(kept), "w", encoding="utf-8") as file, redirect_stdout(sys.stderr):
            yield file
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def _stderr(text: str, style: str | None = None) -> None:
    Console(stderr=True).print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.3f}"


def _plain(text: str) -> str:
    from rich.markup import escape

    return escape(text)
