"""Broken files: every reader says what is wrong, and says the same whatever else the process has open."""

import os
import random

import pytest
from gaia_tools import served

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
