"""Workbooks, databases, presentations and mails: other readers find in them what their content says."""

from __future__ import annotations

import email
import io
import json
import sqlite3
from contextlib import closing
from email import policy
from xml.etree import ElementTree

import openpyxl
import pptx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.gaia.render import (
    Beeps,
    Book,
    Bullets,
    Database,
    Doc,
    Dtmf,
    Lettering,
    Lines,
    Mail,
    Morse,
    Qr,
    Sheet,
    Slide,
    Slides,
    render,
)
from envs.gaia.render.contents import Bars

SHEET = Sheet(("Name", "Tons"), (("Quiet Heron", 12), ("Keen Tern", 3.5)))
RICH = Sheet(
    ("Port", "Ship", "Tons", "Twice"),
    (("Dover", "A", 3, 6), ("Dover", "B", 4, 8), ("Malm", "C", 5, 10), ("Dover", "D", 6, 12), ("Dover", "E", 7, 14)),
    hidden_rows=(1, 4),
    hidden_columns=("Tons",),
    merged=("Port",),
    formulas={"Twice": "=C{row}*2"},
)


def test_a_workbook_hides_and_merges_and_computes() -> None:
    data = render("a.xlsx", Book((("Main", RICH), ("Back", SHEET)), hidden=("Back",)))
    book = openpyxl.load_workbook(io.BytesIO(data))
    main = book["Main"]
    assert [book[name].sheet_state for name in book.sheetnames] == ["visible", "hidden"]
    assert {row for row, shape in main.row_dimensions.items() if shape.hidden} == {3, 6}
    assert [letter for letter, shape in main.column_dimensions.items() if shape.hidden] == ["C"]
    assert {str(area) for area in main.merged_cells.ranges} == {"A2:A3", "A5:A6"}
    assert [row[0] for row in main.values] == ["Port", "Dover", None, "Malm", "Dover", None]
    assert [row[3] for row in main.values] == ["Twice", *(f"=C{row}*2" for row in range(2, 7))]
    computed = openpyxl.load_workbook(io.BytesIO(data), data_only=True)
    assert [row[3] for row in computed["Main"].values] == ["Twice", 6, 8, 10, 12, 14]


def test_a_workbook_whose_first_sheet_is_hidden_opens_at_one_that_is_not() -> None:
    data = render("a.xlsx", Book((("Back", SHEET), ("Main", SHEET)), hidden=("Back",)))
    assert openpyxl.load_workbook(io.BytesIO(data)).active.title == "Main"


@settings(max_examples=30, deadline=None)
@given(st.lists(st.text(st.characters(codec="utf-8", exclude_categories=["C"]), min_size=1, max_size=9), max_size=8))
def test_text_in_a_workbook_is_text_whatever_it_looks_like(texts: list[str]) -> None:
    rows = tuple((text,) for text in [*texts, "=1+1", "007", "https://example.org", "1e5", "{=A1}"])
    book = openpyxl.load_workbook(io.BytesIO(render("a.xlsx", Book((("S", Sheet(("t",), rows)),)))))
    cells = [cell for row in book["S"].iter_rows(min_row=2) for cell in row]
    assert [cell.value for cell in cells] == [row[0] for row in rows]
    assert not any(cell.hyperlink for cell in cells)


def opened(data: bytes) -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:")
    connection.deserialize(data)
    return connection


