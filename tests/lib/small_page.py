"""A small local web for tests of the search tools."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Page:
    title: str
    text: str


FILLER = "Nothing of interest is said in this line, which is only here to be long.\n"

PAGES = {
    "https://w.example/lake-orrin": Page("Lake Orrin", "Lake Orrin is deep.\nDepth: 214 metres\nKeeper: Ada Brandt"),
    "https://w.example/lake-orrin-2": Page("List of lakes", "Lakes on record: Lake Orrin, Lake Vess, Lake Tarn."),
    "https://w.example/brandt": Page("Ada Brandt", "Ada Brandt keeps two lakes. Her office is in Zürich."),
    "https://w.example/long": Page("A long page", FILLER * 150 + "The needle is 4711.\n" + FILLER * 50),
    "https://w.example/quotes": Page('Of "quotes" and AND', 'He said NEAR("x") OR NOT y* ^z : {a} -b "'),
}
