"""``search``, ``open_page``, ``find_in_page``: the local web, indexed with SQLite's FTS5 once per process.

The corpus is named by ``Task.public["corpus"]`` and made by :func:`envs.gaia.world.pages`. Pages whose title is
asked for come first, then BM25 with titles weighted, ties broken by position in the corpus: the same everywhere.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Protocol

from pydantic import Field

from envs.gaia.tools.base import ToolContext, ToolDef, ToolFault, nearest, page_of, quoted

MAX_HITS = 20
SNIPPET_CHARS = 160
MAX_WORDS = 32
"""Words of a query that are looked for."""
MAX_QUERY = 4000
"""Characters of a query that are read."""
MAX_WORD = 64
"""Characters of the longest word that is looked for."""
MAX_FOUND = 10
"""Places that find_in_page shows."""
KEPT_INDEXES = 64
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
        self._titles: dict[tuple[str, ...], list[str]] = {}
        for url, page in pages.items():
            self._titles.setdefault(tuple(_words(page.title)), []).append(url)
        self._lock = threading.Lock()
        self._db = sqlite3.connect(":memory:", check_same_thread=False)
        self._db.execute(
            "create virtual table pages using fts5(url unindexed, title, body, tokenize='porter unicode61')"
        )
        rows = ((url, page.title, page.text) for url, page in pages.items())
        self._db.executemany("insert into pages values (?, ?, ?)", rows)

    def search(self, query: str, limit: int) -> list[tuple[str, str, str]]:
        """The best pages as (url, title, snippet): those whose title is asked for, those with all words, with some."""
        words = [word for word in _words(query[:MAX_QUERY]) if len(word) <= MAX_WORD][:MAX_WORDS]
        if not words:
            return []
        found = dict.fromkeys(self._titled(words))
        quoted = [f'"{word}"' for word in dict.fromkeys(words)]
        for operator in (" AND ", " OR "):
            if len(found) < limit:
                found |= dict.fromkeys(self._match(operator.join(quoted), limit + len(found)))
        return [(url, self.pages[url].title, _snippet(self.pages[url].text, words)) for url in list(found)[:limit]]

    def _titled(self, words: list[str]) -> list[str]:
        """Pages whose whole title stands in the query, longer titles first."""
        spans = [(i, j) for i in range(len(words)) for j in range(i + 1, len(words) + 1)]
        spans.sort(key=lambda span: (span[0] - span[1], span))
        return [url for i, j in spans for url in self._titles.get(tuple(words[i:j]), ())]

    def _match(self, expression: str, limit: int) -> list[str]:
        statement = "select url from pages where pages match ? order by bm25(pages, 0.0, 5.0, 1.0), rowid limit ?"
        with self._lock:
            return [url for (url,) in self._db.execute(statement, (expression, limit))]


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def _snippet(text: str, words: list[str]) -> str:
    """The stretch of the text where the most different words of the query stand close together."""
    lower = text.lower()
    places = [(m.start(), w) for w in dict.fromkeys(words) for m in itertools.islice(_find_word(w, lower), 50)]
    start = 0
    if places:
        near = [len({w for at, w in places if begin <= at < begin + SNIPPET_CHARS}) for begin, _ in places]
        start = max(0, min(place[0] for place, n in zip(places, near, strict=True) if n == max(near)) - 20)
    piece = _one_line(text[start : start + SNIPPET_CHARS])
    return f"{'…' if start else ''}{piece}{'…' if start + SNIPPET_CHARS < len(text) else ''}"


def _find_word(word: str, text: str) -> Iterator[re.Match[str]]:
    return re.finditer(rf"\b{re.escape(word)}", text)


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
        return "\n".join(f"{url} | {title} | {snippet}" for url, title, snippet in hits)

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
        raise ToolFault(f"there is no page {quoted(url)}; use a url from search.{nearest(url, index.pages)}") from None


def _find(page: Page, text: str) -> str:
    readable = len(text) <= len(page.text)  # or the pattern alone would take long
    found = [m.start() for m in re.finditer(re.escape(text), page.text, re.IGNORECASE)] if readable else []
    if not found:
        return f"{quoted(text)} does not occur in the page ({len(page.text):,} characters)."
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
