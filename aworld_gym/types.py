"""The contract: the records that every other module passes around.

Everything here is a frozen dataclass (or an enum) that validates on construction and can be turned
into JSON and back. There is no behaviour beyond that: no I/O, no tool calls, no scoring.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from aworld_gym.errors import ConfigError, did_you_mean

Message = dict[str, Any]
"""An OpenAI-style chat message: ``role``, ``content`` and, by role, ``tool_calls`` or ``tool_call_id``."""


class Outcome(StrEnum):
    """How an episode ended. Closed: consumers may match on it exhaustively."""

    ANSWERED = "answered"
    """The model submitted an answer."""
    NO_ANSWER = "no_answer"
    """The model wrote a message without tool calls and without an answer: it stopped."""
    INVALID_CALLS = "invalid_calls"
    """The allowance of consecutive turns without one valid call was used up."""
    MAX_TURNS = "max_turns"
    MAX_TOOL_CALLS = "max_tool_calls"
    MAX_TOKENS = "max_tokens"
    """A token limit, of the env or of the consumer that samples (context or completion length)."""
    TIMEOUT = "timeout"
    """The episode's wall-clock limit."""
    CANCELLED = "cancelled"
    """The consumer gave the episode up before it ended (interrupt, shutdown)."""
    INFRA_FAILURE = "infra_failure"
    """Tools or host failed in a way the model is not to blame for. Never a measurement."""

    @property
    def terminated(self) -> bool:
        """True where the model ended the episode (Gymnasium's ``terminated``)."""
        return self in (Outcome.ANSWERED, Outcome.NO_ANSWER, Outcome.INVALID_CALLS)

    @property
    def valid(self) -> bool:
        """True where the episode's reward is a measurement of the model."""
        return self not in (Outcome.INFRA_FAILURE, Outcome.CANCELLED)


@dataclass(frozen=True)
class Limits:
    """What one episode may use. ``None`` means unlimited."""

    max_turns: int | None = 20
    """Assistant messages."""
    max_tool_calls: int | None = 100
    """Tool calls over the episode, invalid ones included."""
    max_calls_per_turn: int = 16
    """Calls run of one message; those beyond are answered with an error and not run."""
    max_invalid_turns: int = 3
    """Consecutive turns in which calls were made and none was valid."""
    max_tokens: int | None = None
    """Sampled tokens over the episode, counted where actions carry ``sampled``."""
    max_seconds: float | None = None
    """Wall-clock seconds from reset. Off by default: a clock makes an episode irreproducible."""
    call_timeout_s: float = 30.0
    """Seconds one tool call may take."""
    open_timeout_s: float = 60.0
    """Seconds a toolchain session may take to open."""
    max_result_chars: int = 20_000
    """Text of one tool result beyond this is cut, with a notice that says how much is missing."""

    def __post_init__(self) -> None:
        for f in dataclasses.fields(self):
            value = getattr(self, f.name)
            if value is None and f.name in ("max_turns", "max_tool_calls", "max_tokens", "max_seconds"):
                continue
            if "int" in f.type and not isinstance(value, int):
                raise ConfigError(f"Limits.{f.name} is a count: expected a whole number, got {value!r}")
            if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
                raise ConfigError(f"Limits.{f.name} must be a positive number, got {value!r}")

    def reached(self, *, turns: int, tool_calls: int, tokens: int, seconds: float) -> Outcome | None:
        """The limit that is used up, if one is."""
        for limit, used, outcome in (
            (self.max_turns, turns, Outcome.MAX_TURNS),
            (self.max_tool_calls, tool_calls, Outcome.MAX_TOOL_CALLS),
            (self.max_tokens, tokens, Outcome.MAX_TOKENS),
            (self.max_seconds, seconds, Outcome.TIMEOUT),
        ):
            if limit is not None and used >= limit:
                return outcome
        return None

    @classmethod
    def of(cls, value: Limits | Mapping[str, Any] | None) -> Limits:
        """``value`` as limits: as it is, from a mapping of field names (JSON), or the defaults."""
        if value is None:
            return cls()
        if isinstance(value, cls):
            return value
        known = [f.name for f in dataclasses.fields(cls)]
        if not isinstance(value, Mapping):
            raise ConfigError(f"limits must be a Limits or a mapping of its fields, got {type(value).__name__}")
        for name in value:
            if name not in known:
                raise ConfigError(f"unknown limit {name!r}; known are {', '.join(known)}.{did_you_mean(name, known)}")
        return cls(**value)


