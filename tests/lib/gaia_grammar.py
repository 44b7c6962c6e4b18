"""How the independent solver reads a question: recursive descent over its one noun phrase, to a tree.

The phrases are written down here a second time, by hand, from what the words mean; nothing is taken from the
generator. ``(a|b)`` in a pattern are alternatives, ``<slot>`` is another noun phrase or a word of :data:`WORDS`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

HIGH, LOW = ("highest", "greatest", "largest", "tallest"), ("lowest", "smallest", "least", "shortest")
RANKS = {"": 1, "second ": 2, "third ": 3, "fourth ": 4, "fifth ": 5}


@dataclass(frozen=True)
class Node:
    """What was read: a kind of phrase, and by slot what stands in it (a node, a text, or several nodes)."""

    kind: str
    slots: tuple[tuple[str, Any], ...]

    def __getattr__(self, name: str) -> Any:
        for slot, value in self.slots:
            if slot == name:
                return value
        raise AttributeError(f"a {self.kind!r} has no {name!r}")


# Facts and cells are said alike whether they are numbers, dates or names: what they are shows when they are looked up.
_VALUE = {
    "fact": "the <attribute> (of|that the atlas gives for) <entity>",
    "cell": "the <label> (of|recorded for) <row>",
    "qr": "the <what> (in the QR code <file>|that the QR code <file> holds)",
    "morse": "the <what> (sent in Morse code in <file>|that <file> holds in Morse code)",
    "dialled": "the <what> (dialled in <file>|that the telephone tones in <file> dial)",
    "lettered": "the <what> (written in the picture <file>|that the picture <file> shows)",
    "printed": "the <what> (that <file> prints|printed by <file>)",
    "spreadsheet_cell": 'the <what> (in cell <cell> on sheet "<sheet>" of <file>|'
    'that cell <cell> on sheet "<sheet>" of <file> holds)',
    "as_of": "the <attribute> (of <entity> as the atlas gave it on <date>|that the atlas gave for <entity> on <date>)",
    "before_last": "the <attribute> (of <entity> before its latest revision in the atlas|"
    "that the atlas gave for <entity> before the latest revision)",
    "first_entry": "the <attribute> (of <entity> as the atlas first gave it|that the atlas first gave for <entity>)",
    "role": "<role>",
    "stated": "the <quantity> (stated in <file>|that <file> states|given in <file>)",
    "noted": "the <quantity> (stated in the speaker notes of <file>|that the speaker notes of <file> state)",
}

GRAMMAR: Mapping[str, Mapping[str, str]] = {
    "question": {"names": "<names>", "number": "<number>", "date": "<date>", "text": "<text>", "entity": "<entity>"},
    "number": {
        "literal": "<int>",
        "total": "the (total|combined|overall) <measure> of <rows>",
        "average": "the (average|mean|arithmetic mean of the) <measure> of <rows>",
        "spread": "the (spread from the lowest to the highest|distance from the smallest to the largest|"
        "highest minus the lowest) <measure> among <rows>",
        "count": "the (number|count) of <rows>",
        "weighted": "the (total of <measure> times <attribute>|sum of all products of <measure> and <attribute>) "
        "over <entities>",
        "difference": "the (difference between|gap between|amount that separates) <number> and <number2>",
        "sum": "the (sum of <number> and <number2>|result of adding <number> to <number2>|"
        "sum that <number> and <number2> make)",
        "product": "the (product of <number> and <number2>|result of multiplying <number> by <number2>|"
        "product that <number> and <number2> make)",
        "percent": "the (amount that is|result of taking) <number> percent of <number2>",
        "larger": "the (larger|greater) of <number> and <number2>",
        "smaller": "the (smaller|lesser) of <number> and <number2>",
        "converted": "the (value|equivalent) in <unit> (at <decimal> <unit2>) of <number>",
        "days": "the (number of days|count of days|time in days) from <date> to <date2>",
        "route": "the length of the shortest (route|way) from <entity> to <entity2> "
        "over the two-way links listed in <file>",
        "tiles": "the (number of <colour> tiles|count of <colour> tiles|number of tiles coloured <colour>) in <file>",
        "bill": "the (total price of all tiles in <file> by|cost of all tiles in <file> at) the prices in <file2>",
        "bar": "the (height in pixels|pixel height) of the <colour> bar in <file>",
        "labelled_bar": "the (height in pixels of the bar labelled|pixel height of the bar above) <quoted> in <file>",
        "tones": "the (number of <pitch> tones|count of <pitch> tones|number of tones of <pitch> pitch) in <file>",
        **_VALUE,
    },
    "date": {
        "revised_on": "the date (on which the atlas last revised the <attribute> of <entity>|"
        "of the latest revision of the <attribute> of <entity> in the atlas)",
        "event_date": "the date of the <event> (that <file> reports|reported in <file>)",
        **_VALUE,
    },
    "text": _VALUE,
    "entity": {
        "named": "the <noun> <name>",
        "best": "the <noun> (with the <superlative> <attribute> among|that has the <superlative> <attribute> of) "
        "<entities>",
        "top_group": "the <noun> (with the <superlative> total <measure> over|"
        "that has the <superlative> total <measure> in) <rows>",
        "top_product": "the <noun> (with the <superlative> product of <measure> and <measure2>|"
        "that has the <superlative> <measure> times <measure2>) among <rows>",
        "coded": "the <noun> (whose <attribute> is <text>|that has <text> as <attribute>)",
        "nicknamed": "the <noun> (whose nickname is|that goes by the nickname of) <text>",
        "only": "the (only <noun> whose <attribute> is <entity>|one <noun> that has <entity> as <attribute>)",
        "called": "the <noun> (whose name is <text>|that has <text> as its name)",
        "subject": "the <noun> (that <file> is about|that is the subject of <file>)",
        "labelled_top_bar": "the <noun> (above whose name the <superlative> bar stands|"
        "that labels the <superlative> bar) in <file>",
        "legend_bar": "the <noun> (that <file> gives|that stands in <file>) for the colour of the <superlative> "
        "bar in <file2>",
        "shared": "the (only <noun> on both the <list> list and the <list2> list in <file>|"
        "one <noun> that stands on the <list> list and the <list2> list in <file>)",
        "event_order": "the <noun> (that had the <order> <event>|whose <event> was the <order>) "
        "by the letters inside <file>",
        # no other value names an entity
        **{kind: _VALUE[kind] for kind in ("fact", "cell", "role")},
    },
    "row": {
        "ranked": "the <noun> (with the <ordinal><superlative> <measure> among|"
        "that has the <ordinal><superlative> <measure> of) <rows>",
        "referenced": "the <noun> <place> (whose reference is|with the reference) <text>",
    },
    "rows": {"rows": "the <seen><plural> <place><filters>"},
    "place": {
        "in_file": "(in|listed in|recorded in) <file>",
        "on_sheet": '(on|listed on) sheet "<sheet>" of <file>',
        "in_table": "(in|recorded in) table <table> of <file>",
        "together": 'on (the sheets "<sheet>" and "<sheet2>" of <file> together|'
        'either of the sheets "<sheet>" and "<sheet2>" of <file>)',
        "joined": 'on the (joined sheets "<sheet>" and "<sheet2>" of <file>|'
        'sheets "<sheet>" and "<sheet2>" of <file> joined)',
    },
    "filter": {
        "has": "(whose <label> is <quoted>|with <quoted> as <label>|that have <quoted> as <label>)",
        "has_text": "(whose <label> is <text>|with <text> as <label>)",
        "in_year": "(dated in|from the year) <year>",
        "after": "(dated|that came) after <date>",
        "before": "(dated|that came) before <date>",
        "above": "(with <measure> above|whose <measure> is more than) <number>",
        "below": "(with <measure> below|whose <measure> is less than) <number>",
    },
    "entities": {
        "listed": "the <plural> (listed in <file>|that <file> lists)",
        "these": "the <plural> <several>",
        "those": "<roles>",
    },
    "names": {
        "missing": "the <plural> (which are listed in <file> but in none of <files>|"
        "that <file> lists but none of <files> does)",
    },
    "file": {
        "file": "<filename>",
        "inside": "<filename> inside <file>",
        "latest_signed": "the (latest|most recent) signed version of the <document>",
        "in_force": "the version of the <document> (in force|that was in force) on <date>",
        "issued_by": "the version of the <document> (issued|that was issued) by <entity>",
        "final": "the file inside <file> (that <file2> calls final|called final in <file2>)",
    },
}

ATTRIBUTES: Mapping[str, str] = {
    "capital": "Capital",
    "area in square kilometres": "Area",
    "population": "Population",
    "date of the constitution": "Constitution in force since",
    "country": "Country",
    "country code": "Country code",
    "city": "City",
    "IATA code": "IATA code",
    "elevation in feet": "Elevation",
    "number of passengers per year": "Passengers per year",
    "opening date": "Opened",
    "atomic number": "Atomic number",
    "atomic mass in u": "Atomic mass",
    "symbol": "Symbol",
    "date in 2025": "Date in 2025",
    "date in 2026": "Date in 2026",
    "number of visitors": "Visitors",
    "character code": "Character",
    "number of printings": "Printings",
    "adoption date": "Adopted",
    "decimal code point": "Code point",
    "price per kilogram in crowns": "Price per kilogram",
    "melting point in kelvin": "Melting point",
    "date of first isolation": "First isolated",
    "mayor": "Mayor",
    "altitude in metres": "Altitude",
    "charter date": "Town charter",
    "postal code": "Postal code",
    "founder": "Founder",
    "town of the head office": "Head office",
    "register number": "Register number",
    "number of employees": "Employees",
    "revenue in thousand crowns": "Revenue",
    "registration date": "Registered",
    "keeper": "Keeper",
    "nearest town": "Nearest town",
    "installation date": "Installed",
    "station code": "Station code",
    "captain": "Captain",
    "home port": "Home port",
    "call sign": "Call sign",
    "tonnage": "Tonnage",
    "launch date": "Launched",
    "museum number": "Museum number",
    "curator": "Curator",
    "home town": "Home town",
    "number of exhibits": "Exhibits",
    "catalogue number": "Catalogue number",
    "author": "Author",
    "publisher": "Publisher",
    "number of pages": "Pages",
    "number of copies printed": "Copies printed",
    "publication date": "Published",
}
"""How questions name an attribute -> how pages do."""

_WORDS = {
    "int": r"\d+(?![\d.]*\d)",
    "decimal": r"\d+(?:\.\d+)?",
    "quoted": r'"[^"]*"',
    "superlative": "|".join((*HIGH, *LOW, "earliest", "latest")),
    "ordinal": "second |third |fourth |fifth |",
    "seen": "visible |hidden |",
    "colour": "red|green|blue|yellow|orange|purple",
    "pitch": "high|middle|low",
    "what": "number|code|word|name|date",
    "order": "first|earliest|last|latest",
    "event": "[a-z]+",
    "list": r"\w+",
    "sheet": r"\w+",
    "table": r"\w+",
    "cell": r"[A-Z]+\d+",
    "year": r"\d{4}",
    "filename": r"[\w-]+\.\w+",
}
_LOWER_CASE = ("measure", "label", "noun", "plural", "quantity", "unit", "document")
"""Slots of one to six words. The units of degrees have a capital."""
_SMALL = frozenset(
    "a among and as by for from hidden in is joined listed of on one only over recorded that the to visible whose "
    "with".split()
)
"""Words that stand in none of them, but for these."""
_SMALL_WITHIN = {"unit": _SMALL, "quantity": frozenset(("of", "on", "the"))}

Result = list[tuple[Any, int]]
"""Readings from a place on: what was read, and where it ends."""


def _choices(pattern: str) -> list[list[str]]:
    """The pattern's alternatives, each a list of literal texts and ``<slots>``. Alternatives are not nested."""
    parts = re.split(r"\((?!at )([^()]*)\)", pattern)  # "(at" stands in questions themselves
    ways = [[part] if i % 2 == 0 else part.split("|") for i, part in enumerate(parts)]
    return [[p for p in re.split(r"(<\w+>)", "".join(way)) if p] for way in itertools.product(*ways)]


