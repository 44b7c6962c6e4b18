"""What the independent solver makes of the atlas, of pictures and recordings, and of documents."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict
from fractions import Fraction
from functools import cached_property
from typing import Any

import gaia_media
from gaia_grammar import ATTRIBUTES, Node
from gaia_places import Places, high, plain
from gaia_readers import Document, Line, address, document, grids, members, table


class Evidence(Places):
    """Values from single pieces of evidence; each method is called as its kind of phrase."""

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
        return plain(self.facts(self.value(node.entity))[ATTRIBUTES[node.attribute]])

    def entries(self, node: Node) -> list[tuple[str, str]]:
        """The dated entries of an entity's attribute."""
        name, label = self.value(node.entity), ATTRIBUTES[node.attribute]
        (page,) = (p for p in self.by_title[f"Revision history of {name}"] if f" {node.attribute} of " in p.text)
        found = re.findall(rf"^(\d{{4}}-\d\d-\d\d): {re.escape(label)} (.+) \([^()]+\)$", page.text, re.M)
        assert len(found) > 1
        return sorted((date, plain(value)) for date, value in found)

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
        return (max if high(node) else min)(values, key=lambda name: _sortable(values[name]))

    def _weighted(self, node: Node) -> Fraction:
        lines = table(*self.file(node.entities.file))
        key = self._key(lines)
        label = ATTRIBUTES[node.attribute]
        return sum(
            (Fraction(line[node.measure]) * Fraction(plain(self.facts(line[key])[label])) for line in lines),
            Fraction(0),
        )

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
        return (max if high(node) else min)(gaia_media.bars(self.file(file)[1]), key=lambda bar: bar[1])

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


def _sortable(value: str) -> Any:
    return value if re.fullmatch(r"\d{4}-\d\d-\d\d", value) else Fraction(plain(value))


def _statement(text: str, quantity: str) -> str:
    """What the sentence about a quantity says, without its unit."""
    (found,) = re.findall(rf"\bThe {quantity} is (.+?)\.(?:\s|$)", text)
    return plain(found)


def _letter(found: Document) -> tuple[str, str, str]:
    """Entity, event and date."""
    subject = re.search(r"Subject: (\w+) of (.+)", found.text)
    date = re.search(r"The (\w+) took place on (\d{4}-\d\d-\d\d)\.", found.text)
    assert subject and date and subject[1] == date[1]
    return subject[2].strip(), subject[1], date[2]


def _after_colon(text: str) -> str:
    return text.rpartition(": ")[2].strip()
