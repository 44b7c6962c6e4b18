"""A second solver, independent of the generator: it has the question's text, the files and the pages, nothing else.

It shares no code with ``envs.gaia``: it reads the question with a grammar of its own (``gaia_grammar``), files with
other readers than the tools' (``gaia_readers``, ``gaia_media``), and computes in its own way. It raises where something
that it needs is missing, so that it also shows which files and pages a question needs.
"""

from __future__ import annotations

import datetime
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

import gaia_media
from gaia_grammar import ATTRIBUTES, HIGH, LOW, RANKS, Node, Reader
from gaia_readers import Document, Line, address, document, grids, members, table

FRAME = re.compile(
    r"(?:What is|Which are|Who is|Find|Work out|Name|(?:(?:Please|Can you) tell me|I need to know|Find out|Determine)"
    r"(?: who is)?|I am looking for|(?:Please|Can you|Could you) (?:find|name|list|work out)) (the .+)[.?]"
)
LET = re.compile(
    r"(?:Let (the [a-z -]+?) be|By (the [a-z -]+?) we mean|In what follows, (the [a-z -]+?) is|"
    r"Here (the [a-z -]+?) means) (.+)\."
)


class Solver:
    """Solves one task.

    Args:
        prompt: the question.
        folder: where the task's files are.
        pages: address -> page with ``title`` and ``text``.
    """

    def __init__(self, prompt: str, folder: Path, pages: Mapping[str, Any]):
        self.folder, self.pages = folder, pages
        body = prompt.partition("\n\n")[0]
        self.roles: dict[str, Sequence[Node]] = {}
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

    def _one(self, nodes: Sequence[Node]) -> Any:
        """What all readings mean; one that means nothing does not count where another does."""
        values, errors = [], []
        for node in nodes:
            try:
                values.append(self.value(node))
            except (AssertionError, ArithmeticError, LookupError, OSError, ValueError) as error:
                errors.append(error)
        if not values:
            raise errors[0]
        assert all(value == values[0] for value in values), f"the question means {values}"
        return values[0]

    def _written(self, value: Any) -> str:
        if isinstance(value, list):
            return ", ".join(sorted(value))
        decimals = re.search(r"(\d) decimal", self.hint)
        if isinstance(value, Fraction) or decimals:
            exact = Fraction(value)
            unit = Decimal(1).scaleb(-int(decimals[1]) if decimals else 0)
            return str((Decimal(exact.numerator) / Decimal(exact.denominator)).quantize(unit, ROUND_HALF_UP))
        return str(value)

    # --- what stands where ------------------------------------------------------------------------------------------

    def value(self, node: Node) -> Any:
        """What a phrase means: a Fraction, a text (dates too), or a list of names."""
        return getattr(self, f"_{node.kind}")(node)

    def number(self, node: Node) -> Fraction:
        return Fraction(self.value(node))

    def day(self, node: Node) -> datetime.date:
        return datetime.date.fromisoformat(self.value(node))

    def _role(self, node: Node) -> Any:
        return self._one(self.roles[node.role])

    def file(self, node: Node) -> tuple[str, bytes]:
        """Name and content of a file."""
        match node.kind:
            case "file":
                return node.filename, (self.folder / node.filename).read_bytes()
            case "inside":
                return node.filename, members(*self.file(node.file))[node.filename]
            case "final":
                inside = members(*self.file(node.file))
                (final,) = re.findall(r"Only ([\w.-]+) has the final figures", self.document(node.file2).text)
                return final, inside[final]
            case "latest_signed":
                signed = [v for v in self.versions(node.document) if _line(v, "Status") == "signed"]
                return self._last(signed, "Dated")
            case "in_force":
                until = self.day(node.date).isoformat()
                begun = [v for v in self.versions(node.document) if _line(v, "In force from") <= until]
                return self._last(begun, "In force from")
            case "issued_by":
                issuer = self.value(node.entity)
                (one,) = (v for v in self.versions(node.document) if _line(v, "Issued by") == issuer)
                return one
        raise ValueError(f"no file is {node.kind}")

    def versions(self, title: str) -> list[tuple[str, bytes]]:
        """The attached documents of that title."""
        found = []
        for path in sorted(self.folder.iterdir()):
            if path.name.endswith((".txt", ".md", ".html", ".docx", ".pdf")):
                data = path.read_bytes()
                kind, first = document(path.name, data).parts[0]
                if kind == "title" and first.lower() == title:
                    found.append((path.name, data))
        assert len(found) > 1, f"no versions of {title!r}"
        return found

    def _last(self, versions: Sequence[tuple[str, bytes]], label: str) -> tuple[str, bytes]:
        return max(versions, key=lambda version: _line(version, label))

    def document(self, node: Node) -> Document:
        return document(*self.file(node))

    def rows(self, node: Node) -> list[Line]:
        place = node.place
        match place.kind:
            case "in_file":
                found = table(*self.file(place.file))
            case "on_sheet":
                found = table(*self.file(place.file), place.sheet)
            case "in_table":
                found = table(*self.file(place.file), place.table)
            case "together":
                one, other = (table(*self.file(place.file), sheet) for sheet in (place.sheet, place.sheet2))
                found = one + other
            case "joined":
                one, other = (table(*self.file(place.file), sheet) for sheet in (place.sheet, place.sheet2))
                (key,) = set(one[0].cells) & set(other[0].cells)
                by_key = {line[key]: line.cells for line in other}
                assert len(by_key) == len(other)
                found = [Line(line.cells | by_key[line[key]]) for line in one]
        if node.kind == "referenced":
            return found
        if node.seen:
            assert any(line.hidden for line in found), "nothing is hidden"
            found = [line for line in found if line.hidden == (node.seen == "hidden ")]
        for one_filter in node.filters:
            found = [line for line in found if self._passes(line, one_filter)]
            assert found, f"no row is left after {one_filter}"
        return found

    def _passes(self, line: Line, node: Node) -> bool:
        match node.kind:
            case "has":
                return line[node.label] == node.quoted.strip('"')
            case "has_text":
                return line[node.label] == self.value(node.text)
            case "in_year":
                return _date(line).startswith(f"{node.year}-")
            case "after":
                return _date(line) > self.day(node.date).isoformat()
            case "before":
                return _date(line) < self.day(node.date).isoformat()
            case "above":
                return Fraction(line[node.measure]) > self.number(node.number)
            case "below":
                return Fraction(line[node.measure]) < self.number(node.number)
        raise ValueError(f"no filter is {node.kind}")

    def row(self, node: Node) -> Line:
        if node.kind == "referenced":
            reference = self.value(node.text)
            (found,) = (line for line in self.rows(node) if line["reference"] == reference)
            return found
        order = sorted(self.rows(node.rows), key=lambda line: Fraction(line[node.measure]), reverse=_high(node))
        return order[RANKS[node.ordinal] - 1]

    def entities(self, node: Node) -> list[str]:
        if node.kind == "those":
            return [self._one(self.roles[role]) for role in node.roles]
        if node.kind == "these":
            return list(node.several)
        return self._listed(node.file)

    def _listed(self, file: Node) -> list[str]:
        """The names that a file lists: the items of its list, or the column of its table that names entities."""
        name, data = self.file(file)
        if name.endswith((".txt", ".md", ".html", ".docx", ".pdf", ".pptx", ".eml")):
            found = document(name, data)
            if found.items:
                return [re.sub(r"^\w+ \d+: ", "", item) for item in found.items]
            lines = found.table
        else:
            lines = table(name, data)
        return [line[self._key(lines)] for line in lines]

    def _key(self, lines: list[Line]) -> str:
        """The column whose cells are names of the atlas."""
        (key,) = (label for label in lines[0].cells if all(line[label] in self.by_title for line in lines))
        return key

    # --- the atlas --------------------------------------------------------------------------------------------------

    @cached_property
    def by_title(self) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = defaultdict(list)
        for page in self.pages.values():
            found[page.title].append(page)
        return found

    def facts(self, name: str) -> dict[str, str]:
        """The facts of the entity of that name."""
        pages = [page for page in self.by_title[name] if page.text.startswith(f"{name} is a")]
        assert len(pages) == 1, f"{len(pages)} pages are about {name!r}"
        return dict(line.split(": ", 1) for line in pages[0].text.splitlines() if ": " in line)

    def _fact(self, node: Node) -> Any:
        return _plain(self.facts(self.value(node.entity))[ATTRIBUTES[node.attribute]])

    def entries(self, node: Node) -> list[tuple[str, str]]:
        """The dated entries of an entity's attribute."""
        name, label = self.value(node.entity), ATTRIBUTES[node.attribute]
        (page,) = (p for p in self.by_title[f"Revision history of {name}"] if f" {node.attribute} of " in p.text)
        found = re.findall(rf"^(\d{{4}}-\d\d-\d\d): {re.escape(label)} (.+) \([^()]+\)$", page.text, re.M)
        assert len(found) > 1
        return sorted((date, _plain(value)) for date, value in found)

    def _as_of(self, node: Node) -> Any:
        until = self.day(node.date).isoformat()
        return [value for date, value in self.entries(node) if date <= until][-1]

    def _before_last(self, node: Node) -> Any:
        return self.entries(node)[-2][1]

    def _first_entry(self, node: Node) -> Any:
        return self.entries(node)[0][1]

    def _revised_on(self, node: Node) -> Any:
        return self.entries(node)[-1][0]

    def _named(self, node: Node) -> str:
        return self._of_kind(node.noun, node.name)

    def _of_kind(self, noun: str, name: str) -> str:
        """The name itself, where the atlas has such an entity."""
        (page,) = self.by_title[name]
        assert re.match(rf"{re.escape(name)} is an? {noun} in this atlas\.", page.text), f"{name} is no {noun}"
        return name

    def _called(self, node: Node) -> str:
        said = self.value(node.text).casefold()
        (name,) = (title for title in self.by_title if title.casefold() == said)
        return self._of_kind(node.noun, name)

    def _coded(self, node: Node) -> str:
        line, said = ATTRIBUTES[node.attribute], self.value(node.text).casefold()
        (page,) = (
            page
            for page in self.pages.values()
            if re.search(rf" is an? {node.noun} in this atlas\.", page.text)
            and f"\n{line}: {said}\n".casefold() in f"{page.text}\n".casefold()
        )
        return page.title

    def _nicknamed(self, node: Node) -> str:
        said = self.value(node.text).casefold()
        (page,) = (page for page in self.pages.values() if page.title.casefold() == said)
        match = re.match(rf".+ is a nickname of the {node.noun} (.+)\.$", page.text, re.M)
        assert match, page.text
        return match[1]

    def _only(self, node: Node) -> str:
        ending = f" by {ATTRIBUTES[node.attribute].lower()}: {self.value(node.entity)}"
        found = [p for p in self.pages.values() if p.title.startswith("List of ") and p.title.endswith(ending)]
        lists = [page.text.splitlines()[1:] for page in found]
        (names,) = (one for one in lists if self._is_kind(node.noun, one[0]))
        (name,) = names
        return name

    def _is_kind(self, noun: str, name: str) -> bool:
        return any(re.match(rf".+ is an? {noun} in this atlas\.", page.text) for page in self.by_title[name])

    def _best(self, node: Node) -> str:
        values = {name: self.facts(name)[ATTRIBUTES[node.attribute]] for name in self.entities(node.entities)}
        assert len(values) > 1
        return (max if _high(node) else min)(values, key=lambda name: _sortable(values[name]))

    def _weighted(self, node: Node) -> Fraction:
        lines = table(*self.file(node.entities.file))
        key = self._key(lines)
        label = ATTRIBUTES[node.attribute]
        return sum(
            (Fraction(line[node.measure]) * Fraction(_plain(self.facts(line[key])[label])) for line in lines),
            Fraction(0),
        )

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
        return _date(line) if node.label == "date" else line[node.label]

    def _top_group(self, node: Node) -> str:
        totals: dict[str, Fraction] = defaultdict(Fraction)
        for line in self.rows(node.rows):
            totals[line[node.noun]] += Fraction(line[node.measure])
        return (max if _high(node) else min)(totals, key=lambda name: totals[name])

    def _top_product(self, node: Node) -> str:
        values = {
            line[node.noun]: Fraction(line[node.measure]) * Fraction(line[node.measure2])
            for line in self.rows(node.rows)
        }
        return (max if _high(node) else min)(values, key=lambda name: values[name])

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

    # --- media ------------------------------------------------------------------------------------------------------

    def _tiles(self, node: Node) -> Fraction:
        return Fraction(gaia_media.tiles(self.file(node.file)[1])[node.colour])

    def _bill(self, node: Node) -> Fraction:
        prices = {line["colour"]: int(line["price"]) for line in table(*self.file(node.file2))}
        counts = gaia_media.tiles(self.file(node.file)[1])
        return Fraction(sum(prices[colour] * count for colour, count in counts.items()))

    def _bar(self, node: Node) -> Fraction:
        (height,) = (h for colour, h, _ in gaia_media.bars(self.file(node.file)[1]) if colour == node.colour)
        return Fraction(height)

    def _labelled_bar(self, node: Node) -> Fraction:
        said = node.quoted.strip('"')
        (height,) = (h for _, h, label in gaia_media.bars(self.file(node.file)[1]) if label == said)
        return Fraction(height)

    def _labelled_top_bar(self, node: Node) -> str:
        return self._top_bar(node, node.file)[2]

    def _legend_bar(self, node: Node) -> str:
        colour = self._top_bar(node, node.file2)[0]
        lines = table(*self.file(node.file))
        (line,) = (line for line in lines if line["colour"] == colour)
        (name,) = (value for label, value in line.cells.items() if label != "colour")
        return name

    def _top_bar(self, node: Node, file: Node) -> tuple[str, int, str]:
        return (max if _high(node) else min)(gaia_media.bars(self.file(file)[1]), key=lambda bar: bar[1])

    def _tones(self, node: Node) -> Fraction:
        return Fraction(gaia_media.tones(self.file(node.file)[1])[node.pitch])

    def _qr(self, node: Node) -> str:
        return gaia_media.qr(self.file(node.file)[1])

    def _morse(self, node: Node) -> str:
        return gaia_media.morse(self.file(node.file)[1])

    def _dialled(self, node: Node) -> str:
        return gaia_media.dialled(self.file(node.file)[1])

    def _lettered(self, node: Node) -> str:
        return _after_colon("\n".join(gaia_media.lettering(self.file(node.file)[1])))

    def _printed(self, node: Node) -> str:
        """What a program prints; it is run without the other files, and must not need them."""
        source = self.file(node.file)[1]
        done = subprocess.run([sys.executable, "-I", "-"], input=source, capture_output=True, timeout=20, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.decode().strip()

    def _spreadsheet_cell(self, node: Node) -> str:
        rows, _ = grids(self.file(node.file)[1])[node.sheet]
        y, x = address(node.cell)
        return rows[y - 1][x - 1]

    # --- documents --------------------------------------------------------------------------------------------------

    def _stated(self, node: Node) -> str:
        return _statement(self.document(node.file).text, node.quantity)

    def _noted(self, node: Node) -> str:
        return _statement(self.document(node.file).notes, node.quantity)

    def _subject(self, node: Node) -> str:
        entity, _, _ = _letter(self.document(node.file))
        return self._of_kind(node.noun, entity)

    def _event_date(self, node: Node) -> str:
        _, event, date = _letter(self.document(node.file))
        assert event == node.event
        return date

    def _event_order(self, node: Node) -> str:
        found = [_letter(document(name, data)) for name, data in members(*self.file(node.file)).items()]
        assert len(found) > 2 and all(event == node.event for _, event, _ in found)
        return (min if node.order in ("first", "earliest") else max)(found, key=lambda letter: letter[2])[0]

    def _shared(self, node: Node) -> str:
        lists: dict[str, set[str]] = {}
        current = ""
        for kind, text in self.document(node.file).parts:
            if match := re.search(r"\b(\w+) list:$", str(text)) if kind == "text" else None:
                current = match[1]
                lists[current] = set()
            elif kind == "item":
                lists[current].add(text)
        (name,) = lists[node.list] & lists[node.list2]
        return name

    def _missing(self, node: Node) -> list[str]:
        names = set(self._listed(node.file))
        assert len(names) > 3
        for file in node.files:
            here = set(self._listed(file))
            assert here & names, "a file that says nothing about them"
            names -= here
        return sorted(names)


def _high(node: Node) -> bool:
    assert node.superlative in (*HIGH, *LOW, "earliest", "latest")
    return node.superlative in (*HIGH, "latest")


def _plain(value: str) -> str:
    """A fact: a number without its unit, or a text."""
    number = re.match(r"-?\d+(?:\.\d+)?(?= [a-z]|$)", value)
    return number[0] if number else value


def _sortable(value: str) -> Any:
    return value if re.fullmatch(r"\d{4}-\d\d-\d\d", value) else Fraction(_plain(value))


def _date(line: Line) -> str:
    """The cell of the only column of dates."""
    (found,) = (value for value in line.cells.values() if re.fullmatch(r"\d{4}-\d\d-\d\d", value))
    return found


def _line(version: tuple[str, bytes], label: str) -> str:
    """What a version of a document says after the label."""
    (found,) = re.findall(rf"^{label}: (.+)$", document(*version).text, re.M)
    return found


def _statement(text: str, quantity: str) -> str:
    """What the sentence about a quantity says, without its unit."""
    (found,) = re.findall(rf"\bThe {quantity} is (.+?)\.(?:\s|$)", text)
    return _plain(found)


def _letter(found: Document) -> tuple[str, str, str]:
    """Entity, event and date."""
    subject = re.search(r"Subject: (\w+) of (.+)", found.text)
    date = re.search(r"The (\w+) took place on (\d{4}-\d\d-\d\d)\.", found.text)
    assert subject and date and subject[1] == date[1]
    return subject[2].strip(), subject[1], date[2]


def _after_colon(text: str) -> str:
    return text.rpartition(": ")[2].strip()
