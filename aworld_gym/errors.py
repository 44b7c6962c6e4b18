"""The failure model, stated once.

Three kinds of things go wrong, and they never mix:

1. **The caller's mistake** (a broken config, an unknown task id, an action that is not a message): raises
   :class:`ConfigError`, :class:`UnknownTaskError` or :class:`ActionError` at once (:class:`PolicyError` where a
   rollout's policy is at fault, :class:`ReplayError` where a recording does not have what is played), saying what was
   expected, what came and what to do.
2. **The model's mistake, or a tool's refusal** (malformed JSON, an unknown tool, wrong arguments, a tool that
   fails or is too slow): never raises. It is a :class:`~aworld_gym.types.ToolResult` whose ``error`` is one of
   :data:`CALL_ERRORS`, which the model sees and may recover from.
3. **Infrastructure** (a server died, a session was lost, a host refused): :class:`InfraError`, whose ``kind`` is
   one of :data:`INFRA_KINDS`. It ends an episode as ``infra_failure`` and is never a reward.

What could not be written (a full disk, a closed pipe) is none of these: :class:`OutputError` ends a run, and spoils no
episode.

Names are ``<domain>_<condition>``. Whether something may be retried is a separate question, answered by
``InfraError.delivered``: a call is repeated only if it certainly did not reach the server, or the tool says
that repeating it is harmless.
"""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

CALL_ERRORS = (
    "call_invalid_json",  # the arguments, or the whole call, are not JSON
    "call_malformed",  # JSON, but not a tool call (no name, duplicate keys, unclosed, ...)
    "call_unknown_tool",
    "call_bad_arguments",  # the arguments do not fit the tool's schema
    "call_over_limit",  # more calls in one message than are run
    "tool_error",  # the tool ran and reported a failure (MCP isError)
    "tool_timeout",  # the tool did not answer within its deadline
)
"""Kinds of failed calls: what the model did wrong (``call_*``) or what a tool refused (``tool_*``)."""

INVALID_CALLS = frozenset(kind for kind in CALL_ERRORS if kind.startswith("call_"))
"""Those that count as invalid calls of the model."""

INFRA_KINDS = (
    "server_start_failed",
    "server_died",
    "server_protocol",  # it answers, but not MCP
    "session_lost",
    "session_timeout",
    "tools_unavailable",  # the tool list is empty or could not be read
    "host_unreachable",
    "host_refused",  # 401, 403, 503
    "worker_lost",  # the process, or the machine, that played the episode
    "env_failed",  # anything else in env or task set-up
)
"""Kinds of infrastructure failures."""


class AWorldGymError(Exception):
    """Base of every error this package raises on purpose."""


class ConfigError(AWorldGymError, ValueError):
    """A configuration that cannot work; the message names the fix."""


class UnknownTaskError(AWorldGymError, KeyError):
    """A task id that the task source does not have."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class ActionError(AWorldGymError, TypeError):
    """An action that is not an assistant message: the caller's mistake, not the model's."""


class PolicyError(AWorldGymError, RuntimeError):
    """A policy that raised, or gave what is not an action: the caller's bug; the cause is chained.

    Episodes that had finished are not lost: they are in the journal, and in ``finished``.
    """

    finished: tuple[object, ...] = ()
    """The :class:`~aworld_gym.types.Episode` records that were complete when the policy failed."""


class ReplayError(AWorldGymError, LookupError):
    """What was recorded does not fit what is played: a call that is not on the tape, or one that gave something else.

    Nothing that was measured is touched by it. The message names the first difference.
    """


class OutputError(AWorldGymError, OSError):
    """Episodes or results could not be written: a full disk, a closed pipe; the cause is chained.

    What was written before is whole.
    """


class MissingDependencyError(AWorldGymError, ImportError):
    """An optional dependency is absent; the message names the extra to install."""


class InfraError(AWorldGymError, RuntimeError):
    """Tools or host failed. Never the model's fault, never a reward.

    Args:
        kind: one of :data:`INFRA_KINDS`.
        message: what happened, with the server's own words where there are any.
        server: the name of the server in the ``mcpServers`` config.
        delivered: False if the request certainly never reached the server; True or None otherwise.
        retry_after_s: seconds after which whoever refused asks to be tried again; None where that was not said.
    """

    def __init__(
        self,
        kind: str,
        message: str,
        *,
        server: str | None = None,
        delivered: bool | None = None,
        retry_after_s: float | None = None,
    ):
        if kind not in INFRA_KINDS:
            raise ValueError(f"unknown infrastructure failure {kind!r}; one of {INFRA_KINDS}")
        super().__init__(message)
        self.kind, self.server, self.delivered = kind, server, delivered
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        where = f" [{self.server}]" if self.server else ""
        return f"{self.kind}{where}: {self.args[0]}"

    def __reduce__(self):  # keyword-only arguments survive pickling, so workers can report it
        return _rebuild_infra_error, (self.kind, self.args[0], self.server, self.delivered, self.retry_after_s)


def _rebuild_infra_error(
    kind: str, message: str, server: str | None, delivered: bool | None, retry_after_s: float | None = None
) -> InfraError:
    return InfraError(kind, message, server=server, delivered=delivered, retry_after_s=retry_after_s)


@contextmanager
def boundary(kind: str, *, server: str | None = None, delivered: bool | None = None, what: str = "") -> Iterator[None]:
    """Turn whatever leaves the block into the vocabulary above; ``what`` begins the message.

    Errors of this package pass through. So does a cancellation that was asked for; a ``CancelledError`` that
    nobody asked for (the MCP client raises one when its transport breaks) is a failure like any other.
    """
    said = f"{what}: " if what else ""
    try:
        yield
    except AWorldGymError:
        raise
    except asyncio.CancelledError as error:
        task = asyncio.current_task() if _loop_running() else None
        if task is None or task.cancelling():
            raise
        raise InfraError(kind, said + describe(error), server=server, delivered=delivered) from error
    except Exception as error:
        raise InfraError(kind, said + describe(error), server=server, delivered=delivered) from error
    except BaseExceptionGroup as group:
        stop = group.subgroup((KeyboardInterrupt, SystemExit, GeneratorExit))
        if stop is not None:
            raise
        raise InfraError(kind, said + describe(group), server=server, delivered=delivered) from group


def describe(error: BaseException, limit: int = 500) -> str:
    """One line that names the innermost causes of ``error``, groups unfolded."""
    names = dict.fromkeys(f"{type(e).__name__}: {e}" if str(e) else type(e).__name__ for e in leaves(error))
    text = "; ".join(names)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def why(error: OSError) -> str:
    """The operating system's own words: ``No space left on device``."""
    return error.strerror or str(error) or type(error).__name__


def did_you_mean(name: str, known: Iterable[str], *, limit: int = 3) -> str:
    """`` Did you mean …?`` for names close to ``name``, or an empty string."""
    close = difflib.get_close_matches(name, list(known), n=limit)
    return f" Did you mean {' or '.join(repr(c) for c in close)}?" if close else ""


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The exceptions within the groups that ``error`` may be; itself where it is none."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves(inner)
    else:
        yield error


def _loop_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
