"""read_table: csv, tsv and xlsx of every kind, windows, and files made to hurt."""

import datetime
import io
import time
import zipfile

import openpyxl
import pytest
from gaia_tools import served
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.gaia import render as files
from envs.gaia.tools.base import ToolFault
from envs.gaia.tools.tables import Sheet, load, show


def workbook(path, **sheets):
    book = openpyxl.Workbook()
    book.remove(book.active)
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
    book.save(path)
    return book


def rows_of(data: bytes, name: str, sheet=None):
    return load(io.BytesIO(data), name, sheet).rows


async def test_a_small_csv_is_shown_whole(tmp_path):
    (tmp_path / "a.csv").write_text('name,price\n"Smith, J",12.50\n"say ""hi""",3\n')
    async with served(tmp_path) as session:
        assert await session.ok("read_table", path="a.csv") == 'name,price\n"Smith, J",12.50\n"say ""hi""",3'


@pytest.mark.parametrize(
    ("name", "data", "rows"),
    [
        ("a.csv", b"a;b\n1;2\n", [("a", "b"), ("1", "2")]),
        ("a.csv", b"a\tb\n1\t2\n", [("a", "b"), ("1", "2")]),
        ("a.tsv", b"a\tb,c\n1\t2\n", [("a", "b,c"), ("1", "2")]),
        ("a.csv", b"\xef\xbb\xbfa,b\r\n1,2\r\n", [("a", "b"), ("1", "2")]),
        ("a.csv", "é,b\n1,2\n".encode("latin-1"), [("é", "b"), ("1", "2")]),
        ("a.csv", "é,b\n1,2\n".encode("utf-16"), [("é", "b"), ("1", "2")]),
        ("a.csv", b'a,b\n"x\ny",2\n\n3,4\n', [("a", "b"), ("x\ny", "2"), ("3", "4")]),
        ("A.CSV", b"only\n1\n2\n", [("only",), ("1",), ("2",)]),
        ("a.csv", b"", []),
        ("a.csv", b"a,b\n1\n1,2,3\n", [("a", "b"), ("1",), ("1", "2", "3")]),
    ],
)
def test_delimited_files(name, data, rows):
    assert rows_of(data, name) == rows


async def test_windows_say_what_is_left(tmp_path):
    (tmp_path / "a.csv").write_text("n\n" + "".join(f"{i}\n" for i in range(120)))
    async with served(tmp_path) as session:
        first = (await session.ok("read_table", path="a.csv")).splitlines()
        assert first[:2] == ["n", "0"] and first[-1] == "[rows 0 to 49 of 120; 70 more: start=50]"
        middle = (await session.ok("read_table", path="a.csv", start=50, rows=60)).splitlines()
        assert middle[:2] == ["n", "50"] and middle[-1] == "[rows 50 to 109 of 120; 10 more: start=110]"
        last = (await session.ok("read_table", path="a.csv", start=110)).splitlines()
        assert last[-2:] == ["119", "[rows 110 to 119 of 120]"]
        assert "0 to 119" in await session.refused("read_table", path="a.csv", start=120)
        assert len((await session.ok("read_table", path="a.csv", rows=200)).splitlines()) == 121


async def test_wide_rows_and_long_cells_are_cut(tmp_path):
    (tmp_path / "a.csv").write_text("a,b\n" + "".join(f"{i},{'x' * 3000}\n" for i in range(100)))
    async with served(tmp_path) as session:
        text = await session.ok("read_table", path="a.csv")
    assert len(text) < 14_000
    assert "more: start=" in text and "…" in text


async def test_workbooks_name_their_sheets(tmp_path):
    workbook(
        tmp_path / "b.xlsx",
        Sales=[["k", "v"], ["x", 1]],
        Notes=[["n"], ["secret"]],
        Empty=[],
        **{"Q 3": [["q"], [2.5]]},
    )
    async with served(tmp_path) as session:
        assert await session.ok("read_table", path="b.xlsx") == (
            "[sheet 'Sales'; other sheets: 'Notes', 'Empty', 'Q 3']\nk,v\nx,1"
        )
        assert (await session.ok("read_table", path="b.xlsx", sheet="Notes")).endswith("\nn\nsecret")
        assert (await session.ok("read_table", path="b.xlsx", sheet="q 3")).endswith("\nq\n2.5")
        assert "other sheets" in await session.ok("read_table", path="b.xlsx", sheet="Empty")
        text = await session.refused("read_table", path="b.xlsx", sheet="Note")
        assert "Did you mean 'Notes'" in text and "'Q 3'" in text