def test_a_database_has_types_and_is_sound() -> None:
    odd = Sheet(('a "b"', "select"), ((1, "x"), ("two", "y")))
    data = render("a.sqlite", Database((("ships", SHEET), ("odd; name", odd), ("none", Sheet(("k",), ())))))
    with closing(opened(data)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert connection.execute("SELECT * FROM ships").fetchall() == list(SHEET.rows)
        assert connection.execute('SELECT * FROM "odd; name"').fetchall() == list(odd.rows)
        types = {row[1]: row[2] for row in connection.execute("PRAGMA table_info(ships)")}
    assert types == {"Name": "TEXT", "Tons": "REAL"}


def test_a_database_tells_nothing_of_the_library_that_wrote_it(tmp_path) -> None:
    data = render("a.sqlite", Database((("ships", SHEET),)))
    assert data[24:28] == bytes(4) and data[92:100] == bytes(8)
    (tmp_path / "a.sqlite").write_bytes(data)
    with closing(sqlite3.connect(tmp_path / "a.sqlite")) as connection:  # from a file, and written to
        connection.execute("INSERT INTO ships VALUES ('New', 1)")
        connection.commit()
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert connection.execute("SELECT count(*) FROM ships").fetchone() == (3,)


def test_a_large_database_is_whole() -> None:
    rows = tuple((f"name {i}", i, i / 8) for i in range(5000))
    with closing(opened(render("a.sqlite", Database((("t", Sheet(("n", "i", "f"), rows)),))))) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert connection.execute("SELECT * FROM t ORDER BY rowid").fetchall() == list(rows)


def test_slides_have_titles_bodies_tables_and_notes() -> None:
    content = Slides("Talk", (Slide("One", ("Text", Bullets(("x & y", "z")), SHEET), "Say <this>."), Slide("Two", ())))
    presentation = pptx.Presentation(io.BytesIO(render("a.pptx", content)))
    first, second = presentation.slides
    assert presentation.core_properties.title == "Talk"
    assert [first.shapes.title.text, second.shapes.title.text] == ["One", "Two"]
    assert first.placeholders[1].text == "Text\nx & y\nz"
    (table,) = [shape.table for shape in first.shapes if shape.has_table]
    assert [[cell.text for cell in row.cells] for row in table.rows][1] == ["Quiet Heron", "12"]
    assert first.notes_slide.notes_text_frame.text == "Say <this>."
    assert not second.has_notes_slide


MAIL = Mail(
    "Mira Torandov <mira@example.org>",
    ("a@example.org", "Bo <b@example.org>"),
    "Figures",
    "2021-03-04T09:30",
    ("Please find them attached.", Bullets(("one", "two")), SHEET),
    (("a.csv", SHEET), ("b.png", Lettering(("x",))), ("c.odd", Doc("T", ("x",)))),
)


def test_a_mail_has_headers_text_and_attachments() -> None:
    mail = Mail(MAIL.sender, MAIL.to, MAIL.subject, MAIL.date, MAIL.body, MAIL.attachments[:2])
    data = render("a.eml", mail)
    message = email.message_from_bytes(data, policy=policy.default)
    assert message["From"] == MAIL.sender and message["To"] == "a@example.org, Bo <b@example.org>"
    assert message["Date"].datetime.isoformat() == "2021-03-04T09:30:00+00:00"
    text = message.get_body().get_content().replace("\r\n", "\n")
    assert "Please find them attached." in text and "- one\n- two" in text and "Quiet Heron | 12" in text
    attached = {part.get_filename(): part.get_content() for part in message.iter_attachments()}
    assert attached["a.csv"].encode() == render("a.csv", SHEET)
    assert attached["b.png"] == render("b.png", Lettering(("x",)))
    assert "Message-ID" not in message
    with pytest.raises(ValueError, match="cannot hold"):
        render("a.eml", MAIL)  # an attachment that no file can be


def test_a_mail_with_long_words_and_letters_of_any_kind_comes_back() -> None:
    body = ("Zürich naïve " + "x" * 2000, Sheet(("k" * 600, "v" * 600), (("a" * 600, "é" * 600),)))
    data = render("a.eml", Mail("Żółć <z@example.org>", ("b@example.org",), "Grüße " * 30, "2021-03-04", body))
    assert max(map(len, data.split(b"\r\n"))) < 998 and data.isascii()
    message = email.message_from_bytes(data, policy=policy.default)
    assert message["Subject"].strip() == ("Grüße " * 30).strip()
    text = message.get_body().get_content()
    assert text.count("x") == 2000 and "é" * 600 in text


def test_rows_in_xml_and_lines_of_json() -> None:
    sheet = Sheet(("Ship name", "2nd", "Tons (t)"), (("A & <b>", 1, 2.5), ("C", 3, 4)))
    root = ElementTree.fromstring(render("a.xml", sheet))
    assert [[(cell.tag, cell.text) for cell in row] for row in root][0] == [
        ("Ship_name", "A & <b>"),
        ("column_2nd", "1"),
        ("Tons_t", "2.5"),
    ]
    assert [json.loads(line) for line in render("a.jsonl", Lines(({"a": "é"}, [1]))).decode().splitlines()] == [
        {"a": "é"},
        [1],
    ]


BROKEN = [
    (lambda: Sheet(("a",), ((1,),), hidden_rows=(1,)), "hidden row 1"),
    (lambda: Sheet(("a",), ((1,),), merged=("b",)), "no column 'b'"),
    (lambda: Sheet(("a",), ((1,),), hidden_columns=("b",)), "no column 'b'"),
    (lambda: Sheet(("a",), ((1,),), merged=("a",), formulas={"a": "=1"}), "merged cells hold no formulas"),
    (lambda: Book((("S", SHEET),), hidden=("T",)), "no sheet 'T'"),
    (lambda: Book((("S", SHEET),), hidden=("S",)), "a sheet that is visible"),
    (lambda: Bars((("red", 4),), ("a", "b")), "as many labels"),
    (lambda: Bars((("red", 4),), ("é",)), "printable ASCII"),
    (lambda: Lettering(("a ",)), "printable ASCII"),
    (lambda: Lettering(("", "")), "needs a line"),
    (lambda: Qr(""), "1 to 300"),
    (lambda: Qr("x" * 301), "1 to 300"),
    (lambda: Qr("é"), "ASCII"),
    (lambda: Morse("a  b"), "single spaces"),
    (lambda: Morse("ä"), "Morse text"),
    (lambda: Morse("A", 9), "wpm is 10 to 25"),
    (lambda: Dtmf("12E"), "DTMF digits"),
    (lambda: Beeps(()), "need a group"),
    (lambda: Beeps((("high", 0),)), "a count from 1"),
    (lambda: Beeps((("shrill", 1),)), "low"),
    (lambda: Mail("a@b.c", ("d@e.f",), "x\nBcc: y", "2021-01-01", ()), "one line"),
    (lambda: render("a.csv", RICH), "use a Book"),
    (lambda: render("a.md", Doc("T", (RICH,))), "use a Book"),
    (lambda: render("a.sqlite", Database((("t", RICH),))), "use a Book"),
    (lambda: render("a.xml", Sheet(("a b", "a-b"), ())), "same XML tags"),
    (lambda: render("a.pptx", Doc("T", ())), "cannot hold a Doc"),
]


@pytest.mark.parametrize(("make", "message"), BROKEN, ids=[message for _, message in BROKEN])
def test_content_that_cannot_be_says_why(make, message) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_contents_can_be_compared_and_hashed() -> None:
    assert RICH == Sheet(RICH.header, RICH.rows, (1, 4), ("Tons",), ("Port",), {"Twice": "=C{row}*2"})
    assert len({RICH, SHEET, MAIL, Morse("A"), Qr("x"), Slides("T", ())}) == 6
