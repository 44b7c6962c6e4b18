"""Tool results on disk: recorded as episodes are played, and replayed without servers.

A tape is a folder. :class:`Recorder` writes what each call gave, as the server said it (before anything is cut for
the model), with what the call was and after which others of its episode it came. :class:`Replay` answers the same
calls from there, starts no server, and fails with :class:`~aworld_gym.errors.ReplayError` where something was never
asked. :class:`Cache` plays with live servers and spares them the calls of tools that say they only read.

An env plays from a tape once it was given one: ``attach(env, Replay("tape/"))``, or ``rollout(..., tape=...)``.

Where the tools are not deterministic, a call after the same calls may have given several results. A replay then stays
with what one recorded episode was given: of the same seed, sample and attempt where there is such a one, else of the
first that nobody has replayed yet. Values of the configuration or the environment that look like secrets (headers, and
what is called a key, token, secret or password) are replaced by their names before anything is written.
"""

from __future__ import annotations

import asyncio
import copy
import json
import logging
import os
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import gymnasium as gym

from aworld_gym.actions import canonical_json
from aworld_gym.episode_state import digest
from aworld_gym.errors import ConfigError, InfraError, ReplayError, did_you_mean
from aworld_gym.redaction import Secrets
from aworld_gym.tape_file import Writer, read_lines, same_task
from aworld_gym.toolchain import Toolchain
from aworld_gym.toolchain.connection import CallTimeout
from aworld_gym.toolchain.session import Route, ToolSession, ToolTable
from aworld_gym.toolchain.stats import counters
from aworld_gym.toolchain.toolchain import _build_table
from aworld_gym.toolchain.workspace import Episode
from aworld_gym.types import Task

log = logging.getLogger(__name__)


class Label(NamedTuple):
    """Which episode of a rollout a session serves."""

    seed: int | None
    sample: int
    attempt: int


PLAYING: ContextVar[Label | None] = ContextVar("aworld_gym_playing", default=None)
"""The episode that is being reset; None in loops of one's own."""

NEAREST = 3
"""Recorded calls that are named beside one that is not on the tape."""
_SHOWN = 300  # characters of a call in a message


class Tape(Protocol):
    """What an env asks for its sessions when it has one."""

    async def open(self, toolchain: Toolchain, task: Task) -> ToolSession:
        """One episode's tools."""


E = TypeVar("E", bound=gym.Env)


def attach(env: E, tape: Tape | None) -> E:
    """The env, which takes its tools through ``tape`` from its next reset on (None: from its servers alone).

    Raises:
        ConfigError: the env is no tool env.

    Example:
        >>> import gymnasium as gym, aworld_gym
        >>> from aworld_gym.tape import Recorder, attach
        >>> env = attach(gym.make("AWorld/Gaia-v0"), Recorder("runs/tape"))  # doctest: +SKIP
    """
    if not hasattr(env.unwrapped, "tape"):
        raise ConfigError(f"only a tool env has tools to be recorded; got {type(env.unwrapped).__name__}")
    env.unwrapped.tape = tape
    return env


