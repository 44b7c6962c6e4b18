"""Broken files: every reader says what is wrong, and says the same whatever else the process has open."""

import io
import os
import random
import re
import zipfile

import pytest
from gaia_tools import served

from envs.gaia.render import Book, Doc, Sheet, Slide, Slides, render

NAMES = [
    f"a.{ext}"
    for ext in "png jpg gif bmp webp csv tsv xlsx docx pptx pdf html json xml zip txt md eml sqlite wav".split()
]
REFUSING = ("view_image", "describe_image", "read_qr", "unpack_archive", "query_sqlite", "decode_audio")
"""Those that read nothing of plain text."""
READERS = (*REFUSING, "read_document", "read_table")


def content(name, kind):
    junk = random.Random(name).randbytes(300)
    magic = {"png": b"\x89PNG\r\n\x1a\n", "gif": b"GIF89a", "jpg": b"\xff\xd8\xff\xe0", "pdf": b"%PDF-1.7\n"}
    magic |= {"sqlite": b"SQLite format 3\0", "wav": b"RIFF\x99\0\0\0WAVEfmt ", "eml": b"From: a@b.c\n"}
    start = magic.get(name.partition(".")[2], b"PK\x03\x04")
    return {"junk": junk, "cut short": start + junk[:40], "empty": b""}[kind]


async def answers(tmp_path):
    texts = {}
    async with served(tmp_path) as call:
        for kind in ("junk", "cut short", "empty"):
            for name in NAMES:
                (tmp_path / name).write_bytes(content(name, kind))
                for reader in READERS:
                    result = await call(reader, path=name)
                    texts[kind, name, reader] = (result.failed, result.text)
    return texts


async def test_what_is_said_does_not_depend_on_descriptors_or_memory(tmp_path):
    first, opened = tmp_path / "first", []
    first.mkdir()
    one = await answers(first)
    try:
        opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(23)]
        other = await answers(first)
    finally:
        for fd in opened:
            os.close(fd)
    assert one == other
    for (kind, name, reader), (failed, text) in one.items():
        assert "0x" not in text and "<_io" not in text and str(tmp_path) not in text, (kind, name, reader, text)
        if reader in REFUSING and not (reader == "unpack_archive" and name.endswith("eml")):
            assert failed and len(text) < 400, (kind, name, reader, text)


@pytest.mark.parametrize(
    ("reader", "ext"), list(zip(READERS, ("png", "png", "png", "zip", "sqlite", "wav", "pdf", "csv"), strict=True))
)
async def test_a_file_that_is_not_there_is_answered_with_those_that_are(tmp_path, reader, ext):
    (tmp_path / f"notice_31.{ext}").write_bytes(b"x")
    async with served(tmp_path) as call:
        result = await call(reader, path=f"notice_13.{ext}")
    assert result.failed and f"notice_31.{ext}" in result.text


CONTENTS = {
    "docx": Doc("A title", ("Some text.", Sheet(("a", "b"), ((1, 2),)))),
    "pptx": Slides("A title", (Slide("One", ("Text.",), "A note."),)),
    "xlsx": Book((("One", Sheet(("a", "b"), ((1, 2), (1, 3)), merged=("a",))),)),
}


@pytest.mark.parametrize("encoding", ["UTFO8", "utf-7", "shift_jis", "base64", "x" * 5000], ids=lambda name: name[:9])
@pytest.mark.parametrize("ext", CONTENTS)
async def test_parts_in_an_encoding_that_cannot_be_are_refused(tmp_path, ext, encoding):
    """Each part of an office document in turn says that it is in an encoding that no parser takes."""
    whole = zipfile.ZipFile(io.BytesIO(render(f"a.{ext}", CONTENTS[ext])))
    async with served(tmp_path) as call:
        for name in whole.namelist():
            if not name.endswith((".xml", ".rels")):
                continue
            with zipfile.ZipFile(tmp_path / f"a.{ext}", "w") as archive:
                for part in whole.namelist():
                    data = whole.read(part)
                    if part == name:
                        data = re.sub(rb"^<\?xml.*?\?>", b"", data)
                        data = f'<?xml version="1.0" encoding="{encoding}"?>'.encode() + data
                    archive.writestr(part, data)
            for reader in ("read_document", "read_table"):
                result = await call(reader, path=f"a.{ext}")
                assert "unexpectedly" not in result.text, (name, reader, result.text)


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
async def test_broken_data_of_every_compression_is_refused(tmp_path, method):
    whole = zipfile.ZipFile(io.BytesIO(render("a.xlsx", CONTENTS["xlsx"])))
    async with served(tmp_path) as call:
        for ext, reader in (("zip", "unpack_archive"), ("xlsx", "read_table"), ("docx", "read_document")):
            with zipfile.ZipFile(tmp_path / f"a.{ext}", "w", method) as archive:
                for part in whole.namelist():
                    archive.writestr(part, whole.read(part) * 3)
            data = bytearray((tmp_path / f"a.{ext}").read_bytes())
            for info in zipfile.ZipFile(tmp_path / f"a.{ext}").infolist():
                start = info.header_offset + 30 + len(info.filename)
                data[start : start + 24] = b"\xa5" * 24
            (tmp_path / f"a.{ext}").write_bytes(data)
            assert "unexpectedly" not in await call.refused(reader, path=f"a.{ext}")