def test_cells_of_every_type():
    out = io.BytesIO()
    workbook(
        out,
        S=[
            ["int", "float", "whole", "bool", "date", "datetime", "time", "none", "text"],
            [
                7,
                2.5,
                3.0,
                True,
                datetime.date(2024, 3, 5),
                datetime.datetime(2024, 3, 5, 6, 7),
                datetime.time(1, 2),
                None,
                "007",
            ],
        ],
    )
    assert rows_of(out.getvalue(), "x.xlsx")[1] == (
        "7",
        "2.5",
        "3",
        "TRUE",
        "2024-03-05",
        "2024-03-05 06:07:00",
        "01:02:00",
        "",
        "007",
    )


def test_formulas_merged_and_hidden_cells():
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = "Main"
    for row in (["a", "b", None], [1, 2, None], [3, 4, None], [None, None, None], ["total", "=SUM(B2:B3)", None]):
        sheet.append(row)
    sheet.merge_cells("A1:A1")
    sheet.merge_cells("A2:A3")
    sheet.row_dimensions[3].hidden = True
    book.create_sheet("Secret").sheet_state = "hidden"
    out = io.BytesIO()
    book.save(out)
    found = load(io.BytesIO(out.getvalue()), "x.xlsx")
    assert found.rows == [
        ("a", "b", "(row)"),
        ("1", "2", ""),
        ("1", "4", "hidden"),
        ("", "", ""),
        ("total", "=SUM(B2:B3)", ""),
    ]
    assert found.others == ("'Secret' (hidden)",)


def test_a_computed_formula_shows_its_value(tmp_path):
    """As Excel writes it, with the cached value beside the formula."""
    out = io.BytesIO()
    workbook(out, S=[["a"], ["=1+1"]])
    patched = io.BytesIO()
    with zipfile.ZipFile(out) as old, zipfile.ZipFile(patched, "w") as new:
        for name in old.namelist():
            body = old.read(name)
            if name.endswith("sheet1.xml"):
                assert b"<v></v>" in body or b"<v/>" in body or b"<v />" in body
                for empty in (b"<v></v>", b"<v/>", b"<v />"):
                    body = body.replace(empty, b"<v>2</v>")
            new.writestr(name, body)
    assert rows_of(patched.getvalue(), "x.xlsx") == [("a",), ("2",)]


async def test_compact_rows_are_words(tmp_path):
    (tmp_path / "a.csv").write_text("name,net price\nzor,12\nmal,40\n")
    (tmp_path / "one.csv").write_text("n\n1\n")
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "long.csv").write_text("n,v\n" + "a,1\n" * 300)
    async with served(tmp_path, compact=True) as session:
        assert await session.ok("read_table", path="a.csv") == "net price\nzor 12\nmal 40"
        assert await session.ok("read_table", path="one.csv") == "n\n1"
        assert await session.ok("read_table", path="empty.csv") == "none"
        assert (await session.ok("read_table", path="long.csv")).endswith("a 1\n100 more")


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.pdf", b"%PDF", "try read_document"),
        ("a", b"x", "try read_document"),
        ("a.sqlite", b"x", "use query_sqlite"),
        ("a.xlsx", b"", "damaged or not what its name says"),
        ("a.xlsx", b"PK\x03\x04broken", "damaged or not what its name says"),
        ("a.csv", b"a,b\0c\n" * 10, "binary file"),
        ("a.csv", b"\x89PNG\r\n\x1a\n\0\0\0", "binary file"),
        ("a.csv", b'a,"' + b"x" * 200_000, "not a well-formed table"),
    ],
)
def test_what_is_no_table_is_refused(name, data, message):
    with pytest.raises(ToolFault, match=message):
        load(io.BytesIO(data), name)


