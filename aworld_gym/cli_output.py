"""How the command line prints: results on stdout, everything else on stderr, one exit status for each kind of end."""

from __future__ import annotations

import errno
import json
import logging
import math
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import IO, Any

import gymnasium as gym
import typer
from rich.console import Console
from rich.table import Table

from aworld_gym.errors import AWorldGymError, InfraError, OutputError, PolicyError, why
from aworld_gym.progress import stderr_console

FAILED, UNUSABLE, INTERRUPTED, TERMINATED = 1, 2, 130, 143
"""Exit statuses beside 0."""
SHOWN_METRICS = (
    "reward",
    "env/score",
    "env/return",
    "env/turns",
    "loss",
    "eval_reward",
    "eval_env/score",
    "eval_loss",
    "train_runtime",
)
"""Of what a trainer logs, what is shown to people, where it has it."""


@contextmanager
def reporting(as_json: bool) -> Iterator[Output]:
    """The frame of every command: sets up logging and signals, and turns errors into a message and an exit status.

    With ``as_json`` the file descriptor of stdout is given to stderr for the duration, so that neither a library
    nor a child process can write between the braces.
    """
    logging.basicConfig(level=logging.WARNING, format="%(message)s", handlers=[_Lines()])
    if sys.stdout is None:
        _say_error("stdout is closed, and results go there; send it somewhere, such as > /dev/null")
        raise typer.Exit(UNUSABLE)
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        with _stdout(as_json) as file, _failures(Output(file, as_json)) as out:
            yield out
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _failures(out: Output) -> Iterator[Output]:
    try:
        yield out
        out.flush()
    except AWorldGymError as error:
        # MissingDependencyError and ConfigError ask for another command; these do not.
        failed = isinstance(error, InfraError | PolicyError | OutputError)
        out.error(error)
        raise typer.Exit(FAILED if failed else UNUSABLE) from error
    except gym.error.Error as error:
        out.error(error)
        raise typer.Exit(UNUSABLE) from error
    except KeyboardInterrupt as error:
        out.error(error, f"interrupted{out.kept}")
        raise typer.Exit(INTERRUPTED) from error
    except _Terminated as error:
        out.error(error, f"terminated{out.kept}")
        raise typer.Exit(TERMINATED) from error
    except typer.Exit:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno in (errno.EPIPE, errno.ENOSPC, errno.EDQUOT):
            # What an env or a policy prints, for example, where stdout is closed.
            out.error(error, f"cannot write: {error}{out.kept}")
            raise typer.Exit(FAILED) from error
        out.error(error)  # a bug: the traceback is wanted, and one object is still promised
        raise
    finally:
        out.discard_unprinted()


