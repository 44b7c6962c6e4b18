"""A second solver, independent of the generator: it has the question's text, the files and the pages, nothing else.

It shares no code with ``envs.gaia``'s templates, operators, worlds or tools: it parses the question with its own
patterns, reads files with other readers than the tools where there are any, and computes in its own way. It raises
where something that it needs is missing, so that it also shows which files and pages a question needs.
"""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping
from decimal import ROUND_HALF_UP, Decimal
from html import unescape
from pathlib import Path
from typing import Any

from gaia_readers import (
    Rows,
    cell,
    colour_counts,
    day,
    delimited,
    docx_table,
    either,
    letter,
    numbers,
    selected,
    tile_counts,
    unzipped,
    words,
)

LABELS = {
    "capital": "Capital",
    "area in square kilometres": "Area",
    "population": "Population",
    "date of the constitution": "Constitution in force since",
    "country": "Country",
    "city": "City",
    "elevation in feet": "Elevation",
    "number of passengers per year": "Passengers per year",
    "opening date": "Opened",
    "atomic number": "Atomic number",
    "price per kilogram in crowns": "Price per kilogram",
    "melting point in kelvin": "Melting point",
    "date of first isolation": "First isolated",
    "date in 2025": "Date in 2025",
    "date in 2026": "Date in 2026",
    "number of visitors": "Visitors",
    "decimal code point": "Code point",
    "number of printings": "Printings",
    "adoption date": "Adopted",
    "mayor": "Mayor",
    "altitude in metres": "Altitude",
    "charter date": "Town charter",
    "founder": "Founder",
    "town of the head office": "Head office",
    "number of employees": "Employees",
    "revenue in thousand crowns": "Revenue",
    "registration date": "Registered",
    "keeper": "Keeper",
    "nearest town": "Nearest town",
    "installation date": "Installed",
    "captain": "Captain",
    "home port": "Home port",
    "tonnage": "Tonnage",
    "launch date": "Launched",
}
"""How questions name an attribute -> how pages do."""
ATTRIBUTE = "|".join(sorted(map(re.escape, LABELS), key=len, reverse=True))
RANKS = {"": 1, "second ": 2, "third ": 3, "fourth ": 4, "fifth ": 5}
HIGH = {"highest": True, "greatest": True, "tallest": True, "lowest": False, "smallest": False, "shortest": False}


