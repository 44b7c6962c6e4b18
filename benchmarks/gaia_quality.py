"""Is the GAIA world what it promises? ``python -m benchmarks.gaia_quality`` measures each promise against its bar.

Prints one Markdown table, writes ``gaia_quality.md`` and ``gaia_quality.json`` to ``benchmarks/results``, and exits
with 1 where a bar is missed. Everything is drawn from ``--seed``; only the times are this machine's.
"""

from __future__ import annotations

import concurrent.futures
import datetime
import functools
import json
import multiprocessing
import os
import platform
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:  # started as a file
    sys.path.insert(0, str(ROOT))

from benchmarks import gaia_gates as measure  # noqa: E402
from envs.gaia.splits import SPLITS  # noqa: E402
from envs.gaia.templates import templates  # noqa: E402

CHUNK = 25
"""Tasks that a process takes at a time."""


@dataclass(frozen=True)
class Counts:
    """How many tasks each gate draws."""

    solver: int = 1000
    """A level."""
    needs: int = 200
    """A level, of levels 2 and 3."""
    oracle: int = 300
    """Episodes a level."""
    random: int = 300
    guessing: int = 300
    majority: int = 1000
    """A template."""
    closed_book: int = 2000
    """A level, and as many again to learn what is usual."""
    webless: int = 300
    """A level."""
    duplicates: int = 10_000
    same: int = 2
    """A template and world."""
    times: int = 200
    """A level."""


QUICK = Counts(
    solver=18,
    needs=6,
    oracle=6,
    random=6,
    guessing=6,
    majority=40,
    closed_book=30,
    webless=9,
    duplicates=300,
    same=1,
    times=6,
)


@dataclass(frozen=True)
class Gate:
    """One promise and what was measured."""

    name: str
    bar: str
    measured: str
    passed: bool
    details: dict[str, Any] = field(default_factory=dict)


NO_BAR = "none"
"""The bar of what is shown for comparison."""

Mapper = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]


