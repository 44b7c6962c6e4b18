"""Web search, through whichever of Tavily, Google's programmable search and Jina has a key."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from pydantic import Field

from aworld_gym.errors import ConfigError, did_you_mean
from envs.gaia.mcp_tools import Tool
from envs.gaia.servers.settings import Settings, Variable
from envs.gaia.servers.spec import ServerSpec, Setup
from envs.gaia.servers.web import AGENT_VAR, Api
from envs.gaia.tools.base import clip

MAX_HITS = 10
SNIPPET_CHARS = 240
MAX_QUERY = 400

Hit = tuple[str, str, str]
"""Address, title, snippet."""
Search = Callable[[str, str, int, int], Awaitable[list[Hit]]]
"""(query, site or "", limit, page from 1) -> hits."""

VARIABLES = (
    Variable("TAVILY_API_KEY", "Tavily's key, from https://app.tavily.com"),
    Variable("TAVILY_BASE_URL", "Tavily's address", "https://api.tavily.com"),
    Variable("GOOGLE_API_KEY", "Google's key for the Custom Search JSON API, from https://console.cloud.google.com"),
    Variable(
        "GOOGLE_CSE_ID", "the id of a programmable search engine, from https://programmablesearchengine.google.com"
    ),
    Variable("GOOGLE_BASE_URL", "the Custom Search API's address", "https://www.googleapis.com/customsearch/v1"),
    Variable("JINA_API_KEY", "Jina's key, from https://jina.ai/api-dashboard; also used to read pages"),
    Variable("JINA_SEARCH_BASE_URL", "Jina search's address", "https://s.jina.ai"),
    Variable("SEARCH_PROVIDER", "tavily, google or jina, where several have a key; else the first of them that has"),
    AGENT_VAR,
)
NEEDS = {"tavily": ("TAVILY_API_KEY",), "google": ("GOOGLE_API_KEY", "GOOGLE_CSE_ID"), "jina": ("JINA_API_KEY",)}


def _tavily(settings: Settings) -> Search:
    key = settings.get("TAVILY_API_KEY")
    api = Api(
        "Tavily",
        settings.url("TAVILY_BASE_URL", "https://api.tavily.com"),
        headers={"Authorization": f"Bearer {key}"},
        key="TAVILY_API_KEY",
        agent=settings.get(AGENT_VAR.name),
    )

    async def search(query: str, site: str, limit: int, page: int) -> list[Hit]:
        first = limit * (page - 1)  # it has no pages, and gives 20 at most
        if first >= 20:
            return []
        body: dict[str, Any] = {"query": query, "max_results": min(20, first + limit), "search_depth": "basic"}
        if site:
            body["include_domains"] = [site]
        value = await api.json("POST", "/search", json=body)
        return _hits(api, value, "results", "url", "title", "content")[first : first + limit]

    return search


def _google(settings: Settings) -> Search:
    api = Api(
        "Google search",
        settings.url("GOOGLE_BASE_URL", "https://www.googleapis.com/customsearch/v1"),
        # in a header, because addresses end up in logs
        headers={"X-Goog-Api-Key": settings.get("GOOGLE_API_KEY")},
        key="GOOGLE_API_KEY",
        agent=settings.get(AGENT_VAR.name),
    )

    async def search(query: str, site: str, limit: int, page: int) -> list[Hit]:
        first = limit * (page - 1)
        if first + limit > 100:  # as far as the API goes
            return []
        params = {"q": query, "cx": settings.get("GOOGLE_CSE_ID"), "num": limit, "start": first + 1}
        if site:
            params |= {"siteSearch": site, "siteSearchFilter": "i"}
        value = await api.json("GET", params=params)
        if isinstance(value, dict) and "items" not in value and "searchInformation" in value:
            return []  # how it says that nothing was found
        return _hits(api, value, "items", "link", "title", "snippet")

    return search


def _jina(settings: Settings) -> Search:
    api = Api(
        "Jina search",
        settings.url("JINA_SEARCH_BASE_URL", "https://s.jina.ai"),
        headers={
            "Authorization": f"Bearer {settings.get('JINA_API_KEY')}",
            "Accept": "application/json",
            "X-Respond-With": "no-content",
        },
        key="JINA_API_KEY",
        agent=settings.get(AGENT_VAR.name),
    )

    async def search(query: str, site: str, limit: int, page: int) -> list[Hit]:
        headers = {"X-Site": site} if site else {}
        params = {"q": query, "num": limit, "page": page}
        value = await api.json("GET", "/", params=params, headers=headers)
        return _hits(api, value, "data", "url", "title", "description")[:limit]

    return search


PROVIDERS: dict[str, Callable[[Settings], Search]] = {"tavily": _tavily, "google": _google, "jina": _jina}


def provider(settings: Settings) -> str:
    """The provider that is used.

    Raises:
        ConfigError: ``SEARCH_PROVIDER`` is none of them, or has no key.
    """
    ready = [name for name, needed in NEEDS.items() if all(map(settings.has, needed))]
    chosen = settings.get("SEARCH_PROVIDER").lower()
    if not chosen:
        return ready[0]
    if chosen not in PROVIDERS:
        known = ", ".join(PROVIDERS)
        raise ConfigError(f"SEARCH_PROVIDER must be one of {known}, got {chosen!r}.{did_you_mean(chosen, PROVIDERS)}")
    if chosen not in ready:
        raise ConfigError(f"SEARCH_PROVIDER is {chosen!r}, but {' and '.join(NEEDS[chosen])} must be set for it")
    return chosen


def build(setup: Setup) -> list[Tool]:
    """The one tool."""
    search = PROVIDERS[provider(setup.settings)](setup.settings)

    async def web_search(
        query: Annotated[str, Field(min_length=1, max_length=MAX_QUERY)],
        limit: Annotated[int, Field(ge=1, le=MAX_HITS)] = 5,
        page: Annotated[int, Field(ge=1, le=10)] = 1,
        site: Annotated[str, Field(max_length=100, description="Only this domain.")] = "",
    ) -> str:
        hits = await search(query, site, limit, page)
        if not hits:
            return "No further page." if page > 1 else "No page matches. Try fewer or other words."
        return "\n".join(f"{url} | {title} | {snippet}" for url, title, snippet in hits)

    return [Tool(web_search, "Search the internet. Gives lines of: url | title | snippet.")]


def _hits(api: Api, value: Any, where: str, url: str, title: str, snippet: str) -> list[Hit]:
    entries = value.get(where) if isinstance(value, dict) else None
    if not isinstance(entries, list) or not all(isinstance(e, dict) and isinstance(e.get(url), str) for e in entries):
        raise api.shape()
    return [(e[url], _line(e.get(title), 120), _line(e.get(snippet), SNIPPET_CHARS)) for e in entries]


def _line(value: Any, limit: int) -> str:
    return clip(" ".join(str(value or "").split()), limit)


SERVER = ServerSpec(
    name="search",
    summary="Web search through Tavily, Google or Jina.",
    tools=("web_search",),
    build=build,
    variables=VARIABLES,
    needs=tuple(NEEDS.values()),
    how="One provider is enough: Tavily (https://app.tavily.com), Jina (https://jina.ai/api-dashboard), or Google with "
    "a programmable search engine's id (https://programmablesearchengine.google.com).",
    lacks=lambda settings: (provider(settings), None)[1],
)

if __name__ == "__main__":
    SERVER.run()
