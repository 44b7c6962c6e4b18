"""Caching: live servers, spared the calls of tools that only read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from aworld_gym.actions import canonical_json
from aworld_gym.episode_state import digest, json_copy
from aworld_gym.redaction import Secrets
from aworld_gym.tape.base import after, listings, same_task
from aworld_gym.tape.files import Writer, no_line, of_kind, read_lines
from aworld_gym.toolchain import Toolchain
from aworld_gym.toolchain.session import Route, ToolSession
from aworld_gym.types import Task


class Cache:
    """Live servers, but for what a tool that only reads was asked before: that comes from the folder.

    Only tools that say so (MCP's ``readOnlyHint``) are spared, and only what worked is kept. A server of scope
    ``shared`` is asked the same once for all episodes, until one of them changes something there. Of a server of scope
    ``episode``, a result is used for the same task after the same changes, whichever server they were asked of: they
    share a workspace.

    Args:
        path: the folder; made where it is absent, added to where not.

    Raises:
        ConfigError: it cannot be read or written.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)
        self.hits = self.misses = 0
        self.results: dict[str, Mapping[str, Any]] = {}
        for where, lines in read_lines(self.path, missing_ok=True):
            for number, line in enumerate(lines, 1):
                if line.get("what") != "cached":
                    continue
                try:
                    self.results[of_kind(line["place"], str)] = of_kind(line["result"], dict)
                except (KeyError, TypeError) as error:
                    raise no_line(where, number, error) from error
        self.changed: set[str] = set()
        """Shared servers of which something was asked that may have changed them, by their configuration's key."""
        self._writer = Writer(self.path, extend=True)

    async def open(self, toolchain: Toolchain, task: Task) -> ToolSession:
        """A session of the toolchain behind the cache."""
        return _Cached(await toolchain.open(public=task.public), self, toolchain, task)

    def keep(self, place: str, what: Mapping[str, Any], result: Mapping[str, Any]) -> None:
        """Add a result."""
        if place not in self.results:
            self.results[place] = result
            self._writer.write({"what": "cached", "place": place, **what, "result": result})

    def close(self) -> None:
        """Synchronise and close the file."""
        self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def __reduce__(self) -> Any:
        return Cache, (self.path,)


class _Cached(ToolSession):
    """A session that spares its servers what only reads."""

    def __init__(self, inner: ToolSession, cache: Cache, toolchain: Toolchain, task: Task):
        super().__init__(inner._grant, inner._limits, inner._owner)
        self._cache, self._secrets, self._task = cache, Secrets.of(toolchain.config), task
        self._configs = {config.name: config for config in toolchain.config.servers}
        tools = self._secrets.removed(listings(inner))
        self._listed = {name: digest(canonical_json(tools[name])) for name in tools}
        self._state, self._changing = same_task(task), 0

    async def _send(self, route: Route, arguments: dict[str, Any], *more: Any) -> dict[str, Any]:
        shared = self._configs[route.server].scope == "shared"
        asked = {"server": route.server, "tool": route.tool, "arguments": self._secrets.removed(arguments)}
        if not route.read_only:
            return await self._change(route, arguments, asked, shared, *more)
        before = self._place(route, asked, shared)
        if before is not None and before in self._cache.results:
            self._cache.hits += 1
            return json_copy(dict(self._cache.results[before]))
        self._cache.misses += 1
        raw = await super()._send(route, arguments, *more)
        if before is not None and before == self._place(route, asked, shared) and raw.get("isError") is not True:
            about = asked | ({} if shared else {"task": self._task.id})
            self._cache.keep(before, about, self._secrets.removed(raw))
        return raw

    async def _change(
        self, route: Route, arguments: dict[str, Any], asked: dict[str, Any], shared: bool, *more: Any
    ) -> dict[str, Any]:
        if shared:
            self._cache.changed.add(self._configs[route.server].key)
        self._changing += 1
        raw: Any = None
        try:
            raw = await super()._send(route, arguments, *more)
            return raw
        finally:
            self._changing -= 1
            # What came of it belongs to the state: a change that failed is another than one that did not.
            self._state = digest(canonical_json([after(self._state, asked), self._secrets.removed(raw)]))

    def _place(self, route: Route, asked: Mapping[str, Any], shared: bool) -> str | None:
        """Where the call's result stands in the cache; None while it may not be taken from there."""
        if self._changing and not shared or shared and self._configs[route.server].key in self._cache.changed:
            return None
        state = "" if shared else self._state
        return digest(canonical_json([state, self._listed[route.server], asked]))
