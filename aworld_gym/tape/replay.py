"""Replaying: calls answered from a tape, without servers."""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from types import NoneType
from typing import Any

from aworld_gym.episode_state import json_copy
from aworld_gym.errors import INFRA_KINDS, ConfigError, InfraError, ReplayError, did_you_mean
from aworld_gym.redaction import Secrets
from aworld_gym.tape.base import PLAYING, Label, after, call_text, same_task
from aworld_gym.tape.files import no_line, of_kind, read_lines
from aworld_gym.toolchain import Toolchain
from aworld_gym.toolchain.connection import CallTimeout
from aworld_gym.toolchain.session import Route, ToolSession, ToolTable
from aworld_gym.toolchain.stats import counters
from aworld_gym.toolchain.toolchain import build_table
from aworld_gym.toolchain.workspace import Episode
from aworld_gym.types import Task

NEAREST = 3
"""Recorded calls that are named beside one that is not on the tape."""
_SHOWN = 300  # characters of a call in a message


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
        # By what servers are configured as: each env has a configuration of its own, equal to the others.
        self._tables: dict[tuple[str, tuple[str, ...], tuple[str, ...] | None], ToolTable] = {}
        self._secrets: dict[tuple[str, ...], Secrets] = {}
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
        servers = tuple(config.key for config in toolchain.config.servers)
        if servers not in self._secrets:
            self._secrets[servers] = Secrets.of(toolchain.config)
        grant = _NoServers(self._table(toolchain, servers, chosen), task.public)
        return _Replayed(grant, toolchain, self.path, candidates, self._secrets[servers], task.id)

    def __reduce__(self) -> Any:
        return Replay, (self.path,)

    def _read(self, where: str, lines: Sequence[Mapping[str, Any]]) -> None:
        sessions: dict[int, _Session] = {}
        for number, line in enumerate(lines, 1):
            try:
                match line["what"]:
                    case "tools":
                        self._servers[of_kind(line["listing"], str)] = _listed(line["servers"])
                    case "session":
                        label = Label(line["seed"], line["sample"], line["attempt"]) if "sample" in line else None
                        session = _Session(
                            index=len(self._sessions),
                            task=of_kind(line["task"], str),
                            key=of_kind(line["key"], str),
                            label=label,
                            listing=line.get("listing"),
                            failure=_failure(line),
                        )
                        if session.failure is None:
                            _ = self._servers[line["listing"]]  # which was written before
                        sessions[line["session"]] = session
                        self._sessions.append(session)
                        self._by_task[session.key].append(session)
                    case "call":
                        sessions[line["session"]].add(line)
            except (KeyError, TypeError) as error:
                raise no_line(where, number, error) from error

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
                f"task{'s' * (len(tasks) != 1)}.{did_you_mean(task.id, tasks)} Replay the seeds that were recorded."
            )
        label = PLAYING.get()

        def preference(session: _Session) -> tuple[bool, bool, bool, int, int]:
            same = label is not None and session.label is not None and session.label[:2] == label[:2]
            failed = session.failure is not None or session.failed
            return session.label != label or label is None, not same, failed, self._uses[session.index], session.index

        return sorted(found, key=preference)

    def _table(self, toolchain: Toolchain, keys: tuple[str, ...], session: _Session) -> ToolTable:
        """The tools as they were listed, under the names that this configuration gives them."""
        assert session.listing is not None  # only a session that failed has none
        servers = self._servers[session.listing]
        place = (session.listing, keys, toolchain.tools)
        if place not in self._tables:
            for config in toolchain.config.servers:
                if config.name not in servers:
                    hint = did_you_mean(config.name, servers)
                    raise ReplayError(
                        f"server {config.name!r} is not on the tape {self.path}, which has {', '.join(servers)}.{hint}"
                    )
            listed = {config.name: servers[config.name] for config in toolchain.config.servers}
            self._tables[place] = build_table(toolchain.config.servers, listed, toolchain.tools)
        return self._tables[place]


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
        self._state = after(self._state, asked)
        await asyncio.sleep(0)  # others get a turn, and a cancellation its place
        if outcome.failure is not None:
            raise _raised(outcome.failure)
        if outcome.timeout is not None:
            raise CallTimeout(outcome.timeout)
        assert outcome.result is not None
        return json_copy(outcome.result)

    def _outcome(self, asked: Mapping[str, Any]) -> _Outcome:
        """What the session that is followed was given, and from now on only those that were given the same."""
        place = (self._state, call_text(asked))
        able = [session for session in self._candidates if place in session.calls]
        if not able:
            raise ReplayError(self._miss(asked))
        outcome = able[0].calls[place]
        self._candidates = [session for session in able if session.calls[place] == outcome]
        return outcome

    def _miss(self, asked: Mapping[str, Any]) -> str:
        here = dict.fromkeys(text for s in self._candidates for state, text in s.calls if state == self._state)
        said = f"the tape {self._path} has no result for call {len(self._asked) + 1} of task {self._task_id!r}: "
        said += _shown(call_text(asked))
        if self._asked:
            said += f", after {_shown(call_text(self._asked[-1]))}"
        if here:
            near = sorted(here, key=lambda text: _distance(text, call_text(asked)))[:NEAREST]
            said += f". Recorded here: {'; '.join(map(_shown, near))}"
            said += f" and {len(here) - NEAREST} more" if len(here) > NEAREST else ""
        else:
            said += ". The recording of this task ends before this call"
            texts = dict.fromkeys(text for session in self._candidates for _, text in session.calls)
            if texts:
                said += f"; its nearest is {_shown(min(texts, key=lambda text: _distance(text, call_text(asked))))}"
        return said + ". A replay answers exactly what was recorded: play the same policy and seeds, or record anew."


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
        result, timeout = of_kind(line.get("result"), dict, NoneType), of_kind(line.get("timeout"), str, NoneType)
        outcome = _Outcome(result, timeout, _failure(line))
        if outcome == _Outcome():
            raise KeyError("result")
        self.failed = self.failed or outcome.failure is not None
        self.calls[of_kind(line["state"], str), call_text(line)] = outcome


def _listed(servers: Any) -> dict[str, list[dict[str, Any]]]:
    """Each server's tools, as a line has them; KeyError or TypeError where it has something else."""
    for tools in of_kind(servers, dict).values():
        for tool in of_kind(tools, list):
            of_kind(of_kind(tool, dict)["name"], str)
    checked: dict[str, list[dict[str, Any]]] = servers
    return checked


def _failure(line: Mapping[str, Any]) -> dict[str, Any] | None:
    """The failure that a line tells of, if any; KeyError or TypeError where it is none."""
    failure: dict[str, Any] | None = of_kind(line.get("failure"), dict, NoneType)
    if failure is not None:
        of_kind(failure["message"], str), of_kind(failure["server"], str, NoneType)
        if failure["kind"] not in INFRA_KINDS:
            raise TypeError(f"{failure['kind']!r} is no kind of failure")
    return failure


def _shown(text: str) -> str:
    server, tool, arguments = json.loads(text)
    said = f"{server}.{tool}({json.dumps(arguments, ensure_ascii=False)})"
    return said if len(said) <= _SHOWN else f"{said[: _SHOWN - 1]}…"


def _distance(one: str, other: str) -> tuple[bool, float]:
    """Small for calls that resemble each other; the same tool first."""
    same_tool = json.loads(one)[:2] == json.loads(other)[:2]
    return not same_tool, -SequenceMatcher(None, one[:2000], other[:2000]).ratio()


def _raised(failure: Mapping[str, Any]) -> InfraError:
    return InfraError(failure["kind"], failure["message"], server=failure["server"])
