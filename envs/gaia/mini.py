"""Mini tasks: the short-prompt preset on which a small language model learns on two cores.

A question names a table by its topic; the file's name carries a random number, so the workspace has to be
listed, the right file read, the value looked up (and computed with), and the answer submitted: three or four
turns of one tool call. Everything is random per task, so nothing can be learnt by heart. Within a task names share
no syllable, and within a table values share no first digit: one token tells which row it belongs to, which is as
much as a model of three layers can tell apart.

Words are made of syllables. A fifth of the words, of the column names and of the numbers stands in no training
task: half of that fifth is for validation, half for test (world ``"unseen"``). World ``"seen"`` is new tasks on
the training words.

The module holds tasks, their plans and what the compact tools will show for them; it runs no tool.
"""

from __future__ import annotations

import dataclasses
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np

from aworld_gym.errors import ConfigError, UnknownTaskError, did_you_mean
from aworld_gym.types import PlanStep, Score, Task
from envs.gaia import scorers

SPLITS = ("train", "validation", "test")
WORLDS = ("seen", "unseen")
KINDS = ("lookup", "sum", "difference", "maximum")
TOOLS = ("list_files", "read_table", "calculate", "submit_answer")
"""The tools that the preset offers."""

# Consonant-vowel-consonant throughout, so that a word falls into its two syllables in one way only.
SYLLABLES = tuple(
    "zor rin mal lek tob bal kiv ven dup par sol mig rad gan fep tor lun nas bek kov hid dax jom wen cal pil sug mur "
    "nyx gop".split()
)
ADJECTIVES = ("net", "gross", "mean", "total", "daily", "annual", "local", "spare")
NOUNS = ("price", "weight", "height", "score", "stock", "cost", "volume", "speed")
FILES = 3
"""Tables in a workspace."""
ROWS = 3
"""Rows of a table."""

_ID = re.compile(r"gaia-mini/(?P<split>\w+)/(?P<world>\w+)/(?P<kind>\w+)/(?P<number>\d{9})")
_QUESTIONS = {
    "lookup": "what is the {column} of {a}?",
    "sum": "what is the {column} of {a} plus {b}?",
    "difference": "what is the {column} of {a} minus {b}?",
    "maximum": "what is the highest {column}?",
}


@dataclass(frozen=True)
class Table:
    """One file: a column of values by name."""

    column: str
    rows: Mapping[str, int]

    def csv(self) -> str:
        """The file's text."""
        return "".join(f"{name},{value}\n" for name, value in (("name", self.column), *self.rows.items()))

    def shown(self) -> str:
        """What the compact ``read_table`` gives for it."""
        return "\n".join([self.column, *(f"{name} {value}" for name, value in self.rows.items())])


@dataclass(frozen=True)
class MiniTask(Task):
    """A task with what its plans and files are made from."""

    kind: str = ""
    """One of :data:`KINDS`."""
    tables: Mapping[str, Table] = field(default_factory=dict)
    """Every file of the workspace by its path, in the order in which the tools list them."""
    path: str = ""
    """The file that the question asks for."""
    names: tuple[str, ...] = ()
    """Two rows; a look-up asks for the first only, a maximum for neither."""