def claim_descriptors() -> None:
    """Put the null device where a standard stream is closed, lest a file that is opened later takes its number.

    What the process, or a child of it, prints would then go into that file: into the journal, say.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: this one


class Output:
    """Where a command's result goes."""

    def __init__(self, file: IO[str], as_json: bool):
        self._file, self._as_json = file, as_json
        self._console = _Plain(file=file)
        self._printed = self._broken = False
        self.kept = ""
        """What is left of a command that is broken off, as the end of a sentence."""

    def result(self, value: Mapping[str, Any], *, show: Callable[[Mapping[str, Any]], None]) -> None:
        """Print the command's one result: as JSON, or for people by ``show``.

        Raises:
            OutputError: stdout was closed by its reader, or is a file on a full disk.
        """
        if self._as_json:
            self._print(json.dumps(strict_json(value), default=str) + "\n")
        else:
            with self._writing():
                show(value)

    def error(self, error: BaseException, text: str | None = None) -> None:
        """Say on stderr what went wrong; with ``--json`` also as the one object, unless the result is out."""
        said = _sentences(text or str(error) or type(error).__name__, *getattr(error, "__notes__", ()))
        _say_error(said)
        if self._as_json and not (self._printed or self._broken):
            value = {"error": {"type": type(error).__name__, "message": said}}
            with suppress(OutputError):  # the error was said on stderr, and the exit status tells
                self._print(json.dumps(value) + "\n")

    def note(self, text: str) -> None:
        """Say on stderr what is going on."""
        _stderr(text)

    def failed(self, text: str) -> None:
        """Say on stderr why a command that has printed its result fails all the same."""
        _say_error(text)

    def write(self, path: Path, value: Mapping[str, Any]) -> None:
        """Write a result beside the episodes, readable; an old one is replaced whole, never half.

        Raises:
            OutputError: it cannot be written.
        """
        partial = path.with_name(path.name + ".partial")
        try:
            partial.write_text(json.dumps(strict_json(value), indent=2, default=str) + "\n", encoding="utf-8")
            partial.replace(path)
        except OSError as error:
            with suppress(OSError):
                partial.unlink()
            raise OutputError(f"cannot write {path}: {why(error)}; the episodes beside it are kept") from error

    def tools(self, value: Mapping[str, Any]) -> None:
        """Tools for people: name, arguments, first lines of the description."""
        table = Table(
            "tool", "arguments", "description", title=f"{_many(len(value['tools']), 'tool')} of {value['source']}"
        )
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
        seeds, listed, k, valid = value["seeds"], value["manifest"], value["k"], value["valid"]
        rows = {
            value["metric"]: _score(value, "pass_at_1") if valid else "not measured: no episode is valid",
            **({f"pass@{k}": _score(value, "pass_at_k")} if value["pass_at_k"] is not None else {}),
            **({f"avg@{k}": _score(value, "avg_at_k")} if k is not None and k > 1 else {}),
            "scorer": value["scorer"] or "the env's own",
            **({"split": str(value["split"])} if value["split"] is not None else {}),
            **({"manifest": f"{listed['name']}, {listed['tasks']} tasks, {listed['hash'][:19]}"} if listed else {}),
            **({"k": f"{k} of each task" if k else f"none scored{_UNSCORED}"} if valid else {}),
            "seeds": f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else str(seeds[0]),
            "episodes": f"{value['episodes']} ({value['invalid']} invalid, {value['retried']} attempts retried)",
        }
        if valid:
            rows |= {
                "mean return": _number(value["mean_return"]),
                "mean turns": _number(value["mean_turns"]),
                "tool calls": f"{value['tool_calls']} ({value['tool_errors']} errors)",
                "outcomes": _counted(value["outcomes"]),
            }
        rows |= {"failures": _counted(value["failures"])} if value["failures"] else {}
        rows["wall time"] = f"{value['wall_s']:.1f} s"
        for level, numbers in value["by_level"].items() if valid else ():
            more = f", {numbers['invalid']} invalid" if numbers["invalid"] else ""
            mean = _score(numbers, "pass_at_1") if numbers["tasks"] else "not measured"
            rows[f"level {level}"] = f"{value['metric']} {mean} of {_many(numbers['tasks'], 'task')}{more}" + (
                f"\npass@{k} {_score(numbers, 'pass_at_k')}" if numbers["pass_at_k"] is not None else ""
            )
        if value["episodes_path"]:
            rows["episodes file"] = value["episodes_path"]
        for name, text in rows.items():
            table.add_row(name, _plain(text))
        self._console.print(table)

    def training(self, value: Mapping[str, Any]) -> None:
        """A training run for people: where its results are, how its episodes ended, and how its numbers moved."""
        table = Table(title=f"trained with {value['trainer']}", show_header=False)
        counts = dict(value.get("counts") or {})
        total, aside = counts.pop("episodes", 0), {name: counts.pop(name, 0) for name in ("invalid", "retried")}
        rows = {
            "checkpoint": str(value["checkpoint"]),
            "episodes": f"{total} ({_counted(aside)}): {_counted(counts)}" if total else "none",
            "episodes file": str(value["episodes"]),
        }
        logged: dict[str, list[float]] = {}
        for line in value["metrics"]:
            for name, number in line.items():
                if isinstance(number, int | float):
                    logged.setdefault(name, []).append(number)
        for name in SHOWN_METRICS:
            if numbers := logged.get(name):
                between = f" (first {numbers[0]:.4g}, {len(numbers)} times)" if len(numbers) > 1 else ""
                rows[name] = f"{numbers[-1]:.4g}{between}"
        rows["logged"] = f"{len(value['metrics'])} lines of {len(logged)} numbers; --json prints them all"
        for name, text in rows.items():
            table.add_row(name, _plain(text))
        self._console.print(table)

    def synthesis(self, value: Mapping[str, Any]) -> None:
        """A synthesis for people: how many tasks, and what the others fell at."""
        from aworld_gym.synth import GATES

        table = Table(title=f"tasks proposed by {value['model']}", show_header=False)
        table.add_row("accepted", f"{value['accepted']} of {value['wanted']} wanted, in {_plain(value['output'])}")
        table.add_row("proposals", f"{value['proposals']} in {value['rounds']} rounds")
        for gate, count in value["fell"].items():
            table.add_row(gate, _plain(f"{count}: {GATES[gate]}"))
        table.add_row("log", _plain(value["log"]))
        if value["stopped"]:
            table.add_row("stopped early", _plain(value["stopped"]))
        self._console.print(table)

    def rescoring(self, value: Mapping[str, Any]) -> None:
        """A new scoring for people: old and new success, and the episodes that changed."""
        from aworld_gym.rescoring import NOT_SCORED

        old, new, changed = value["old"], value["new"], value["changed"]
        table = Table(title=f"{_plain(value['source'])} scored by {_plain(value['scorer'])}", show_header=False)
        table.add_row("pass@1 before", _score(old, "pass_at_1"))
        table.add_row("pass@1 now", _score(new, "pass_at_1"))
        if new["pass_at_k"] is not None:
            table.add_row(f"pass@{new['k']} before", _score(old, "pass_at_k"))
            table.add_row(f"pass@{new['k']} now", _score(new, "pass_at_k"))
        table.add_row("scored", f"{value['rescored']} episodes, of which {len(changed)} changed")
        for reason, count in value["left"].items():
            table.add_row("left as they are", f"{count}: {NOT_SCORED[reason]}")
        if value["output"]:
            table.add_row("new file", _plain(value["output"]))
        self._console.print(table)
        for row in changed:
            old_score = "none" if row["old"] is None else f"{row['old']:g}"
            text = f"{row['episode']}: {old_score} -> {row['new']:g} ({row['reason']}), submitted {row['submitted']!r}"
            self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def findings(self, value: Mapping[str, Any]) -> None:
        """The doctor's findings for people."""
        table = Table(show_header=False)
        table.add_row("Python", f"{value['python']['version']} ({_plain(value['python']['executable'])})")
        table.add_row("platform", value["platform"])
        for name, version in value["packages"].items():
            table.add_row(name, version or "not installed")
        for name, trainer in value["trainers"].items():
            table.add_row(f"trainer {name}", _plain(_trainer(trainer)))
        table.add_row("GAIA", "complete" if value["gaia"]["complete"] else _plain("; ".join(value["gaia"]["missing"])))
        for extra, found in value["extras"].items():
            lacks = "; ".join(found["missing"])
            table.add_row(found["what"], _plain(f"{lacks}\npip install 'aworld-gym[{extra}]'" if lacks else "ready"))
        table.add_row("run_python", _plain(f"{value['isolation']['mechanism']}: {value['isolation']['detail']}"))
        engine = value["vllm"]
        able = f"{engine['version'] or 'version unknown'} ({engine['program']})"
        table.add_row("vLLM", _plain(able if engine["can_start"] else engine["why_not"]))
        table.add_row("GPU", _plain("\n".join(value["gpu"]["devices"]) or "none"))
        for name, version in value["node"].items():
            table.add_row(name, version or "not here")
        for row in value["services"]:
            table.add_row(row["what"], _plain(f"{'ready' if row['ready'] else 'off'}: {row['detail']}"))
        for name, setting in value["endpoint"].items():
            table.add_row(name, _plain(setting or "not set"))
        self._console.print(table)
        for problem in value["problems"]:
            self._console.print(f"! {problem['what']}\n  fix: {problem['fix']}", markup=False, highlight=False)
        if not value["problems"]:
            self._console.print("No problems found.")

    def flush(self) -> None:
        """Hand over what was printed by anyone.

        Raises:
            OutputError: stdout does not take it.
        """
        if not self._broken:
            with self._writing():
                self._file.flush()

    def discard_unprinted(self) -> None:
        """Where stdout is broken, let what is still buffered go: Python would try again at exit, and complain."""
        with suppress(OutputError):
            self.flush()
        if self._broken:
            with suppress(OSError):  # a stdout without a descriptor: a caller's own, in this process
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, self._file.fileno())
                os.close(null)

    def _print(self, text: str) -> None:
        with self._writing():
            self._file.write(text)
            self._file.flush()
        self._printed = True

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._broken = True
            raise OutputError(f"cannot print to stdout: {why(error)}{self.kept}") from error


