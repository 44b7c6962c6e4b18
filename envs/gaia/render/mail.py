"""Mails with attachments."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime

from envs.gaia.render.contents import Mail
from envs.gaia.render.documents import lines

_LINE = 78
_TYPES = {
    "csv": "text/csv",
    "tsv": "text/tab-separated-values",
    "txt": "text/plain",
    "md": "text/markdown",
    "html": "text/html",
    "json": "application/json",
    "xml": "application/xml",
    "pdf": "application/pdf",
    "png": "image/png",
    "wav": "audio/x-wav",
    "zip": "application/zip",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}


def eml(mail: Mail, attachments: Sequence[tuple[str, bytes]]) -> bytes:
    """The mail as it is sent: plain text, then the attachments in base64. No message id; a fixed boundary."""
    message = EmailMessage(SMTP)
    message["From"] = mail.sender
    message["To"] = ", ".join(mail.to)
    message["Subject"] = mail.subject
    message["Date"] = format_datetime(_moment(mail.date))
    text = "\n".join(lines(mail.body, width=_LINE)).rstrip("\n") + "\n"
    plain = text.isascii() and max(map(len, text.splitlines())) <= 900  # RFC 5322 allows 998
    message.set_content(text, cte="7bit" if plain else "quoted-printable")
    for name, data in attachments:
        kind = _TYPES.get(name.rpartition(".")[2], "application/octet-stream")
        main, sub = kind.split("/")
        message.add_attachment(data, main, sub, cte="base64", filename=name)
    if attachments:
        message.set_boundary("=" * 12 + "_part_" + "=" * 12)
    return message.as_bytes()


def _moment(date: str) -> datetime.datetime:
    moment = datetime.datetime.fromisoformat(date)
    return moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)
