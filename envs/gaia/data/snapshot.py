"""Makes the CSV files beside it: trimmed snapshots of facts from small packages and the standard library.

Run it as ``python -m envs.gaia.data.snapshot`` with ``airportsdata``, ``countryinfo``, ``holidays`` and
``periodictable`` installed. They are not dependencies of the project: a task must not change because a data package
was updated, so what the worlds are made of is kept here, byte for byte. Sources and licences stand in
:data:`envs.gaia.world.SOURCES`, and DATA.md says what each column is.

Only names of ASCII letters, spaces and hyphens are kept (answers must survive every scorer), and only rows in
which every column has a value. Rows that are known to be wrong or out of date are left out by name.
"""

from __future__ import annotations

import csv
import hashlib
import json
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PLAIN = re.compile(r"[A-Za-z]+(?:[ -][A-Za-z]+)*")
AIRPORTS_OF_A_COUNTRY = 9
"""So that no country stands for a large share of them."""
HOLIDAY_YEARS = (2025, 2026)
LEFT_OUT: Mapping[str, str] = {
    "British Indian Ocean Territory": "has no capital",
    "Burundi": "the capital is Gitega since 2019",
    "Cyprus": "population and area are of different parts of it",
    "Equatorial Guinea": "the capital has moved",
    "Hong Kong": "has no capital",
    "Ireland": "the population is that of the whole island",
    "Kazakhstan": "the capital is called Astana again",
    "Nauru": "has no official capital",
    "Palestine": "sources differ on capital and area",
    "Republic of Macedonia": "is called North Macedonia since 2019",
    "Russia": "the area counts land that Ukraine's counts too",
    "Sri Lanka": "the capital is another one by law than in practice",
    "Swaziland": "is called Eswatini since 2018",
    "Tokelau": "has no capital",
}
"""Countries whose row in the package is wrong, outdated or in dispute, and why."""
COMMON_HOLIDAYS = re.compile(
    r"\b(alternative|anzac|april|assumption|august|christmas|easter|eid|epiphany|equinox|friday|immaculate|january|labou?r|"
    r"monday|new year|pentecost|quran|saturday|second day|sunday|substitute|thursday|tuesday|workers)\b",
    re.IGNORECASE,
)
"""Words of holidays that other countries have under other names, and of such as only stand in for another."""
SYMBOLS = (
    ("arrows", 0x2190, 0x21FF),
    ("geometric shapes", 0x25A0, 0x25FF),
    ("miscellaneous symbols", 0x2600, 0x26FF),
    ("dingbats", 0x2700, 0x27BF),
    ("pictographs", 0x1F300, 0x1F5FF),
    ("transport and map symbols", 0x1F680, 0x1F6FF),
)
"""Blocks of Unicode: name, first and last code point."""
SYMBOL_SHARE = 0.45
"""Share of the blocks' plainly named characters that is kept, by hash."""


def main() -> None:
    """Write the CSV files."""
    countries = list(_countries())
    _write("countries.csv", countries)
    _write("airports.csv", _airports(countries))
    _write("elements.csv", _elements())
    _write("holidays.csv", _holidays(countries))
    _write("symbols.csv", _symbols())


def _country_files() -> list[dict[str, Any]]:
    import countryinfo

    folder = Path(countryinfo.__file__).parent / "data"
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]


def _country_names(countries: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Two-letter code -> name, of the countries that are kept."""
    kept = {row["name"] for row in countries}
    return {entry["ISO"]["alpha2"]: entry["name"] for entry in _country_files() if entry["name"] in kept}


def _countries() -> Iterable[dict[str, Any]]:
    found = [entry for entry in _country_files() if isinstance(entry.get("capital"), str)]  # a few have a list, or none
    capitals = Counter(entry["capital"] for entry in found)
    for entry in found:
        name, capital = entry["name"], entry["capital"]
        row = {
            "name": name,
            "code": entry.get("ISO", {}).get("alpha3"),
            "capital": capital,
            "region": entry.get("subregion"),
            "area_km2": round(entry.get("area") or 0),
            "population": entry.get("population"),
        }
        unique = capitals[capital] == 1 and capital not in name and name not in capital
        plain = PLAIN.fullmatch(name) and PLAIN.fullmatch(capital)
        if all(row.values()) and unique and plain and name not in LEFT_OUT:
            yield row


def _airports(countries: Sequence[Mapping[str, Any]]) -> Iterable[dict[str, Any]]:
    import airportsdata

    codes = _country_names(countries)
    found = airportsdata.load("IATA").values()
    names = Counter(entry["name"] for entry in found)
    each: Counter[str] = Counter()
    for entry in sorted(found, key=lambda entry: (" International " not in entry["name"], _point(entry["iata"]))):
        name, city, elevation = entry["name"], entry["city"], round(entry["elevation"])
        country = codes.get(entry["country"], "")
        plain = all(PLAIN.fullmatch(text) for text in (name, city)) and names[name] == 1 and name.endswith(" Airport")
        if plain and elevation > 0 and country and each[country] < AIRPORTS_OF_A_COUNTRY:
            each[country] += 1
            yield {"name": name, "code": entry["iata"], "city": city, "country": country, "elevation_ft": elevation}


def _elements() -> Iterable[dict[str, Any]]:
    import periodictable

    for element in periodictable.elements:
        if 1 <= element.number <= 103:
            name = element.name.capitalize()
            yield {"name": name, "code": element.symbol, "number": element.number, "mass_u": f"{element.mass:.3f}"}


def _holidays(countries: Sequence[Mapping[str, Any]]) -> Iterable[dict[str, Any]]:
    """Those that only one country has, once a year."""
    import holidays

    days: dict[tuple[str, str], list[str]] = defaultdict(list)
    supported = holidays.list_supported_countries(include_aliases=False)
    for code, country in _country_names(countries).items():
        languages = getattr(holidays, code).supported_languages if code in supported else ()
        english = [language for language in ("en_US", "en_GB", f"en_{code}") if language in languages]
        if code not in supported or (languages and not english):
            continue
        calendar = holidays.country_holidays(code, years=HOLIDAY_YEARS, language=english[0] if english else None)
        for day, name in sorted(calendar.items()):
            for each in name.split("; "):
                days[each, country].append(day.isoformat())
    owners = Counter(name.lower() for name, _ in days)
    for (name, country), dates in days.items():
        yearly = [date[:4] for date in dates] == [str(year) for year in HOLIDAY_YEARS]
        own = owners[name.lower()] == 1 and country not in name and not COMMON_HOLIDAYS.search(name)
        if yearly and own and PLAIN.fullmatch(name) and " " in name:
            yield {"name": name, "country": country} | {f"date_{date[:4]}": date for date in dates}


def _symbols() -> Iterable[dict[str, Any]]:
    for block, first, last in SYMBOLS:
        for point in range(first, last + 1):
            name = unicodedata.name(chr(point), "").capitalize()
            if PLAIN.fullmatch(name) and " " in name and _point(name) < SYMBOL_SHARE:
                yield {"name": name, "code": f"U+{point:04X}", "block": block, "code_point": point}


def _point(text: str) -> float:
    """A number from 0 to 1 that the text decides."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") / 2**64


def _write(filename: str, rows: Iterable[Mapping[str, Any]]) -> None:
    ordered = sorted(rows, key=lambda row: row["name"])
    with (HERE / filename).open("w", encoding="ascii", newline="") as file:
        writer = csv.DictWriter(file, ordered[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(ordered)


if __name__ == "__main__":
    main()