class MiniTasks:
    """The mini tasks of one split, as a :class:`aworld_gym.tasks.TaskSource`.

    A task's id, ``gaia-mini/<split>/<world>/<kind>/<nine digits>``, is enough to rebuild it.

    Args:
        split: ``"train"``, ``"validation"`` or ``"test"``.
        world: ``"seen"`` (the words of training) or ``"unseen"``; by default seen for train, unseen for the others.
        kinds: a selection of :data:`KINDS`; all of them by default.
        scorer: ``"strict"`` or ``"official"``.

    Raises:
        ConfigError: an unknown split, world or kind; unseen words asked of the train split.
    """

    def __init__(
        self,
        split: str = "train",
        *,
        world: str | None = None,
        kinds: Sequence[str] | None = None,
        scorer: str = "strict",
    ):
        self.split = _one_of("split", split, SPLITS)
        self.world = _one_of("world", world or ("seen" if split == "train" else "unseen"), WORLDS)
        self.kinds = tuple(_one_of("kind", kind, KINDS) for kind in (KINDS if kinds is None else kinds))
        self.scorer = scorers.check_which(scorer)
        if not self.kinds:
            raise ConfigError(f"mini tasks need at least one kind of {KINDS}, got none")
        if (self.split, self.world) == ("train", "unseen"):
            raise ConfigError("the train split has no unseen words; use split='validation' or split='test'")

    def sample(self, rng: np.random.Generator) -> MiniTask:
        """A task drawn with ``rng`` alone."""
        kind, number = self.kinds[int(rng.integers(len(self.kinds)))], int(rng.integers(10**9))
        return self.get(f"gaia-mini/{self.split}/{self.world}/{kind}/{number:09d}")

    def get(self, task_id: str) -> MiniTask:
        """The task of that id, of any split; raises UnknownTaskError."""
        match = _ID.fullmatch(task_id)
        if match is None:
            raise UnknownTaskError(
                f"unknown task id {task_id!r}; expected gaia-mini/<split>/<world>/<kind>/<nine digits>, "
                "for example 'gaia-mini/test/seen/sum/000000042'"
            )
        for name, known in (("split", SPLITS), ("world", WORLDS), ("kind", KINDS)):
            if match[name] not in known:
                hint = did_you_mean(match[name], known)
                raise UnknownTaskError(f"unknown {name} {match[name]!r} in task id {task_id!r}; one of {known}.{hint}")
        if (match["split"], match["world"]) == ("train", "unseen"):
            raise UnknownTaskError(f"unknown task id {task_id!r}; the train split has no unseen words")
        return _make(task_id, match["split"] if match["world"] == "unseen" else "train", match["world"], match["kind"])

    def setup(self, task: Task, workspace: Path) -> None:
        """Write the task's tables as CSV files."""
        for path, table in self.get(task.id).tables.items():
            (workspace / path).write_text(table.csv(), encoding="utf-8", newline="\n")

    def score(self, task: Task, answer: str | None) -> Score | None:
        """The verdict of the chosen scorer."""
        return scorers.score(task.answer, answer, which=self.scorer)


def oracle(task: MiniTask) -> tuple[PlanStep, ...]:
    """The steps of one who takes no short cut: list, read the table asked for, compute, submit."""
    return (PlanStep("list_files", {}, shows=(task.path,)), *_act(task, task.path, task.names))


def hurried(task: MiniTask, rng: random.Random, *, first: float = 0.5, skip: float = 0.5) -> tuple[PlanStep, ...]:
    """The steps of a demonstrator in a hurry, for warm starts: often wrong, never better than the oracle.

    Args:
        task: a mini task.
        rng: decides what is cut short.
        first: probability of opening the first file listed instead of looking for the one asked for.
        skip: probability of submitting the first noted value instead of calculating.
    """
    path, names = task.path, task.names
    if rng.random() < first and (opened := next(iter(task.tables))) != path:
        path, names = opened, tuple(rng.sample(list(task.tables[opened].rows), 2))
    listing = PlanStep("list_files", {}, shows=(path,))
    return (listing, *_act(task, path, names, compute=rng.random() >= skip))


def shown(task: MiniTask, step: PlanStep) -> str:
    """The text that the compact tools give for a step of a plan of this task: a fast stand-in, tested equal."""
    if step.tool == "list_files":
        return " ".join(task.tables)
    if step.tool == "read_table":
        return task.tables[step.arguments["path"]].shown()
    if step.tool == "calculate":
        return step.shows[0]
    raise ValueError(f"no result is known of a call of {step.tool!r}")


