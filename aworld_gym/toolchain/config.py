"""The ``mcpServers`` configuration: reading, expanding and checking it. Starts nothing.

The format is the one that desktop clients and AWorld use::

    {"mcpServers": {
        "files": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "${AWORLD_WORKSPACE}"]},
        "web": {"type": "streamable-http", "url": "https://host/mcp", "headers": {"Authorization": "${TOKEN}"}},
        "mine": {"python": "pkg.module:factory", "kwargs": {"size": 3}}}}

plus, for every server, ``scope``, ``tools``, ``pool`` and ``reset_tool`` (see :class:`ServerConfig`). ``${VAR}`` is
taken from the environment, ``${VAR:-default}`` has a default, and ``$${`` is a literal ``${``.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from aworld_gym.errors import ConfigError, did_you_mean

WORKSPACE_VAR = "AWORLD_WORKSPACE"
EPISODE_FILE_VAR = "AWORLD_EPISODE_FILE"
EPISODE_VARS = (WORKSPACE_VAR, EPISODE_FILE_VAR)
"""Filled for each session, in the arguments, environment and working directory of episode-scope stdio servers."""

HTTP_CLIENTS = ("sdk", "lean")
"""What can speak streamable HTTP: the SDK's own transport, or the one that costs less."""
_STDIO_KEYS = ("command", "args", "env", "cwd")
_HTTP_KEYS = ("url", "headers", "timeout", "sse_read_timeout", "http_client")
_HOST_KEYS = ("url", "headers", "timeout", "token", "toolchain", "servers", "http_client")
_PYTHON_KEYS = ("python", "kwargs")
_COMMON_KEYS = ("type", "scope", "tools", "pool", "reset_tool", "disabled")
_IGNORED_KEYS = ("description", "autoApprove", "alwaysAllow", "icon", "name")  # other clients' own
_TYPES = {
    "stdio": "stdio",
    "streamable-http": "http",
    "streamable_http": "http",
    "streamableHttp": "http",
    "http": "http",
    "sse": "sse",
    "aworld-host": "host",
    "python": "python",
}
_VARIABLE = re.compile(r"\$(\$\{|\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(:-(?P<default>[^}]*))?\})")


