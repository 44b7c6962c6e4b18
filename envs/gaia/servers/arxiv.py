"""arXiv: search and single papers, through its Atom API. No key."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal
from xml.etree.ElementTree import Element, ParseError

from pydantic import Field

from envs.gaia.mcp_tools import Tool
from envs.gaia.servers.settings import Variable
from envs.gaia.servers.spec import ServerSpec, Setup
from envs.gaia.servers.web import AGENT_VAR, Api
from envs.gaia.tools.base import ToolFault, clip, quoted

MAX_HITS = 20
VARIABLES = (Variable("ARXIV_BASE_URL", "the arXiv API's address", "https://export.arxiv.org/api/query"), AGENT_VAR)

_ATOM = "{http://www.w3.org/2005/Atom}"
_ARXIV = "{http://arxiv.org/schemas/atom}"
_TOTAL = "{http://a9.com/-/spec/opensearch/1.1/}totalResults"
_ID = re.compile(r"(\d{4}\.\d{4,5}|[a-z-]+(\.[A-Z]{2})?/\d{7})(v\d+)?")


def build(setup: Setup) -> list[Tool]:
    """The two tools."""
    settings = setup.settings
    base = settings.url("ARXIV_BASE_URL", "https://export.arxiv.org/api/query")
    api = Api("arXiv", base, agent=settings.get(AGENT_VAR.name))

    async def feed(**params: Any) -> Element:
        from defusedxml.common import DefusedXmlException
        from defusedxml.ElementTree import fromstring

        reply = await api.send("GET", params=params, ok=(400,))
        try:
            root: Element = fromstring(reply.body)
        except (ParseError, DefusedXmlException, ValueError, LookupError):  # the last: an encoding that nobody knows
            raise ToolFault("arXiv answered with what is not its Atom format; try again later") from None
        if root.tag != f"{_ATOM}feed":
            raise api.shape()
        first = root.find(f"{_ATOM}entry")
        if first is not None and "api/errors" in _text(first, "id"):  # how it reports a bad query
            raise ToolFault(f"arXiv refused the request: {clip(_text(first, 'summary'), 200)}")
        if reply.status == 400:
            raise ToolFault("arXiv refused the request (HTTP 400); use plain words")
        return root

    async def arxiv_search(
        query: Annotated[
            str, Field(min_length=1, max_length=300, description='Words, or fields: au:name, ti:"words", cat:cs.CL.')
        ],
        limit: Annotated[int, Field(ge=1, le=MAX_HITS)] = 5,
        start: Annotated[int, Field(ge=0, le=10000)] = 0,
        sort: Literal["relevance", "submittedDate", "lastUpdatedDate"] = "relevance",
        order: Literal["descending", "ascending"] = "descending",
    ) -> str:
        found = await feed(search_query=_query(query), start=start, max_results=limit, sortBy=sort, sortOrder=order)
        entries = found.findall(f"{_ATOM}entry")
        total = (found.findtext(_TOTAL) or "0").strip()
        if not entries:
            return "No paper matches." if start == 0 else f"No further paper: there are {total}."
        shown = [f"{_name(e)} | {_text(e, 'published')[:10]} | {_authors(e, 3)} | {_text(e, 'title')}" for e in entries]
        return "\n".join([*shown, f"[{start + 1} to {start + len(entries)} of {total}]"])

    async def arxiv_paper(
        id: Annotated[str, Field(max_length=200, description="Such as 1706.03762 or 1706.03762v1, or an address.")],
    ) -> str:
        match = _ID.search(id)
        if match is None:
            raise ToolFault(f"{quoted(id)} is no arXiv id; one looks like 1706.03762 or math/0309136")
        entry = (await feed(id_list=match[0], max_results=1)).find(f"{_ATOM}entry")
        if entry is None or not _text(entry, "title"):
            raise ToolFault(f"arXiv has no paper {match[0]}")
        lines = {
            "id": _name(entry),
            "title": _text(entry, "title"),
            "authors": _authors(entry, 100),
            "published": _text(entry, "published"),
            "updated": _text(entry, "updated"),
            "categories": " ".join(c.get("term", "") for c in entry.findall(f"{_ATOM}category")),
            "comment": " ".join((entry.findtext(f"{_ARXIV}comment") or "").split()),
            "journal": " ".join((entry.findtext(f"{_ARXIV}journal_ref") or "").split()),
            "doi": " ".join((entry.findtext(f"{_ARXIV}doi") or "").split()),
            "pdf": next(
                (link.get("href", "") for link in entry.findall(f"{_ATOM}link") if link.get("title") == "pdf"), ""
            ),
            "abstract": _text(entry, "summary"),
        }
        return "\n".join(f"{name}: {value}" for name, value in lines.items() if value)

    return [
        Tool(arxiv_search, "Search arXiv. Gives lines of: id | date | authors | title."),
        Tool(arxiv_paper, "One arXiv paper: authors, dates, abstract, the address of its PDF."),
    ]


def _query(text: str) -> str:
    """The text as arXiv's query language has it: words without a field are looked for in all, and must all be there."""
    if re.search(r"\b(ti|au|abs|co|jr|cat|rn|id|all):", text):
        return text
    words = re.findall(r'"[^"]*"|[^\s"]+', text)
    return " AND ".join(f"all:{word}" for word in words)


def _name(entry: Element) -> str:
    return _text(entry, "id").partition("/abs/")[2] or _text(entry, "id")


def _text(entry: Element, tag: str) -> str:
    return " ".join((entry.findtext(f"{_ATOM}{tag}") or "").split())


def _authors(entry: Element, limit: int) -> str:
    names = [" ".join((a.findtext(f"{_ATOM}name") or "").split()) for a in entry.findall(f"{_ATOM}author")]
    return ", ".join(names[:limit]) + (f" and {len(names) - limit} more" if len(names) > limit else "")


SERVER = ServerSpec(
    name="arxiv",
    summary="arXiv: search and single papers.",
    tools=("arxiv_search", "arxiv_paper"),
    build=build,
    variables=VARIABLES,
    packages=("defusedxml",),
    how="pip install 'aworld-gym[gaia]'",
)

if __name__ == "__main__":
    SERVER.run()
