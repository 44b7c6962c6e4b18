"""From what a web server sent to text a model can read: the main part of a page, or all of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from envs.gaia.overtime import Overtime, Watch
from envs.gaia.servers.web import Reply
from envs.gaia.tools.base import ToolFault, quoted
from envs.gaia.tools.markup import html_text

MAX_HTML = 2 << 20
"""Characters of a page that are parsed."""
PARSE_CPU_S = 5.0
"""Seconds of processor time for one page."""
PARSE_WALL_S = 60.0
"""Seconds after which a page is given up that is stuck in C code, such as libxml2's over thousands of attributes."""
_TEXT_KINDS = ("application/json", "application/xml", "application/javascript", "application/x-ndjson")


async def text_of(reply: Reply, *, whole: bool = False) -> str:
    """The readable text of a page.

    Args:
        reply: what was fetched.
        whole: everything visible rather than the main part.

    Raises:
        ToolFault: an error page's status, or something that is no text.
    """
    if not 200 <= reply.status < 300:
        raise ToolFault(f"{quoted(reply.url)} answered HTTP {reply.status}")
    kind, source = reply.kind, reply.text
    if kind in ("text/html", "application/xhtml+xml") or not kind and source.lstrip()[:1] == "<":
        text = await parsed(page_text, source[:MAX_HTML], whole)
    elif kind.startswith("text/") or kind in _TEXT_KINDS or kind.endswith(("+json", "+xml")) or not kind:
        text = source
    else:
        raise ToolFault(f"{quoted(reply.url)} is {kind}, no page; download it to read it as a file")
    if not text.strip():
        raise ToolFault(f"{quoted(reply.url)} has no text that can be read without running its scripts")
    return f"{text}\n[the page goes on: only its first part was fetched]" if reply.cut else text


async def parsed(parse: Callable[..., str], *arguments: Any) -> str:
    """What ``parse(*arguments)`` gives, in a thread, within :data:`PARSE_CPU_S` of processor time.

    Raises:
        ToolFault: it takes longer; some markup is made so that parsers do.
    """
    watch = Watch(PARSE_CPU_S)
    fault = ToolFault("this page takes too long to be read; it may be made so on purpose")

    def run() -> str:
        try:
            return watch.run(lambda: parse(*arguments))
        except Overtime:
            raise fault from None

    watch.begin(asyncio.get_running_loop())
    try:
        async with asyncio.timeout(PARSE_WALL_S):
            return await asyncio.to_thread(run)
    except TimeoutError:  # the thread ends itself once that code returns
        raise fault from None
    finally:
        watch.close()


def page_text(source: str, whole: bool) -> str:
    """The text of an HTML page: title and main part, or everything."""
    everything = html_text(source)
    if whole:
        return everything
    from lxml.etree import ParserError
    from readability import Document
    from readability.readability import Unparseable

    # It logs a traceback for every page it cannot read. Here, in a server's process; this module is imported in others.
    logging.getLogger("readability").setLevel(logging.CRITICAL)
    try:
        document = Document(source)
        title, main = " ".join(document.short_title().split()), html_text(document.summary())
    except (Unparseable, ParserError):
        return everything
    if len(main) < 200 or len(main) < len(everything) // 20:  # it took the wrong part for the main one
        return everything
    return main if main.startswith(title) else f"{title}\n\n{main}"
