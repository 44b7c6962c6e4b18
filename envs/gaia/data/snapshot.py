"""Makes the CSV files beside it: trimmed snapshots of three small data packages.

Run it as ``python -m envs.gaia.data.snapshot`` with ``airportsdata``, ``countryinfo`` and ``periodictable``
installed. They are not dependencies of the project: a task must not change because a data package was updated,
so what the worlds are made of is kept here, byte for byte. Sources and licences stand in
:data:`envs.gaia.world.SOURCES`.

Only names of ASCII letters, spaces and hyphens are kept (answers must survive every scorer), and only rows in
which every column has a value.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PLAIN = re.compile(r"[A-Za-z]+(?:[ -][A-Za-z]+)*")


def main() -> None:
    """Write ``countries.csv``, ``airports.csv`` and ``elements.csv``."""
    _write("countries.csv", _countries())
    _write("airports.csv", _airports())
    _write("elements.csv", _elements())


def _countries() -> Iterable[dict[str, Any]]:
    import json

    import countryinfo

    folder = Path(countryinfo.__file__).parent / "data"
    found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
    found = [entry for entry in found if isinstance(entry.get("capital"), str)]  # a few have a list, or none
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
        if all(row.values()) and unique and PLAIN.fullmatch(name) and PLAIN.fullmatch(capital):
            yield row


def _airports() -> Iterable[dict[str, Any]]:
    import airportsdata

    found = airportsdata.load("IATA").values()
    names = Counter(entry["name"] for entry in found)
    for entry in found:
        name, elevation = entry["name"], round(entry["elevation"])
        plain = PLAIN.fullmatch(name) and names[name] == 1 and name.endswith(" International Airport")
        if plain and elevation > 0:
            yield {"name": name, "code": entry["iata"], "elevation_ft": elevation}


def _elements() -> Iterable[dict[str, Any]]:
    import periodictable

    for element in periodictable.elements:
        if 1 <= element.number <= 103:
            name = element.name.capitalize()
            yield {"name": name, "code": element.symbol, "number": element.number, "mass_u": f"{element.mass:.3f}"}


def _write(filename: str, rows: Iterable[Mapping[str, Any]]) -> None:
    ordered = sorted(rows, key=lambda row: row["name"])
    with (HERE / filename).open("w", encoding="ascii", newline="") as file:
        writer = csv.DictWriter(file, ordered[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(ordered)


if __name__ == "__main__":
    main()
