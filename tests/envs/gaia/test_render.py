"""Files say what their content says, to other readers than the tools', and always in the same bytes."""

from __future__ import annotations

import csv
import datetime
import hashlib
import io
import json
import os
import subprocess
import sys
import time
import zipfile
from html.parser import HTMLParser
from pathlib import Path

import docx
import openpyxl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from pypdf import PdfReader

from envs.gaia.render import (
    COLOURS,
    Archive,
    Bars,
    Beeps,
    Book,
    Bullets,
    Data,
    Database,
    Doc,
    Dtmf,
    Grid,
    Lettering,
    Lines,
    Mail,
    Morse,
    Qr,
    Sheet,
    Slide,
    Slides,
    Text,
    render,
)

SHEET = Sheet(("Name", "Tons"), (("Quiet Heron", 12), ("Keen Tern", 3.5)))
DOC = Doc("A title", ("A paragraph of text.", Bullets(("one & two", "three")), SHEET, "The end."))
EVERY = {
    "a.csv": SHEET,
    "a.tsv": SHEET,
    "a.xlsx": Book((("First", SHEET), ("Second", SHEET))),
    "a.docx": DOC,
    "a.pdf": DOC,
    "a.txt": DOC,
    "a.md": DOC,
    "a.html": DOC,
    "a.json": Data({"rows": [1, 2.5, "x"]}),
    "a.png": Grid((("red", "blue"), ("green", "red"))),
    "b.png": Bars((("red", 40), ("blue", 90))),
    "a.py": Text("print(1)\n"),
    "a.xml": SHEET,
    "c.xlsx": Book((("Open", SHEET), ("Closed", SHEET)), hidden=("Closed",)),
    "a.pptx": Slides("Talk", (Slide("One", ("Text", Bullets(("x", "y")), SHEET), "Say it."), Slide("Two", ()))),
    "a.eml": Mail("A <a@example.org>", ("b@example.org",), "Hello", "2021-03-04", ("Hi", SHEET), (("a.csv", SHEET),)),
    "a.sqlite": Database((("ships", SHEET),)),
    "a.jsonl": Lines(({"a": 1}, [2, "é"])),
    "c.png": Bars((("red", 40), ("blue", 90)), ("North", "South")),
    "d.png": Lettering(("Room 12", "door B")),
    "e.png": Qr("https://example.org/?q=1"),
    "a.wav": Morse("SOS 73", 15),
    "b.wav": Dtmf("0123456789ABCD*#"),
    "c.wav": Beeps((("high", 2), ("low", 3))),
    "a.zip": Archive((("b.csv", SHEET), ("c.zip", Archive((("d.docx", DOC),))))),
}

cells = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=8) | st.integers()
sheets = st.integers(1, 4).flatmap(
    lambda width: st.builds(
        Sheet,
        st.tuples(*[st.text("abcXYZ ,\"'", min_size=1, max_size=6)] * width),
        st.lists(st.tuples(*[cells] * width), max_size=6).map(tuple),
    )
)


@pytest.mark.parametrize("name", EVERY)
def test_the_same_content_gives_the_same_bytes_later(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first = render(name, EVERY[name])
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 86_400 * 400)  # zipfile and fpdf read this clock

    class Later(datetime.datetime):
        @classmethod
        def now(cls, tz=None):  # type: ignore[no-untyped-def]
            return super().now(tz) + datetime.timedelta(days=400)

    monkeypatch.setattr("xlsxwriter.core.datetime", Later)  # what these write into the properties of a file
    monkeypatch.setattr("pptx.parts.coreprops.dt.datetime", Later)
    assert render(name, EVERY[name]) == first


def test_other_processes_and_hash_seeds_give_the_same_bytes() -> None:
    code = (
        "import sys, hashlib; sys.path.insert(0, 'tests/envs/gaia'); from test_render import EVERY, render; "
        "print(*(hashlib.sha256(render(name, EVERY[name])).hexdigest() for name in EVERY))"
    )
    repository = Path(__file__).parents[3]
    digests = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(repository), "TZ": zone},
            cwd=repository,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed, zone in (("1", "UTC"), ("2", "Asia/Tokyo"))
    }
    here = " ".join(hashlib.sha256(render(name, EVERY[name])).hexdigest() for name in EVERY)
    assert {digest.strip() for digest in digests} == {here}