@dataclass(frozen=True)
class PlanStep:
    """One tool call of a task's oracle plan."""

    tool: str
    arguments: Mapping[str, Any]
    shows: tuple[str, ...] = ()
    """Facts (verbatim substrings) that this call's result shows; progress is the share that was shown."""
    content: str = ""
    """What a demonstrator would write beside the call."""


@dataclass(frozen=True)
class Task:
    """One task. ``answer``, ``plan`` and ``metadata`` never reach the model or a tool server."""

    id: str
    """Unique within the task source; ``source.get(id)`` rebuilds the same task."""
    prompt: str
    """The question, as the user message."""
    answer: Any = None
    """The true answer, in whatever form the source's scorer takes; None where there is none (no reward)."""
    public: Mapping[str, Any] = field(default_factory=dict)
    """JSON that tool servers may know (for example which corpus to serve)."""
    level: int | None = None
    plan: tuple[PlanStep, ...] = ()
    """The oracle's tool calls in order, the submission included; empty where no oracle exists."""
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, value in (("id", self.id), ("prompt", self.prompt)):
            if not isinstance(value, str):
                raise ConfigError(f"a task's {name} is a text, got {type(value).__name__}: {value!r:.80}")
        for step in self.plan:
            if not isinstance(step, PlanStep):
                raise ConfigError(f"the plan of task {self.id!r} is made of PlanStep, got {step!r:.80}")


@dataclass(frozen=True)
class Score:
    """A scorer's verdict."""

    value: float
    """In [0, 1]; 1 is right."""
    reason: str = ""

    def __post_init__(self) -> None:
        if not (isinstance(self.value, int | float) and math.isfinite(self.value) and 0.0 <= self.value <= 1.0):
            raise ValueError(f"a score is a finite number in [0, 1], got {self.value!r}")


@dataclass(frozen=True)
class ToolResult:
    """What one tool call gave, kept whole; the observation's tool message is made from it."""

    call_id: str
    name: str
    """The tool's name as the model sees it."""
    content: tuple[Mapping[str, Any], ...]
    """OpenAI content parts: ``{"type": "text", "text"}`` or ``{"type": "image_url", "image_url": {"url"}}``."""
    error: str | None = None
    """None, or the kind of failure: one of :data:`aworld_gym.errors.CALL_ERRORS`."""
    structured: Any = None
    """MCP's ``structuredContent``, untouched."""
    cut_chars: int = 0
    """Characters of text left out of ``content``."""
    duration_s: float = 0.0

    @property
    def text(self) -> str:
        """The text parts, joined by newlines."""
        return "\n".join(part["text"] for part in self.content if part.get("type") == "text")


@dataclass(frozen=True)
class StepRecord:
    """One step: what the model did, what the tools gave, what it earned."""

    index: int
    action: Message
    results: tuple[ToolResult, ...]
    observation: tuple[Message, ...]
    reward: float
    components: Mapping[str, float]
    """Sums to ``reward``."""
    state_key: str
    started_s: float = 0.0
    """Seconds since the episode's reset."""
    duration_s: float = 0.0

    @property
    def sampled(self) -> Mapping[str, Any] | None:
        """``{"token_ids", "logprobs", "model_version"}`` as the action carried it."""
        return self.action.get("sampled")