class Gates:
    """All gates, each a method that gives a :class:`Gate`.

    Args:
        counts: how much is drawn.
        seed: decides what is drawn.
        spread: a ``map`` that may use several processes, in order.
    """

    def __init__(self, counts: Counts, seed: int, spread: Mapper):
        self.counts, self.seed, self.spread = counts, seed, spread

    def all(self) -> Iterable[Gate]:
        """The gates in the table's order, each as it is done."""
        yield from self.truth()
        yield self.policy("oracle", "1.00 at every level", lambda shares: min(shares) == 1)
        yield self.policy("random", "under 0.01", lambda shares: max(shares) < 0.01)
        yield self.policy("guessing", NO_BAR, lambda shares: True)
        yield self.majority()
        yield self.closed_book()
        yield self.webless()
        yield from self.contents()
        yield self.needs()
        yield self.same_bytes()
        yield self.time()
        yield self.schema()

    def _draws(self, count: int, salt: int, **choice: Any) -> list[measure.Draw]:
        """Draws of at most :data:`CHUNK` tasks, so that the processes have equal shares."""
        whole = measure.draws(count, self.seed, **choice)
        return [
            measure.Draw(one.level, one.split, one.world, self.seed * 1_000_003 + salt * 1009 + start, size)
            for one in whole
            for start in range(0, one.count, CHUNK)
            for size in [min(CHUNK, one.count - start)]
        ]

    def truth(self) -> tuple[Gate, Gate]:
        """The independent solver, and the two scorers on the true answer."""
        results = list(self.spread(measure.solved, self._draws(self.counts.solver, 1)))
        tasks = _by_level(results, "tasks")
        shares = {level: n / tasks[level] for level, n in _by_level(results, "solver").items()}
        both = sum(_by_level(results, "scorers").values())
        total, failures = sum(tasks.values()), [failure for one in results for failure in one["failures"]]
        return (
            Gate(
                f"independent solver agrees ({_each(tasks)} tasks a level)",
                "100 %",
                _levels({level: f"{share:.1%}" for level, share in shares.items()}),
                all(share == 1 for share in shares.values()),
                {"tasks": tasks, "failures": failures[: measure.KEPT], "failed": len(failures)},
            ),
            Gate(
                "`official` and `strict` agree on the true answer",
                "100 %",
                f"{both / total:.1%} of {total:,}",
                both == total,
            ),
        )

    def policy(self, name: str, bar: str, good: Callable[[Sequence[float]], bool]) -> Gate:
        """Success of a policy at each level, in real episodes with real tools."""
        count = asdict(self.counts)[name]
        results = list(self.spread(functools.partial(measure.played, policy=name), self._draws(count, 2)))
        episodes, right = _by_level(results, "episodes"), _by_level(results, "right")
        shares = {level: right[level] / n for level, n in episodes.items()}
        invalid = sum(one["invalid"] for one in results)
        failures = [failure for one in results for failure in one["failures"]] if name == "oracle" else []
        return Gate(
            f"{_POLICIES[name]} ({_each(episodes)} episodes a level)",
            bar,
            _levels({level: f"{share:.3f}" for level, share in shares.items()}),
            good(list(shares.values())) and not invalid,
            {"episodes": episodes, "invalid": invalid, "failures": failures[: measure.KEPT]},
        )

    def majority(self) -> Gate:
        """The commonest answer of each template."""
        draw = functools.partial(
            measure.answers_of, count=self.counts.majority, worlds=measure.TRAINING_FLAVOURS, seed=self.seed
        )
        results = sorted(self.spread(draw, list(templates())), key=lambda one: -one["share"])
        worst = results[0]
        return Gate(
            f"best majority answer per template ({self.counts.majority:,} tasks each)",
            "at most 5 %",
            f"{worst['share']:.1%} ({worst['template']})",
            worst["share"] <= 0.05,
            {"templates": {one["template"]: {k: one[k] for k in ("answer", "share", "tasks")} for one in results}},
        )

    def closed_book(self) -> Gate:
        """Recall of the real world, and what is usual for such questions, without any tool."""
        halves = [
            [
                item
                for one in self.spread(
                    measure.recalled, self._draws(self.counts.closed_book, salt, worlds=("shifted",))
                )
                for item in one
            ]
            for salt in (3, 4)
        ]
        shares = measure.guessed(*halves)
        name, best = max(shares.items(), key=lambda pair: pair[1])
        recalls = sum(item["recall"] is not None for item in halves[1])
        return Gate(
            f"closed-book table look-up without tools, shifted world ({len(halves[1]):,} tasks)",
            "at most 2 %",
            f"{best:.2%} ({_MEANS[name]})",
            best <= 0.02,
            {"shares": shares, "questions that recall answers": recalls, "questions": len(halves[1])},
        )

    def webless(self) -> Gate:
        """The real tables instead of the web, with the files."""
        results = list(self.spread(measure.webless, self._draws(self.counts.webless, 7, worlds=("shifted",))))
        tasks, right = (sum(one[key] for one in results) for key in ("tasks", "right"))
        return Gate(
            f"files, but the real tables instead of the web, shifted world ({tasks:,} tasks that need the web)",
            "at most 2 %",
            f"{right / tasks:.2%}",
            right <= max(1, 0.02 * tasks),  # two shifts in a row may lead back; once says nothing
        )

    def contents(self) -> tuple[Gate, Gate]:
        """Tasks with the question, the files and the answer of another; and plans against the levels' definition."""
        found: dict[str, list[str]] = defaultdict(list)
        misfits = []
        draws = self._draws(-(-self.counts.duplicates // len(measure.LEVELS)), 5, worlds=measure.TRAINING_FLAVOURS)
        for part in self.spread(measure.contents, draws):
            for digest, task_id, fits in part:
                found[digest].append(task_id)
                misfits += [] if fits else [task_id]
        total = sum(map(len, found.values()))
        alike = [sorted(set(ids)) for ids in found.values() if len(set(ids)) > 1]  # an id may be drawn twice
        drawn_twice = total - len({task_id for ids in found.values() for task_id in ids})
        twice = []
        for ids in alike:
            digests = [measure.files_digest(task_id) for task_id in ids]
            twice += [ids] if len(set(digests)) < len(digests) else []
        return (
            Gate(
                f"duplicates of (question, files, answer) in {total:,} tasks",
                "0",
                str(len(twice)),
                not twice,
                {
                    "duplicates": twice[: measure.KEPT],
                    "same question and answer": len(alike),
                    "ids drawn twice": drawn_twice,
                },
            ),
            Gate(
                f"plans without their task's level, as GAIA defines it ({total:,} tasks)",
                "0",
                str(len(misfits)),
                not misfits,
                {"misfits": misfits[: measure.KEPT]},
            ),
        )

    def needs(self) -> Gate:
        """Level 2 and 3: nothing that is needed may be missing, and no file is enough."""
        draws = self._draws(self.counts.needs, 6, levels=[level for level in measure.LEVELS if level > 1])
        results = list(self.spread(measure.needed, draws))
        failures = [failure for one in results for failure in one["failures"]]
        tasks, removals = (sum(one[key] for one in results) for key in ("tasks", "removals"))
        return Gate(
            "tasks of level 2 and 3 solved without a file or page that they need, or with one file alone "
            f"({removals:,} trials on {tasks:,} tasks)",
            "0",
            str(len(failures)),
            not failures,
            {"failures": failures[: measure.KEPT]},
        )

    def same_bytes(self) -> Gate:
        """Two processes, two hash seeds, two time zones."""
        command = [sys.executable, "-m", "benchmarks.gaia_gates", str(self.counts.same), str(self.seed)]
        running = [
            subprocess.Popen(
                command,
                cwd=ROOT,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "PYTHONHASHSEED": seed, "TZ": zone},
            )
            for seed, zone in (("1", "UTC"), ("4242", "Asia/Tokyo"))
        ]
        one, other = (process.communicate()[0].splitlines() for process in running)
        if any(process.returncode for process in running):
            raise RuntimeError(f"{' '.join(command)} failed with {[process.returncode for process in running]}")
        differing = [a.split(" ")[0] for a, b in zip(one, other, strict=True) if a != b]
        return Gate(
            f"same seed, two processes, two hash seeds ({len(one):,} tasks and webs)",
            "same bytes",
            f"{len(differing)} differ" if differing else "same bytes",
            not differing and bool(one),
            {"differing": differing[: measure.KEPT]},
        )

    def time(self) -> Gate:
        """A task that was not seen before."""
        (medians,) = self.spread(functools.partial(measure.times, self.counts.times), [self.seed])
        return Gate(
            f"a new task, rendered (median CPU time, {self.counts.times:,} a level)",
            "under 50 ms",
            _levels({level: f"{ms:.1f} ms" for level, ms in medians.items()}),
            max(medians.values()) < 50,
            {"median_ms": medians},
        )

    def schema(self) -> Gate:
        """What the tools' schemas cost."""
        tokens = measure.schema_tokens()
        return Gate("schema tokens (Qwen3)", "at most 3,000", f"{tokens:,}", tokens <= 3000)


_POLICIES = {
    "oracle": "oracle policy success",
    "random": "random policy",
    "guessing": "for comparison: reads each attached file once, then guesses among what it saw",
}
_MEANS = {"recall": "recall alone", "constant": "the usual answer alone", "both": "recall, else the usual answer"}


def _by_level(results: Sequence[dict[str, Any]], key: str) -> dict[int, int]:
    found: dict[int, int] = defaultdict(int)
    for one in results:
        found[one["level"]] += one[key]
    return dict(sorted(found.items()))


def _each(counts: dict[int, int]) -> str:
    return " / ".join(f"{n:,}" for n in dict.fromkeys(counts.values()))


def _levels(values: dict[int, str]) -> str:
    """One value where all levels have the same, else each with its level."""
    if len(set(values.values())) == 1:
        return next(iter(values.values()))
    return ", ".join(f"{value} (level {level})" for level, value in values.items())


def table(gates: Sequence[Gate]) -> str:
    """The results as a Markdown table."""
    rows = [f"| {gate.name} | {gate.bar} | {gate.measured} | {_passed(gate)} |" for gate in gates]
    return "\n".join(["| gate | bar | measured | passed |", "|---|---|---|---|", *rows])


def _passed(gate: Gate) -> str:
    return "" if gate.bar == NO_BAR else "yes" if gate.passed else "**no**"


def main(
    quick: Annotated[bool, typer.Option("--quick", help="A few tasks for each gate: does the command work?")] = False,
    count: Annotated[
        list[str] | None, typer.Option(help=f"NAME=NUMBER, where NAME is one of {', '.join(asdict(QUICK))}.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Decides what is drawn.")] = 0,
    processes: Annotated[int, typer.Option(min=1, help="Processes at once.")] = 2,
    output: Annotated[Path, typer.Option(help="Where the results go.")] = ROOT / "benchmarks" / "results",
) -> None:
    """Measure the promises of the GAIA world against their bars."""
    counts = _changed(QUICK if quick else Counts(), count or [])
    console = Console(stderr=True)
    output.mkdir(parents=True, exist_ok=True)
    options = "".join([f" --seed {seed}", " --quick" * quick, *(f" --count {one}" for one in count or [])])
    about = {
        "date": datetime.date.today().isoformat(),
        "command": f"python -m benchmarks.gaia_quality{options}",
        "counts": asdict(counts),
        "templates": {split: sum(one.split == split for one in templates().values()) for split in SPLITS},
        "versions": _versions(),
    }
    gates: list[Gate] = []
    # Spawned, since the package keeps a thread for its event loop, which a fork would not have.
    with concurrent.futures.ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        for gate in Gates(counts, seed, pool.map).all():
            console.print(f"{'ok' if gate.passed else 'MISSED'}  {gate.name}: {gate.measured}", highlight=False)
            gates.append(gate)
            content = {**about, "gates": [asdict(gate) for gate in gates]}  # so far: a later gate may break
            (output / "gaia_quality.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    (output / "gaia_quality.md").write_text(page(gates, about), encoding="utf-8")
    sys.stdout.write(table(gates) + "\n")
    if not all(gate.passed for gate in gates):
        raise typer.Exit(1)


def _changed(counts: Counts, changes: Sequence[str]) -> Counts:
    known = asdict(counts)
    for change in changes:
        name, _, number = change.partition("=")
        if name not in known or not number.isdigit() or int(number) < 1:
            raise typer.BadParameter(f"--count takes NAME=NUMBER with one of {', '.join(known)}, got {change!r}")
        known[name] = int(number)
    return Counts(**known)


def page(gates: Sequence[Gate], about: dict[str, Any]) -> str:
    """The results as a page."""
    versions = ", ".join(f"{name} {number}" for name, number in about["versions"].items())
    return "\n".join(
        [
            "# The GAIA world against its promises",
            "",
            f"`{about['command']}`, {about['date']}; {sum(about['templates'].values())} templates, every split and "
            "level, drawn evenly. Details, such as each template's commonest answer, stand in `gaia_quality.json`.",
            "",
            table(gates),
            "",
            "The solver has the question, the files and the pages, and no code of the generator's "
            "(`tests/lib/gaia_solver.py`). The closed-book attacker is that solver with the real tables instead of "
            "the shifted ones, no page and no file; where that gives nothing, it answers with what such questions' "
            "answers most often were in as many other tasks.",
            "",
            f"Python {platform.python_version()}; {versions}.",
            "",
        ]
    )


def _versions() -> dict[str, str]:
    names = ("aworld-gym", "gymnasium", "mcp", "numpy", "openpyxl", "python-docx", "python-pptx", "fpdf2", "pillow")
    return {name: version(name) for name in names}


if __name__ == "__main__":
    typer.run(main)
