"""read_document: every format, paging, and files made to hurt."""

import html
import io
import json
import time
import zipfile

import docx
import fpdf
import pytest
from gaia_tools import served
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.gaia.tools.base import PAGE_CHARS, ToolFault, page_of, paginate
from envs.gaia.tools.documents import text_of
from envs.gaia.tools.markup import html_text


def text(data: bytes, name: str) -> str:
    return text_of(io.BytesIO(data), name)


def word(build) -> bytes:
    document, out = docx.Document(), io.BytesIO()
    build(document)
    document.save(out)
    return out.getvalue()


def test_word_in_reading_order():
    def build(document):
        document.add_heading("Report", 1)
        paragraph = document.add_paragraph("Bold")
        paragraph.add_run(" and plain\tafter a tab").bold = True
        document.add_paragraph("First", style="List Bullet")
        table = document.add_table(rows=2, cols=2)
        for cell, value in zip((c for row in table.rows for c in row.cells), ("k", "v", "x", "1"), strict=True):
            cell.text = value
        table.rows[1].cells[1].add_paragraph("second line")
        document.add_paragraph("After & <the> table")
        document.sections[0].header.paragraphs[0].text = "Confidential"
        document.sections[0].footer.paragraphs[0].text = "Page foot"

    assert text(word(build), "a.docx") == (
        "[header]\nConfidential\n\nReport\nBold and plain\tafter a tab\n- First\nk | v\nx | 1 second line\n"
        "After & <the> table\n\n[footer]\nPage foot"
    )


P = " ".join(
    f'xmlns:{prefix}="http://schemas.openxmlformats.org/{name}"'
    for prefix, name in (
        ("a", "drawingml/2006/main"),
        ("p", "presentationml/2006/main"),
        ("r", "officeDocument/2006/relationships"),
    )
)
RELS = '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">{}</Relationships>'


def slides(*texts: str, notes: str = "") -> bytes:
    """A presentation whose slides are stored in another order than they are shown."""
    out, count = io.BytesIO(), len(texts)
    with zipfile.ZipFile(out, "w") as archive:
        ids = "".join(f'<p:sldId id="{256 + i}" r:id="rId{i}"/>' for i in range(count))
        archive.writestr("ppt/presentation.xml", f"<p:presentation {P}><p:sldIdLst>{ids}</p:sldIdLst></p:presentation>")
        targets = "".join(
            f'<Relationship Id="rId{i}" Type="slide" Target="slides/slide{count - i}.xml"/>' for i in range(count)
        )
        archive.writestr("ppt/_rels/presentation.xml.rels", RELS.format(targets))
        for i, body in enumerate(texts):
            archive.writestr(f"ppt/slides/slide{count - i}.xml", f"<p:sld {P}><p:cSld>{body}</p:cSld></p:sld>")
        if notes:
            link = '<Relationship Id="r1" Type="notes" Target="../notesSlides/n1.xml"/>'
            archive.writestr(f"ppt/slides/_rels/slide{count}.xml.rels", RELS.format(link))
            archive.writestr("ppt/notesSlides/n1.xml", f"<p:notes {P}>{notes}</p:notes>")
    return out.getvalue()


def line(value: str) -> str:
    return f"<a:p><a:r><a:t>{value}</a:t></a:r></a:p>"


def test_slides_in_order_with_tables_and_notes():
    table = f"<a:tbl><a:tr><a:tc>{line('k')}</a:tc><a:tc>{line('v')}</a:tc></a:tr></a:tbl>"
    number = '<a:p><a:fld type="slidenum"><a:t>1</a:t></a:fld></a:p>'  # as PowerPoint has it in notes
    data = slides(line("One"), line("Two") + table, notes=line("say this") + line("1") + number)
    assert text(data, "a.pptx") == "[slide 1]\nOne\n\n[notes of slide 1]\nsay this\n1\n\n[slide 2]\nTwo\nk | v"


def test_html_as_it_is_seen():
    source = """<!DOCTYPE html><html><head><title>T</title><style>p{}</style><script>var x = "hidden";</script></head>
    <body><h1>Head</h1><p>One &amp; <b>two</b>
    lines<br>break</p><ul><li>a</li><li>b</li></ul><table><tr><th>k</th><th>v</th></tr><tr><td>x</td><td>1</td></tr>
    </table><pre>  keep
   this</pre><img alt="a cat" src="x"><p>end</body></html>"""
    assert text(source.encode(), "a.html") == (
        "T\n\nHead\n\nOne & two lines\nbreak\n\n- a\n- b\n\nk | v\nx | 1\n\nkeep\nthis\n[image: a cat]\nend"
    )


@pytest.mark.parametrize(
    "odd", ["<![CDATA[x]]>", "<![if IE]>", "<![;", "<![a;", "<!", "<!x>", "<?php x ?>", "</ >", "<!-->"]
)
def test_html_with_odd_declarations_is_read(odd):
    assert html_text(f"<p>one</p>{odd}\n<p>two</p>").startswith("one")


