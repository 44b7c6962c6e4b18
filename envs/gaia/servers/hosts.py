"""Whether the environment hosts that ``MCP_SERVER_URL`` names can be used: rows for the doctor."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import httpx

from aworld_gym.errors import describe
from envs.gaia.servers.settings import Settings

TIMEOUT_S = 5.0


def status(settings: Settings) -> list[dict[str, Any]]:
    """One row for each host: what, ready, detail. No session is opened."""
    token = settings.get("MCP_SERVER_TOKEN")
    urls = settings.get("MCP_SERVER_URL").replace(",", " ").split()
    with httpx.Client(timeout=TIMEOUT_S) as client:
        return [_row(url, *_state(client, url, token)) for url in urls]


def _row(url: str, ready: bool, detail: str) -> dict[str, Any]:
    return {"what": f"host {url}", "ready": ready, "detail": detail}


def _state(client: httpx.Client, url: str, token: str) -> tuple[bool, str]:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return (
            False,
            "MCP_SERVER_URL must begin with http:// or https:// and name a host, as in http://10.0.0.7:8000/mcp",
        )
    try:
        life = client.get(f"{parts.scheme}://{parts.netloc}/health")
        if life.status_code == 421:
            return False, "it does not go by that name: start it with --allowed-host, or use its address"
        served = life.json().get("toolchains") if life.is_success else None
        if not isinstance(served, list):
            return False, f"what answers there is no environment host (/health: {life.status_code})"
        if not token:
            return False, "it answers, and MCP_SERVER_TOKEN is not set: a host prints its token when it starts"
        # without the id of a session this opens none, and a token that is not accepted is refused first
        reply = client.get(url, headers={"Authorization": f"Bearer {token}"})
    except (httpx.HTTPError, ValueError, AttributeError) as error:  # the last two: JSON of something else
        return False, f"no environment host answers there ({describe(error)}): is it up, and is MCP_SERVER_URL right?"
    if reply.status_code == 404:
        return False, "it answers, and not at this path: the address ends with /mcp"
    if reply.status_code in (401, 403):
        return False, f"it answers, and does not accept MCP_SERVER_TOKEN: {reply.json()['error']['message']}"
    if "gaia" not in served:
        return False, f"it answers, and does not serve gaia: it has {', '.join(map(str, served))}"
    return True, f"it answers, accepts the token, and serves {', '.join(map(str, served))}"
