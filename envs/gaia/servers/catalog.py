"""All servers of this package by name: what an env asks for, what the doctor reports, what ``.env_template`` lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aworld_gym.errors import ConfigError, did_you_mean
from envs.gaia.servers import (
    arxiv,
    browser,
    code,
    documents,
    download,
    e2b,
    guard,
    hosts,
    reader,
    search,
    think,
    transcription,
    wayback,
    wikipedia,
)
from envs.gaia.servers.settings import DEFAULT_LLM, ENV_FILE_VAR, Settings, Variable
from envs.gaia.servers.spec import ServerSpec

SERVERS: dict[str, ServerSpec] = {
    module.SERVER.name: module.SERVER
    for module in (
        *(search, reader, wikipedia, arxiv, wayback, download, browser),
        *(think, guard, code, transcription, documents, e2b),
    )
}
"""In the order in which they are listed."""

GENERAL = (
    Variable(f"{DEFAULT_LLM}_LLM_BASE_URL", "OpenAI-compatible endpoint for every tool that asks a language model"),
    Variable(f"{DEFAULT_LLM}_LLM_API_KEY", "its key"),
    Variable(f"{DEFAULT_LLM}_LLM_MODEL_NAME", "its model"),
)

HOST = (
    Variable("MCP_SERVER_URL", "its address, such as http://10.0.0.7:8000/mcp; several are separated by commas"),
    Variable("MCP_SERVER_TOKEN", "the token that it printed, or one of aworld-gym token"),
)
"""Of an environment host, which :mod:`envs.gaia.env` reads."""


def chosen(names: Sequence[str]) -> list[ServerSpec]:
    """The servers of these names, in the order of the names.

    Raises:
        ConfigError: one is unknown, or the argument is no list of names.
    """
    if isinstance(names, str) or not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise ConfigError(f"servers must be a list of names such as ['search', 'wikipedia'], got {names!r}")
    for name in names:
        if name not in SERVERS:
            raise ConfigError(f"unknown server {name!r}; there are {', '.join(SERVERS)}.{did_you_mean(name, SERVERS)}")
    return [SERVERS[name] for name in dict.fromkeys(names)]


def config(names: Sequence[str], environ: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Their entries of an ``mcpServers`` config, by name. It names variables and holds no values.

    Raises:
        ConfigError: one is unknown, or lacks something.
    """
    return {spec.name: spec.entry(environ) for spec in chosen(names)}


def tool_names(names: Sequence[str]) -> list[str]:
    """The tools of these servers."""
    return [tool for spec in chosen(names) for tool in spec.tools]


def status(settings: Settings | None = None) -> list[dict[str, Any]]:
    """What each server is, whether it can start, and what it lacks: name, summary, tools, ready, lacks, how."""
    settings = Settings.load() if settings is None else settings
    rows = []
    for spec in SERVERS.values():
        try:
            lacks = spec.missing(settings)
        except ConfigError as error:
            lacks = str(error)
        rows.append(
            {
                "name": spec.name,
                "summary": spec.summary,
                "tools": list(spec.tools),
                "ready": lacks is None,
                "lacks": lacks,
                "how": spec.how if lacks else "",
            }
        )
    return rows


def doctor() -> list[dict[str, Any]]:
    """The rows of ``aworld-gym doctor`` (the entry point ``aworld_gym.doctor``): what, ready, detail."""
    try:
        settings = Settings.load()
        found = status(settings)
    except ConfigError as error:  # a file of keys that cannot be read
        return [{"what": "servers", "ready": False, "detail": str(error)}]
    return hosts.status(settings) + [
        {
            "what": f"server {row['name']}",
            "ready": row["ready"],
            "detail": row["summary"] if row["ready"] else f"{row['lacks']}. {row['how']}".strip(),
        }
        for row in found
    ]


def template() -> str:
    """The text of ``.env_template``."""
    lines = [
        "# Settings of the GAIA servers that need a key or a network (python -m envs.gaia.servers lists them).",
        "# Copy this file to .env in the folder that you start programs from and fill in what you want to use, or name",
        f"# another file with {ENV_FILE_VAR}. What the environment sets comes before what stands here. Nothing of this",
        "# is needed for the embedded world.",
        "",
        "# An environment host that runs the tools (docs/deploy.md); where none is named, they run on this machine.",
        *map(_line, HOST),
        "",
        "# The language model of every tool that asks one, unless the tool has its own three below.",
        *map(_line, GENERAL),
    ]
    seen = {variable.name for variable in (*HOST, *GENERAL)}
    for spec in SERVERS.values():
        new = [variable for variable in spec.variables if variable.name not in seen]
        seen |= {variable.name for variable in new}
        needed = " or ".join(" + ".join(group) for group in spec.needs) or "nothing"
        lines += ["", f"# {spec.name}: {spec.summary} Needs {needed}.", *map(_line, new)]
    return "\n".join(lines) + "\n"


def _line(variable: Variable) -> str:
    default = f" (by default {variable.default})" if variable.default else ""
    return f"# {variable.what}{default}\n{variable.name}="
