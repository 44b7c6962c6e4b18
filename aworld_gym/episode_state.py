"""The state of one running episode, and the messages and records made from it. Not public: see ``env.py``."""

from __future__ import annotations

import copy
import hashlib
import math
import os
import time
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from aworld_gym.actions import Call, canonical_json
from aworld_gym.errors import INVALID_CALLS
from aworld_gym.types import Episode, Limits, Message, Outcome, StepRecord, Task, ToolResult

_MULTISET = 2**256


@dataclass
class Run:
    """The mutable state of one episode."""

    task: Task
    session: Any
    seed: int | None
    tools: list[dict[str, Any]]
    messages: list[Message]
    steps: list[StepRecord] = field(default_factory=list)
    turns: int = 0
    tool_calls: int = 0
    tokens: int = 0
    invalid_turns: int = 0
    outcome: Outcome | None = None
    score: float | None = None
    submitted: str | None = None
    error: str | None = None
    error_kind: str | None = None
    seen: int = 0
    """The multiset of (tool, arguments, result), as a sum of hashes: see :meth:`state_key`."""
    pid: int = field(default_factory=os.getpid)
    began: float = field(default_factory=time.monotonic)
    finalizer: weakref.finalize | None = None

    def seconds(self) -> float:
        """Wall-clock seconds since reset."""
        return time.monotonic() - self.began

    def after_turn(self, calls: list[Call], results: tuple[ToolResult, ...], limits: Limits) -> Outcome | None:
        """Count the turn and say whether it used something up."""
        self.tool_calls += len(calls)
        for call, result in zip(calls, results, strict=True):
            what = canonical_json([call.name, call.arguments, result.error, result.content])
            self.seen = (self.seen + int.from_bytes(_sha256(what).digest())) % _MULTISET
        invalid = bool(results) and all(result.error in INVALID_CALLS for result in results)
        self.invalid_turns = self.invalid_turns + 1 if invalid else 0
        if self.invalid_turns >= limits.max_invalid_turns:
            return Outcome.INVALID_CALLS
        return limits.reached(
            turns=self.turns + 1, tool_calls=self.tool_calls, tokens=self.tokens, seconds=self.seconds()
        )

    def state_key(self) -> str:
        """Hash of the task and the multiset of (tool, arguments, result): equal states of equal tasks share it.

        The multiset is hashed as the sum of its members' hashes (AdHash: Bellare and Micciancio, "A new paradigm for
        collision-free hashing", 1997), so that a step costs the same however long the episode is.
        """
        return digest(canonical_json([self.task.id, f"{self.seen:x}"]))

    def info(self, tool_errors: Mapping[str, int], reward: float = 0.0) -> dict[str, Any]:
        """The step's ``info``: nothing in it depends on a clock, and the true answer is not in it."""
        return {
            "task_id": self.task.id,
            "outcome": None if self.outcome is None else str(self.outcome),
            "valid": self.outcome is None or self.outcome.valid,
            "error": self.error_kind,
            "score": self.score,
            "reward_components": {"task": reward},
            "tool_errors": dict(sorted(tool_errors.items())),
            "state_key": self.state_key(),
        }

    def record(self, env_id: str) -> Episode:
        """The episode so far."""
        return Episode(
            env_id=env_id,
            task_id=self.task.id,
            seed=self.seed,
            prompt=tuple(copied(m) for m in self.messages[: self._prompt_length()]),
            tools=tuple(json_copy(self.tools)),
            steps=tuple(self.steps),
            outcome=self.outcome,
            score=self.score,
            submitted=self.submitted,
            answer=self.task.answer,
            error=self.error,
            error_kind=self.error_kind,
            task={"level": self.task.level, **self.task.metadata},
            duration_s=self.steps[-1].started_s + self.steps[-1].duration_s if self.steps else 0.0,
        )

    def _prompt_length(self) -> int:
        return next((k for k, m in enumerate(self.messages) if m["role"] in ("assistant", "tool")), len(self.messages))


def as_returned(step: StepRecord, reward: float, info: Mapping[str, Any]) -> StepRecord:
    """The env's record of a step with the reward that the outermost wrapper returned, and its components."""
    components = {name: float(value) for name, value in info["reward_components"].items()}
    unnamed = reward - math.fsum(components.values())
    if abs(unnamed) > 1e-9:  # a foreign wrapper changed the reward
        components["other_wrappers"] = unnamed
    return replace(step, reward=reward, components=components)


def tool_message(result: ToolResult) -> Message:
    """What the model sees of a result: text where that is all there is, else a list of content parts.

    A failed call is marked as such, whoever wrote its text: chat formats have no other place for it.
    """
    parts = [dict(part) for part in result.content]
    if result.error is not None and not result.text.lower().startswith("error"):
        parts = [{"type": "text", "text": f"Error: {result.text}"}, *(p for p in parts if p.get("type") != "text")]
    text_only = all(part.get("type") == "text" for part in parts)
    content: Any = "\n".join(part["text"] for part in parts) if text_only else json_copy(parts)
    # A made-up name may be of any length, and some templates show it.
    return {"role": "tool", "tool_call_id": result.call_id, "name": result.name[:64], "content": content}


def failed(call: Call, kind: str, text: str) -> ToolResult:
    """The result of a call that was not run."""
    return ToolResult(call.id, call.name, ({"type": "text", "text": text},), error=kind)


def copied(message: Message) -> Message:
    """A copy that shares nothing that anybody changes."""
    # Token ids can be long and are never changed: they are the one part that is kept by reference.
    sampled = message.get("sampled")
    copied = {key: json_copy(value) for key, value in message.items() if key != "sampled"}
    return copied if sampled is None else {**copied, "sampled": sampled}


def json_copy(value: Any) -> Any:
    """``copy.deepcopy`` of what JSON holds, in a fifth of the time: it has no cycles, and no aliases to keep."""
    kind = type(value)
    if kind is str or kind is int or kind is float or kind is bool or value is None:
        return value
    if kind is dict:
        return {key: json_copy(item) for key, item in value.items()}
    if kind is list:
        return [json_copy(item) for item in value]
    if kind is tuple:
        return tuple([json_copy(item) for item in value])
    return copy.deepcopy(value)


def digest(text: str) -> str:
    """Sixteen hex digits of the text's SHA-256."""
    return _sha256(text).hexdigest()[:16]


def _sha256(text: str) -> Any:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass"))