class Recorder:
    """Writes every tool result to a folder.

    A call's line is written as it ends, so a killed process loses no finished call. Failures are recorded too (what a
    tool reported, calls that timed out, servers that died), and a replay repeats them.

    Args:
        path: the folder; it is made with the first session.
        extend: add to a tape that has sessions already.

    Raises:
        ConfigError: the folder has a tape and ``extend`` is false, or it cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str], *, extend: bool = False):
        self.path, self._extend = Path(path), extend
        self._writer = Writer(self.path, extend=extend)
        self._sessions = 0
        self._listings: set[str] = set()

    async def open(self, toolchain: Toolchain, task: Task) -> ToolSession:
        """A session of the toolchain, recorded."""
        number, self._sessions = self._sessions, self._sessions + 1
        label, secrets = PLAYING.get(), Secrets.of(toolchain.config)
        about = {"what": "session", "session": number, "task": task.id, "key": same_task(task)}
        about |= {} if label is None else label._asdict()
        try:
            session = await toolchain.open(public=task.public)
        except InfraError as error:
            self._writer.write(about | {"failure": _failure(error, secrets)})
            raise
        servers = secrets.removed(_listings(session))
        listing = digest(canonical_json(servers))
        if listing not in self._listings:
            self._listings.add(listing)
            self._writer.write({"what": "tools", "listing": listing, "servers": servers})
        self._writer.write(about | {"listing": listing})
        return _Recorded(session, self._writer, secrets, {"what": "call", "session": number}, same_task(task))

    def close(self) -> None:
        """Synchronise and close the file; nothing can be recorded any more."""
        self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def __reduce__(self) -> Any:  # another process writes a file of its own beside this one
        return _extending, (self.path,)


class Replay:
    """Answers calls from a tape. Starts no server; the workspace and the task's files are there as ever.

    Args:
        path: the folder of a recording.

    Raises:
        ConfigError: there is no tape, or a line of it cannot be read.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)
        self._sessions: list[_Session] = []
        self._by_task: dict[str, list[_Session]] = defaultdict(list)
        self._servers: dict[str, Mapping[str, list[dict[str, Any]]]] = {}
        self._tables: dict[tuple[str, int, tuple[str, ...] | None], tuple[Any, ToolTable]] = {}
        self._uses: Counter[int] = Counter()
        for where, lines in read_lines(self.path):
            self._read(where, lines)
        if not self._sessions:
            raise ConfigError(f"the tape {self.path} has no sessions: record one with --record (tape.Recorder)")

    def __len__(self) -> int:
        """How many sessions are on the tape."""
        return len(self._sessions)

    async def open(self, toolchain: Toolchain, task: Task) -> ToolSession:
        """A session that answers from the tape.

        Raises:
            ReplayError: the task, or a server of the configuration, was not recorded.
            InfraError: what the tape says of this attempt is that its tools could not be started.
        """
        candidates = self._candidates(task)
        chosen = candidates[0]
        self._uses[chosen.index] += 1
        if chosen.failure is not None:
            raise _raised(chosen.failure)
        table = self._table(toolchain, chosen)
        return _Replayed(
            _NoServers(table, task.public), toolchain, self.path, candidates, Secrets.of(toolchain.config), task.id
        )

    def __reduce__(self) -> Any:
        return Replay, (self.path,)

    def _read(self, where: str, lines: Sequence[Mapping[str, Any]]) -> None:
        sessions: dict[int, _Session] = {}
        for number, line in enumerate(lines, 1):
            try:
                match line["what"]:
                    case "tools":
                        self._servers[line["listing"]] = line["servers"]
                    case "session":
                        label = Label(line["seed"], line["sample"], line["attempt"]) if "sample" in line else None
                        session = _Session(
                            index=len(self._sessions),
                            task=line["task"],
                            key=line["key"],
                            label=label,
                            listing=line.get("listing"),
                            failure=line.get("failure"),
                        )
                        sessions[line["session"]] = session
                        self._sessions.append(session)
                        self._by_task[session.key].append(session)
                    case "call":
                        sessions[line["session"]].add(line)
            except (KeyError, TypeError) as error:
                raise ConfigError(
                    f"{where}:{number} is not a line of a tape ({type(error).__name__}: {error})"
                ) from error

    def _candidates(self, task: Task) -> list[_Session]:
        """The recorded sessions of the task, the one to follow first."""
        found = self._by_task.get(same_task(task))
        if not found:
            if any(session.task == task.id for session in self._sessions):
                raise ReplayError(
                    f"the tape {self.path} has task {task.id!r}, but with another prompt or other public data: it is "
                    "of another version of the task; record it anew"
                )
            tasks = dict.fromkeys(session.task for session in self._sessions)
            raise ReplayError(
                f"task {task.id!r} is not on the tape {self.path}, which has {len(tasks)} "
                f"task{'s' * (len(tasks) != 1)}.{did_you_mean(task.id, tasks)} Replay the seeds that were recorded"
            )
        label = PLAYING.get()

        def preference(session: _Session) -> tuple[bool, bool, bool, int, int]:
            same = label is not None and session.label is not None and session.label[:2] == label[:2]
            failed = session.failure is not None or session.failed
            return session.label != label or label is None, not same, failed, self._uses[session.index], session.index

        return sorted(found, key=preference)

    def _table(self, toolchain: Toolchain, session: _Session) -> ToolTable:
        """The tools as they were listed, under the names that this configuration gives them."""
        assert session.listing is not None  # only a session that failed has none
        servers = self._servers[session.listing]
        place = (session.listing, id(toolchain.config), toolchain.tools)
        if place not in self._tables:
            for config in toolchain.config.servers:
                if config.name not in servers:
                    hint = did_you_mean(config.name, servers)
                    raise ReplayError(
                        f"server {config.name!r} is not on the tape {self.path}, which has {', '.join(servers)}.{hint}"
                    )
            listed = {config.name: servers[config.name] for config in toolchain.config.servers}
            table = _build_table(toolchain.config.servers, listed, toolchain.tools)
            self._tables[place] = (toolchain.config, table)  # the configuration is kept: ids are reused
        return self._tables[place][1]


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
        for _, lines in read_lines(self.path, missing_ok=True):
            self.results.update((line["place"], line["result"]) for line in lines if line.get("what") == "cached")
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


