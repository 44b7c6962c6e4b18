"""The Internet Archive's Wayback Machine: which snapshots of a page there are, and what one of them says. No key."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import Field

from envs.gaia.mcp_tools import Tool
from envs.gaia.servers.addresses import Guard
from envs.gaia.servers.reading import text_of
from envs.gaia.servers.settings import Variable
from envs.gaia.servers.spec import ServerSpec, Setup
from envs.gaia.servers.web import AGENT_VAR, MAX_REDIRECTS, Api, Recent, Reply
from envs.gaia.tools.base import ToolFault, page_of, quoted

MAX_HITS = 50
VARIABLES = (
    Variable("WAYBACK_API_BASE_URL", "the availability API's address", "https://archive.org"),
    Variable("WAYBACK_BASE_URL", "the archive's address, for lists and snapshots", "https://web.archive.org"),
    AGENT_VAR,
)

Stamp = Annotated[str, Field(pattern=r"^(\d{4}(\d{2}){0,5})?$", description="YYYY, YYYYMM, YYYYMMDD or longer.")]


def build(setup: Setup) -> list[Tool]:
    """The two tools."""
    settings = setup.settings
    agent = settings.get(AGENT_VAR.name)
    availability = Api("the Wayback Machine", settings.url("WAYBACK_API_BASE_URL", "https://archive.org"), agent=agent)
    archive = Api(
        "the Wayback Machine", settings.url("WAYBACK_BASE_URL", "https://web.archive.org"), agent=agent, timeout_s=40.0
    )
    recent = Recent()
    plain = Guard()

    def target(url: str) -> str:
        return str(plain.url(url))

    async def wayback_snapshots(
        url: Annotated[str, Field(min_length=1)],
        limit: Annotated[int, Field(ge=1, le=MAX_HITS)] = 10,
        earliest: Stamp = "",
        latest: Stamp = "",
        page: Annotated[int, Field(ge=1, le=200)] = 1,
    ) -> str:
        params: dict[str, Any] = {
            "url": target(url),
            "output": "json",
            "fl": "timestamp,statuscode,mimetype,original",
            "collapse": "timestamp:8",
            "limit": limit + 1,
            "offset": limit * (page - 1),
        }
        params |= {name: value for name, value in (("from", earliest), ("to", latest)) if value}
        rows = await archive.json("GET", "/cdx/search/cdx", params=params)
        if not isinstance(rows, list) or not all(isinstance(row, list) and len(row) == 4 for row in rows):
            raise archive.shape()
        body = [[str(cell) for cell in row] for row in rows[1:]]
        if not body:
            return "There is no further snapshot." if page > 1 else "There is no snapshot of this page in that time."
        more = f"\n[there are more; next: page={page + 1}]" if len(body) > limit else ""
        return "\n".join(" | ".join(row) for row in body[:limit]) + more

    async def closest(url: str, timestamp: str) -> str:
        params = {"url": url, **({"timestamp": timestamp} if timestamp else {})}
        value = await availability.json("GET", "/wayback/available", params=params)
        found = value.get("archived_snapshots") if isinstance(value, dict) else None
        if not isinstance(found, dict):
            raise availability.shape()
        snapshot = found.get("closest") or {}
        stamp = snapshot.get("timestamp", "") if isinstance(snapshot, dict) else None
        if not isinstance(stamp, str):
            raise availability.shape()
        if not re.fullmatch(r"\d{14}", stamp):
            raise ToolFault(f"the Wayback Machine has no snapshot of {quoted(url)}")
        return stamp

    async def snapshot(url: str, stamp: str) -> Reply:
        """The page as it was stored (``id_``: without the archive's own links and banner)."""
        path = f"/web/{stamp}id_/{url}"
        for _ in range(MAX_REDIRECTS + 1):
            reply = await archive.send("GET", path, ok=(301, 302, 303, 307, 308, 404))
            location = reply.headers.get("location")
            if reply.status == 404 or not 300 <= reply.status < 400 or not location:
                return reply
            # the archive leads from one of its own addresses to another, and nowhere else
            path = location if location.startswith("/") else location.removeprefix(archive.base_url)
            if not re.match(r"/web/\d+id_/", path):
                raise ToolFault("this snapshot redirects out of the archive")
        raise ToolFault("this snapshot redirects in a circle; try another timestamp")

    async def text(url: str, timestamp: str) -> str:
        stamp = timestamp if len(timestamp) == 14 else await closest(url, timestamp)
        reply = await snapshot(url, stamp)
        when = f"{stamp[:4]}-{stamp[4:6]}-{stamp[6:8]}"
        return f"Snapshot of {url} from {when} ({stamp})\n\n{await text_of(reply)}"

    async def wayback_page(
        url: Annotated[str, Field(min_length=1)],
        timestamp: Stamp = "",
        page: Annotated[int, Field(ge=1)] = 1,
    ) -> str:
        where = target(url)
        return page_of(await recent.get((where, timestamp), lambda: text(where, timestamp)), page)

    return [
        Tool(wayback_snapshots, "Snapshots of a page, one a day. Gives lines of: timestamp | status | type | url."),
        Tool(
            wayback_page,
            "Read the snapshot of a page closest to a time (the newest by default), about 4,000 characters at a time.",
        ),
    ]


SERVER = ServerSpec(
    name="wayback",
    summary="The Wayback Machine: snapshots of pages, and their text.",
    tools=("wayback_snapshots", "wayback_page"),
    build=build,
    variables=VARIABLES,
    packages=("readability",),
    how="pip install 'aworld-gym[gaia]'",
)

if __name__ == "__main__":
    SERVER.run()
