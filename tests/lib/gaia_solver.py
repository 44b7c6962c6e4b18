"""A second solver, independent of the generator: it has the question's text, the files and the pages, nothing else.

It shares no code with ``envs.gaia``: it reads the question with a grammar of its own (``gaia_grammar``), files with
other readers than the tools' (``gaia_readers``, ``gaia_media``), and computes in its own way (here, in ``gaia_places``
and in ``gaia_findings``). It raises where something that it needs is missing, so that it also shows which files and
pages a question needs.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

from gaia_findings import Evidence
from gaia_grammar import Node, Reader
from gaia_places import date_of, high
from gaia_readers import table

FRAME = re.compile(
    r"(?:What is|Which are|Who is|Find|Work out|Name|(?:(?:Please|Can you) tell me|I need to know|Find out|Determine)"
    r"(?: who is)?|I am looking for|(?:Please|Can you|Could you) (?:find|name|list|work out)) (the .+)[.?]"
)
LET = re.compile(
    r"(?:Let (the [a-z -]+?) be|By (the [a-z -]+?) we mean|In what follows, (the [a-z -]+?) is|"
    r"Here (the [a-z -]+?) means) (.+)\."
)


class Solver(Evidence):
    """Solves one task.

    Args:
        prompt: the question.
        folder: where the task's files are.
        pages: address -> page with ``title`` and ``text``.
    """

    def __init__(self, prompt: str, folder: Path, pages: Mapping[str, Any]):
        super().__init__(folder, pages)
        body = prompt.partition("\n\n")[0]
        self.asked: Sequence[Node] = ()
        self.hint = ""
        names = [page.title for page in pages.values()]
        for sentence in re.split(r"(?<=[.?]) ", body):
            if match := LET.fullmatch(sentence):
                *roles, phrase = match.groups()
                (role,) = filter(None, roles)
                assert role not in self.roles, f"{role} is defined twice"
                self.roles[role] = self._read(phrase, names)
            elif match := FRAME.fullmatch(sentence):
                assert not self.asked, f"two questions in {body!r}"
                self.asked = self._read(match[1], names)
            else:
                self.hint = sentence
        assert self.asked, f"no question in {body!r}"

    def _read(self, phrase: str, names: Sequence[str]) -> Sequence[Node]:
        found = Reader(phrase, names, tuple(self.roles)).readings()
        assert found, f"{phrase!r} cannot be read"
        return found

    def solve(self) -> str:
        """The answer, as it is to be written."""
        return self._written(self._one(self.asked))

    def readings(self) -> list[int]:
        """In how many ways the question, and each definition, can be read."""
        return [len(nodes) for nodes in (self.asked, *self.roles.values())]

    def _written(self, value: Any) -> str:
        if isinstance(value, list):
            return ", ".join(sorted(value))
        decimals = re.search(r"(\d) decimal", self.hint)
        if isinstance(value, Fraction) or decimals:
            exact = Fraction(value)
            unit = Decimal(1).scaleb(-int(decimals[1]) if decimals else 0)
            return str((Decimal(exact.numerator) / Decimal(exact.denominator)).quantize(unit, ROUND_HALF_UP))
        return str(value)

    # --- rows -------------------------------------------------------------------------------------------------------

    def _total(self, node: Node) -> Fraction:
        return sum((Fraction(line[node.measure]) for line in self.rows(node.rows)), Fraction(0))

    def _count(self, node: Node) -> Fraction:
        return Fraction(len(self.rows(node.rows)))

    def _average(self, node: Node) -> Fraction:
        return self._total(node) / len(self.rows(node.rows))

    def _spread(self, node: Node) -> Fraction:
        values = [Fraction(line[node.measure]) for line in self.rows(node.rows)]
        return max(values) - min(values)

    def _cell(self, node: Node) -> Any:
        line = self.row(node.row)
        return date_of(line) if node.label == "date" else line[node.label]

    def _top_group(self, node: Node) -> str:
        totals: dict[str, Fraction] = defaultdict(Fraction)
        for line in self.rows(node.rows):
            totals[line[node.noun]] += Fraction(line[node.measure])
        return (max if high(node) else min)(totals, key=lambda name: totals[name])

    def _top_product(self, node: Node) -> str:
        values = {
            line[node.noun]: Fraction(line[node.measure]) * Fraction(line[node.measure2])
            for line in self.rows(node.rows)
        }
        return (max if high(node) else min)(values, key=lambda name: values[name])

    # --- numbers ----------------------------------------------------------------------------------------------------

    def _literal(self, node: Node) -> Fraction:
        return Fraction(node.int)

    def _difference(self, node: Node) -> Fraction:
        return abs(self.number(node.number) - self.number(node.number2))

    def _sum(self, node: Node) -> Fraction:
        return self.number(node.number) + self.number(node.number2)

    def _product(self, node: Node) -> Fraction:
        return self.number(node.number) * self.number(node.number2)

    def _percent(self, node: Node) -> Fraction:
        return self.number(node.number) * self.number(node.number2) / 100

    def _larger(self, node: Node) -> Fraction:
        return max(self.number(node.number), self.number(node.number2))

    def _smaller(self, node: Node) -> Fraction:
        return min(self.number(node.number), self.number(node.number2))

    def _converted(self, node: Node) -> Fraction:
        return Fraction(node.decimal) * self.number(node.number)

    def _days(self, node: Node) -> Fraction:
        days = (self.day(node.date2) - self.day(node.date)).days
        assert days > 0
        return Fraction(days)

    def _route(self, node: Node) -> Fraction:
        ways = [(line["from"], line["to"], int(line["length"])) for line in table(*self.file(node.file))]
        ways += [(there, here, length) for here, there, length in ways]
        far = {place: 10**9 for place, _, _ in ways} | {self.value(node.entity): 0}
        for _ in far:
            for here, there, length in ways:
                far[there] = min(far[there], far[here] + length)
        return Fraction(far[self.value(node.entity2)])