class _Plain(Console):
    """A console that raises where its pipe is closed; rich would end the process without a word."""

    def on_broken_pipe(self) -> None:
        raise  # the BrokenPipeError that is being handled where this is called


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
    with suppress(OSError):  # printing the result will say it
        sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with os.fdopen(os.dup(kept), "w", encoding="utf-8") as file, redirect_stdout(sys.stderr):
            yield file
    finally:
        with suppress(OSError):  # what others printed goes to stderr here, if stderr takes it
            sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def _stderr(text: str, style: str | None = None) -> None:
    stderr_console().print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def strict_json(value: Any) -> Any:
    """The value with null for numbers that JSON lacks: a loss that is not a number, say."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: strict_json(item) for name, item in value.items()}
    return [strict_json(item) for item in value] if isinstance(value, list | tuple) else value


def _sentences(first: str, *more: str) -> str:
    """Texts in a row; each ends as a sentence does where another follows."""
    for text in more:
        ended = first.endswith((".", "!", "?", ":")) or text.startswith("(")
        first = f"{first}{'' if ended else '.'} {text}"
    return first


def _say_error(text: str) -> None:
    _stderr(f"error: {text}", style="bold red")


_UNSCORED = ": these tasks have no true answer here, so there is no reward either"


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())


def _score(numbers: Mapping[str, Any], name: str) -> str:
    """A mean and its interval."""
    interval = numbers[f"{name}_ci95"]
    between = "" if interval is None else f"  (95 % interval {interval[0]:.3f} to {interval[1]:.3f})"
    return _number(numbers[name]) + between


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.3f}"


def _plain(text: str) -> str:
    from rich.markup import escape

    return escape(text)


def _many(number: int, what: str) -> str:
    """The number with its noun."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def _trainer(found: Mapping[str, Any]) -> str:
    """What the doctor found of a trainer, in words."""
    if not found["can_run"]:
        return f"cannot run: {found['why_not']}" + (f"\n{found['how']}" if found["how"] else "")
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items() if version is not None)
    return f"can run: {versions}" + ("" if found["tested"] else " (not a version that was tested)")
