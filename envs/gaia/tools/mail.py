"""Mails (.eml): their text, and what is attached to them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email import policy
from email.errors import MessageError
from email.header import decode_header, make_header
from email.message import Message
from email.parser import BytesParser
from typing import Any, BinaryIO

from envs.gaia.tools.base import ToolFault, clip, quoted
from envs.gaia.tools.markup import html_text

MAX_MAIL = 16 << 20
"""Bytes of a mail; the parser goes line by line."""
MAX_PARTS = 200
MAX_HEADER = 2000
"""Characters of one header that are looked at."""
MAX_HTML = 1_000_000
_SHOWN = ("From", "To", "Cc", "Date", "Subject")

Part = Message


@dataclass(frozen=True)
class Attachment:
    """A file that came with a mail."""

    name: str
    data: bytes


def mail_text(file: BinaryIO, path: str) -> str:
    """The headers that people look at, the text, and the names of the attachments.

    Raises:
        ToolFault: no mail, too large, or of too many parts.
    """
    with _careful(path):
        message = _parsed(file, path)
        out = [f"{name}: {value}" for name in _SHOWN if (value := _header(message, name))]
        plain: list[str] = []
        rich: list[str] = []
        attached: list[Attachment] = []
        for part in _leaves(message, path):
            kind = part.get_content_type()
            if not _attached(part) and kind in ("text/plain", "text/html"):
                (plain if kind == "text/plain" else rich).append(_text(part))
            else:
                attached.append(_attachment(part, len(attached) + 1))
    body = plain or [html_text(text) for text in rich if len(text) <= MAX_HTML]
    out += ["", *(text.strip() for text in body)]
    if attached:
        listed = ", ".join(f"{quoted(one.name)} ({len(one.data):,} bytes)" for one in attached)
        out += ["", f"[attachments: {listed}; unpack_archive extracts them]"]
    return "\n".join(out)


def attachments(file: BinaryIO, path: str) -> list[Attachment]:
    """What is attached, in order; names are as the mail gives them, made unique.

    Raises:
        ToolFault: no mail, too large, or of too many parts.
    """
    found: dict[str, Attachment] = {}
    with _careful(path):
        for part in _leaves(_parsed(file, path), path):
            if _attached(part) or part.get_content_type() not in ("text/plain", "text/html"):
                one = _attachment(part, len(found) + 1)
                name = one.name if one.name not in found else f"{len(found) + 1}-{one.name}"
                found[name] = Attachment(name, one.data)
    return list(found.values())


@contextmanager
def _careful(path: str) -> Iterator[None]:
    """Refuses where the library fails: over a broken mail it raises nearly anything, even once it has parsed it."""
    try:
        yield
    except ToolFault:
        raise
    except Exception as error:
        raise ToolFault(f"{quoted(path)} cannot be read as a mail ({type(error).__name__})") from None


def _parsed(file: BinaryIO, path: str) -> Part:
    data = file.read(MAX_MAIL + 1)
    if len(data) > MAX_MAIL:
        raise ToolFault(f"{quoted(path)} has over {MAX_MAIL:,} bytes, too much for a mail. Use run_python.")
    # The older policy gives headers as they stand: the newer one parses each of them, which hostile ones make slow.
    message: Part = BytesParser(policy=policy.compat32).parsebytes(data)
    if not any(message.get(name) for name in _SHOWN):
        raise ToolFault(f"{quoted(path)} is no mail: it has none of the headers {', '.join(_SHOWN)}")
    return message


def _leaves(message: Part, path: str) -> Iterator[Part]:
    """The parts that hold no others, in order; a forwarded mail is one part."""
    todo, count = [message], 0
    while todo:
        part = todo.pop()
        count += 1
        if count > MAX_PARTS:
            raise ToolFault(f"{quoted(path)} has over {MAX_PARTS} parts and is not read. Use run_python.")
        inner: Any = part.get_payload()
        if part.get_content_maintype() == "multipart" and isinstance(inner, list):
            todo += reversed(inner)
        else:
            yield part


def _attached(part: Part) -> bool:
    return part.get_content_disposition() == "attachment" or part.get_filename() is not None


def _attachment(part: Part, number: int) -> Attachment:
    inner: Any = part.get_payload()
    if isinstance(inner, list):  # a mail in the mail
        data, name = b"".join(one.as_bytes() for one in inner), f"message-{number}.eml"
    else:
        data, name = part.get_payload(decode=True) or b"", f"part-{number}.bin"  # type: ignore[assignment]
    given = part.get_filename()
    return Attachment(clip(_decoded(given).replace("\n", " "), 200) if given else name, data)


def _text(part: Part) -> str:
    data: Any = part.get_payload(decode=True) or b""
    try:
        text: str = data.decode(part.get_content_charset() or "utf-8", "replace")
    except (LookupError, ValueError):  # a character set that nobody knows
        text = data.decode("utf-8", "replace")
    return text.replace("\r\n", "\n")


def _header(message: Part, name: str) -> str:
    value = message.get(name)
    return "" if value is None else " ".join(_decoded(str(value)).split())


def _decoded(value: str) -> str:
    """A header's value with its encoded words decoded; as it stands where they cannot be."""
    value = value[:MAX_HEADER]
    try:
        return str(make_header(decode_header(value)))
    except (ValueError, LookupError, MessageError):
        return value
