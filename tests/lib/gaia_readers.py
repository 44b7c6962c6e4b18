"""How the independent solver reads files and questions: plain functions over bytes and text.

They are not the tools' readers and share no code with them.
"""

from __future__ import annotations

import datetime
import io
import re
import zipfile
from collections import Counter
from collections.abc import Mapping

Rows = list[dict[str, str]]

COLOURS = {
    (255, 0, 0): "red",
    (0, 128, 0): "green",
    (0, 0, 255): "blue",
    (255, 255, 0): "yellow",
    (255, 165, 0): "orange",
    (128, 0, 128): "purple",
}


def delimited(text: str, delimiter: str) -> Rows:
    """No cell of ours holds the delimiter or a quote, so that splitting is enough."""
    assert '"' not in text
    header, *lines = (line.split(delimiter) for line in text.splitlines())
    return [dict(zip(header, line, strict=True)) for line in lines]


def cell(row: Mapping[str, str], label: str) -> str:
    (value,) = (value for name, value in row.items() if name.lower() == label)
    return value


def numbers(rows: Rows, label: str) -> list[int]:
    return [int(cell(row, label)) for row in rows]


def selected(rows: Rows, q: Mapping[str, str]) -> Rows:
    label, value = either(q, "l1", "l2"), either(q, "v1", "v2")
    found = [row for row in rows if cell(row, label) == value]
    assert found
    return found


def either(q: Mapping[str, str], *names: str) -> str:
    (value,) = (q[name] for name in names if name in q)
    return value


def day(text: str) -> datetime.date:
    return datetime.date(*map(int, text.split("-")))


def letter(text: str) -> tuple[str, str, str]:
    """Entity, event and date."""
    subject = re.search(r"Subject: (\w+) of (.+)", text)
    date = re.search(r"The (\w+) took\s+place\s+on\s+(\d{4}-\d\d-\d\d)", text)
    assert subject and date and subject[1] == date[1]
    return subject[2].strip(), subject[1], date[2]


def unzipped(data: bytes, prefix: str = "") -> dict[str, bytes]:
    """All members, of archives within archives too, by path."""
    found = {}
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for name in archive.namelist():
            body = archive.read(name)
            found |= unzipped(body, f"{prefix}{name}/") if name.endswith(".zip") else {f"{prefix}{name}": body}
    return found


def words(name: str, data: bytes) -> str:
    """The text of a document, list items marked with a dash."""
    if name.endswith(".docx"):
        import docx

        document = docx.Document(io.BytesIO(data))
        return "\n".join(p.text for p in document.paragraphs)
    if name.endswith(".pdf"):
        from pypdf import PdfReader

        return "\n".join(page.extract_text() for page in PdfReader(io.BytesIO(data)).pages)
    return data.decode()


def docx_table(data: bytes) -> Rows:
    import docx

    (table,) = docx.Document(io.BytesIO(data)).tables
    header, *rows = ([cell.text for cell in row.cells] for row in table.rows)
    return [dict(zip(header, row, strict=True)) for row in rows]


def colour_counts(data: bytes) -> dict[str, int]:
    """Pixels of each colour that is not white."""
    from PIL import Image

    image = Image.open(io.BytesIO(data)).convert("RGB")
    counts = {colour: count for count, colour in image.getcolors(1 << 16)}
    return {COLOURS[colour]: count for colour, count in counts.items() if colour != (255, 255, 255)}


def tile_counts(data: bytes) -> dict[str, int]:
    """Tiles of each colour, looking at the middle of each 24-pixel tile."""
    from PIL import Image

    image = Image.open(io.BytesIO(data)).convert("RGB")
    middles = [(x, y) for y in range(12, image.height, 24) for x in range(12, image.width, 24)]
    return Counter(COLOURS[image.getpixel(middle)] for middle in middles)
