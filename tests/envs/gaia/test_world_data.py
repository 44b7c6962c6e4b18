"""The snapshots hold what they say, and DATA.md says what they hold."""

from __future__ import annotations

import datetime
import re
import unicodedata
from pathlib import Path

import pytest

import envs.gaia.data
from envs.gaia.data import document, snapshot
from envs.gaia.splits import SPLITS
from envs.gaia.worlds.real import SOURCES, SPECS, entities
from envs.gaia.worlds.real import snapshot as rows_of

FOLDER = Path(envs.gaia.data.__file__).parent


def rows(name: str) -> list[dict]:
    (spec,) = (spec for spec in SPECS if spec.name == name)
    return [dict(row) for row in rows_of(spec.snapshot)]


def test_the_document_is_current() -> None:
    assert document.TARGET.read_text(encoding="utf-8") == document.text(), "run python -m envs.gaia.data.document"


def test_the_document_speaks_of_every_table_and_column() -> None:
    text = document.text()
    for spec in SPECS:
        assert spec.source[0] in text and spec.snapshot in text
        for column in (*spec.facts, *(column for column, _ in spec.invented)):
            assert f"| `{column.name}` | {column.label} |" in text


def test_every_snapshot_is_used_and_has_a_source_and_a_notice() -> None:
    assert {path.name for path in FOLDER.glob("*.csv")} == {spec.snapshot for spec in SPECS}
    assert set(SOURCES) == {spec.name for spec in SPECS}
    notices = (FOLDER / "NOTICES.txt").read_text(encoding="utf-8")
    for spec in SPECS:
        assert spec.snapshot in notices
    assert notices.count("Permission is hereby granted") == 1


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_names_are_plain_unique_and_every_cell_is_filled(spec) -> None:
    found = rows(spec.name)
    assert len({row["name"] for row in found}) == len(found) > 90
    for row in found:
        assert list(row) == ["name", *(column.name for column in spec.facts)]
        assert all(value not in ("", 0) for value in row.values())
        plain = [row["name"], *(row[column.name] for column in spec.facts if column.kind in ("text", "ref"))]
        assert all(snapshot.PLAIN.fullmatch(text) for text in plain)


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_each_entity_belongs_to_one_split(spec) -> None:
    owned = [row["name"] for split in SPLITS for row in entities(spec, split)]
    assert sorted(owned) == sorted(row["name"] for row in rows(spec.name))
    assert all(len(entities(spec, split)) >= 20 for split in SPLITS)


def test_countries_are_plausible() -> None:
    found = {row["name"]: row for row in rows("country")}
    assert not set(found) & set(snapshot.LEFT_OUT)
    assert all(re.fullmatch("[A-Z]{3}", row["code"]) for row in found.values())
    assert len({row["code"] for row in found.values()}) == len({row["capital"] for row in found.values()}) == len(found)
    assert sum(row["population"] for row in found.values()) == pytest.approx(6.3e9, rel=0.05)  # Russia, USA left out
    assert all(0.02 < row["population"] / row["area_km2"] < 25_000 for row in found.values())
    for name, capital, area in (
        ("Japan", "Tokyo", 377_930),
        ("Kenya", "Nairobi", 580_367),
        ("Peru", "Lima", 1_285_216),
    ):
        assert (found[name]["capital"], found[name]["area_km2"]) == (capital, area)


def test_airports_are_plausible() -> None:
    countries = {row["name"] for row in rows("country")}
    found = rows("airport")
    assert all(re.fullmatch("[A-Z]{3}", row["code"]) and row["country"] in countries for row in found)
    assert len({row["code"] for row in found}) == len(found)
    assert all(0 < row["elevation_ft"] < 15_000 for row in found)
    (narita,) = (row for row in found if row["code"] == "NRT")
    assert (narita["country"], narita["city"]) == ("Japan", "Tokyo")


def test_elements_are_the_first_103() -> None:
    found = sorted(rows("element"), key=lambda row: row["number"])
    assert [row["number"] for row in found] == list(range(1, 104))
    heavier = [b["mass_u"] > a["mass_u"] for a, b in zip(found, found[1:], strict=False)]
    assert heavier.count(False) <= 9  # argon, cobalt, tellurium, and among the heaviest
    assert all(re.fullmatch("[A-Z][a-z]?", row["code"]) for row in found)


def test_holidays_are_days_of_their_years() -> None:
    countries = {row["name"] for row in rows("country")}
    for row in rows("holiday"):
        assert row["country"] in countries
        for year in snapshot.HOLIDAY_YEARS:
            assert datetime.date.fromisoformat(row[f"date_{year}"]).year == year
    dated = {row["name"]: row for row in rows("holiday")}
    assert dated["Madaraka Day"]["country"] == "Kenya" and dated["Madaraka Day"]["date_2025"] == "2025-06-01"


def test_symbols_are_what_unicode_says() -> None:
    for row in rows("symbol"):
        assert unicodedata.lookup(row["name"].upper()) == chr(row["code_point"])
        assert row["code"] == f"U+{row['code_point']:04X}"
        assert any(block == row["block"] and low <= row["code_point"] <= high for block, low, high in snapshot.SYMBOLS)