@pytest.mark.parametrize(
    ("reference", "meant"),
    [
        ("&#" + "1" * 5000 + ";", "\ufffd"),
        ("&#" + "0" * 5000 + "65;", "A"),
        ("&#" + "0" * 5000 + ";", "\ufffd"),
        ("&#x" + "f" * 5000 + ";", "\ufffd"),
        ("&#65;", "A"),
        ("&#00065", "A"),
        ("&#1114112;", "\ufffd"),
        ("&#1114109;", "\U0010fffd"),
        ("&#;", "&#;"),
    ],
    ids=lambda value: value[:9],
)
def test_html_with_any_character_by_number_is_read(reference, meant):
    """In text and in attributes, of however many digits."""
    assert html_text(f"<p>one {reference}</p><img alt='two {reference}'>") == f"one {meant}\n[image: two {meant}]"


def pdf(*pages: str) -> bytes:
    document = fpdf.FPDF()
    document.set_font("helvetica", size=11)
    for page in pages:
        document.add_page()
        document.multi_cell(0, 6, page)
    return bytes(document.output())


def test_pdf_pages_are_marked_where_there_are_several():
    assert text(pdf("Only page\nline two"), "a.pdf") == "Only page\nline two"
    assert text(pdf("First", "Second"), "a.pdf") == "[pdf page 1]\nFirst\n\n[pdf page 2]\nSecond"


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("a.txt", b"plain\r\ntext", "plain\ntext"),
        ("a.md", b"# Head\n- x", "# Head\n- x"),
        ("a.py", b"print(1)\n", "print(1)\n"),
        ("a.xml", b"<a><b>1</b></a>", "<a><b>1</b></a>"),
        ("README", "naïve".encode(), "naïve"),
        ("a.log", "naïve".encode("latin-1"), "naïve"),
        ("a.txt", "naïve".encode("utf-16"), "naïve"),
        ("a.json", b'{"a": 1}', '{"a": 1}'),
        ("a.txt", b"", ""),
    ],
)
def test_text_files(name, data, expected):
    assert text(data, name) == expected


def test_json_without_lines_is_given_some():
    value = {"rows": list(range(100)), "name": "Zürich"}
    shown = text(json.dumps(value).encode(), "a.json")
    assert json.loads(shown) == value and shown.count("\n") > 100 and "Zürich" in shown
    broken = "[" * 5000
    assert text(broken.encode(), "a.json") == broken


async def test_long_documents_come_in_pages(tmp_path):
    lines = "".join(f"This is line number {i}.\n" for i in range(1000))
    (tmp_path / "a.txt").write_text(lines)
    (tmp_path / "e.txt").write_text("")
    async with served(tmp_path) as session:
        first = await session.ok("read_document", path="a.txt")
        assert first.endswith("\n[page 1 of 7; next: page=2]") and len(first) <= PAGE_CHARS + 40
        pages = [await session.ok("read_document", path="a.txt", page=i) for i in range(1, 8)]
        assert pages[0] == first and pages[-1].endswith("number 999.\n[page 7 of 7]")
        assert sum(page.count("This is line") for page in pages) == 1000
        assert "from 1 to 7" in await session.refused("read_document", path="a.txt", page=8)
        assert await session.ok("read_document", path="e.txt") == "(empty)"


@settings(max_examples=200, deadline=None)
@given(st.text(st.sampled_from("ab \n"), max_size=400), st.integers(5, 60))
def test_pages_joined_are_the_text(body, size):
    pages = paginate(body, size)
    assert "".join(pages) == body and pages
    assert all(len(page) <= size for page in pages)
    assert all(len(page) >= size // 2 for page in pages[:-1])
    with pytest.raises(ToolFault):
        page_of(body, len(pages) + 1, size=size)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.xlsx", b"PK", "use read_table"),
        ("a.png", b"\x89PNG", "use view_image or describe_image"),
        ("a.tar.gz", b"", "use unpack_archive"),
        ("a.bin", b"\0\1\2", "binary file"),
        ("a.docx", b"not a zip", "damaged or not what its name says"),
        ("a.pptx", b"PK\x03\x04", "damaged or not what its name says"),
        ("a.pdf", b"", "cannot be read as a PDF"),
        ("a.pdf", b"%PDF-1.7 garbage", "cannot be read as a PDF"),
        ("a.docx", slides("x"), "has no 'word/document.xml'"),
        ("a.pptx", word(lambda d: d.add_paragraph("x")), "has no 'ppt/presentation.xml'"),
        ("a.txt", b"x" * 4_000_001, "over 4,000,000"),
        ("a.html", b"<p>" * 1_000_000, "over 1,000,000"),
    ],
)
def test_what_cannot_be_read_says_what_to_do(name, data, message):
    with pytest.raises(ToolFault, match=message):
        text(data, name)


