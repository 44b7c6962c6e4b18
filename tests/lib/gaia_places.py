"""What the independent solver knows of places: files, their rows, versions of documents, and what is named before."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from gaia_grammar import HIGH, LOW, RANKS, Node
from gaia_readers import Document, Line, document, members, table


class Places:
    """Where values stand.

    Args:
        folder: where the task's files are.
        pages: address -> page with ``title`` and ``text``.
    """

    def __init__(self, folder: Path, pages: Mapping[str, Any]):
        self.folder, self.pages = folder, pages
        self.roles: dict[str, Sequence[Node]] = {}

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
                signed = [v for v in self.versions(node.document) if labelled(v, "Status") == "signed"]
                return self._last(signed, "Dated")
            case "in_force":
                until = self.day(node.date).isoformat()
                begun = [v for v in self.versions(node.document) if labelled(v, "In force from") <= until]
                return self._last(begun, "In force from")
            case "issued_by":
                issuer = self.value(node.entity)
                (one,) = (v for v in self.versions(node.document) if labelled(v, "Issued by") == issuer)
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
        return max(versions, key=lambda version: labelled(version, label))

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
                return date_of(line).startswith(f"{node.year}-")
            case "after":
                return date_of(line) > self.day(node.date).isoformat()
            case "before":
                return date_of(line) < self.day(node.date).isoformat()
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
        order = sorted(self.rows(node.rows), key=lambda line: Fraction(line[node.measure]), reverse=high(node))
        return order[RANKS[node.ordinal] - 1]

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


def high(node: Node) -> bool:
    assert node.superlative in (*HIGH, *LOW, "earliest", "latest")
    return node.superlative in (*HIGH, "latest")


def plain(value: str) -> str:
    """A fact: a number without its unit, or a text."""
    number = re.match(r"-?\d+(?:\.\d+)?(?= [a-z]|$)", value)
    return number[0] if number else value


def date_of(line: Line) -> str:
    """The cell of the only column of dates."""
    (found,) = (value for value in line.cells.values() if re.fullmatch(r"\d{4}-\d\d-\d\d", value))
    return found


def labelled(version: tuple[str, bytes], label: str) -> str:
    """What a version of a document says after the label."""
    (found,) = re.findall(rf"^{label}: (.+)$", document(*version).text, re.M)
    return found
