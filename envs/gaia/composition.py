"""The composer of level 3: it draws terms of a wanted kind to a wanted depth, and keeps account of the plan.

A template of level 3 is a *shape*: a function of a :class:`Composition` and a depth that gives the term to be asked
for, such as "the value on a day of the attribute of an entity". What the entity is found through, which media hold
what leads there, and how many hops that takes is drawn:

* an entity of depth 1 is named, coded, nicknamed or described by a text that some medium carries, is the subject of a
  letter, or stands in a record that a carried reference picks out (:data:`LEAVES`);
* each further hop goes through the atlas: from an entity to the one that its page names, or to the only one whose page
  names it (:data:`envs.gaia.hops.HOPS`);
* media are drawn so that kinds of tools which the plan does not use yet come first.

:func:`composed` makes a shape deeper until its plan has level 3 (:func:`envs.gaia.levels.fits`) and some length. Long
phrases are given short names by definitions ahead of the question (:data:`envs.gaia.sentences.LETS`), so that it stays
readable and has one reading. Files that are not needed are added and listed among the others
(:mod:`envs.gaia.decoys`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal, TypeVar

from envs.gaia.carriers import CARRIERS, carriers, carry
from envs.gaia.decoys import look_alike, unrelated
from envs.gaia.hops import HOPS
from envs.gaia.ledgers import LEDGERS, draw_records
from envs.gaia.levels import fits, kinds_of
from envs.gaia.makers import NUMBERS, Maker
from envs.gaia.operators import called, referenced
from envs.gaia.operators_evidence import looked_up
from envs.gaia.operators_versions import DOCUMENTS, Body, Version, in_force, issued_by, latest_signed
from envs.gaia.render import Content, Doc
from envs.gaia.sentences import LETS, ROLES
from envs.gaia.sources import dated_letter, stated, statements, tabulated
from envs.gaia.sources_documents import QUANTITIES, random_code, random_date
from envs.gaia.terms import Box, Draft, Question, Reject, Term, require
from envs.gaia.world import Description, Row, Table

T = TypeVar("T")
Role = Literal["entity", "date", "number", "text"]
Shape = Callable[["Composition", int], Term]
Rule = Literal["latest_signed", "in_force", "issued_by"]

DEEPEST = 4
"""Hops of the longest chain that leads to one entity."""
LEAST_CALLS = 9
"""Calls of the shortest plan. Four kinds of tools alone make level 3, but one look at each would be short work."""
ISSUERS = ("airport", "country", "firm", "museum", "station", "town")
"""Tables whose entities may issue documents."""
DECOYS = (2, 5)
"""How many files nobody needs: from, and up to but without."""


def composed(draft: Draft, shape: Shape, *, least: int = 1) -> Question:
    """The question of a shape, at the first depth from ``least`` on at which its plan has level 3.

    Raises:
        Reject: at none, or a draw that makes no good question.
    """
    for depth in range(least, DEEPEST + 1):
        composition = Composition(Draft(draft.rng, draft.world), depth)
        question = composition.ask(shape(composition, depth))
        if len(question.plan) >= LEAST_CALLS and fits(3, question.plan):
            return question
    raise Reject("not of level 3 at any depth")


class Composition:
    """One draft of level 3: its definitions, and which kinds of tools its evidence already needs.

    Args:
        draft: an empty draft.
        depth: from 1 on; the deeper, the more often a document of several versions states what leads on.
    """

    def __init__(self, draft: Draft, depth: int = 1):
        self.draft = draft
        self._depth = depth
        self._lets: list[str] = []
        self._roles = {kind: draft.some(names, len(names)) for kind, names in ROLES.items()}
        self._titles = draft.some(DOCUMENTS, len(DOCUMENTS))
        self._kinds: set[str] = set()
        self._boxes = 1 if draft.rng.random() < 0.35 else 0
        self._words = draft.rng.randrange(8, 14)
        self._visited: set[tuple[str, str]] = set()
        self._plain = False

    # --- words -----------------------------------------------------------------------------------------------------

    def let(self, role: Role, term: Term) -> Term:
        """The term under a short name, which a sentence ahead of the question defines."""
        require(bool(self._roles[role]), f"no more names for a {role}")
        name = self._roles[role].pop()
        self._lets.append(self.draft.pick(LETS).format(role=name, phrase=term.phrase))
        return replace(term, phrase=name)

    def short(self, role: Role, term: Term, *, words: int | None = None) -> Term:
        """The term, under a short name where its phrase is long: has more than ``words`` words."""
        return self.let(role, term) if len(term.phrase.split()) > (words or self._words) else term

    # --- evidence --------------------------------------------------------------------------------------------------

    def seen(self, term: Term) -> Term:
        """The term itself, once its kinds of tools are on the account."""
        self._kinds.update(kinds_of(term.steps))
        return term

    def fresh(self, options: Sequence[T], tool: Callable[[T], str]) -> T:
        """One of the options: of those whose kind of tool is not needed yet, where there are some."""
        new = [option for option in options if tool(option) not in self._kinds]
        return self.draft.pick(new or options)

    def box(self) -> Box | None:
        """Now and then an archive to put a file into, once a draft; it holds a file that nobody needs as well."""
        if not self._boxes or self.draft.rng.random() < 0.5:
            return None
        self._boxes = 0
        stem = f"{self.draft.pick(('bundle', 'delivery', 'archive', 'backup'))}_{self.draft.rng.randrange(10, 100)}"
        box = Box(self.draft, f"{stem}.zip")
        if self.draft.rng.random() < 0.4:
            box = Box(self.draft, f"{self.draft.pick(('inner', 'part', 'annex'))}.zip", within=box)
        unrelated(self.draft, box)
        return box

    def carried(self, what: str, value: str | int) -> Term:
        """A value in a medium.

        Args:
            what: number, code, word, name or date.
            value: what is carried.
        """
        name = self.fresh(carriers(what, value), lambda name: CARRIERS[name].tool)
        return self.seen(carry(self.draft, name, what, value, self.box()))

    def text(self, what: str, value: str, others: Sequence[str]) -> Term:
        """A code or name in a medium, or in the latest signed version of a document, where there are ``others``."""
        if len(others) > 1 and not self._plain and self.draft.rng.random() < 0.15 + 0.2 * self._depth:
            return self.short("text", self.version(what, value, others=others))
        return self.short("text", self.carried(what, value))

    def number(self, *but: str) -> Term:
        """A number from some evidence (a maker of :data:`envs.gaia.makers.NUMBERS`); no makers of those names."""
        options: list[Maker] = [maker for maker in NUMBERS.values() if maker.name not in but]
        return self.seen(self.fresh(options, lambda maker: maker.tool).make(self.draft, self.box()))

    def day(self, value: str, *, differs: Callable[[Any], bool] = lambda other: True) -> Term:
        """A date in a medium, in a letter, or in the latest signed version of a document.

        Args:
            value: the date.
            differs: whether another date, which another version states, would lead to another answer.
        """
        way = self.draft.pick(("carried", "letter", *("version",) * self._depth))
        if way == "carried":
            return self.carried("date", value)
        if way == "letter":
            table = self.draft.table()
            ending = self.draft.pick(("txt", "md", "docx", "pdf"))
            name = self.draft.pick(table.rows)["name"]
            return self.seen(dated_letter(self.draft, table, name, value, ending, self.box())[1])
        return self.version("date", value, differs=differs)

    def version(
        self,
        what: str,
        value: str | int,
        rule: Rule = "latest_signed",
        depth: int = 1,
        *,
        others: Sequence[str | int] = (),
        differs: Callable[[Any], bool] = lambda other: True,
    ) -> Term:
        """A value that the version of a document states which counts; the others state other values.

        Args:
            what: a key of :data:`envs.gaia.sources_documents.QUANTITIES`.
            value: what is stated.
            rule: which version counts.
            depth: hops to the entity that issued it.
            others: what the other versions may state; random values of its kind by default.
            differs: whether another value would lead to another answer. Only such values stand in other versions, so
                that nobody comes to the answer by the wrong one.
        """
        quantity, unit = self.draft.pick(QUANTITIES[what])
        values = [value]
        for _ in range(40):
            other = self.draft.pick(others) if others else _other(self.draft, what, value)
            if other not in values and differs(other):
                values.append(other)
            if len(values) == 3:
                break
        require(len(values) == 3, "no other values for the other versions")
        bodies = [statements(self.draft, {quantity: (str(one), unit)}, more=2) for one in values]
        file = self.versions(bodies, rule, depth)
        return self.seen(stated(self.draft, file, what, value, quantity))

    def versions(self, bodies: Sequence[Body], rule: Rule, depth: int = 1) -> Version:
        """The version of a new document that counts by a rule; the first of ``bodies`` is what it says."""
        title = self._titles.pop()
        if rule == "latest_signed":
            return latest_signed(self.draft, title, bodies)
        if rule == "in_force":
            date = self.short("date", self.carried("date", random_date(self.draft)))
            return in_force(self.draft, title, bodies, date)
        table, row = self.pick(lambda table, row: table.name in ISSUERS)
        issuer = self.short("entity", self.entity(depth, table, row))
        others = [other["name"] for other in self.draft.some(table.rows, len(bodies)) if other is not row]
        return issued_by(self.draft, title, bodies, issuer, others[: len(bodies) - 1])

    # --- entities --------------------------------------------------------------------------------------------------

    def pick(self, fit: Callable[[Table, Row], bool]) -> tuple[Table, Row]:
        """A table and one of its entities for which ``fit`` holds; Reject where some tries find none."""
        for _ in range(60):
            table = self.draft.table()
            row = self.draft.pick(table.rows)
            if fit(table, row):
                return table, row
        raise Reject("no entity fits")

    def revised(self, *kinds: str, least: int = 2) -> tuple[Table, Row]:
        """An entity with ``least`` entries or more for a column of one of these kinds (any where none is given)."""

        def fit(table: Table, row: Row) -> bool:
            revisions = self.draft.world.history(table.name, row["name"])
            return len(revisions) >= least and (not kinds or table.column(revisions[0].column).kind in kinds)

        return self.pick(fit)

    def entity(self, depth: int, table: Table, row: Row, *, plain: bool = False) -> Term:
        """An entity that ``depth`` hops lead to, or fewer where the atlas has no way to it.

        Args:
            depth: hops, the first from a piece of evidence.
            table: the entity's table.
            row: the entity.
            plain: whether no version of a document leads to it. Where one of several entities or days decides, a
                wrong version may lead to the right answer, and the one that counts would not be needed.
        """
        self._plain = plain
        return self._entity(depth, table, row)

    def _entity(self, depth: int, table: Table, row: Row) -> Term:
        require((table.name, row["name"]) not in self._visited, "one entity twice")
        self._visited.add((table.name, row["name"]))
        ways = [way for hop in HOPS for way in hop(self.draft, table, row) if way.key not in self._visited]
        if depth > 1 and ways:
            way = self.draft.pick(ways)
            before = self.short("entity", self._entity(depth - 1, way.source, way.start))
            return self.seen(way.go(before))
        leaves = [
            leaf for leaf in LEAVES.values() if leaf.holds(self, table, row) and not (self._plain and leaf.version)
        ]
        return self.seen(self.draft.pick(leaves).make(self, table, row))

    # --- the question ----------------------------------------------------------------------------------------------

    def ask(self, term: Term) -> Question:
        """The finished question, with files that nobody needs.

        Raises:
            Reject: the answer stands in a file, or one piece of evidence is enough.
        """
        for _ in range(self.draft.rng.randrange(*DECOYS)):
            named = [name for name, content in self.draft.files.items() if not _versioned(content)]
            if named and self.draft.rng.random() < 0.6:
                look_alike(self.draft, self.draft.pick(named))
            else:
                unrelated(self.draft)
        question = self.draft.ask(term, context=" ".join(self._lets))
        require(len(question.needs) > 1, "one piece of evidence is enough")
        require(not holds(question.files, term.text), "the answer stands in a file")
        return question


# --- where an entity comes from ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Leaf:
    """A way to an entity from a piece of evidence."""

    holds: Callable[[Composition, Table, Row], bool]
    make: Callable[[Composition, Table, Row], Term]
    version: bool = False
    """Whether it always takes a version of a document."""


def _descriptions(composition: Composition, table: Table, row: Row) -> list[Description]:
    found = composition.draft.world.descriptions(table.name, row["name"])
    return [one for one in found if one.kind != "ref" and len(one.value) > 2]  # two letters stand on every page


def elsewhere(composition: Composition, table: Table, row: Row) -> list[Row]:
    """Some other entities from which no hop leads to where one leads from this one."""
    refs = table.of_kind("ref")
    others = composition.draft.some(table.rows, min(16, len(table.rows)))
    return [one for one in others if one is not row and all(one[ref.name] != row[ref.name] for ref in refs)]


def _described(composition: Composition, table: Table, row: Row) -> Term:
    """By its nickname, code, capital, captain, ..."""
    draft = composition.draft
    description = draft.pick(_descriptions(composition, table, row))
    others = elsewhere(composition, table, row)
    if description.kind == "alias":
        values = [draft.world.alias(table.name, one["name"]) for one in others]
    else:
        values = [one[description.column] for one in others]
    what = "code" if description.kind == "code" else "name"
    text = composition.text(what, description.value, [value for value in values if value])
    return looked_up(draft, table, row, description, text)


def _called(composition: Composition, table: Table, row: Row) -> Term:
    """By its name, which the version of a document states that counts."""
    others = [one["name"] for one in elsewhere(composition, table, row)]
    name = composition.version("name", row["name"], others=others)
    return called(composition.draft, table, composition.short("text", name))


def _subject(composition: Composition, table: Table, row: Row) -> Term:
    draft = composition.draft
    ending = draft.pick(("txt", "md", "docx", "pdf"))
    return dated_letter(draft, table, row["name"], random_date(draft), ending, composition.box())[0]


def _recorded(composition: Composition, table: Table, row: Row) -> Term:
    """By a record of it, whose reference some medium carries."""
    draft = composition.draft
    ledger = draft.pick([ledger for ledger in LEDGERS if ledger.table == table.name])
    records = draw_records(draft, draft.rng.randrange(12, 24), ledger=ledger)
    at = draft.rng.randrange(len(records.rows))
    rows = tuple({**one, ledger.key: row["name"]} if i == at else one for i, one in enumerate(records.rows))
    ending = composition.fresh(("csv", "tsv", "sqlite", "json"), lambda ending: _TOOLS[ending])
    apart = {one["name"] for one in elsewhere(composition, table, row)}
    others = [str(one["Reference"]) for one in rows if one[ledger.key] in apart]
    reference = composition.text("code", str(rows[at]["Reference"]), others)
    table_rows = tabulated(draft, replace(records, rows=rows), ending, composition.box())
    return referenced(draft, table_rows, reference, ledger.key)


_TOOLS = {"csv": "table", "tsv": "table", "sqlite": "database", "json": "document"}

LEAVES: Mapping[str, Leaf] = MappingProxyType(
    {
        "described": Leaf(lambda c, table, row: bool(_descriptions(c, table, row)), _described),
        "called": Leaf(lambda c, table, row: True, _called, version=True),
        "subject": Leaf(lambda c, table, row: True, _subject),
        "recorded": Leaf(lambda c, table, row: any(one.table == table.name for one in LEDGERS), _recorded),
    }
)
"""Ways to an entity from a piece of evidence, by name."""


def _other(draft: Draft, what: str, value: str | int) -> str | int:
    """Another value of the same kind."""
    if isinstance(value, int):
        return draft.rng.randrange(max(2, value // 3), 2 * value + 20)
    return random_date(draft) if what == "date" else random_code(draft)


def _versioned(content: Content) -> bool:
    return isinstance(content, Doc) and content.title.lower() in DOCUMENTS


def holds(files: Mapping[str, Content], text: str) -> bool:
    """Whether a text stands, as a word or words of its own, in one of the files."""
    pattern = re.compile(rf"(?<![\w.-]){re.escape(text)}(?![\w-]|\.\d)", re.I)
    return any(pattern.search(repr(content)) for content in files.values())
