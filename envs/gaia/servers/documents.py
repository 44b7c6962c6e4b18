"""Reading scanned and complicated documents through Datalab, which returns Markdown."""

from __future__ import annotations

import asyncio
import re
from typing import Annotated, Any

from pydantic import Field

from envs.gaia.mcp_tools import Tool
from envs.gaia.servers.settings import Variable
from envs.gaia.servers.spec import ServerSpec, Setup
from envs.gaia.servers.web import AGENT_VAR, Api, Recent
from envs.gaia.tools.base import ToolFault, clip, page_of, quoted

MAX_BYTES = 32 << 20
TYPES = {
    ".pdf": "application/pdf",
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".webp": "image/webp",
    ".tiff": "image/tiff",
    ".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    ".pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    ".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    ".html": "text/html",
    ".epub": "application/epub+zip",
}
WAIT_S = 150.0
"""Seconds that a conversion may take."""
VARIABLES = (
    Variable("DATALAB_API_KEY", "Datalab's key, from https://www.datalab.to/app/keys"),
    Variable("DATALAB_BASE_URL", "Datalab's address", "https://www.datalab.to"),
    Variable("DATALAB_POLL_S", "seconds between two questions whether a conversion is done", "2"),
    AGENT_VAR,
)


def build(setup: Setup) -> list[Tool]:
    """The one tool."""
    settings, workspace = setup.settings, setup.workspace
    api = Api(
        "Datalab",
        settings.url("DATALAB_BASE_URL", "https://www.datalab.to"),
        headers={"X-Api-Key": settings.get("DATALAB_API_KEY")},
        key="DATALAB_API_KEY",
        agent=settings.get(AGENT_VAR.name),
        timeout_s=60.0,
    )
    pause = float(settings.get("DATALAB_POLL_S", "2"))
    recent = Recent()

    async def asked(number: str) -> dict[str, Any]:
        value = await api.json("GET", f"/api/v1/marker/{number}")
        if not isinstance(value, dict):
            raise api.shape()
        return value

    async def converted(name: str, data: bytes, pages: str) -> str:
        form: dict[str, str] = {"output_format": "markdown", "paginate": "true", "disable_image_extraction": "true"}
        if pages:
            form["page_range"] = pages
        ending = name[name.rindex(".") :].lower()
        made = await api.json(
            "POST", "/api/v1/marker", data=form, files={"file": (f"document{ending}", data, TYPES[ending])}
        )
        number = made.get("request_id") if isinstance(made, dict) else None
        if isinstance(made, dict) and made.get("success") is False:
            raise ToolFault(f"Datalab refused {quoted(name)}: {clip(str(made.get('error')), 200)}")
        if not isinstance(number, str) or not re.fullmatch(r"[\w-]{1,200}", number):
            raise api.shape()
        try:
            async with asyncio.timeout(WAIT_S):
                # built from the number: an address in an answer must not decide where the key goes
                while (state := await asked(number)).get("status") == "processing":
                    await asyncio.sleep(pause)
        except TimeoutError:
            raise ToolFault(f"Datalab was not done with {quoted(name)} in {WAIT_S:g} s; ask for fewer pages") from None
        if state.get("status") != "complete" or state.get("success") is False:
            raise ToolFault(f"Datalab could not convert {quoted(name)}: {clip(str(state.get('error')), 200)}")
        if not isinstance(state.get("markdown"), str):
            raise api.shape()
        count = state.get("page_count")
        return f"{state['markdown'].strip()}{f'{chr(10)}[{count} pages]' if isinstance(count, int) else ''}"

    async def convert_document(
        path: Annotated[str, Field(min_length=1)],
        pages: Annotated[
            str,
            Field(pattern=r"^(\d{1,4}(-\d{1,4})?(,\d{1,4}(-\d{1,4})?){0,20})?$", description="From 0: 0,2-4."),
        ] = "",
        page: Annotated[int, Field(ge=1, description="Of the result.")] = 1,
    ) -> str:
        if not path.lower().endswith(tuple(TYPES)):
            raise ToolFault(f"{quoted(path)} cannot be converted: names end with {', '.join(TYPES)}")
        data = workspace.read(path, limit=MAX_BYTES)
        return page_of(await recent.get((path, hash(data), pages), lambda: converted(path, data, pages)), page)

    return [
        Tool(
            convert_document, "Convert a scanned or complicated document (pdf, image, office) into Markdown, with OCR."
        )
    ]


def _lacks(settings: Any) -> str | None:
    try:
        fits = 0 < float(settings.get("DATALAB_POLL_S", "2")) <= 60
    except ValueError:
        fits = False
    return None if fits else "DATALAB_POLL_S must be a number of seconds up to 60"


SERVER = ServerSpec(
    name="documents",
    summary="Documents to Markdown, with OCR, through Datalab.",
    tools=("convert_document",),
    build=build,
    variables=VARIABLES,
    needs=(("DATALAB_API_KEY",),),
    how="Get a key at https://www.datalab.to/app/keys.",
    scope="episode",
    lacks=_lacks,
)

if __name__ == "__main__":
    SERVER.run()
