"""What a task is put together from: terms, rows, and the draft that collects them.

A :class:`Term` is a typed value that knows how to say itself in English (a noun phrase), which tool calls find it
out, and which files and pages it needs. Operators (:mod:`envs.gaia.operators`) make terms from terms, so the
question, the answer, the plan and the needs of a task grow together and cannot disagree. A :class:`Draft` is one
attempt at a task: its random stream, its world, its files. An operator or template that meets an unlucky draw (a
tie, an empty selection, an answer that the question gives away) raises :class:`Reject`, and the next attempt is made.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

from aworld_gym.types import PlanStep
from envs.gaia.render import Cell, Content
from envs.gaia.world import Table, World

T = TypeVar("T")

Kind = Literal["int", "float", "date", "text", "person", "code", "names"]

Row = Mapping[str, Cell]


class Reject(Exception):
    """This draw makes no good task; try another. Never leaves :mod:`envs.gaia.tasks`."""


@dataclass(frozen=True)
class Term:
    """A typed value with its words, its evidence and its way."""

    kind: Kind
    value: Any
    """int; decimal text for ``float``; ISO text for ``date``; tuple of str for ``names``; str for the others."""
    phrase: str
    """A noun phrase: fits after "What is" and "Find"."""
    steps: tuple[PlanStep, ...] = ()
    """The tool calls that find the value out."""
    needs: frozenset[str] = frozenset()
    """Names of files and addresses of pages that the value depends on; members of archives as ``archive!member``."""

    @property
    def text(self) -> str:
        """The value as an answer is written."""
        return ", ".join(self.value) if self.kind == "names" else str(self.value)

    @property
    def number(self) -> float:
        """The value of an ``int`` or ``float`` term."""
        return float(self.value)


@dataclass(frozen=True)
class Rows:
    """Some of the rows of one table in a file."""

    key: str
    """Label of the column that names the entity of a row."""
    noun: str
    plural: str
    """What one row is, such as ``invoice`` and ``invoices``."""
    place: str
    """Where they are, such as ``listed in bills.csv``."""
    rows: tuple[Row, ...]
    """Label -> cell; all with the same labels."""
    read: PlanStep
    """The call that shows the rows."""
    before: tuple[PlanStep, ...] = ()
    """What must be called first (to unpack an archive)."""
    needs: frozenset[str] = frozenset()
    filters: tuple[str, ...] = ()
    """What selects these rows from the file's, in words, such as ``with salt as cargo``."""
    tests: tuple[str, ...] = ()
    """The same as Python conditions on ``row``."""

    @property
    def phrase(self) -> str:
        """A plural noun phrase, such as ``the voyages with salt as cargo in log.csv``."""
        return " ".join(("the", self.plural, *self.filters, self.place))

    def seen(self, rows: Iterable[Row], *labels: str) -> tuple[PlanStep, ...]:
        """The reading, which shows these labels' cells of these rows."""
        shows = tuple(dict.fromkeys(str(row[label]) for row in rows for label in labels))
        return (*self.before, replace(self.read, shows=(*self.read.shows, *shows)))


@dataclass(frozen=True)
class Question:
    """A finished draft."""

    prompt: str
    answer: Mapping[str, Any]
    """For the scorer: ``text``, ``type`` and its options."""
    plan: tuple[PlanStep, ...]
    files: Mapping[str, Content]
    needs: frozenset[str]


_TYPES: Mapping[Kind, str] = {
    "int": "int",
    "float": "float",
    "date": "date",
    "text": "string",
    "person": "string",
    "code": "code",
    "names": "list",
}
_HINTS: Mapping[Kind, Sequence[str]] = {
    "int": (
        "Answer with a whole number.",
        "Give a whole number, without units or separators.",
        "The answer is a plain whole number.",
    ),
    "float": ("Round to {decimals}.", "Give the number rounded to {decimals}.", "Answer with a number, to {decimals}."),
    "date": ("Answer as YYYY-MM-DD.", "Write the date as YYYY-MM-DD.", "Give an ISO date (YYYY-MM-DD)."),
    "text": ("Answer with the name only.", "Give just the name.", "The answer is one name."),
    "person": ("Answer with first and last name.", "Give the full name.", "The answer is a person's full name."),
    "code": ("Answer with the code only.", "Give just the code.", "The answer is one code."),
    "names": (
        "Give the names in alphabetical order, separated by commas.",
        "List the names alphabetically, separated by commas.",
    ),
}
_FRAMES: Mapping[str, Sequence[str]] = {
    "thing": ("What is {}?", "Find {}.", "Work out {}.", "Please tell me {}.", "I need to know {}."),
    "person": (
        "Who is {}?",
        "Find out who is {}.",
        "Name {}.",
        "Please tell me who is {}.",
        "I need to know who is {}.",
    ),
    "names": ("Which are {}?", "Find {}.", "Name {}.", "Please tell me {}.", "I need to know {}."),
}
_ATLAS = (
    "Facts are as the atlas on the local web gives them.",
    "Take facts from the atlas (the local web), not from memory.",
    "The atlas on the local web has the facts, and only what it says counts.",
)


