"""Reading pages of the web: through Jina's reader where it has a key, else fetched here and reduced to their text."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from envs.gaia.mcp_tools import Tool
from envs.gaia.servers.addresses import Guard
from envs.gaia.servers.reading import text_of
from envs.gaia.servers.settings import Variable
from envs.gaia.servers.spec import ServerSpec, Setup
from envs.gaia.servers.web import AGENT_VAR, ALLOW_VAR, Api, Recent, read
from envs.gaia.tools.base import ToolFault, page_of, quoted

VARIABLES = (
    Variable("JINA_API_KEY", "Jina's key, from https://jina.ai/api-dashboard; pages are fetched from here without it"),
    Variable("JINA_READER_BASE_URL", "Jina reader's address", "https://r.jina.ai"),
    ALLOW_VAR,
    AGENT_VAR,
)


def build(setup: Setup) -> list[Tool]:
    """The one tool."""
    settings = setup.settings
    guard, agent = Guard.of(settings.get(ALLOW_VAR.name)), settings.get(AGENT_VAR.name)
    key = settings.get("JINA_API_KEY")
    recent = Recent()
    jina = Api(
        "Jina reader",
        settings.url("JINA_READER_BASE_URL", "https://r.jina.ai"),
        headers={"Authorization": f"Bearer {key}", "Accept": "application/json"},
        key="JINA_API_KEY",
        agent=agent,
        timeout_s=40.0,
    )

    async def through_jina(url: str) -> str:
        value = await jina.json("GET", f"/{guard.url(url)}")
        data = value.get("data") if isinstance(value, dict) else None
        if not isinstance(data, dict) or not isinstance(data.get("content"), str):
            raise jina.shape()
        if not data["content"].strip():
            raise ToolFault(f"{quoted(url)} has no text")
        return f"{data.get('title') or url}\n\n{data['content']}"

    async def fetched(url: str, whole: bool) -> str:
        return await text_of(await read(url, guard, agent=agent), whole=whole)

    async def read_url(
        url: Annotated[str, Field(min_length=1)],
        page: Annotated[int, Field(ge=1)] = 1,
        whole: Annotated[bool, Field(description="All text, menus included, not only the main part.")] = False,
    ) -> str:
        use_jina = bool(key) and not whole
        text = await recent.get((url, whole), lambda: through_jina(url) if use_jina else fetched(url, whole))
        return page_of(text, page)

    return [Tool(read_url, "Read a page of the internet as text, about 4,000 characters at a time.")]


SERVER = ServerSpec(
    name="reader",
    summary="Reads web pages as text, through Jina's reader or directly.",
    tools=("read_url",),
    build=build,
    variables=VARIABLES,
    packages=("readability",),
    how="pip install 'aworld-gym[gaia]'",
)

if __name__ == "__main__":
    SERVER.run()