def _extending(path: Path) -> Recorder:
    return Recorder(path, extend=True)


class _Recorded(ToolSession):
    """A session whose calls are written down."""

    def __init__(self, inner: ToolSession, writer: Writer, secrets: Secrets, line: Mapping[str, Any], state: str):
        super().__init__(inner._grant, inner._limits, inner._owner)
        self._writer, self._secrets, self._line, self._state = writer, secrets, line, state

    async def _send(self, route: Route, arguments: dict[str, Any], *more: Any) -> dict[str, Any]:
        asked = {"server": route.server, "tool": route.tool, "arguments": self._secrets.removed(arguments)}
        line = {**self._line, "state": self._state, **asked}
        self._state = _after(self._state, asked)
        try:
            raw = await super()._send(route, arguments, *more)
        except CallTimeout as timeout:
            self._writer.write(line | {"timeout": self._secrets.removed(str(timeout))})
            raise
        except InfraError as error:
            self._writer.write(line | {"failure": _failure(error, self._secrets)})
            raise
        self._writer.write(line | {"result": self._secrets.removed(raw)})
        return raw


class _Replayed(ToolSession):
    """A session that asks nobody."""

    def __init__(
        self,
        grant: _NoServers,
        toolchain: Toolchain,
        path: Path,
        candidates: list[_Session],
        secrets: Secrets,
        task_id: str,
    ):
        super().__init__(grant, toolchain.limits, toolchain)  # type: ignore[arg-type]
        self._path, self._candidates, self._secrets, self._task_id = path, candidates, secrets, task_id
        self._asked: list[dict[str, Any]] = []
        self._state = candidates[0].key

    async def _send(self, route: Route, arguments: dict[str, Any], *more: Any) -> dict[str, Any]:
        if self._grant.released:
            raise InfraError("session_lost", "the tool session is closed", server=route.server, delivered=False)
        asked = {"server": route.server, "tool": route.tool, "arguments": self._secrets.removed(arguments)}
        outcome = self._outcome(asked)
        self._asked.append(asked)
        self._state = _after(self._state, asked)
        await asyncio.sleep(0)  # others get a turn, and a cancellation its place
        if outcome.failure is not None:
            raise _raised(outcome.failure)
        if outcome.timeout is not None:
            raise CallTimeout(outcome.timeout)
        assert outcome.result is not None
        return copy.deepcopy(outcome.result)

    def _outcome(self, asked: Mapping[str, Any]) -> _Outcome:
        """What the session that is followed was given, and from now on only those that were given the same."""
        place = (self._state, _text(asked))
        able = [session for session in self._candidates if place in session.calls]
        if not able:
            raise ReplayError(self._miss(asked))
        outcome = able[0].calls[place]
        self._candidates = [session for session in able if session.calls[place] == outcome]
        return outcome

    def _miss(self, asked: Mapping[str, Any]) -> str:
        here = dict.fromkeys(text for s in self._candidates for state, text in s.calls if state == self._state)
        said = f"the tape {self._path} has no result for call {len(self._asked) + 1} of task {self._task_id!r}: "
        said += _shown(_text(asked))
        if self._asked:
            said += f", after {_shown(_text(self._asked[-1]))}"
        if here:
            near = sorted(here, key=lambda text: _distance(text, _text(asked)))[:NEAREST]
            said += f". Recorded here: {'; '.join(map(_shown, near))}"
            said += f" and {len(here) - NEAREST} more" if len(here) > NEAREST else ""
        else:
            said += ". The recording of this task ends before this call"
            texts = dict.fromkeys(text for session in self._candidates for _, text in session.calls)
            if texts:
                said += f"; its nearest is {_shown(min(texts, key=lambda text: _distance(text, _text(asked))))}"
        return said + ". A replay answers exactly what was recorded: play the same policy and seeds, or record anew"


