"""What every tool is made of: its definition, what it may know, how it refuses, how long text is paged.

A tool is a plain synchronous function with annotated arguments. It returns text, or a list of text and
:class:`ImageBlock`; it refuses by raising :class:`ToolFault` with a text for the model. Threads, MCP and schemas
are :mod:`envs.gaia.server`'s business.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from envs.gaia.tools.workspace import ToolFault, Workspace, clip, nearest, quoted

PAGE_CHARS = 4000
"""Characters of text in one page of a document or web page."""

__all__ = [
    "PAGE_CHARS",
    "ImageBlock",
    "Reply",
    "ToolContext",
    "ToolDef",
    "ToolFault",
    "clip",
    "lines",
    "nearest",
    "page_of",
    "paginate",
    "quoted",
]


@dataclass(frozen=True)
class ImageBlock:
    """An image for the model."""

    data: bytes
    """The encoded image."""
    mime: str = "image/png"


Reply = str | Sequence[str | ImageBlock]
"""What a tool function returns."""


@dataclass(frozen=True)
class ToolContext:
    """What the tools of one session share."""

    workspace: Workspace
    public: Mapping[str, Any] = field(default_factory=dict)
    """``Task.public``: names the corpus that search serves."""
    sandbox: str = "auto"
    """How ``run_python`` is confined; see :mod:`envs.gaia.sandbox`."""
    compact: bool = False
    """Terse descriptions and results."""


@dataclass(frozen=True)
class ToolDef:
    """One tool as a server offers it."""

    function: Callable[..., Reply]
    """Named and annotated as the model will see it. A keyword ``_cancelled: threading.Event`` is not an argument of
    the tool: it is set when the caller has given the call up."""
    description: str
    terse: str = ""
    """The description in the compact preset; by default the same."""
    read_only: bool = True
    """Repeating the call is harmless and changes nothing."""
    idempotent: bool = True
    takes_cancel: bool = False

    @property
    def name(self) -> str:
        """The tool's name."""
        return self.function.__name__


Cancelled = threading.Event


def paginate(text: str, size: int = PAGE_CHARS) -> list[str]:
    """Cut ``text`` into pages of at most ``size`` characters, at line ends where there are any.

    The pages joined give ``text`` back; there is always at least one.
    """
    pages: list[str] = []
    start = 0
    while len(text) - start > size:
        cut = text.rfind("\n", start + size // 2, start + size)
        if cut < 0:
            cut = text.rfind(" ", start + size // 2, start + size)
        end = start + size if cut < 0 else cut + 1
        pages.append(text[start:end])
        start = end
    pages.append(text[start:])
    return pages


def page_of(text: str, page: int, *, size: int = PAGE_CHARS) -> str:
    """Page number ``page`` (from 1) of ``text``, with a notice of what is left.

    Raises:
        ToolFault: there is no such page.
    """
    pages = paginate(text, size)
    if not 1 <= page <= len(pages):
        raise ToolFault(f"there is no page {clip(str(page), 20)}: pages run from 1 to {len(pages)}")
    body = pages[page - 1].rstrip("\n")
    if len(pages) == 1:
        return body or "(empty)"
    more = f"; next: page={page + 1}" if page < len(pages) else ""
    return f"{body}\n[page {page} of {len(pages)}{more}]"


def lines(items: Iterable[str], limit: int, *, noun: str) -> str:
    """At most ``limit`` of the items, one a line, and how many more there are."""
    rows = list(items)
    shown = rows[:limit]
    if len(rows) > limit:
        shown.append(f"[{len(rows) - limit} more {noun}]")
    return "\n".join(shown)
