"""``search``, ``open_page``, ``find_in_page``: the local web, indexed with SQLite's FTS5 once per process.

The corpus is named by ``Task.public["corpus"]`` and made by :func:`envs.gaia.world.pages`. Ranking is BM25 with
titles weighted, ties broken by position in the corpus, so that results are the same everywhere.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Annotated, Any, Protocol

from pydantic import Field

from aworld_gym.errors import did_you_mean
from envs.gaia.tools.base import ToolContext, ToolDef, ToolFault, clip, page_of

MAX_HITS = 20
SNIPPET_CHARS = 160
MAX_WORDS = 32
"""Words of a query that are looked for."""
MAX_FOUND = 10
"""Places that find_in_page shows."""
KEPT_INDEXES = 4
"""Corpora whose index a process keeps."""


class Page(Protocol):
    """A page of the local web."""

    @property
    def title(self) -> str:
        """Its title."""

    @property
    def text(self) -> str:
        """Its whole text."""


class Index:
    """A searchable corpus. Safe to use from several threads.

    Args:
        pages: url -> page.
    """

    def __init__(self, pages: Mapping[str, Page]):
        self.pages = pages
        self._lock = threading.Lock()
        self._db = sqlite3.connect(":memory:", check_same_thread=False)
        self._db.execute(
            "create virtual table pages using fts5(url unindexed, title, body, tokenize='porter unicode61')"
        )
        rows = ((url, page.title, page.text) for url, page in pages.items())
        self._db.executemany("insert into pages values (?, ?, ?)", rows)

    def search(self, query: str, limit: int) -> list[tuple[str, str, str]]:
        """The best pages as (url, title, snippet): those with all words, then those with some."""
        words = list(dict.fromkeys(re.findall(r"\w+", query.lower())))[:MAX_WORDS]
        if not words:
            return []
        quoted = [f'"{word}"' for word in words]
        hits = self._match(" AND ".join(quoted), limit)
        if len(hits) < limit and len(words) > 1:
            seen = {url for url, _, _ in hits}
            more = self._match(" OR ".join(quoted), limit + len(hits))
            hits += [hit for hit in more if hit[0] not in seen][: limit - len(hits)]
        return hits

    def _match(self, expression: str, limit: int) -> list[tuple[str, str, str]]:
        statement = (
            "select url, title, snippet(pages, 2, '', '', '…', 24) from pages where pages match ? "
            "order by bm25(pages, 0.0, 5.0, 1.0), rowid limit ?"
        )
        with self._lock:
            return self._db.execute(statement, (expression, limit)).fetchall()


_indexes: OrderedDict[tuple[int, str], Index] = OrderedDict()
_lock = threading.Lock()


def index_of(corpus: Mapping[str, Any]) -> Index:
    """The index of a corpus, built on first use and kept for the process.

    Args:
        corpus: JSON, as :func:`envs.gaia.world.pages` takes it.
    """
    key = (os.getpid(), json.dumps(corpus, sort_keys=True))  # a connection must not be used across a fork
    with _lock:
        if key not in _indexes:
            from envs.gaia.world import pages  # the world imports its tables: not where no tool searches

            _indexes[key] = Index(pages(corpus))
            while len(_indexes) > KEPT_INDEXES:
                _indexes.popitem(last=False)
        _indexes.move_to_end(key)
        return _indexes[key]


def tools(context: ToolContext) -> list[ToolDef]:
    """Search and the two page readers."""

    def index() -> Index:
        corpus = context.public.get("corpus")
        if not corpus:
            raise ToolFault("this task has no pages to search; work with the files")
        return index_of(corpus)

    def search(query: str, limit: Annotated[int, Field(ge=1, le=MAX_HITS)] = 5) -> str:
        hits = index().search(query, limit)
        if not hits:
            return "No page matches. Try fewer or other words."
        return "\n".join(f"{url} | {title} | {_one_line(snippet)}" for url, title, snippet in hits)

    def open_page(
        url: Annotated[str, Field(description="As search gives it.")], page: Annotated[int, Field(ge=1)] = 1
    ) -> str:
        found = _page(index(), url)
        return page_of(f"{found.title}\n\n{found.text}", page)

    def find_in_page(url: str, text: Annotated[str, Field(min_length=1, description="Case is ignored.")]) -> str:
        return _find(_page(index(), url), text)

    return [
        ToolDef(search, "Search the local web. Gives lines of: url | title | snippet."),
        ToolDef(open_page, "Read a page of the local web, about 4,000 characters at a time."),
        ToolDef(find_in_page, "Show the places of a page that contain a text."),
    ]


def _page(index: Index, url: str) -> Page:
    try:
        return index.pages[url]
    except KeyError:
        raise ToolFault(
            f"there is no page {clip(url, 200)!r}; use a url from search.{did_you_mean(url, index.pages, limit=1)}"
        ) from None


def _find(page: Page, text: str) -> str:
    found = [match.start() for match in re.finditer(re.escape(text), page.text, re.IGNORECASE)]
    if not found:
        return f"{clip(text, 80)!r} does not occur in the page ({len(page.text):,} characters)."
    out: list[str] = []
    end = -1
    for start in found:
        if start < end:  # already shown with the one before
            continue
        if len(out) == MAX_FOUND:
            break
        end = start + len(text) + 100
        out.append(f"…{_one_line(page.text[max(0, start - 100) : end])}…")
    return "\n".join([f"{len(found)} found", *out])


def _one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()
