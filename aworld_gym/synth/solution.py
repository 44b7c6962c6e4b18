"""Running a proposal's solution: the tools, not the model that proposed it, say what the answer is."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aworld_gym.actions import canonical_json
from aworld_gym.errors import ConfigError, InfraError
from aworld_gym.records.files import RecordFile, write_all
from aworld_gym.records.verdicts import specification, text_of
from aworld_gym.scorers import Truth
from aworld_gym.synth.proposal import Place, Proposal
from aworld_gym.toolchain import Toolchain
from aworld_gym.toolchain.content import NO_OUTPUT
from aworld_gym.types import PlanStep, ToolResult

MAX_ANSWER = 200
"""Characters of an answer: nobody can be asked to say more exactly."""
_SHOWN = 200


class Unsolved(Exception):
    """The solution does not lead to an answer; the message says where it ends."""


@dataclass(frozen=True)
class Solution:
    """What a run of a proposal's solution gave."""

    answer: Mapping[str, Any]
    """The typed specification of the answer."""
    plan: tuple[PlanStep, ...]
    """The calls as they were made, without the submission."""

    @property
    def text(self) -> str:
        """The answer as one would write it."""
        return str(self.answer["text"])

    @property
    def key(self) -> str:
        """Equal for runs that made the same calls and ended in the same answer."""
        return canonical_json([[[s.tool, s.arguments] for s in self.plan], self.answer])


@dataclass
class _Run:
    """Results so far, and what was taken out of each."""

    results: list[ToolResult] = field(default_factory=list)
    taken: list[list[str]] = field(default_factory=list)

    def value(self, place: Place) -> Any:
        """What stands at a place; Unsolved where there is nothing."""
        try:
            return self._value(place)
        except RecursionError:
            raise Unsolved(f"the result of step {place.step} is nested too deep") from None

    def _value(self, place: Place) -> Any:
        result = self.results[place.step - 1]
        value = _pointed(result, place) if place.pointer is not None else _between(result.text, place)
        if place.number and isinstance(value, str):
            try:
                value = json.loads(value.strip().replace(",", ""))
            except ValueError:
                value = None
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise Unsolved(f"what stands at the place in the result of step {place.step} is no number")
        for text in [value] if isinstance(value, str) else _leaves(value):
            if text and text in result.text:
                self.taken[place.step - 1].append(text)
        return value


async def solve(toolchain: Toolchain, proposal: Proposal, files: Sequence[RecordFile] = ()) -> Solution:
    """Run a proposal's calls in a session of their own, and read the answer.

    Args:
        toolchain: the tools. Runs on the package's loop.
        proposal: what to run.
        files: put into the session's workspace first.

    Raises:
        Unsolved: a call failed, a place is empty, or what stands there is no answer of the proposal's type.
        InfraError: the tools could not be started.
    """
    session = await toolchain.open()
    try:
        await asyncio.to_thread(write_all, files, session.workspace)
        run, plan = _Run(), []
        for number, step in enumerate(proposal.steps, 1):
            arguments = {name: _filled(value, run) for name, value in step.arguments.items()}
            try:
                result = await session.call(f"step_{number}", step.tool, arguments)
            except InfraError as error:  # a server that a call kills says nothing that could be asked for
                raise Unsolved(f"step {number} ({step.tool}): {error}") from error
            if result.error is not None:
                raise Unsolved(f"step {number} ({step.tool}): {result.text[:_SHOWN]}")
            run.results.append(result)
            run.taken.append([])
            plan.append((step.tool, arguments))
        answer = _answer(proposal, run.value(proposal.answer))
    finally:
        await session.aclose()
    return Solution(
        answer,
        tuple(
            PlanStep(tool, arguments, shows=tuple(dict.fromkeys(taken)))
            for (tool, arguments), taken in zip(plan, run.taken, strict=True)
        ),
    )


def _answer(proposal: Proposal, value: Any) -> Mapping[str, Any]:
    """The specification of the answer, of the type that was proposed; Unsolved where it is none."""
    if value is None or isinstance(value, Mapping) or value in ([], "", NO_OUTPUT):
        raise Unsolved(f"the answer is {'empty' if not isinstance(value, Mapping) else 'an object'}")
    try:
        if isinstance(value, list):
            if proposal.type != "list":
                raise Unsolved(f"the answer is a list, and `type` is {proposal.type!r}")
            spec = specification(value)
        else:
            spec = specification(text_of(value), proposal.type)
        if proposal.unit is not None:
            spec = {**spec, "unit": proposal.unit}
        Truth.of(spec)
    except ConfigError as error:
        raise Unsolved(str(error)) from error
    if len(spec["text"]) > MAX_ANSWER or "\n" in spec["text"]:
        raise Unsolved(f"the answer is longer than {MAX_ANSWER} characters, or several lines")
    return spec


def _pointed(result: ToolResult, place: Place) -> Any:
    """The value at a JSON pointer: in the text that a model sees, or in structured content that the text shows."""
    try:
        data = json.loads(result.text)
    except (ValueError, RecursionError):
        if result.structured is None:
            raise Unsolved(f"the result of step {place.step} is no JSON: {result.text[:_SHOWN]!r}") from None
        value = _at(result.structured, place)
        if any(leaf not in result.text for leaf in _leaves(value)):
            raise Unsolved(f"the text of step {place.step}'s result does not show {place.pointer!r}") from None
        return value
    return _at(data, place)


def _at(data: Any, place: Place) -> Any:
    for part in (place.pointer or "").split("/")[1:]:
        part = part.replace("~1", "/").replace("~0", "~")
        if isinstance(data, Mapping) and part in data:
            data = data[part]
        elif isinstance(data, list) and part.isdecimal() and int(part) < len(data):
            data = data[int(part)]
        else:
            raise Unsolved(f"there is nothing at {place.pointer!r} in the result of step {place.step}")
    return data


def _between(text: str, place: Place) -> str:
    start = text.find(place.after)
    if start < 0:
        raise Unsolved(f"{place.after!r} does not stand in the result of step {place.step}: {text[:_SHOWN]!r}")
    rest = text[start + len(place.after) :]
    end = rest.find(place.before) if place.before else len(rest)
    if end < 0:
        raise Unsolved(f"{place.before!r} does not stand behind {place.after!r} in the result of step {place.step}")
    return rest[:end].strip()


def _filled(value: Any, run: _Run) -> Any:
    if isinstance(value, Place):
        return run.value(value)
    if isinstance(value, Mapping):
        return {name: _filled(item, run) for name, item in value.items()}
    return [_filled(item, run) for item in value] if isinstance(value, list) else value


def _leaves(value: Any) -> list[str]:
    """The texts and numbers in a JSON value, as texts."""
    if isinstance(value, Mapping):
        return [leaf for item in value.values() for leaf in _leaves(item)]
    if isinstance(value, list):
        return [leaf for item in value for leaf in _leaves(item)]
    return [] if value is None or isinstance(value, bool) else [value if isinstance(value, str) else json.dumps(value)]