def minimal_xlsx(sheet: bytes, *, doctype: bytes = b"", dimension: bytes = b"") -> bytes:
    out = io.BytesIO()
    workbook(out, S=[["a"], [1]])
    patched = io.BytesIO()
    with zipfile.ZipFile(out) as old, zipfile.ZipFile(patched, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            body = old.read(name)
            if name.endswith("sheet1.xml"):
                head, tail = body.split(b"<sheetData>", 1)
                body = doctype + head + b"<sheetData>" + sheet + b"</sheetData>" + tail.split(b"</sheetData>")[1]
            new.writestr(name, body)
    return patched.getvalue()


def test_a_lying_dimension_costs_nothing():
    data = minimal_xlsx(b'<row r="1"><c r="A1" t="inlineStr"><is><t>k</t></is></c></row>')
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        sheet = archive.read("xl/worksheets/sheet1.xml")
    assert b"<dimension" in sheet
    start = time.process_time()
    assert rows_of(data.replace(b"A1:A2", b"A1:XFD1048576"), "x.xlsx") == [("k",)]
    assert time.process_time() - start < 2


@pytest.mark.parametrize(
    "sheet",
    [
        b'<row r="1048576"><c r="A1048576"><v>1</v></c></row>',
        b'<row r="1"><c r="XFD1"><v>1</v></c></row>',
        b'<row r="900000"><c r="ALL900000"><v>1</v></c></row>',
        b'<row r="1"><c r="A1"><v>1</v></c></row>' * 600_000,
    ],
    ids=["far down", "far right", "far", "many rows"],
)
def test_a_huge_sheet_is_refused_in_time(sheet):
    start = time.process_time()
    with pytest.raises(ToolFault, match=r"too large a table|would unpack|cannot be read"):
        rows_of(minimal_xlsx(sheet), "x.xlsx")
    assert time.process_time() - start < 15


def test_an_xlsx_bomb_is_refused_before_it_is_inflated():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/worksheets/sheet1.xml", b"0" * (200 << 20))
    start = time.process_time()
    with pytest.raises(ToolFault, match="would unpack to"):
        rows_of(out.getvalue(), "x.xlsx")
    assert time.process_time() - start < 1


def test_a_row_of_millions_of_fields_is_refused_unread():
    start = time.process_time()
    with pytest.raises(ToolFault, match="too large a table"):
        rows_of(b"," * (20 << 20), "a.csv")
    assert time.process_time() - start < 1


def test_parts_beside_the_sheets_are_bounded():
    out = io.BytesIO()
    workbook(out, S=[["a"]])
    with zipfile.ZipFile(out, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/more.xml", b"<xf/>" * 2_000_000)
    with pytest.raises(ToolFault, match="too much in 'xl/more.xml'"):
        rows_of(out.getvalue(), "a.xlsx")


async def test_many_sheets_and_long_names_are_not_all_named(tmp_path):
    workbook(tmp_path / "a.xlsx", **{f"sheet number {i}": [[i]] for i in range(60)})
    async with served(tmp_path) as session:
        assert "and 29 more" in await session.ok("read_table", path="a.xlsx")
        text = await session.refused("read_table", path="a.xlsx", sheet="x" * 3000)
    assert "and 30 more" in text and "x" * 81 not in text


@pytest.mark.parametrize("code", ["ascii", "utf-16"])
def test_entities_in_a_workbook_are_refused(code):
    laughs = '<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "' + "&a;" * 1000 + '">]>'
    data = minimal_xlsx(b"", doctype=laughs.encode(code))
    with pytest.raises(ToolFault, match="declares XML entities"):
        rows_of(data, "x.xlsx")


CELLS = st.text(st.characters(codec="utf-8", exclude_characters="\0\r", exclude_categories=["Cs"]), max_size=12)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.lists(CELLS, min_size=2, max_size=4), min_size=1, max_size=6).filter(lambda r: any(map(any, r))))
def test_any_csv_comes_back_as_csv(rows):
    import csv

    rows = [row for row in rows if any(row)] or [["x", "y"]]
    out = io.StringIO()
    csv.writer(out).writerows(rows)
    data = out.getvalue().encode()
    if "," not in out.getvalue().split("\n")[0] or any(m in out.getvalue().split("\n")[0] for m in ";\t|"):
        return  # the first line decides the delimiter
    loaded = load(io.BytesIO(data), "a.csv").rows
    assert [tuple(row) for row in rows] == [tuple(row) for row in loaded]
    shown = show(Sheet(loaded), 0, 50)
    assert [tuple(r) for r in csv.reader(io.StringIO(shown, newline=""))] == [tuple(row) for row in rows]


MARKED = files.Sheet(
    ("Port", "Ship", "Tons", "Twice"),
    (("Dover", "A", 3, 6), ("Dover", "B", 4, 8), ("Malm", "C", 5, 10), ("Dover", "D", 6, 12), ("Dover", "E", 7, 14)),
    hidden_rows=(1, 4),
    hidden_columns=("Tons",),
    merged=("Port",),
    formulas={"Twice": "=C{row}*2"},
)


