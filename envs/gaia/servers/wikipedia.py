"""Wikipedia: search, articles as they are, and as they were on a date. MediaWiki's action API; no key."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import Field

from envs.gaia.mcp_tools import Tool
from envs.gaia.servers.reading import parsed
from envs.gaia.servers.settings import Variable
from envs.gaia.servers.spec import ServerSpec, Setup
from envs.gaia.servers.web import AGENT_VAR, Api, Recent
from envs.gaia.tools.base import ToolFault, clip, page_of, quoted
from envs.gaia.tools.markup import html_text

DEFAULT_URL = "https://{language}.wikipedia.org"
VARIABLES = (
    Variable("WIKIPEDIA_BASE_URL", "the wiki's address; {language} becomes the language asked for", DEFAULT_URL),
    AGENT_VAR,
)

Language = Annotated[str, Field(pattern=r"^[a-z][a-z-]{1,11}$", description="Such as en or de.")]
Date = Annotated[str, Field(pattern=r"^(\d{4}-\d{2}-\d{2})?$", description="As the article was on YYYY-MM-DD.")]


def build(setup: Setup) -> list[Tool]:
    """The two tools."""
    settings = setup.settings
    base = settings.url("WIKIPEDIA_BASE_URL", DEFAULT_URL)
    agent = settings.get(AGENT_VAR.name)
    recent = Recent()

    async def ask(language: str, **params: Any) -> dict[str, Any]:
        if not re.fullmatch(r"[a-z][a-z-]{1,11}", language):  # it becomes part of a host's name
            raise ToolFault(f"{quoted(language)} is no language code; use one like en")
        api = Api("Wikipedia", base.replace("{language}", language), agent=agent)
        value = await api.json("GET", "/w/api.php", params={"format": "json", "formatversion": 2, **params})
        if isinstance(value, dict) and isinstance(value.get("error"), dict):
            raise ToolFault(f"Wikipedia refused the request: {clip(str(value['error'].get('info')), 200)}")
        inner = value.get(params["action"]) if isinstance(value, dict) else None
        if not isinstance(inner, dict):
            if isinstance(value, dict) and value.get("batchcomplete"):
                return {}
            raise _shape()
        return inner

    async def wikipedia_search(
        query: Annotated[str, Field(min_length=1, max_length=300)],
        limit: Annotated[int, Field(ge=1, le=20)] = 5,
        start: Annotated[int, Field(ge=0, le=9000)] = 0,
        language: Language = "en",
    ) -> str:
        found = await ask(
            language, action="query", list="search", srsearch=query, srlimit=limit, sroffset=start, srprop="snippet"
        )
        hits = _titled(found.get("search", []))
        if not hits:
            return "No article matches." if start == 0 else "No further article."
        return "\n".join(f"{hit['title']} | {clip(html_text(str(hit.get('snippet', ''))), 240)}" for hit in hits)

    async def revision(title: str, date: str, language: str) -> tuple[int, str, str]:
        """Number, time and final title of the last revision of a date."""
        found = await ask(
            language,
            action="query",
            prop="revisions",
            titles=title,
            redirects=1,
            rvlimit=1,
            rvprop="ids|timestamp",
            rvdir="older",
            rvstart=f"{date}T23:59:59Z",
        )
        page = _only(found, title)
        revisions = page.get("revisions", [])
        if revisions == []:
            raise ToolFault(f"the article {quoted(title)} did not exist on {date}")
        match revisions:
            case [{"revid": int() as number, "timestamp": str() as when}, *_]:
                return number, when, page["title"]
        raise _shape()

    async def rendered(language: str, **which: Any) -> str:
        answer = await ask(language, action="parse", prop="text", disableeditsection=1, disabletoc=1, **which)
        return await parsed(html_text, str(answer.get("text", "")))

    async def old(title: str, date: str, language: str) -> str:
        number, when, name = await revision(title, date, language)
        return f"{name} (as of {when[:10]})\n\n{await rendered(language, oldid=number)}"

    async def whole(title: str, language: str) -> str:
        return f"{title}\n\n{await rendered(language, page=title, redirects=1)}"

    async def current(title: str, language: str) -> str:
        found = await ask(
            language,
            action="query",
            prop="extracts",
            explaintext=1,
            exsectionformat="wiki",
            titles=title,
            redirects=1,
        )
        page = _only(found, title)
        return f"{page['title']}\n\n{page.get('extract', '')}"

    async def wikipedia_page(
        title: Annotated[str, Field(min_length=1, max_length=250)],
        page: Annotated[int, Field(ge=1)] = 1,
        date: Date = "",
        tables: Annotated[bool, Field(description="With its tables, notes and boxes.")] = False,
        language: Language = "en",
    ) -> str:
        def make() -> Any:
            if date:
                return old(title, date, language)
            return whole(title, language) if tables else current(title, language)

        return page_of(await recent.get((title, date, tables, language), make), page)

    return [
        Tool(wikipedia_search, "Search Wikipedia. Gives lines of: title | snippet."),
        Tool(
            wikipedia_page,
            "Read a Wikipedia article as text, about 4,000 characters at a time; with a date, as it was then.",
        ),
    ]


def _only(found: dict[str, Any], title: str) -> dict[str, Any]:
    pages = _titled(found.get("pages", []))
    if not pages or "missing" in pages[0] or "invalid" in pages[0]:
        raise ToolFault(f"Wikipedia has no article {quoted(title)}; search for its exact title")
    return pages[0]


def _titled(value: Any) -> list[dict[str, Any]]:
    """A list of things that have a title, as the API's answers hold it; raises ToolFault where it is anything else."""
    entries = value if isinstance(value, list) else [None]
    if not all(isinstance(one, dict) and isinstance(one.get("title"), str) for one in entries):
        raise _shape()
    return entries


def _shape() -> ToolFault:
    return Api("Wikipedia", DEFAULT_URL).shape()


SERVER = ServerSpec(
    name="wikipedia",
    summary="Wikipedia: search, articles, and articles as they were on a date.",
    tools=("wikipedia_search", "wikipedia_page"),
    build=build,
    variables=VARIABLES,
)

if __name__ == "__main__":
    SERVER.run()