def _act(task: MiniTask, path: str, names: Sequence[str], *, compute: bool = True) -> tuple[PlanStep, ...]:
    """From reading ``path`` to submitting: note what is asked and the rows needed, compute (or not), submit."""
    rows = task.tables[path].rows
    noted = list(rows) if task.kind == "maximum" else list(names[:1]) if task.kind == "lookup" else list(names)
    facts, values = tuple(f"{name} {rows[name]}" for name in noted), [rows[name] for name in noted]
    asked = task.prompt.split("what is the ")[1].replace(" plus ", "+").replace(" minus ", "-")
    read, note = PlanStep("read_table", {"path": path}, shows=facts), "".join(f"{line}\n" for line in (asked, *facts))
    if task.kind == "lookup" or not compute:
        return read, PlanStep("submit_answer", {"answer": str(values[0])}, content=note)
    expression, result = {
        "sum": (f"{values[0]}+{values[-1]}", values[0] + values[-1]),
        "difference": (f"{values[0]}-{values[-1]}", values[0] - values[-1]),
        "maximum": (f"max({','.join(map(str, values))})", max(values)),
    }[task.kind]
    return (
        read,
        PlanStep("calculate", {"expression": expression}, shows=(str(result),), content=note),
        PlanStep("submit_answer", {"answer": str(result)}),
    )


def _make(task_id: str, group: str, world: str, kind: str) -> MiniTask:
    rng = random.Random(task_id)  # seeded by text: the same in every process, whatever the hash seed
    words, columns, numbers = _vocabulary(group)
    chosen = _distinct(rng, words, FILES + ROWS)
    topics, names = chosen[:FILES], chosen[FILES:]
    suffixes = [10 * tens + rng.randrange(10) for tens in rng.sample(range(1, 10), FILES)]
    paths = sorted(f"{topic}_{suffix}.csv" for topic, suffix in zip(topics, suffixes, strict=True))
    path, asked = rng.choice(paths), tuple(rng.sample(names, 2))
    tables = {}
    for p in paths:
        rows = names if p == path else rng.sample(words, ROWS)
        tables[p] = Table(rng.choice(columns), dict(zip(rows, _values(rng, numbers, ROWS), strict=True)))
    question = _QUESTIONS[kind].format(column=tables[path].column, a=asked[0], b=asked[1])
    task = MiniTask(
        id=task_id,
        prompt=f"In the table {path.split('_')[0]}, {question}",
        level=1,
        metadata={"template": f"mini-{kind}", "world": world},
        kind=kind,
        tables=tables,
        path=path,
        names=asked,
    )
    plan = oracle(task)
    return dataclasses.replace(task, plan=plan, answer={"text": plan[-1].arguments["answer"], "type": "int"})


def _distinct(rng: random.Random, words: Sequence[str], count: int) -> list[str]:
    """``count`` words no two of which share a syllable."""
    chosen: list[str] = []
    used: set[str] = set()
    while len(chosen) < count:
        word = rng.choice(words)
        if used.isdisjoint((word[:3], word[3:])):
            chosen.append(word)
            used |= {word[:3], word[3:]}
    return chosen


def _values(rng: random.Random, numbers: Sequence[int], count: int) -> list[int]:
    """``count`` numbers no two of which share their first digit."""
    chosen: dict[int, int] = {}
    while len(chosen) < count:
        number = rng.choice(numbers)
        chosen.setdefault(number // 10, number)
    return list(chosen.values())


@cache
def _vocabulary(group: str) -> tuple[tuple[str, ...], tuple[str, ...], tuple[int, ...]]:
    """Words, columns and numbers of ``"train"``, ``"validation"`` or ``"test"``: disjoint between the three."""
    words = tuple(
        a + b for i, a in enumerate(SYLLABLES) for j, b in enumerate(SYLLABLES) if i != j and _group(i, j) == group
    )
    columns = tuple(f"{a} {n}" for i, a in enumerate(ADJECTIVES) for j, n in enumerate(NOUNS) if _group(i, j) == group)
    numbers = tuple(n for n in range(10, 100) if _group(n // 10, n % 10) == group)
    return words, columns, numbers


def _group(i: int, j: int) -> str:
    """Which vocabulary the pair of parts belongs to: every part occurs in training, a fifth of the pairs does not."""
    return {0: "validation", 5: "test"}.get((i + 2 * j) % 10, "train")


def _one_of(what: str, value: str, known: Sequence[str]) -> str:
    if value not in known:
        raise ConfigError(
            f"unknown {what} {value!r} of the mini preset; one of {tuple(known)}.{did_you_mean(value, known)}"
        )
    return value