@dataclass(frozen=True)
class Episode:
    """One episode, whole. Stable key: (task_id, seed, sample, attempt, agent_id, parent and fork, step index)."""

    env_id: str
    task_id: str
    seed: int | None
    attempt: int = 0
    """0 for the first try; an infrastructure failure may be tried again in a fresh env."""
    group_id: str | None = None
    sample: int = 0
    """Which of its group's episodes (same task and seed) this is, from 0."""
    agent_id: str = "agent"
    parent: str | None = None
    """Key of the episode this one was forked or spawned from."""
    forked_at: int = 0
    """Steps that a fork took over from its parent; its own begin here."""
    trainable: bool = True
    prompt: tuple[Message, ...] = ()
    """The messages that reset returned."""
    tools: tuple[Mapping[str, Any], ...] = ()
    """OpenAI tool schemas, as the model saw them."""
    steps: tuple[StepRecord, ...] = ()
    outcome: Outcome | None = None
    """None while the episode runs."""
    score: float | None = None
    """The unshaped task score; None where the task has no answer or the episode is not valid."""
    submitted: str | None = None
    answer: Any = None
    error: str | None = None
    """For ``infra_failure``: what failed."""
    error_kind: str | None = None
    """For ``infra_failure``: which kind, one of :data:`aworld_gym.errors.INFRA_KINDS`."""
    spec: str | None = None
    """The ``EnvSpec`` as JSON, wrappers included."""
    task: Mapping[str, Any] = field(default_factory=dict)
    """Level, template and other task metadata, for breakdowns."""
    versions: Mapping[str, str] = field(default_factory=dict)
    duration_s: float = 0.0

    @property
    def valid(self) -> bool:
        """True where the rewards measure the model."""
        return self.outcome is not None and self.outcome.valid

    @property
    def total_reward(self) -> float:
        """The episode's return: the plain sum of step rewards."""
        return float(sum(step.reward for step in self.steps))

    @property
    def key(self) -> str:
        """The stable key as text; a fork's ends with where it was forked."""
        fork = f"|{self.parent}#{self.forked_at}" if self.parent is not None else ""
        return f"{self.task_id}|{self.seed}|{self.sample}|{self.attempt}|{self.agent_id}{fork}"

    def to_dict(self) -> dict[str, Any]:
        """A JSON-serialisable dict; ``from_dict`` is its inverse."""
        data: dict[str, Any] = json.loads(self.to_json())
        return data

    def to_json(self) -> str:
        """``to_dict`` as one line of ASCII JSON, made in one pass without copying the records first."""
        return json.dumps(_fields(self) | {"valid": self.valid, "return": self.total_reward}, default=_plain)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The episode that ``to_dict`` gave ``data`` for; unknown keys are ignored (newer writers).

        Raises:
            TypeError, ValueError, KeyError or AttributeError: it gave no such thing.
        """
        known = {f.name for f in dataclasses.fields(cls)}
        fields = {k: v for k, v in data.items() if k in known}
        fields["prompt"] = tuple(fields.get("prompt", ()))
        fields["tools"] = tuple(fields.get("tools", ()))
        fields["steps"] = tuple(_step(s) for s in fields.get("steps", ()))
        if fields.get("outcome") is not None:
            fields["outcome"] = Outcome(fields["outcome"])
        for name in ("task", "versions"):
            if not isinstance(fields.get(name, {}), Mapping):
                raise TypeError(f"{name} is no object: {fields[name]!r:.100}")
        return cls(**fields)


@dataclass(frozen=True)
class EpisodeContext:
    """What a tool server may know of the episode it serves. Never the answer."""

    workspace: Path
    """The episode's own directory: the task's files, and whatever tools write."""
    public: Mapping[str, Any] = field(default_factory=dict)
    """``Task.public``."""


def _step(data: Mapping[str, Any]) -> StepRecord:
    known = {f.name for f in dataclasses.fields(StepRecord)}
    fields = {k: v for k, v in data.items() if k in known}
    fields["results"] = tuple(ToolResult(**{**r, "content": tuple(r["content"])}) for r in fields["results"])
    fields["observation"] = tuple(fields["observation"])
    return StepRecord(**fields)


def _fields(record: Any) -> dict[str, Any]:
    return {f.name: getattr(record, f.name) for f in dataclasses.fields(record)}


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _fields(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset | tuple):
        return sorted(value) if not isinstance(value, tuple) else list(value)
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "tolist"):  # numpy scalars and arrays
        return value.tolist()
    raise TypeError(f"an episode record holds JSON values only, got {type(value).__name__}: {value!r}")
