"""``read_document``: the text of txt, md, html, docx, pptx, pdf, eml, json, xml and program files, a page at a time."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Annotated, Any, BinaryIO

from pydantic import Field

from envs.gaia.tools import mail, ooxml
from envs.gaia.tools.base import ToolContext, ToolDef, ToolFault, clip, page_of, quoted
from envs.gaia.tools.markup import docx_text, html_text, pptx_text
from envs.gaia.tools.tables import decode

MAX_TEXT = 4_000_000
"""Characters of text taken from one document."""
MAX_JSON = 1_000_000
"""Characters of JSON in one line that is given lines; more stays as it is."""
MAX_HTML = 1_000_000
"""Characters of an HTML page; the parser takes long over large malformed ones."""
MAX_PDF_PAGES = 300
MAX_PDF_STREAM = 8 << 20
"""Bytes that one stream of a PDF may inflate to."""

_OTHER_TOOLS = {
    "xlsx": "read_table",
    "xlsm": "read_table",
    "png": "view_image or describe_image",
    "jpg": "view_image or describe_image",
    "jpeg": "view_image or describe_image",
    "gif": "view_image or describe_image",
    "bmp": "view_image or describe_image",
    "webp": "view_image or describe_image",
    "sqlite": "query_sqlite",
    "sqlite3": "query_sqlite",
    "db": "query_sqlite",
    "wav": "decode_audio",
    "zip": "unpack_archive",
    "tar": "unpack_archive",
    "gz": "unpack_archive",
}


def tools(context: ToolContext) -> list[ToolDef]:
    """The document reader."""

    def read_document(
        path: Annotated[str, Field(description="txt, md, html, docx, pptx, pdf, eml, json, xml, py or other text.")],
        page: Annotated[int, Field(ge=1)] = 1,
    ) -> str:
        with context.workspace.open(path) as file:
            return page_of(text_of(file, path), page)

    description = (
        "Read the text of a document, one page of about 4,000 characters at a time. Slides come with their notes, "
        "mails with the names of their attachments."
    )
    return [ToolDef(read_document, description, terse="Read a document.")]


def text_of(file: BinaryIO, path: str) -> str:
    """The whole text of a document.

    Raises:
        ToolFault: a broken or binary file, or one that another tool reads.
    """
    ending = path.rsplit(".", 1)[-1].lower() if "." in path else ""
    if ending in _OTHER_TOOLS:
        raise ToolFault(f"{quoted(path)} is not a text document; use {_OTHER_TOOLS[ending]}")
    reader = _READERS.get(ending)
    try:
        text = reader(file, path) if reader else decode(file.read(), path)
    except RecursionError:
        raise ToolFault(f"{quoted(path)} is nested too deeply to be read") from None
    if len(text) > MAX_TEXT:
        raise ToolFault(f"{quoted(path)} has {len(text):,} characters of text, over {MAX_TEXT:,}. Use run_python.")
    return text.replace("\r\n", "\n")


def _html(file: BinaryIO, path: str) -> str:
    source = decode(file.read(), path)
    if len(source) > MAX_HTML:
        raise ToolFault(f"{quoted(path)} has {len(source):,} characters, over {MAX_HTML:,}. Use run_python.")
    return html_text(source)


def _json(file: BinaryIO, path: str) -> str:
    """As it stands if it has lines; else indented, so that it can be paged and read."""
    text = decode(file.read(), path)
    if "\n" in text.strip() or not 200 <= len(text) <= MAX_JSON:
        return text
    pieces: list[str] = []
    size = 0
    try:
        for piece in json.JSONEncoder(indent=1, ensure_ascii=False).iterencode(json.loads(text)):
            pieces.append(piece)
            size += len(piece)
            if size > MAX_TEXT:  # deep nesting is mostly indentation
                return text
    except (ValueError, RecursionError):
        return text
    return "".join(pieces)


def _docx(file: BinaryIO, path: str) -> str:
    with ooxml.container(file, path) as archive:
        ooxml.refuse_entities(archive, path)
        return docx_text(archive, path)


def _pptx(file: BinaryIO, path: str) -> str:
    with ooxml.container(file, path) as archive:
        ooxml.refuse_entities(archive, path)
        return pptx_text(archive, path)


def _pdf(file: BinaryIO, path: str) -> str:
    import pypdf  # not at import time: it takes 0.1 s

    limits: dict[str, Any] = {f"{name}_maximum_output_length": MAX_PDF_STREAM for name in _PDF_FILTERS}
    limits["stream_decoding_work_maximum_length"] = MAX_PDF_STREAM + (2 << 20)  # what goes in counts as well
    try:
        with _quiet(), pypdf.apply_configuration(**limits):
            reader = pypdf.PdfReader(file, strict=False)
            if reader.is_encrypted:
                raise ToolFault(f"{quoted(path)} is encrypted; no password is known")
            count = len(reader.pages)
            if count > MAX_PDF_PAGES:
                raise ToolFault(f"{quoted(path)} has {count} pages; at most {MAX_PDF_PAGES} are read")
            texts = list(_pdf_pages(reader, path))
    except ToolFault:
        raise
    except Exception as error:  # pypdf raises nearly anything for a broken file
        raise ToolFault(
            f"{quoted(path)} cannot be read as a PDF: {type(error).__name__}: {clip(str(error), 80)}"
        ) from None
    if len(texts) == 1:
        return texts[0]
    return "\n\n".join(f"[pdf page {number}]\n{text}" for number, text in enumerate(texts, 1))


_PDF_FILTERS = ("zlib", "lzw", "run_length", "brotli", "jbig2", "array_based_stream")


_reading: ContextVar[bool] = ContextVar("reading", default=False)


def _no_oddities(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.ERROR or not _reading.get()


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep from the program's log that pypdf warns of every oddity of a file, in this call alone.

    Its loggers are the whole program's, which may read files with it too; so nothing else about them is changed.
    """
    for name in list(sys.modules):
        if name.partition(".")[0] == "pypdf":  # a filter holds for one logger, not for those below it
            logging.getLogger(name).addFilter(_no_oddities)
    token = _reading.set(True)
    try:
        yield
    finally:
        _reading.reset(token)


def _pdf_pages(reader: Any, path: str) -> Iterator[str]:
    size = 0
    for page in reader.pages:
        text = page.extract_text().strip()
        size += len(text)
        if size > MAX_TEXT:
            raise ToolFault(f"{quoted(path)} has over {MAX_TEXT:,} characters of text. Use run_python.")
        yield text


_READERS: dict[str, Callable[[BinaryIO, str], str]] = {
    "html": _html,
    "htm": _html,
    "json": _json,
    "docx": _docx,
    "pptx": _pptx,
    "pdf": _pdf,
    "eml": mail.mail_text,
}
