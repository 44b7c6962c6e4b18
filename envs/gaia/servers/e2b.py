"""Running code in a sandbox of E2B's, with a network and many packages: one sandbox an episode, over its HTTP API."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from typing import Annotated, Any

from pydantic import Field

from envs.gaia.mcp_tools import Tool
from envs.gaia.servers.settings import Variable
from envs.gaia.servers.spec import ServerSpec, Setup
from envs.gaia.servers.web import AGENT_VAR, Api
from envs.gaia.tools.base import ToolFault, clip

_log = logging.getLogger(__name__)

PORT = 49999
"""Where a sandbox's interpreter listens."""
TEMPLATE = "code-interpreter-v1"
LIFE_S = 600
"""Seconds after which E2B ends a sandbox by itself, whatever becomes of this process."""
MAX_CODE = 20000
MAX_OUTPUT = 6000
RUN_S = 120.0
SANDBOX_URL = "https://{port}-{sandbox}.{domain}"
VARIABLES = (
    Variable("E2B_API_KEY", "E2B's key, from https://e2b.dev/dashboard"),
    Variable("E2B_BASE_URL", "E2B's address", "https://api.e2b.app"),
    Variable("E2B_SANDBOX_BASE_URL", "a sandbox's address", SANDBOX_URL),
    AGENT_VAR,
)


class Sandbox:
    """One sandbox, made at the first call and made anew when it has ended.

    Args:
        setup: holds key and addresses.
    """

    def __init__(self, setup: Setup):
        settings = setup.settings
        self._agent = settings.get(AGENT_VAR.name)
        self._api = Api(
            "E2B",
            settings.url("E2B_BASE_URL", "https://api.e2b.app"),
            headers={"X-API-Key": settings.get("E2B_API_KEY")},
            key="E2B_API_KEY",
            agent=self._agent,
            timeout_s=60.0,
            repeats=0,  # a repeated request could start a second sandbox
        )
        self._address = settings.url("E2B_SANDBOX_BASE_URL", SANDBOX_URL)
        self._lock = asyncio.Lock()
        self._running: Api | None = None
        self._number: str | None = None

    async def run(self, code: str) -> list[dict[str, Any]]:
        """The events of one execution."""
        async with self._lock:
            fresh = self._running is None
            if self._running is None:
                self._running = await self._started()
            reply = await self._execute(self._running, code)
            if reply is None and not fresh:  # it has ended meanwhile: nothing was run
                self._running = await self._started()
                reply = await self._execute(self._running, code)
            if reply is None:
                self._running = None
                raise ToolFault("E2B's sandbox ended before the code could run; try again")
            return reply

    async def aclose(self) -> None:
        """End the sandbox, if it can be told so; it ends by itself anyway."""
        number, self._number = self._number, None
        if number is not None:
            try:
                await self._api.send("DELETE", f"/sandboxes/{number}", ok=(404,))
            except ToolFault as fault:
                _log.warning("a sandbox could not be ended now and will end in %d s: %s", LIFE_S, fault)

    async def _started(self) -> Api:
        value = await self._api.json("POST", "/sandboxes", json={"templateID": TEMPLATE, "timeout": LIFE_S})
        number = value.get("sandboxID") if isinstance(value, dict) else None
        domain = (value.get("domain") if isinstance(value, dict) else None) or "e2b.app"
        if not isinstance(number, str) or not re.fullmatch(r"[A-Za-z0-9-]{1,100}", number):
            raise self._api.shape()
        if not isinstance(domain, str) or not re.fullmatch(r"[a-z0-9.-]{1,100}", domain):
            raise self._api.shape()
        self._number = number
        tokens = {"X-Access-Token": "envdAccessToken", "E2B-Traffic-Access-Token": "trafficAccessToken"}
        address = self._address.replace("{port}", str(PORT)).replace("{sandbox}", number).replace("{domain}", domain)
        headers = {name: value[key] for name, key in tokens.items() if isinstance(value.get(key), str) and value[key]}
        return Api("E2B's sandbox", address, headers=headers, agent=self._agent, timeout_s=RUN_S, repeats=0)

    async def _execute(self, sandbox: Api, code: str) -> list[dict[str, Any]] | None:
        """The events; None where the sandbox is gone (E2B's proxy answers 502, or 404)."""
        reply = await sandbox.send("POST", "/execute", json={"code": code, "language": "python"}, ok=(404, 502))
        if reply.status in (404, 502):
            return None
        try:
            events = [json.loads(line) for line in reply.body.decode("utf-8", "replace").splitlines() if line.strip()]
        except (ValueError, RecursionError):
            raise sandbox.shape() from None
        if not all(isinstance(event, dict) for event in events):
            raise sandbox.shape()
        return events


def build(setup: Setup) -> list[Tool]:
    """The one tool."""
    sandbox = Sandbox(setup)
    setup.closing.push_async_callback(sandbox.aclose)

    async def run_code_online(code: Annotated[str, Field(min_length=1, max_length=MAX_CODE)]) -> str:
        return report(await sandbox.run(code))

    return [
        Tool(
            run_code_online,
            "Run Python in a cloud notebook with internet and many packages; variables stay between calls. It does not "
            "see the workspace.",
            read_only=False,
        )
    ]


def report(events: list[dict[str, Any]]) -> str:
    """What an execution printed, gave and failed with, in order; cut where it is long."""
    parts: list[str] = []
    for event in events:
        kind = event.get("type")
        if kind in ("stdout", "stderr"):
            parts.append(str(event.get("text", "")))
        elif kind == "result":
            shown = event.get("text") or ", ".join(k for k in ("png", "svg", "html", "json") if event.get(k))
            parts.append(f"{shown}\n" if shown else "")
        elif kind == "error":
            parts.append(f"{event.get('name')}: {event.get('value')}\n")
    text = "".join(parts).strip()
    return clip(text, MAX_OUTPUT) if text else "(no output)"


SERVER = ServerSpec(
    name="e2b",
    summary="Python in a cloud sandbox of E2B's.",
    tools=("run_code_online",),
    build=build,
    variables=VARIABLES,
    needs=(("E2B_API_KEY",),),
    how="Get a key at https://e2b.dev/dashboard.",
    scope="episode",
)

if __name__ == "__main__":
    SERVER.run()
