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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

from aworld_gym.types import PlanStep
from envs.gaia import wording
from envs.gaia.render import Archive, Cell, Content
from envs.gaia.sentences import ATLAS, FRAMES, HINTS, OPENERS
from envs.gaia.wording import joined
from envs.gaia.world import Column, Table, World

T = TypeVar("T")

Kind = Literal["int", "float", "date", "text", "person", "code", "names"]

Row = Mapping[str, Cell]

ASKED = ("text", "person", "int", "date")
"""Kinds of columns that are asked for: those of many different values."""


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
    expression: str = ""
    """What the calculator must still work out to have the value, where the steps show no more than its parts."""

    @property
    def part(self) -> str:
        """The value as a part of an expression."""
        return f"({self.expression})" if self.expression else str(self.value)

    def settled(self) -> Term:
        """The same with its expression worked out, by a last step."""
        if not self.expression:
            return self
        step = PlanStep("calculate", {"expression": self.expression}, (self.text,))
        return replace(self, steps=(*self.steps, step), expression="")

    @property
    def text(self) -> str:
        """The value as an answer is written."""
        return ", ".join(self.value) if self.kind == "names" else str(self.value)

    @property
    def number(self) -> float:
        """The value of an ``int`` or ``float`` term."""
        return float(self.value)


@dataclass(frozen=True)
class File:
    """A file of the task, as questions, plans and needs speak of it."""

    ref: str
    """How a question names it: ``code.png``, or ``code.png inside bundle.zip``."""
    path: str
    """Where it lies in the workspace, once what it is inside of is unpacked."""
    need: str
    """What is taken away to do without it: ``code.png``, or ``bundle.zip!code.png``."""
    before: tuple[PlanStep, ...] = ()
    """The calls that unpack what it is inside of."""

    @property
    def needs(self) -> frozenset[str]:
        """The file, as the needs of a term."""
        return frozenset({self.need})


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
    """The call that shows the rows. Of a database: the one that shows its tables."""
    before: tuple[PlanStep, ...] = ()
    """What must be called first: to unpack an archive, to learn what a filter compares with."""
    needs: frozenset[str] = frozenset()
    filters: tuple[str, ...] = ()
    """What selects these rows from the table's, in words, such as ``whose cargo is "salt"``."""
    tests: tuple[str, ...] = ()
    """The same as Python conditions on ``row``, whose cells are text."""
    conditions: tuple[str, ...] = ()
    """The same as SQL."""
    table: str = ""
    """Name of the database's table, where the rows are in one."""
    which: str = "all"
    """``all``, ``visible`` or ``hidden`` rows of a sheet."""
    date: str = ""
    """Label of the column of dates; empty where there is none."""
    parts: tuple[Rows, ...] = ()
    """The tables that these rows are of, where it takes several calls to read them; ``read`` is not used then."""

    def phrase(self, draft: Draft) -> str:
        """A plural noun phrase, such as ``the voyages in log.csv whose cargo is "salt"``."""
        filters = f" {' and '.join(self.filters)}" if self.filters else ""
        return draft.phrase(self.which, plural=self.plural, place=self.place, filters=filters)

    def seen(self, rows: Iterable[Row], *labels: str) -> tuple[PlanStep, ...]:
        """The calls that show these labels' cells of these rows; Reject where one of several tables has none."""
        if self.parts:
            wanted = list(rows)
            steps = list(self.before)
            for part in self.parts:
                found = [row for row in wanted if row in part.rows]
                require(bool(found), "a table that is not needed")
                steps += part.seen(found, *labels)
            return tuple(steps)
        shows = tuple(dict.fromkeys(str(row[label]) for row in rows for label in labels))
        if self.table:
            return (*self.before, self.read, self.query(", ".join(map(quoted, labels)), *shows))
        return (*self.before, replace(self.read, shows=tuple(dict.fromkeys((*self.read.shows, *shows)))))

    def query(self, select: str, *shows: str, tail: str = "") -> PlanStep:
        """A query of these rows of a database."""
        where = f" WHERE {' AND '.join(self.conditions)}" if self.conditions else ""
        sql = f"SELECT {select} FROM {quoted(self.table)}{where}{tail and ' '}{tail}"
        return PlanStep("query_sqlite", {"path": self.read.arguments["path"], "sql": sql}, shows)


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