_COMPILED = {
    symbol: [(kind, way) for kind, pattern in rules.items() for way in _choices(pattern)]
    for symbol, rules in GRAMMAR.items()
}


class Reader:
    """Reads one noun phrase.

    Args:
        text: the phrase.
        names: names of entities that may occur.
        roles: what sentences before have given a name to.
    """

    def __init__(self, text: str, names: Sequence[str], roles: Sequence[str] = ()):
        self.text, self.roles, self._memo = text, roles, {}
        self._known: dict[str, list[str]] = {}
        for name in sorted(names, key=len, reverse=True):
            if name in text:
                self._known.setdefault(name[:1], []).append(name)

    def readings(self) -> list[Node]:
        """All ways to read the whole phrase, each once; the filters' rule is kept (they go to the innermost rows)."""
        found: dict[Node, None] = {}
        for node, end in self._read("question", 0):
            if end == len(self.text):
                (_, inner), *_ = node.slots
                found[inner] = None
        return list(found)

    def _read(self, symbol: str, at: int) -> Result:
        key = (symbol, at)
        if key not in self._memo:
            special: Callable[[int], Result] | None = getattr(self, f"_read_{symbol}", None)
            self._memo[key] = special(at) if special else self._rules(symbol, at)
        return self._memo[key]

    def _rules(self, symbol: str, at: int) -> Result:
        if symbol in _LOWER_CASE:
            return self._words(symbol, at)
        if symbol in _WORDS:
            match = re.compile(_WORDS[symbol]).match(self.text, at)
            return [(match[0], match.end())] if match else []
        found: dict[tuple[Any, int], None] = {}
        for kind, way in _COMPILED[symbol]:
            for slots, end in self._sequence(way, 0, at):
                found[Node(kind, slots), end] = None
        return list(found)

    def _sequence(self, way: Sequence[str], index: int, at: int) -> Iterator[tuple[tuple[tuple[str, Any], ...], int]]:
        if index == len(way):
            yield (), at
            return
        part = way[index]
        if not part.startswith("<"):
            if self.text.startswith(part, at):
                yield from self._sequence(way, index + 1, at + len(part))
            return
        slot = part[1:-1]
        for value, end in self._read(re.sub(r"\d$", "", slot), at):
            for rest, stop in self._sequence(way, index + 1, end):
                yield ((slot, value), *rest), stop

    def _words(self, symbol: str, at: int) -> Result:
        """One to six words; what the atlas calls an attribute is no column of numbers."""
        found: Result = []
        end = at
        for _ in range(6):
            match = re.compile(r"[a-zA-Z][a-z]*").match(self.text, end)
            if match is None or (match[0][0].isupper() and symbol != "unit"):
                break
            if match[0] in _SMALL - _SMALL_WITHIN.get(symbol, frozenset()):
                break
            end = match.end()
            value = self.text[at:end]
            if symbol != "measure" or value not in ATTRIBUTES:
                found.append((value, end))
            if self.text[end : end + 1] != " ":
                break
            end += 1
        return found

    def _read_attribute(self, at: int) -> Result:
        return [(name, at + len(name)) for name in ATTRIBUTES if self.text.startswith(name, at)]

    def _read_role(self, at: int) -> Result:
        return [(role, at + len(role)) for role in self.roles if self.text.startswith(role, at)]

    def _read_roles(self, at: int) -> Result:
        return self._series("role", at)

    def _read_name(self, at: int) -> Result:
        """The longest name that stands here."""
        for name in self._known.get(self.text[at : at + 1], ()):
            end = at + len(name)
            if self.text.startswith(name, at) and not self.text[end : end + 1].isalnum():
                return [(name, end)]
        return []

    def _read_several(self, at: int) -> Result:
        return self._series("name", at)

    def _read_files(self, at: int) -> Result:
        return self._series("file", at)

    def _series(self, symbol: str, at: int) -> Result:
        """``a``, ``a and b``, ``a, b and c``: the items as a tuple."""
        found: Result = [((item,), end) for item, end in self._read(symbol, at)]
        stack: list[tuple[tuple[Any, ...], int]] = [((item,), end) for item, end in self._read(symbol, at)]
        while stack:
            items, end = stack.pop()
            if self.text.startswith(", ", end):
                stack += [((*items, item), stop) for item, stop in self._read(symbol, end + 2)]
            if self.text.startswith(" and ", end):
                found += [((*items, item), stop) for item, stop in self._read(symbol, end + 5)]
        return found

    def _read_filters(self, at: int) -> Result:
        """As many filters as there are: they belong to the innermost rows."""
        if not self.text.startswith(" ", at):
            return [((), at)]
        found: Result = []
        for node, end in self._read("filter", at + 1):
            more = self._and_filters(end)
            found += [((node, *rest), stop) for rest, stop in more]
        return found or [((), at)]

    def _and_filters(self, at: int) -> Result:
        if not self.text.startswith(" and ", at):
            return [((), at)]
        found: Result = []
        for node, end in self._read("filter", at + 5):
            found += [((node, *rest), stop) for rest, stop in self._and_filters(end)]
        return found or [((), at)]