@dataclass(frozen=True)
class ServerConfig:
    """One entry of ``mcpServers``, checked and expanded."""

    name: str
    kind: str
    """``stdio``, ``http`` (streamable), ``sse``, ``host`` (an environment host) or ``python`` (in process)."""
    scope: str
    """``episode``: a session of its own for every episode; ``shared``: one for all (a stateless server)."""
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Added to the few variables that servers inherit."""
    cwd: str | None = None
    """Working directory; this process's own if not given."""
    url: str = ""
    """Of a host, one or several, separated by spaces: a new session takes the first that lets it in."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout: float = 30.0
    """Seconds to connect and to write one HTTP request."""
    sse_read_timeout: float = 300.0
    """Seconds without a byte after which an HTTP response is given up."""
    http_client: str = ""
    """``sdk`` (the SDK's own transport), ``lean`` (:mod:`aworld_gym.toolchain.lean`), or empty: the default."""
    factory: str | Callable[..., Any] = ""
    """``pkg.module:function`` (or the function): ``(EpisodeContext, **kwargs) -> MCP server object``."""
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    tools: tuple[str, ...] | None = None
    """The server's tools to offer, by the server's own names; None: all."""
    pool: int = 0
    """Sessions kept started ahead; of several such servers, the largest number counts for all."""
    reset_tool: str | None = None
    """A tool, hidden from the model, that brings the server back to its first state so that it can be reused."""

    @property
    def key(self) -> str:
        """Text that is equal for servers that may share a connection."""
        return repr([(k, sorted(v.items()) if isinstance(v, Mapping) else v) for k, v in vars(self).items()])


@dataclass(frozen=True)
class ToolchainConfig:
    """A checked ``mcpServers`` configuration."""

    servers: tuple[ServerConfig, ...]
    source: str = "the given mapping"
    """Where it was read from, for messages."""


def load_config(source: str | os.PathLike[str] | Mapping[str, Any] | ToolchainConfig) -> ToolchainConfig:
    """Read and check a configuration.

    Args:
        source: the path of a JSON file, its content as a mapping, or a configuration (returned as it is).

    Raises:
        ConfigError: anything is wrong; the message names the server, the key, what was expected and what came.
    """
    if isinstance(source, ToolchainConfig):
        return source
    base: Path | None = None
    if isinstance(source, Mapping):
        data, where = source, "the given mapping"
    elif isinstance(source, str | os.PathLike):
        path = Path(source)
        data, where, base = _read(path), str(path), path.resolve().parent
    else:
        raise ConfigError(f"a toolchain is the path of an mcp.json or a mapping, got {type(source).__name__}")
    if not isinstance(data, Mapping) or "mcpServers" not in data:
        got = f"the keys {sorted(map(str, data))}" if isinstance(data, Mapping) else type(data).__name__
        raise ConfigError(f'{where}: expected {{"mcpServers": {{name: {{...}}}}}}, got {got}')
    entries = data["mcpServers"]
    if not isinstance(entries, Mapping) or not entries:
        raise ConfigError(f"{where}: `mcpServers` must map at least one server name to its settings, got {entries!r}")
    servers = tuple(
        _Entry(f"{where}: server {name!r}", name, entry, base).parse()
        for name, entry in entries.items()
        if not _disabled(f"{where}: server {name!r}", entry)
    )
    if not servers:
        raise ConfigError(f"{where}: every server is `disabled`; there is nothing to start")
    return ToolchainConfig(servers, where)


def fill(text: str, values: Mapping[str, str]) -> str:
    """``text`` with the episode's variables filled in."""
    for name, value in values.items():
        text = text.replace("${" + name + "}", value)
    return text


def _read(path: Path) -> Any:
    try:
        text = path.read_text(encoding="utf-8-sig")  # some editors begin a file with a byte order mark
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the toolchain configuration {str(path)!r}: {error}") from error
    try:
        return json.loads(text, object_pairs_hook=partial(_object, path))
    except RecursionError:
        raise ConfigError(f"{path}: it is nested too deep") from None
    except json.JSONDecodeError as error:
        line = text.splitlines()[error.lineno - 1].strip() if text.splitlines() else ""
        raise ConfigError(
            f"{path}: not valid JSON at line {error.lineno}, column {error.colno}: {error.msg}; the line reads {line!r}"
        ) from error


def _object(path: Path, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object. Of a key that stands there twice, one would be lost in silence."""
    read = dict(pairs)
    if len(read) < len(pairs):
        keys = [key for key, _ in pairs]
        for key in read:
            if keys.count(key) > 1 and not key.startswith(("_", "/")):  # comments may be many
                raise ConfigError(f"{path}: {key!r} stands twice in the same object; rename or remove one")
    return read


def _disabled(where: str, entry: Any) -> bool:
    value = entry.get("disabled", False) if isinstance(entry, Mapping) else False
    if not isinstance(value, bool):
        raise ConfigError(f"{where}: `disabled` must be true or false, got {value!r}")
    return value


class _Entry:
    """Checks one server's settings; every complaint begins with where it stands."""

    def __init__(self, where: str, name: Any, entry: Any, base: Path | None):
        self.where, self.name, self.base = where, name, base
        if not isinstance(name, str) or not name:
            raise ConfigError(f"{where}: a server's name must be a string that is not empty")
        if not isinstance(entry, Mapping):
            raise self.error(f'expected an object like {{"command": ...}} or {{"url": ...}}, got {entry!r}')
        self.entry = dict(entry)
        if "transport" in self.entry:  # what some clients call it
            self.entry.setdefault("type", self.entry.pop("transport"))

    def error(self, text: str) -> ConfigError:
        return ConfigError(f"{self.where}: {text}")

    def parse(self) -> ServerConfig:
        kind = self.kind()
        self.check_keys(kind)
        scope = self.entry.get("scope", "shared" if kind in ("http", "sse") else "episode")
        if scope not in ("episode", "shared"):
            raise self.error(f'`scope` must be "episode" or "shared", got {scope!r}')
        values: dict[str, Any] = {"name": self.name, "kind": kind, "scope": scope}
        # the workspace exists where there is an episode and a process of its own to tell
        self.keep = EPISODE_VARS if kind == "stdio" and scope == "episode" else ()
        if kind == "stdio":
            values |= {"command": self.text("command"), "args": self.texts("args"), "env": self.environment()}
            values["cwd"] = self.directory()
        elif kind in ("http", "sse"):
            values |= {"url": self.url(), "headers": self.headers()}
            values |= {k: self.seconds(k) for k in ("timeout", "sse_read_timeout") if k in self.entry}
        elif kind == "host":
            values |= {"url": self.host_urls(), "headers": self.host_headers(), "timeout": 10.0}
            values |= {"timeout": self.seconds("timeout")} if "timeout" in self.entry else {}
        else:
            values |= {"factory": self.factory(), "kwargs": self.kwargs()}
        if kind in ("http", "sse", "host") and "http_client" in self.entry:
            values["http_client"] = self.http_client(kind)
        values |= self.sessions(kind, scope)
        return ServerConfig(**values)

    def kind(self) -> str:
        given = [k for k in ("command", "url", "python") if k in self.entry]
        if len(given) != 1:
            got = f"got {given}" if given else f"got the keys {sorted(map(str, self.entry))}"
            raise self.error(f"expected exactly one of `command` (stdio), `url` (HTTP) or `python` (in process), {got}")
        natural = {"command": "stdio", "url": "http", "python": "python"}[given[0]]
        name = self.entry.get("type", natural)
        kind = _TYPES.get(name) if isinstance(name, str) else None
        if kind is None:
            hint = did_you_mean(str(name), _TYPES)
            known = '"stdio", "streamable-http", "http", "sse" or "aworld-host"'
            raise self.error(f"`type` must be {known}, got {name!r}.{hint}")
        if kind != natural and not (kind in ("sse", "host") and natural == "http"):
            raise self.error(f"`type` is {name!r}, which does not go with `{given[0]}`")
        return kind

    def check_keys(self, kind: str) -> None:
        own = {"stdio": _STDIO_KEYS, "python": _PYTHON_KEYS, "host": _HOST_KEYS}.get(kind, _HTTP_KEYS)
        known = {*own, *_COMMON_KEYS, *_IGNORED_KEYS}
        for key in self.entry:
            if key not in known and not str(key).startswith("_"):
                hint = did_you_mean(str(key), known)
                raise self.error(f"unknown key {key!r} for a {kind} server; known are {sorted(known)}.{hint}")

    def expand(self, text: str, where: str) -> str:
        def replace(match: re.Match[str]) -> str:
            name = match["name"]
            if name is None:
                return "${"
            if name in EPISODE_VARS:
                if name in self.keep:
                    return match[0]
                raise self.error(
                    f"{where} uses ${{{name}}}, which only a stdio server of scope "
                    '"episode" has (each episode has a workspace of its own)'
                )
            value = os.environ.get(name, match["default"])
            if value is None:
                raise self.error(
                    f"{where} uses ${{{name}}}, but the environment variable {name} is not set; "
                    f"set it, or write ${{{name}:-default}}"
                )
            return value

        expanded = _VARIABLE.sub(replace, text)
        try:
            sound = b"\0" not in expanded.encode(errors="surrogateescape")  # which file names may need
        except UnicodeEncodeError:
            sound = False
        if not sound:  # which no process and no host could be given; the text may be a secret
            raise self.error(f"{where} holds a zero character, or half of a surrogate pair; remove it")
        return expanded

    def text(self, key: str) -> str:
        value = self.entry[key]
        if not isinstance(value, str) or not value:
            raise self.error(f"`{key}` must be a string that is not empty, got {value!r}")
        return self.expand(value, f"`{key}`")

    def texts(self, key: str) -> tuple[str, ...]:
        value = self.entry.get(key, [])
        if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
            raise self.error(f"`{key}` must be a list of strings, got {value!r}")
        return tuple(self.expand(item, f"`{key}[{i}]`") for i, item in enumerate(value))

    def mapping(self, key: str) -> dict[str, str]:
        value = self.entry.get(key)
        value = {} if value is None else value
        if not isinstance(value, Mapping):
            raise self.error(f"`{key}` must map names to strings, got {value!r}")
        for name, item in value.items():
            if not isinstance(name, str) or not isinstance(item, str):
                # the value may be a secret: say its type only
                raise self.error(f"`{key}.{name}` must be a string, got {type(item).__name__}")
        return {name: self.expand(item, f"`{key}.{name}`") for name, item in value.items()}

    def environment(self) -> dict[str, str]:
        env = self.mapping("env")
        for name in env:
            if not name or "=" in name or "\0" in name:
                raise self.error(f"`env` has the name {name!r}, which no environment variable can have")
        return env

    def headers(self) -> dict[str, str]:
        headers = self.mapping("headers")
        for name, value in headers.items():
            if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name):
                raise self.error(f"`headers` has the name {name!r}, which no HTTP header can have")
            if not re.fullmatch(r"([!-~]+([ \t]+[!-~]+)*)?", value):
                # the value may be a secret
                raise self.error(
                    f"`headers.{name}` must be printable ASCII in one line, without spaces around it; "
                    "if it comes from a file, is there a line break at its end?"
                )
        return headers

    def directory(self) -> str | None:
        if self.entry.get("cwd") is None:
            return None
        value = self.text("cwd")
        if self.base is not None and not value.startswith("${"):
            value = str(self.base / value)  # a file's relative path is meant from where the file stands
        return value

    def url(self) -> str:
        return self.checked_url(self.text("url"))

    def host_urls(self) -> str:
        return " ".join(self.checked_url(one) for one in re.split(r"[\s,]+", self.text("url").strip(" ,")))

    def host_headers(self) -> dict[str, str]:
        """Those that tell a host who asks, for which toolchain, and for which of its servers."""
        headers = self.headers()
        for key, header, shape in (
            ("token", "Authorization", r"[!-~]+"),
            ("toolchain", "Env-Code", r"[A-Za-z0-9_.-]+"),
        ):
            if self.entry.get(key) is not None:
                value = self.text(key)
                if not re.fullmatch(shape, value):
                    raise self.error(f"`{key}` must be printable ASCII without spaces")  # it may be a secret
                headers[header] = f"Bearer {value}" if key == "token" else value
        servers = self.texts("servers")
        if any(not name or not re.fullmatch(r"[!-+\--~]+", name) for name in servers):
            raise self.error(f"`servers` must be names in ASCII without spaces and commas, got {list(servers)!r}")
        return headers | ({"Mcp-Servers": ",".join(servers)} if servers else {})

    def checked_url(self, value: str) -> str:
        if not re.match(r"https?://[^/\s]+", value):
            raise self.error(f"`url` must begin with http:// or https:// and name a host, got {value!r}")
        try:
            urlsplit(value).port  # noqa: B018
        except ValueError as error:
            raise self.error(f"`url` is broken ({error}), got {value!r}") from None
        if re.search(r"[\s\x00-\x1f\x7f]", value):
            raise self.error(f"`url` must be without spaces and control characters, got {value!r}")
        return value

    def seconds(self, key: str) -> float:
        value = self.entry[key]
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise self.error(f"`{key}` must be a positive number of seconds, got {value!r}")
        return float(value)

    def http_client(self, kind: str) -> str:
        value = self.entry["http_client"]
        if value not in HTTP_CLIENTS:
            hint = did_you_mean(str(value), HTTP_CLIENTS)
            raise self.error(f"`http_client` must be one of {list(HTTP_CLIENTS)}, got {value!r}.{hint}")
        if value == "lean" and kind == "sse":
            raise self.error('`http_client` "lean" speaks streamable HTTP, not the old "sse"')
        return str(value)

    def factory(self) -> str | Callable[..., Any]:
        value = self.entry["python"]
        if callable(value):
            return value
        if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", value):
            raise self.error(f'`python` must look like "package.module:factory", got {value!r}')
        return value

    def kwargs(self) -> dict[str, Any]:
        value = self.entry.get("kwargs")
        value = {} if value is None else value
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            raise self.error(f"`kwargs` must map argument names to values, got {value!r}")
        return {k: self.expand(v, f"`kwargs.{k}`") if isinstance(v, str) else v for k, v in value.items()}

    def sessions(self, kind: str, scope: str) -> dict[str, Any]:
        values: dict[str, Any] = {}
        if self.entry.get("tools") is not None:
            tools = self.entry["tools"]
            if not isinstance(tools, list | tuple) or not tools or not all(isinstance(t, str) for t in tools):
                raise self.error(f"`tools` must be a list of at least one tool name, got {tools!r}")
            values["tools"] = tuple(tools)
        pool = self.entry.get("pool", 0)
        if isinstance(pool, bool) or not isinstance(pool, int) or pool < 0:
            raise self.error(f"`pool` must be a number of sessions, 0 or more, got {pool!r}")
        if kind == "host" and (pool or scope == "shared"):
            raise self.error("a host pools its servers itself and gives every episode a session: no `pool`, no `scope`")
        if pool and kind == "python":
            raise self.error("`pool` is for servers that take long to start; an in-process one is made when needed")
        if pool and scope == "shared":
            raise self.error('`pool` is for scope "episode"; a shared server has one session')
        values["pool"] = pool
        reset = self.entry.get("reset_tool")
        if reset is not None:
            if not isinstance(reset, str) or not reset:
                raise self.error(f"`reset_tool` must name one of the server's tools, got {reset!r}")
            if not pool:
                raise self.error("`reset_tool` lets pooled sessions be reused: it needs `pool` of at least 1")
            values["reset_tool"] = reset
        return values