class _Cached(ToolSession):
    """A session that spares its servers what only reads."""

    def __init__(self, inner: ToolSession, cache: Cache, toolchain: Toolchain, task: Task):
        super().__init__(inner._grant, inner._limits, inner._owner)
        self._cache, self._secrets, self._task = cache, Secrets.of(toolchain.config), task
        self._configs = {config.name: config for config in toolchain.config.servers}
        tools = self._secrets.removed(_listings(inner))
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
            return copy.deepcopy(dict(self._cache.results[before]))
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
            self._state = digest(canonical_json([_after(self._state, asked), self._secrets.removed(raw)]))

    def _place(self, route: Route, asked: Mapping[str, Any], shared: bool) -> str | None:
        """Where the call's result stands in the cache; None while it may not be taken from there."""
        if self._changing and not shared or shared and self._configs[route.server].key in self._cache.changed:
            return None
        state = "" if shared else self._state
        return digest(canonical_json([state, self._listed[route.server], asked]))


class _NoServers:
    """What a replayed session holds instead of leases: a workspace, and the tools as they were listed."""

    def __init__(self, table: ToolTable, public: Mapping[str, Any]):
        self.table, self.episode = table, Episode()
        self.episode.begin(public, write=False)
        self.leases: dict[str, Any] = {}
        self.pid = os.getpid()
        self.released = False
        counters.opened += 1

    async def release(self) -> None:
        if not self.released and self.pid == os.getpid():
            self.released = True
            try:
                await self.episode.remove()
            finally:
                counters.closed += 1


@dataclass(frozen=True)
class _Outcome:
    """What a call came to: one of the three."""

    result: dict[str, Any] | None = None
    timeout: str | None = None
    failure: dict[str, Any] | None = None


class _Session:
    """A recorded session."""

    def __init__(
        self,
        *,
        index: int,
        task: str,
        key: str,
        label: Label | None,
        listing: str | None,
        failure: dict[str, Any] | None,
    ):
        self.index, self.task, self.key, self.label = index, task, key, label
        self.listing, self.failure = listing, failure
        self.failed = False
        self.calls: dict[tuple[str, str], _Outcome] = {}
        """By the state before the call, and the call."""

    def add(self, line: Mapping[str, Any]) -> None:
        """One call more."""
        outcome = _Outcome(line.get("result"), line.get("timeout"), line.get("failure"))
        if outcome == _Outcome():
            raise KeyError("result")
        self.failed = self.failed or outcome.failure is not None
        self.calls[line["state"], _text(line)] = outcome


def _after(state: str, asked: Mapping[str, Any]) -> str:
    """The state of an episode after a call: a hash of the task and of all calls so far, in order."""
    return digest(f"{state}\n{_text(asked)}")


def _text(asked: Mapping[str, Any]) -> str:
    return canonical_json([asked["server"], asked["tool"], asked["arguments"]])


def _shown(text: str) -> str:
    server, tool, arguments = json.loads(text)
    said = f"{server}.{tool}({json.dumps(arguments, ensure_ascii=False)})"
    return said if len(said) <= _SHOWN else f"{said[: _SHOWN - 1]}…"


def _distance(one: str, other: str) -> tuple[bool, float]:
    """Small for calls that resemble each other; the same tool first."""
    from difflib import SequenceMatcher

    same_tool = json.loads(one)[:2] == json.loads(other)[:2]
    return not same_tool, -SequenceMatcher(None, one[:2000], other[:2000]).ratio()


def _listings(session: ToolSession) -> dict[str, list[dict[str, Any]]]:
    return {name: lease.connection.tools for name, lease in session._grant.leases.items()}


def _failure(error: InfraError, secrets: Secrets) -> dict[str, Any]:
    return {"kind": error.kind, "message": secrets.removed(str(error.args[0])), "server": error.server}


def _raised(failure: Mapping[str, Any]) -> InfraError:
    return InfraError(failure["kind"], failure["message"], server=failure["server"])