class Solver:
    """Solves one task.

    Args:
        prompt: the question.
        folder: where the task's files are.
        pages: address -> page with ``title`` and ``text``.
    """

    def __init__(self, prompt: str, folder: Path, pages: Mapping[str, Any]):
        self.folder, self.pages = folder, pages
        text = prompt.split("\n\nAttached files:")[0]
        who = r"(?:Find out |Please tell me |I need to know )?[Ww]ho is"
        frames = rf"(?:What is|Which are|{who}|Find|Work out|Name|Please tell me|I need to know)"
        hints = r"(?:Answer|Give|Write|Round|The answer|List)\b.*"
        match = re.search(rf"(?:^|\. ){frames} (the .+)[.?] ({hints})$", text)
        assert match, f"no question in {text!r}"
        self.core, self.hint = match[1], match[2]

    def solve(self, template: str) -> str:
        """The answer, by the method for that template."""
        method: Callable[[], object] = getattr(self, "_" + template.replace("-", "_"))
        value = method()
        decimals = re.search(r"(\d) decimal", self.hint)
        if decimals:
            unit = Decimal(1).scaleb(-int(decimals[1]))
            return str(Decimal(str(value)).quantize(unit, ROUND_HALF_UP))
        return str(value)

    # --- reading ------------------------------------------------------------------------------------------------

    def parse(self, pattern: str) -> dict[str, str]:
        """The named groups of the pattern in the whole question."""
        match = re.fullmatch(pattern, self.core)
        assert match, f"{self.core!r} is not {pattern!r}"
        return {name: value for name, value in match.groupdict().items() if value is not None}

    def bytes(self, name: str) -> bytes:
        return (self.folder / name).read_bytes()

    def page(self, title: str) -> dict[str, str]:
        """The facts of the entity of that name."""
        found = [page for page in self.pages.values() if page.title == title]
        assert len(found) == 1, f"{len(found)} pages are called {title!r}"
        return dict(line.split(": ", 1) for line in found[0].text.splitlines() if ": " in line)

    def fact(self, title: str, attribute: str) -> str:
        """One fact: a number without its unit, or a text."""
        value = self.page(title)[LABELS[attribute]]
        number = re.match(r"-?\d+(?:\.\d+)?(?= [a-z]|$)", value)
        return number[0] if number else value

    def table(self, name: str) -> Rows:
        return delimited(self.bytes(name).decode(), "\t" if name.endswith(".tsv") else ",")

    def sheet(self, name: str, sheet: str) -> Rows:
        import openpyxl

        book = openpyxl.load_workbook(io.BytesIO(self.bytes(name)))
        header, *rows = book[sheet].iter_rows(values_only=True)
        return [dict(zip(header, map(str, row), strict=True)) for row in rows]

    def words(self, name: str) -> str:
        return words(name, self.bytes(name))

    def run(self, name: str) -> str:
        done = subprocess.run(
            [sys.executable, "-I", str(self.folder / name)], capture_output=True, text=True, timeout=20
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    # --- level 1 ------------------------------------------------------------------------------------------------

    _TOTAL = r"the (?:total (?P<m1>[a-z ]+) of|sum of the (?P<m2>[a-z ]+) over) "
    _GROUP = r" (?:with (?P<v1>.+) as (?P<l1>[a-z ]+?)|whose (?P<l2>[a-z ]+?) is (?P<v2>.+?))"
    _IN_FILE = r" (?:listed )?in (?P<file>[\w.-]+)"
    _SELECTED = "the [a-z ]+?" + _GROUP + _IN_FILE

    def _csv_total(self) -> object:
        q = self.parse(self._TOTAL + self._SELECTED)
        return sum(numbers(selected(self.table(q["file"]), q), either(q, "m1", "m2")))

    def _tsv_spread(self) -> object:
        extremes = "(?:highest and lowest|greatest and smallest)"
        q = self.parse(rf"the difference between the {extremes} (?P<m>[a-z ]+) among " + self._SELECTED)
        values = numbers(selected(self.table(q["file"]), q), q["m"])
        return max(values) - min(values)

    def _json_average(self) -> object:
        q = self.parse(r"the (?:average (?P<m1>[a-z ]+) of|mean (?P<m2>[a-z ]+) over) " + self._SELECTED)
        data = json.loads(self.bytes(q["file"]))
        (rows,) = (value for value in data.values() if isinstance(value, list))
        values = numbers(selected([{k: str(v) for k, v in row.items()} for row in rows], q), either(q, "m1", "m2"))
        return Decimal(sum(values)) / len(values)

    _RANKED = (
        r"the (?P<ask>[a-z ]+) of the [a-z ]+ with the (?P<k>second |third |fourth |fifth |)"
        r"(?P<sup>highest|greatest|lowest|smallest) (?P<m>[a-z ]+) among "
    )

    def _ranked(self, rows: Rows, q: Mapping[str, str]) -> object:
        rows = sorted(rows, key=lambda row: int(cell(row, q["m"])), reverse=HIGH[q["sup"]])
        return cell(rows[RANKS[q["k"]] - 1], q["ask"])

    def _xlsx_rank(self) -> object:
        q = self.parse(self._RANKED + r"the [a-z ]+? (?:listed )?on sheet (?P<sheet>\w+) of (?P<file>[\w.-]+)")
        return self._ranked(self.sheet(q["file"], q["sheet"]), q)

    def _docx_rank(self) -> object:
        q = self.parse(self._RANKED + "the [a-z ]+?" + self._IN_FILE)
        return self._ranked(docx_table(self.bytes(q["file"])), q)

    def _xlsx_sheets_gap(self) -> object:
        sheet = r"the [a-z ]+? (?:listed )?on sheet (?P<s{0}>\d+) of (?P<f{0}>[\w.-]+)"
        total = r"the (?:total (?P<m{0}>[a-z ]+?) of|sum of the (?P<n{0}>[a-z ]+?) over) " + sheet
        first, second = total.format(1), total.format(2)
        q = self.parse(rf"the (?:difference|gap) between {first} and {second}")
        labels = [either(q, f"m{i}", f"n{i}") for i in (1, 2)]
        sums = [sum(numbers(self.sheet(q[f"f{i}"], q[f"s{i}"]), labels[i - 1])) for i in (1, 2)]
        return abs(sums[0] - sums[1])

    def _py_output(self) -> object:
        q = self.parse(r"the (?:number that (?P<f1>\S+) prints|output of (?P<f2>\S+)|result that (?P<f3>\S+) prints)")
        return self.run(either(q, "f1", "f2", "f3"))

    def _png_price(self) -> object:
        prices = r"(?P<p1>\d+) crowns for each (?P<c1>\w+) and (?P<p2>\d+) crowns for each (?P<c2>\w+) tile"
        q = self.parse(
            r"the (?:total price of all|cost of the) \w+ and \w+ tiles in (?P<file>[\w.]+),? (?:together, )?at "
            + prices
        )
        counts = tile_counts(self.bytes(q["file"]))
        return int(q["p1"]) * counts[q["c1"]] + int(q["p2"]) * counts[q["c2"]]

    def _web_gap(self) -> object:
        one = rf"the (?P<a{{0}}>{ATTRIBUTE}) of the [a-z]+ (?P<e{{0}}>[A-Z].+)"
        q = self.parse(f"the (?:difference|gap) between {one.format(1)} and {one.format(2)}")
        return abs(int(self.fact(q["e1"], q["a1"])) - int(self.fact(q["e2"], q["a2"])))

    def _web_chain(self) -> object:
        q = self.parse(
            rf"the (?P<ask>{ATTRIBUTE}) of the (?P<link>{ATTRIBUTE}) of whichever of the [a-z ]+? (?P<names>[A-Z].+) "
            rf"has the (?P<more>higher|lower) (?P<by>{ATTRIBUTE})"
        )
        titles = {page.title for page in self.pages.values()}
        halves = [(q["names"][: m.start()], q["names"][m.end() :]) for m in re.finditer(" and ", q["names"])]
        (pair,) = (pair for pair in halves if set(pair) <= titles)
        low, high = sorted(pair, key=lambda name: int(self.fact(name, q["by"])))
        return self.fact(self.fact(high if q["more"] == "higher" else low, q["link"]), q["ask"])

    def _web_convert(self) -> object:
        rate = re.search(r" \(at ([\d.]+)[a-z ]+\)", self.core)
        assert rate
        core = self.core.replace(rate[0], "")
        kinds = "airport|element|country|station|firm|ship"
        titles = sorted((page.title for page in self.pages.values()), key=len, reverse=True)
        kind, name = next((kind, t) for t in titles for kind in kinds.split("|") if f"the {kind} {t}" in core)
        attribute = {
            "airport": "elevation in feet",
            "element": "melting point in kelvin",
            "country": "area in square kilometres",
            "station": "altitude in metres",
            "firm": "revenue in thousand crowns",
            "ship": "tonnage",
        }[kind]
        (extra,) = re.findall(r"\b(\d+) (?:feet|kelvin|square kilometres|metres|thousand crowns|tons)\b", core)
        value = (Decimal(self.fact(name, attribute)) + int(extra)) * Decimal(rate[1])
        return value if "decimal" in self.hint else value.quantize(Decimal(1), ROUND_HALF_UP)

    def _html_shared(self) -> object:
        both = r"both the (?P<a>\w+) list and the (?P<b>\w+) list in (?P<file>[\w.]+)"
        q = self.parse(rf"the (?:only [a-z ]+ on|one [a-z ]+ that stands on) {both}")
        text = self.bytes(q["file"]).decode()
        lists = dict(re.findall(r"the (\w+) list:</p>\s*<ul>(.*?)</ul>", text, re.S))
        one, other = (set(re.findall(r"<li>(.*?)</li>", lists[q[key]])) for key in "ab")
        (name,) = one & other
        return unescape(name)

    # --- level 2 ------------------------------------------------------------------------------------------------

    def _csv_top_web(self) -> object:
        q = self.parse(
            rf"the (?P<ask>{ATTRIBUTE}) of the (?P<key>[a-z]+) with the (?:highest|greatest) total (?P<m>[a-z ]+) over "
            + r"the [a-z ]+?(?: (?:dated in|from the year) (?P<year>\d{4}))?"
            + self._IN_FILE
        )
        totals: dict[str, int] = defaultdict(int)
        for row in self.table(q["file"]):
            if "year" in q and not any(re.fullmatch(rf"{q['year']}-\d\d-\d\d", value) for value in row.values()):
                continue
            totals[cell(row, q["key"])] += int(cell(row, q["m"]))
        return self.fact(max(totals, key=lambda name: totals[name]), q["ask"])

    def _xlsx_join_web(self) -> object:
        q = self.parse(
            rf"the (?P<ask>{ATTRIBUTE}) of the (?P<key>[a-z]+) with the highest (?P<a>[a-z ]+) "
            r"(?:times|multiplied by) (?P<b>[a-z ]+) in (?P<file>[\w.-]+), "
            r"whose sheets (?P<s1>[\w ]+) and (?P<s2>[\w ]+) are joined by [a-z]+"
        )
        one = {cell(row, q["key"]): int(cell(row, q["a"])) for row in self.sheet(q["file"], q["s1"])}
        two = {cell(row, q["key"]): int(cell(row, q["b"])) for row in self.sheet(q["file"], q["s2"])}
        return self.fact(max(one, key=lambda name: one[name] * two[name]), q["ask"])

    def _docx_web_weighted(self) -> object:
        patterns = {
            "Element": r"the total price in crowns of the kilograms listed in (?P<file>[\w.]+), at the .*",
            "Airport": r"the number of passengers in all the years listed in (?P<file>[\w.]+) together, .*",
            "Country": r"the number of seeds that the countries in (?P<file>[\w.]+) need in total, .*",
            "Town": r"the total weight in kilograms of the rations in (?P<file>[\w.]+), which every inhabitant .*",
            "Firm": r"the total in crowns of the bonuses in (?P<file>[\w.]+), which every employee .*",
            "Ship": r"the tons carried on all the trips listed in (?P<file>[\w.]+), .*",
        }
        columns = {
            "Element": "price per kilogram in crowns",
            "Airport": "number of passengers per year",
            "Country": "area in square kilometres",
            "Town": "population",
            "Firm": "number of employees",
            "Ship": "tonnage",
        }
        (kind,) = (kind for kind, pattern in patterns.items() if re.fullmatch(pattern, self.core))
        name = self.parse(patterns[kind])["file"]
        if name.endswith(".docx"):
            rows = [(row[kind], next(v for k, v in row.items() if k != kind)) for row in docx_table(self.bytes(name))]
        else:
            lines = [line.strip("| ").split(" | ") for line in self.words(name).splitlines() if " | " in line]
            assert lines[0][0] == kind
            rows = [(a, b) for a, b in lines[1:] if a != "---"]
        assert len(rows) == 3
        return sum(int(amount) * int(self.fact(entity, columns[kind])) for entity, amount in rows)

    def _pdf_web_days(self) -> object:
        q = self.parse(
            rf"the (?:number|count) of days from the (?P<a>{ATTRIBUTE}) of the [a-z]+ that (?P<file>[\w.]+) is about "
            r"to the (?P<event>\w+) that (?P<file2>[\w.]+) reports"
        )
        entity, event, date = letter(self.words(q["file"]))
        assert event == q["event"] and q["file"] == q["file2"]
        return (day(date) - day(self.fact(entity, q["a"]))).days

    def _pdf_web_best(self) -> object:
        q = self.parse(
            rf"the (?P<ask>{ATTRIBUTE}) of the \w+ with the (?P<sup>highest|lowest) (?P<by>{ATTRIBUTE}) among "
            r"the [a-z ]+? listed in (?P<file>[\w.]+)"
        )
        names = re.findall(r"^- \w+ \d: (.+)$", self.words(q["file"]), re.M)
        assert len(names) == 3
        values = {name: int(self.fact(name, q["by"])) for name in names}
        chosen = (max if HIGH[q["sup"]] else min)(values, key=lambda name: values[name])
        return self.fact(chosen, q["ask"])

    def _chart_csv_web(self) -> object:
        q = self.parse(
            rf"the (?P<ask>{ATTRIBUTE}) of the \w+ that has the (?P<sup>highest|tallest|lowest|shortest) bar in "
            r"(?P<chart>[\w.]+), whose colours (?P<legend>[\w.]+) explains"
        )
        pixels = colour_counts(self.bytes(q["chart"]))  # bars are equally wide
        colour = (max if HIGH[q["sup"]] else min)(pixels, key=lambda name: pixels[name])
        (name,) = (list(row.values())[1] for row in self.table(q["legend"]) if row["Colour"] == colour)
        return self.fact(name, q["ask"])

    def _png_csv_bill(self) -> object:
        q = self.parse(
            r"the (?:bill in crowns for all tiles in|total price in crowns of the tiles in) (?P<picture>[\w.]+) "
            r"(?:at the prices in|by) (?P<prices>[\w.]+?),? "
            r"(?:with the fee in (?P<t1>[\w.]+)|the fee in (?P<t2>[\w.]+) included)"
        )
        prices = {row["Colour"]: int(row["Price"]) for row in self.table(q["prices"])}
        (fee,) = re.findall(r"delivery fee is (\d+) crowns", self.words(either(q, "t1", "t2")))
        return int(fee) + sum(prices[colour] * count for colour, count in tile_counts(self.bytes(q["picture"])).items())

    def _py_web(self) -> object:
        q = self.parse(
            rf"the (?P<ask>{ATTRIBUTE}) of the (?P<link>{ATTRIBUTE}) of the \w+ whose name (?P<file>[\w.]+) prints"
        )
        return self.fact(self.fact(self.run(q["file"]), q["link"]), q["ask"])

    def _docx_xlsx_refund(self) -> object:
        one = r"the total refund on the [a-z ]+ in (?P<b1>[\w.-]+) by the rules in (?P<r1>[\w.]+)"
        other = r"the sum that is refunded, by the rules in (?P<r2>[\w.]+), for the [a-z ]+ in (?P<b2>[\w.-]+)"
        q = self.parse(f"{one}|{other}")
        rules = self.words(either(q, "r1", "r2"))
        condition = re.search(r"whose ([a-z ]+) is (.+), and for no others", rules)
        rate = re.search(r"The refund is (\d+) percent of the ([a-z ]+)\.", rules)
        assert condition and rate
        import openpyxl

        book = either(q, "b1", "b2")
        sheets = openpyxl.load_workbook(io.BytesIO(self.bytes(book))).sheetnames
        assert len(sheets) == 2
        rows = [row for sheet in sheets for row in self.sheet(book, sheet) if cell(row, condition[1]) == condition[2]]
        return Decimal(sum(numbers(rows, rate[2])) * int(rate[1])) / 100

    def _md_csv_missing(self) -> object:
        q = self.parse(
            r"the [a-z ]+ (?:which are listed|that stand) in (?P<roster>[\w.-]+) but "
            r"(?:in none of|not in) (?P<files>.+)"
        )
        text = self.words(q["roster"])
        expected = set(re.findall(r"^- (.+)$|<li>(.+)</li>", text, re.M))
        names = {a or unescape(b) for a, b in expected}
        assert len(names) > 10
        for file in re.split(", | and | or ", q["files"]):
            names -= {value for row in self.table(file) for value in row.values()}
        return ", ".join(sorted(names))

    def _zip_final(self) -> object:
        first = r" in the final table of (?P<z1>[\w.]+\.zip)"
        second = r" in that table inside (?P<z2>[\w.]+\.zip) which its note calls final"
        q = self.parse(f"{self._TOTAL}the [a-z ]+?{self._GROUP}(?:{first}|{second})")
        members = unzipped(self.bytes(either(q, "z1", "z2")))
        notes = [words(name, body) for name, body in members.items() if not name.endswith(".csv")]
        (final,) = re.findall(r"Only ([\w.]+) has the final figures", "\n".join(notes))
        (body,) = (body for name, body in members.items() if name.endswith("/" + final))
        return sum(numbers(selected(delimited(body.decode(), ","), q), either(q, "m1", "m2")))

    def _zip_letters_web(self) -> object:
        q = self.parse(
            rf"the (?P<ask>{ATTRIBUTE}) of the \w+ that had the (?P<order>first|earliest|last|latest) (?P<event>\w+) "
            r"by the letters in (?P<file>[\w.]+)"
        )
        letters = [letter(words(name, body)) for name, body in unzipped(self.bytes(q["file"])).items()]
        assert len(letters) == 3 and all(event == q["event"] for _, event, _ in letters)
        letters.sort(key=lambda letter: letter[2], reverse=q["order"] in ("last", "latest"))
        return self.fact(letters[0][0], q["ask"])
