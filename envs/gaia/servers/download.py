"""Downloading a file of the web into the episode's workspace. Private addresses are refused."""

from __future__ import annotations

import asyncio
import io
import re
import unicodedata
from collections.abc import Callable
from email.message import Message
from pathlib import PurePosixPath
from typing import Annotated
from urllib.parse import unquote

from pydantic import Field

from envs.gaia.mcp_tools import Tool
from envs.gaia.servers.addresses import Guard
from envs.gaia.servers.spec import ServerSpec, Setup
from envs.gaia.servers.web import AGENT_VAR, ALLOW_VAR, Reply, read
from envs.gaia.tools.base import ToolFault, quoted

MAX_BYTES = 32 << 20
"""Largest file; the embedded tools read no larger one."""
TIMEOUT_S = 60.0
MAX_NAME = 80
FOLDER = "downloads"
"""Where files go, so that none can be mistaken for one of the task's."""

_DEVICES = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
_ENDINGS = {
    "application/pdf": ".pdf",
    "text/html": ".html",
    "text/plain": ".txt",
    "text/csv": ".csv",
    "application/json": ".json",
    "application/zip": ".zip",
    "image/png": ".png",
    "image/jpeg": ".jpg",
    "audio/mpeg": ".mp3",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": ".xlsx",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": ".docx",
    "application/vnd.openxmlformats-officedocument.presentationml.presentation": ".pptx",
}


def build(setup: Setup) -> list[Tool]:
    """The one tool."""
    settings, workspace = setup.settings, setup.workspace
    guard, agent = Guard.of(settings.get(ALLOW_VAR.name)), settings.get(AGENT_VAR.name)
    turn = asyncio.Lock()

    async def download_file(
        url: Annotated[str, Field(min_length=1)],
        name: Annotated[str, Field(max_length=200, description="The file's name; by default the one it has.")] = "",
    ) -> str:
        room = min(MAX_BYTES, workspace.room())
        if room == 0:
            raise ToolFault("the workspace is full: no more files can be downloaded")
        reply = await read(url, guard, agent=agent, limit=room, timeout_s=TIMEOUT_S, accept="*/*")
        if not 200 <= reply.status < 300:
            raise ToolFault(f"{quoted(url)} answered HTTP {reply.status}; nothing was saved")
        if reply.cut:
            raise ToolFault(f"{quoted(url)} has more than {room:,} bytes, too many to save; nothing was saved")
        async with turn:  # two files of the same name at once
            path = _free(workspace.exists, safe_name(name) or safe_name(_announced(reply)) or _fallback(reply))
            workspace.write(path, io.BytesIO(reply.body), limit=room)
        return f"Saved as {path}: {len(reply.body):,} bytes, {reply.kind or 'type not stated'}."

    return [
        Tool(
            download_file,
            f"Download a file from the internet into the folder {FOLDER} of the workspace; says its path.",
            read_only=False,
        )
    ]


def safe_name(text: str) -> str:
    """A plain file name made of ``text``: no folders, no hidden or control characters; empty where nothing is left."""
    text = unicodedata.normalize("NFC", text.replace("\\", "/"))
    last = text.rstrip("/").rsplit("/", 1)[-1]
    kept = "".join(c if c.isalnum() or c in "-_.()+, " else "_" for c in last if unicodedata.category(c)[0] != "C")
    name = re.sub(r"\s+", " ", kept).strip(" .")
    if not name.strip("_-. ") or _DEVICES.fullmatch(name):
        return ""
    stem, dot, ending = name.rpartition(".")
    if dot and 0 < len(ending) <= 8:
        return f"{stem[: MAX_NAME - len(ending) - 1].rstrip(' .')}.{ending}" if stem.rstrip(" .") else ending
    return name[:MAX_NAME].rstrip(" .")


def _announced(reply: Reply) -> str:
    """The name that the server gives the file, else the last part of its address."""
    header = reply.headers.get("content-disposition", "")
    if header:
        message = Message()
        message["content-disposition"] = header.replace("\r", " ").replace("\n", " ")
        try:
            name = message.get_filename()
        except (ValueError, LookupError, TypeError):  # what the library says of odd numbers and character sets
            name = None
        if name:
            return str(name)
    return unquote(PurePosixPath(reply.url.partition("?")[0].partition("://")[2].partition("/")[2]).name)


def _fallback(reply: Reply) -> str:
    return "file" + _ENDINGS.get(reply.kind, "")


def _free(exists: Callable[[str], bool], name: str) -> str:
    stem, dot, ending = name.rpartition(".")
    if not stem:
        stem, dot, ending = name, "", ""
    for number in range(1, 1000):
        path = f"{FOLDER}/{name}" if number == 1 else f"{FOLDER}/{stem}-{number}{dot}{ending}"
        if not exists(path):
            return path
    raise ToolFault(f"there are too many files called {quoted(name)}; give another name")


SERVER = ServerSpec(
    name="download",
    summary="Downloads files of the web into the workspace.",
    tools=("download_file",),
    build=build,
    variables=(ALLOW_VAR, AGENT_VAR),
    scope="episode",
)

if __name__ == "__main__":
    SERVER.run()