class Box:
    """An archive, or a mail with attachments: files are put into it, and it is a file itself.

    Args:
        draft: the draft.
        name: the box's file name. Unpacking makes a folder of that name without its ending.
        make: its content, from its members as (name, content).
        within: the box that this one is put into; None for the workspace.
    """

    def __init__(
        self,
        draft: Draft,
        name: str,
        make: Callable[[tuple[tuple[str, Content], ...]], Content] = Archive,
        within: Box | None = None,
    ):
        self._draft, self._name, self._make, self._within = draft, name, make, within
        self.members: dict[str, Content] = {}
        self.file = draft.put(name, make(()), within)
        stem = self.file.path.rpartition(".")[0]
        require(stem not in draft.folders, "two boxes that unpack into one folder")
        draft.folders.add(stem)
        self._folder = stem

    def put(self, name: str, content: Content) -> File:
        """Add a member."""
        require(name not in self.members, "two members of one name")
        self.members[name] = content
        self._refresh()
        path = f"{self._folder}/{name}"
        unpack = PlanStep("unpack_archive", {"path": self.file.path}, (path,))
        return File(f"{name} inside {self.file.ref}", path, f"{self.file.need}!{name}", (*self.file.before, unpack))

    def _refresh(self) -> None:
        holder = self._draft.files if self._within is None else self._within.members
        holder[self._name] = self._make(tuple(self.members.items()))
        if self._within is not None:
            self._within._refresh()


@dataclass
class Draft:
    """One attempt at a task: where everything random comes from and everything made is kept."""

    rng: random.Random
    world: World
    files: dict[str, Content] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    """What the boxes unpack into."""

    def say(self, *variants: str) -> str:
        """One of several ways to say the same."""
        return self.rng.choice(variants)

    def phrase(self, production: str, **slots: object) -> str:
        """One of the paraphrases of a production of :data:`envs.gaia.wording.GRAMMAR`."""
        return wording.say(self.rng, production, **slots)

    def pick(self, items: Sequence[T]) -> T:
        """One of the items; Reject where there are none."""
        require(len(items) > 0, "nothing to pick from")
        return self.rng.choice(items)

    def some(self, items: Sequence[T], count: int) -> list[T]:
        """``count`` different items in random order; Reject where there are too few."""
        require(len(items) >= count, "too few items")
        return self.rng.sample(items, count)

    def table(self, *names: str) -> Table:
        """One of the world's tables: any, or the first of ``names`` that it has; Reject where it has none."""
        if not names:
            return self.pick(list(self.world.tables.values()))
        return self.pick([self.world.tables[name] for name in names if name in self.world.tables][:1])

    def table_with(self, *kinds: str) -> Table:
        """One of the world's tables that have a column of each of these kinds; Reject where none has."""
        return self.pick([table for table in self.world.tables.values() if all(table.of_kind(k) for k in kinds)])

    def asked(self, table: Table, *but: Column) -> Column:
        """One of a table's columns that are worth asking for: those of many values."""
        return self.pick([column for column in table.of_kind(*ASKED) if column not in but])

    def attach(self, name: str, content: Content) -> str:
        """Add a file to the task; gives its name back. Reject where the name is taken."""
        return self.put(name, content).path

    def put(self, name: str, content: Content, box: Box | None = None) -> File:
        """Add a file to the task, or to a box. Reject where the name is taken."""
        if box is not None:
            return box.put(name, content)
        require(name not in self.files, "two files of one name")
        self.files[name] = content
        return File(name, name, name)

    def ask(self, term: Term, *, context: str = "") -> Question:
        """The question whose answer is ``term``.

        Args:
            term: what is asked for.
            context: sentences that stand before the question.

        Raises:
            Reject: the answer stands in the question, or is no plain ASCII.
        """
        term = term.settled()
        options: dict[str, Any] = {}
        hint = self.pick(HINTS[term.kind])
        if term.kind == "float":
            decimals = len(term.text.partition(".")[2])
            options["decimals"] = decimals
            hint = hint.format(decimals=f"{decimals} decimal{'s' if decimals > 1 else ''}")
        question = self.pick(FRAMES.get(term.kind, FRAMES["thing"])).format(term.phrase)
        sentences = [context] if context else []
        if self.rng.random() < 0.3:
            sentences.append(self.pick(OPENERS))
        if any("://" in need for need in term.needs):
            sentences.append(self.pick(ATLAS))
        sentences += [question, hint] if self.rng.random() < 0.8 else [hint, question]
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


def quoted(name: str) -> str:
    """A name as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


def ordinal(k: int) -> str:
    """``second `` for 2, up to ``fifth ``; for 1 an empty string, since "highest" needs none."""
    return wording.ORDINALS[k - 1]


__all__ = ["ASKED", "Box", "Draft", "File", "Kind", "Question", "Reject", "Row", "Rows", "Term"]
__all__ += ["joined", "merged", "ordinal", "quoted", "require"]