@dataclass
class Draft:
    """One attempt at a task: where everything random comes from and everything made is kept."""

    rng: random.Random
    world: World
    files: dict[str, Content] = field(default_factory=dict)

    def say(self, *variants: str) -> str:
        """One of several ways to say the same."""
        return self.rng.choice(variants)

    def pick(self, items: Sequence[T]) -> T:
        """One of the items."""
        return self.rng.choice(items)

    def some(self, items: Sequence[T], count: int) -> list[T]:
        """``count`` different items in random order; Reject where there are too few."""
        require(len(items) >= count, "too few items")
        return self.rng.sample(items, count)

    def table(self, *names: str) -> Table:
        """One of the world's tables: any, or the first of ``names`` that it has."""
        if not names:
            return self.pick(list(self.world.tables.values()))
        return next(self.world.tables[name] for name in names if name in self.world.tables)

    def attach(self, name: str, content: Content) -> str:
        """Add a file to the task; gives its name back. Reject where the name is taken."""
        require(name not in self.files, "two files of one name")
        self.files[name] = content
        return name

    def ask(self, term: Term, *, context: str = "") -> Question:
        """The question whose answer is ``term``.

        Args:
            term: what is asked for.
            context: sentences that stand before the question.

        Raises:
            Reject: the answer stands in the question, or is no plain ASCII.
        """
        options: dict[str, Any] = {}
        hint = self.pick(_HINTS[term.kind])
        if term.kind == "float":
            decimals = len(term.text.partition(".")[2])
            options["decimals"] = decimals
            hint = hint.format(decimals=f"{decimals} decimal{'s' if decimals > 1 else ''}")
        sentences = [context] if context else []
        if any("://" in need for need in term.needs):
            sentences.append(self.pick(_ATLAS))
        sentences += [self.pick(_FRAMES.get(term.kind, _FRAMES["thing"])).format(term.phrase), hint]
        prompt = " ".join(sentences)
        if self.files:
            prompt += f"\n\nAttached files: {', '.join(sorted(self.files))}"
        answer = term.text
        require(answer.isascii() and bool(answer.strip()), "not a plain answer")
        for part in term.value if term.kind == "names" else (answer,):
            require(not re.search(rf"(?<![\w.]){re.escape(part)}(?!\w|\.\d)", prompt, re.I), "answer in the question")
        plan = (*merged(term.steps), PlanStep("submit_answer", {"answer": answer}))
        spec = {"text": answer, "type": _TYPES[term.kind], **options}
        return Question(prompt, spec, plan, dict(self.files), term.needs)


def require(condition: bool, reason: str) -> None:
    """Raise Reject with ``reason`` unless the condition holds."""
    if not condition:
        raise Reject(reason)


def merged(steps: Iterable[PlanStep]) -> tuple[PlanStep, ...]:
    """The steps with each call made once, where it is first needed, showing what all of its uses need."""
    found: dict[str, PlanStep] = {}
    for step in steps:
        key = f"{step.tool} {sorted(step.arguments.items())}"
        known = found.get(key)
        shows = tuple(dict.fromkeys((*known.shows, *step.shows))) if known else step.shows
        found[key] = replace(known or step, shows=shows)
    return tuple(found.values())


def joined(items: Sequence[str], word: str = "and") -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} {word} {items[-1]}"


def ordinal(k: int) -> str:
    """``second`` for 2, up to ``fifth``; for 1 an empty string, since "highest" needs none."""
    return ("", "second ", "third ", "fourth ", "fifth ")[k - 1]
