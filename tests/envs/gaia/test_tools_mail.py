"""Mails: read_document shows them, unpack_archive takes out what is attached, and hostile ones do no harm."""

from __future__ import annotations

import email
import io
import time
from email import policy
from email.message import EmailMessage

import pytest
from gaia_tools import everything_below, served
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.gaia.render import Bars, Bullets, Mail, Sheet, render
from envs.gaia.tools import ToolContext, Workspace, archives
from envs.gaia.tools.base import ToolFault
from envs.gaia.tools.documents import text_of

SHEET = Sheet(("name", "tons"), (("Heron", 12), ("Tern", 7)))
MAIL = Mail(
    "Mira <mira@example.org>",
    ("bo@example.org", "Cy <cy@example.org>"),
    "The figures",
    "2021-03-04T09:30",
    ("Dear Bo, here they are.", Bullets(("one", "two")), SHEET),
    (("tons.csv", SHEET), ("chart.png", Bars((("red", 5), ("blue", 9))))),
)
HEAD = b"From: a@example.org\r\nSubject: x\r\n"


def text(data: bytes) -> str:
    return text_of(io.BytesIO(data), "a.eml")


def unpack(folder, name="a.eml") -> str:
    return archives.tools(ToolContext(Workspace(folder)))[0].function(name)


async def test_a_mail_is_read_and_its_attachments_are_taken_out(tmp_path):
    (tmp_path / "a.eml").write_bytes(render("a.eml", MAIL))
    size = len(render("chart.png", MAIL.attachments[1][1]))
    async with served(tmp_path) as session:
        assert await session.ok("read_document", path="a.eml") == (
            "From: Mira <mira@example.org>\nTo: bo@example.org, Cy <cy@example.org>\n"
            "Date: Thu, 04 Mar 2021 09:30:00 +0000\nSubject: The figures\n\n"
            "Dear Bo, here they are.\n\n- one\n- two\n\nname | tons\nHeron | 12\nTern | 7\n\n"
            f"[attachments: 'tons.csv' (26 bytes), 'chart.png' ({size} bytes); unpack_archive extracts them]"
        )
        assert await session.ok("unpack_archive", path="a.eml") == "a/tons.csv\na/chart.png"
        assert await session.ok("read_table", path="a/tons.csv") == "name,tons\nHeron,12\nTern,7"
        assert "exists already" in await session.refused("unpack_archive", path="a.eml")
    assert (tmp_path / "a/chart.png").read_bytes() == render("chart.png", MAIL.attachments[1][1])


def test_a_mail_without_attachments_says_so(tmp_path):
    plain = Mail(MAIL.sender, MAIL.to, MAIL.subject, MAIL.date, ("Hello",))
    (tmp_path / "a.eml").write_bytes(render("a.eml", plain))
    assert "attachments" not in text(render("a.eml", plain))
    assert unpack(tmp_path) == "'a.eml' has no attachments"
    assert set(everything_below(tmp_path)) == {"a.eml"}


def composed(build) -> bytes:
    message = EmailMessage(policy.SMTP)
    message["From"], message["Subject"] = "a@example.org", "x"
    build(message)
    return message.as_bytes()


def test_mails_of_other_programs():
    def both(message):
        message.set_content("the plain one")
        message.add_alternative("<p>the <b>rich</b> one</p>", subtype="html")

    assert text(composed(both)).endswith("\n\nthe plain one")
    assert text(composed(lambda m: m.set_content("<p>only <b>rich</b></p>", subtype="html"))).endswith("\n\nonly rich")
    odd = HEAD + "Content-Type: text/plain; charset=iso-8859-2\r\n\r\nŁódź".encode("iso-8859-2")
    assert text(odd).endswith("Łódź")
    assert text(HEAD + b"Content-Type: text/plain; charset=klingon\r\n\r\nna\xc3\xafve").endswith("naïve")
    assert text(HEAD + b"\r\nlines\r\nof text").endswith("\n\nlines\nof text")
    assert "Subject: Grüße an alle" in text(b"From: a@b.c\nSubject: =?utf-8?q?Gr=C3=BC=C3=9Fe_an_alle?=\n\nx")


def test_a_forwarded_mail_is_an_attachment(tmp_path):
    inner = email.message_from_bytes(HEAD + b"\r\nthe first mail", policy=policy.default)

    def build(message):
        message.set_content("see below")
        message.add_attachment(inner)

    data = composed(build)
    assert "see below" in text(data) and "the first mail" not in text(data) and "'message-1.eml'" in text(data)
    (tmp_path / "a.eml").write_bytes(data)
    assert unpack(tmp_path) == "a/message-1.eml"
    assert text((tmp_path / "a/message-1.eml").read_bytes()).endswith("the first mail")


def attach(*named: tuple[str, bytes]) -> bytes:
    def build(message):
        message.set_content("x")
        for name, data in named:
            message.add_attachment(data, "application", "octet-stream", filename=name)

    return composed(build)