async def test_what_is_hidden_is_marked_and_what_is_merged_is_filled(tmp_path):
    book = files.Book((("Main", MARKED), ("Back", files.Sheet(("k",), ((1,),)))), hidden=("Back",))
    (tmp_path / "a.xlsx").write_bytes(files.render("a.xlsx", book))
    async with served(tmp_path) as session:
        assert await session.ok("read_table", path="a.xlsx") == (
            "[sheet 'Main'; other sheets: 'Back' (hidden)]\nPort,Ship,Tons (hidden),Twice,(row)\nDover,A,3,6,\n"
            "Dover,B,4,8,hidden\nMalm,C,5,10,\nDover,D,6,12,\nDover,E,7,14,hidden\n"
            "[cells are merged: their value stands in every row and column they cover]\n"
            "[columns with (hidden) in their name are hidden]\n"
            "[hidden rows, marked in the last column: 2 of 5]"
        )
        text = await session.ok("read_table", path="a.xlsx", sheet="Back")
        assert text == "[sheet 'Back' (hidden); other sheets: 'Main']\nk\n1"
        assert "Malm,C,5,10," in await session.ok("read_table", path="a.xlsx", start=2, rows=1)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_hidden_and_merged_cells_are_read(data):
    width, height = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 8))
    header = tuple(f"c{x}" for x in range(width))
    rows = tuple(tuple(data.draw(st.integers(0, 2)) for _ in header) for _ in range(height))
    hidden_rows = tuple(sorted(data.draw(st.sets(st.integers(0, height - 1)))))
    hidden, merged = (tuple(sorted(data.draw(st.sets(st.sampled_from(header))))) for _ in range(2))
    sheet = files.Sheet(header, rows, hidden_rows, hidden, merged)
    found = rows_of(files.render("a.xlsx", files.Book((("S", sheet),))), "a.xlsx")
    labels = [f"{label} (hidden)" if label in hidden else label for label in header]
    marks = [["(row)"], *(["hidden" if y in hidden_rows else ""] for y in range(height))] if hidden_rows else [[]] * 99
    plain = [labels, *([str(cell) for cell in row] for row in rows)]
    assert [list(row) for row in found] == [row + mark for row, mark in zip(plain, marks, strict=False)]


def marked_xlsx(before: bytes = b"", after: bytes = b"", rows: bytes = b"") -> bytes:
    """A workbook with markup of its own before and after the cells of its sheet."""
    data = minimal_xlsx(rows or b'<row r="1"><c r="A1"><v>1</v></c></row><row r="2"><c r="A2"><v>2</v></c></row>')
    patched = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(patched, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            body = old.read(name)
            if name.endswith("sheet1.xml"):
                body = body.replace(b"<sheetData>", before + b"<sheetData>").replace(
                    b"</sheetData>", b"</sheetData>" + after
                )
            new.writestr(name, body)
    return patched.getvalue()


def merges(*ranges: str) -> bytes:
    return b"<mergeCells>" + b"".join(f'<mergeCell ref="{r}"/>'.encode() for r in ranges) + b"</mergeCells>"


@pytest.mark.parametrize(
    ("data", "rows"),
    [
        (marked_xlsx(after=merges("A1:C2")), [("1", "1", "1"), ("1", "1", "1")]),
        (marked_xlsx(after=merges("A1:A1", "$C$1:$C$2")), [("1",), ("2",)]),
        (marked_xlsx(after=merges("B1:B2")), [("1",), ("2",)]),
        (marked_xlsx(b'<cols><col min="1" max="99999" hidden="1"/></cols>'), [("1 (hidden)",), ("2",)]),
        (marked_xlsx(after=merges("A2:A4")), [("1",), ("2",), ("2",), ("2",)]),
        (marked_xlsx(after=merges("A1:A1048576")), [("1",), ("1",)]),
        (marked_xlsx(b'<cols><col min="5" max="3" hidden="1"/></cols>'), [("1",), ("2",)]),
    ],
    ids=["a block", "odd", "of empty cells", "all columns", "below the rows", "a whole column", "columns backwards"],
)
def test_odd_marks(data, rows):
    assert rows_of(data, "a.xlsx") == rows


@pytest.mark.parametrize("odd", ["A2:B1", "A1", "", "A0:A1", "ZZZZ1:ZZZZ2", "a1:a2", "A1:A99999999", "A1:A2:A3"])
def test_ranges_that_are_none_are_left_out_or_refused(odd):
    try:
        assert rows_of(marked_xlsx(after=merges(odd)), "a.xlsx") in ([("1",), ("2",)], [("1",), ("1",)])
    except ToolFault as fault:
        assert "cannot be read as a workbook" in str(fault)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (marked_xlsx(b'<cols><col min="x" max="2" hidden="1"/></cols>'), "cannot be read as a workbook"),
        (marked_xlsx(after=merges(*(f"A{i}:A{i + 1}" for i in range(1, 6000)))), "over 5,000 merged ranges"),
        (marked_xlsx(b"<cols>" + b'<col min="1" max="16384" hidden="1"/>' * 9000 + b"</cols>"), "hides columns"),
        (
            marked_xlsx(
                after=merges(*["A1:XFD1048576"] * 50),
                rows=b"".join(b'<row r="%d"><c r="A%d"><v>1</v></c></row>' % (i, i) for i in range(1, 2000)),
            ),
            "merged cells over more than 200,000",
        ),
        (marked_xlsx(after=merges("XFD1:XFD1048576", *["A1:XFD2"] * 4000)), "merged cells over more than 200,000"),
    ],
    ids=["odd columns", "many ranges", "many columns", "all cells, often", "far to the right"],
)
def test_marks_without_end_are_refused_in_time(data, message):
    start = time.process_time()
    with pytest.raises(ToolFault, match=message):
        rows_of(data, "a.xlsx")
    assert time.process_time() - start < 2