def test_an_encrypted_pdf_is_refused():
    document = fpdf.FPDF()
    document.set_encryption(owner_password="x", user_password="y")
    document.add_page()
    with pytest.raises(ToolFault, match="encrypted"):
        text(bytes(document.output()), "a.pdf")


def office(name: str, body: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, body)
    return out.getvalue()


LAUGHS = "<!DOCTYPE l [<!ENTITY a0 'ha'>{}]><w>&a20;</w>".format(
    "".join(f"<!ENTITY a{i} '&a{i - 1};&a{i - 1};&a{i - 1};'>" for i in range(1, 21))
)


@pytest.mark.parametrize("code", ["ascii", "utf-16", "utf-16-be"])
@pytest.mark.parametrize("part", ["word/document.xml", "word/header1.xml", "word/_rels/document.xml.rels"])
def test_billion_laughs_are_not_heard(part, code):
    start = time.process_time()
    with pytest.raises(ToolFault, match="declares XML entities"):
        text(office(part, LAUGHS.encode(code)), "a.docx")
    assert time.process_time() - start < 0.5


def test_external_entities_are_not_read(tmp_path):
    (tmp_path / "secret").write_text("s3cret")
    body = f'<!DOCTYPE d [<!ENTITY x SYSTEM "file://{tmp_path}/secret">]><w>&x;</w>'
    with pytest.raises(ToolFault, match="declares XML entities"):
        text(office("word/document.xml", body.encode()), "a.docx")


def test_a_document_bomb_is_refused_before_it_is_inflated():
    start = time.process_time()
    with pytest.raises(ToolFault, match="would unpack to"):
        text(office("word/document.xml", b" " * (100 << 20)), "a.docx")
    assert time.process_time() - start < 2


def word_body(body: bytes) -> bytes:
    start = b'<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main">'
    return office("word/document.xml", start + body + b"</w:document>")


def test_tables_in_tables_are_read_once():
    """Each row belongs to one table: read anew for every table around it, a few dozen would take for ever."""
    depth = 60
    opening, closing = b"<w:tbl><w:tr><w:tc>", b"</w:tc></w:tr></w:tbl>"
    start = time.process_time()
    body = opening * depth + b"<w:p><w:r><w:t>inside</w:t></w:r></w:p>" + closing * depth
    assert text(word_body(body), "a.docx") == "inside"
    assert time.process_time() - start < 1


def test_a_part_of_office_markup_is_bounded():
    start = time.process_time()
    with pytest.raises(ToolFault, match="more than 8,388,608 bytes in 'word/document.xml'"):
        text(word_body(b"<w:p/>" * 2_000_000), "a.docx")
    assert time.process_time() - start < 1


def test_a_slide_that_is_named_often_is_read_once():
    data = slides(line("One" * 1000))
    patched = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(patched, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(
                name, old.read(name).replace(b'<p:sldId id="256" r:id="rId0"/>', b'<p:sldId r:id="rId0"/>' * 50_000)
            )
    start = time.process_time()
    assert text(patched.getvalue(), "a.pptx") == "[slide 1]\n" + "One" * 1000
    assert time.process_time() - start < 2


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 900 + b"1," * 20_000 + b"1" + b"]" * 900,
        b"[" + b"1," * 1_500_000 + b"1]",
        b'{"a":' * 100_000,
        b"9" * 900_000,
    ],
    ids=["deep and wide", "wide", "deep", "one number"],
)
def test_json_that_would_grow_stays_as_it_is(data):
    start = time.process_time()
    assert text(data, "a.json") == data.decode()
    assert time.process_time() - start < 2


def test_deep_markup_is_refused_not_fatal():
    deep = b'<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main">'
    body = deep + b"<w:x>" * 50_000 + b"</w:x>" * 50_000 + b"</w:document>"
    with pytest.raises(ToolFault, match="nested too deeply"):
        text(office("word/document.xml", body), "a.docx")


def test_a_relation_cannot_leave_the_container():
    data = slides(line("One"))
    patched = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(patched, "w") as new:
        for name in old.namelist():
            new.writestr(name, old.read(name).replace(b"slides/slide1.xml", b"../../../etc/passwd"))
    with pytest.raises(ToolFault, match="has no"):
        text(patched.getvalue(), "a.pptx")


@settings(max_examples=150, deadline=None)
@given(st.text(st.sampled_from("<>/!-&;\"'= abptd\n[]?"), max_size=120))
def test_any_markup_gives_text(source):
    assert len(html_text(source)) <= len(source)
    assert html_text(html.escape(source)).split() == source.split()


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=300), st.sampled_from(["docx", "pptx", "pdf", "html", "json", "txt", "xlsx", "eml"]))
def test_any_bytes_give_text_or_a_refusal(data, ending):
    try:
        text(data, f"a.{ending}")
    except ToolFault as fault:
        assert len(str(fault)) < 500