@settings(max_examples=60, deadline=None)
@given(sheets)
def test_csv_and_tsv_round_trip(sheet: Sheet) -> None:
    for name, delimiter in (("a.csv", ","), ("a.tsv", "\t")):
        header, *rows = csv.reader(io.StringIO(render(name, sheet).decode(), newline=""), delimiter=delimiter)
        assert tuple(header) == sheet.header
        assert rows == [list(map(str, row)) for row in sheet.rows]


def test_xlsx_keeps_sheets_and_types() -> None:
    book = openpyxl.load_workbook(io.BytesIO(render("a.xlsx", EVERY["a.xlsx"])))
    assert book.sheetnames == ["First", "Second"]
    assert list(book["First"].values) == [SHEET.header, *SHEET.rows]
    assert book.properties.modified == datetime.datetime(2020, 1, 1)


def test_docx_has_paragraphs_lists_and_tables() -> None:
    document = docx.Document(io.BytesIO(render("a.docx", DOC)))
    assert [p.text for p in document.paragraphs] == [
        "A title",
        "A paragraph of text.",
        "one & two",
        "three",
        "The end.",
    ]
    assert [[c.text for c in row.cells] for row in document.tables[0].rows][1] == ["Quiet Heron", "12"]


def test_pdf_text_can_be_extracted() -> None:
    reader = PdfReader(io.BytesIO(render("a.pdf", DOC)))
    text = reader.pages[0].extract_text()
    for line in ("A title", "A paragraph of text.", "- one & two", "Quiet Heron | 12"):
        assert line in text
    assert reader.metadata is not None and reader.metadata.creation_date is not None
    assert reader.metadata.creation_date.year == 2020


def test_long_paragraphs_wrap_in_pdf_and_text_without_breaking_dates() -> None:
    words = "It took place on 2011-12-13 in the town. " * 20
    for name in ("a.pdf", "a.txt"):
        body = render(name, Doc("T", (words,)))
        text = PdfReader(io.BytesIO(body)).pages[0].extract_text() if name == "a.pdf" else body.decode()
        assert text.count("2011-12-13") == 20
        assert max(map(len, text.splitlines())) <= 100


def test_html_is_well_formed_and_escaped() -> None:
    class Text(HTMLParser):
        seen: list[str] = []
        open: list[str] = []

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            if tag != "meta":
                self.open.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert self.open.pop() == tag

        def handle_data(self, data: str) -> None:
            self.seen.append(data)

    parser = Text()
    parser.feed(render("a.html", DOC).decode())
    assert not parser.open
    assert "one & two" in parser.seen and "Quiet Heron" in parser.seen


def test_json_text_and_markdown() -> None:
    assert json.loads(render("a.json", EVERY["a.json"])) == {"rows": [1, 2.5, "x"]}
    assert "| Keen Tern | 3.5 |" in render("a.md", DOC).decode()
    assert "Keen Tern | 3.5" in render("a.txt", DOC).decode()
    assert render("a.py", Text("x = 'é'\n")) == "x = 'é'\n".encode()


def test_pictures_have_exact_pixels() -> None:
    grid = Image.open(io.BytesIO(render("a.png", EVERY["a.png"])))
    assert grid.size == (48, 48)
    assert sorted(grid.getcolors()) == sorted([(1152, COLOURS["red"]), (576, COLOURS["blue"]), (576, COLOURS["green"])])
    bars = Image.open(io.BytesIO(render("b.png", EVERY["b.png"])))
    counts = {colour: count for count, colour in bars.getcolors()}
    assert counts[COLOURS["red"]] == 30 * 40 and counts[COLOURS["blue"]] == 30 * 90


def test_archives_nest_and_carry_one_date() -> None:
    with zipfile.ZipFile(io.BytesIO(render("a.zip", EVERY["a.zip"]))) as outer:
        assert outer.testzip() is None
        assert outer.namelist() == ["b.csv", "c.zip"]
        assert {info.date_time for info in outer.infolist()} == {(2020, 1, 1, 0, 0, 0)}
        assert outer.read("b.csv") == render("b.csv", SHEET)
        with zipfile.ZipFile(io.BytesIO(outer.read("c.zip"))) as inner:
            assert inner.read("d.docx") == render("d.docx", DOC)


def test_content_that_a_file_cannot_hold_is_refused() -> None:
    with pytest.raises(ValueError, match=r"a \.csv file cannot hold a Doc"):
        render("a.csv", DOC)
    with pytest.raises(ValueError, match="has 2 cells"):
        Sheet(("a", "b"), ((1,),))