def test_attachments_of_one_name_are_all_taken_out(tmp_path):
    (tmp_path / "a.eml").write_bytes(attach(("x.txt", b"1"), ("x.txt", b"2"), ("y.txt", b"3")))
    assert unpack(tmp_path).split() == ["a/x.txt", "a/2-x.txt", "a/y.txt"]
    assert (tmp_path / "a/2-x.txt").read_bytes() == b"2"


@pytest.mark.parametrize("name", ["../evil", "/evil", "a/../../evil", "..\\evil", "C:\\evil", ".."])
def test_no_attachment_leads_outside(tmp_path, name):
    root = tmp_path / "ws"
    root.mkdir()
    (root / "a.eml").write_bytes(attach(("first.txt", b"1"), (name, b"evil")))
    with pytest.raises(ToolFault, match="leads outside"):
        unpack(root)
    assert set(everything_below(tmp_path)) == {"ws/a.eml"}


def parts(count: int) -> bytes:
    part = b"--B\r\nContent-Type: application/x\r\n\r\nx\r\n"
    return HEAD + b"Content-Type: multipart/mixed; boundary=B\r\n\r\n" + part * count + b"--B--\r\n"


def nested(depth: int) -> bytes:
    out = HEAD
    for level in range(depth):
        out += b"Content-Type: multipart/mixed; boundary=B%d\r\n\r\n--B%d\r\n" % (level, level)
    return out + b"Content-Type: text/plain\r\n\r\nx\r\n"


HOSTILE = {
    "many parts": (parts(5000), "over 200 parts"),
    "deep": (nested(400), None),
    "deeper than the parser goes": (nested(5000), "cannot be read as a mail|over 200 parts|no mail"),
    "no mail": (b"just some text\nof two lines", "is no mail"),
    "empty": (b"", "is no mail"),
    "binary": (bytes(range(256)) * 50, "is no mail"),
    "large": (HEAD + b"\r\n" + b"x" * (17 << 20), "too much for a mail"),
    "a header of megabytes": (b"From: " + b"a " * 2_000_000 + b"\r\nSubject: x\r\n\r\nhi", None),
    "many headers": (b"From: a@b.c\r\n" + b"X: y\r\n" * 200_000 + b"\r\nhi", None),
    "encoded words without end": (b"From: a@b.c\r\nSubject: " + b"=?utf-8?q?" * 200_000 + b"\r\n\r\nhi", None),
    "a bad encoded word": (b"From: a@b.c\r\nSubject: =?klingon?b?////?= =?utf-8?b?x?=\r\n\r\nhi", None),
    "not base64": (HEAD + b"Content-Transfer-Encoding: base64\r\n\r\n\xff\xfe!!!", None),
    "not uuencode": (HEAD + b"Content-Transfer-Encoding: x-uuencode\r\n\r\nbegin 666 ../x\r\n\xff\r\n", None),
    "no boundary": (HEAD + b"Content-Type: multipart/mixed\r\n\r\n--B\r\n\r\nx", None),
    "a boundary that is never there": (HEAD + b"Content-Type: multipart/mixed; boundary=B\r\n\r\nx", None),
    "long lines of boundaries": (parts(1).replace(b"x\r\n--", b"-" * 3_000_000 + b"\r\n--"), None),
    "a mail in a mail in a mail": (HEAD + b"Content-Type: message/rfc822\r\n\r\n" * 300 + b"x", None),
    "odd file name": (attach(("x" * 5000, b"1")), None),
    "file name of another alphabet": (
        HEAD + b"Content-Disposition: attachment; filename*=klingon'x'%ff\r\n\r\nx",
        None,
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_mails_end_in_a_text_or_a_refusal(tmp_path, name):
    data, message = HOSTILE[name]
    (tmp_path / "a.eml").write_bytes(data)
    start = time.process_time()
    for read in (lambda: text(data), lambda: unpack(tmp_path)):
        try:
            read()
        except ToolFault as fault:
            assert len(str(fault)) < 400
            if message:
                assert any(part in str(fault) for part in message.split("|")), str(fault)
        else:
            assert message is None
    assert time.process_time() - start < 6


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                b"From: a@b.c",
                b"Subject: =?utf-8?b?eA==?=",
                b"Content-Type: multipart/mixed; boundary=B",
                b"--B",
                b"--B--",
            ]
            + [b"Content-Type: text/html", b"Content-Transfer-Encoding: base64", b"", b"aGk=", b" folded", b"<p>x</p>"]
            + [
                b"Content-Disposition: attachment; filename=x",
                b"Content-Type: message/rfc822",
                b"\xff\0",
                b"begin 644 x",
            ]
        ),
        max_size=25,
    )
)
def test_any_lines_give_a_text_or_a_refusal(lines):
    data = b"\r\n".join(lines)
    try:
        text(data)
    except ToolFault as fault:
        assert len(str(fault)) < 400
