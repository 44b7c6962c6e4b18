"""One proposal through the gates that ask nothing of other proposals: run it, run it again, ask without tools."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from aworld_gym import scorers
from aworld_gym.actions import final_answer
from aworld_gym.errors import ConfigError
from aworld_gym.policies.chat_format import reply_message, wire_messages
from aworld_gym.policies.endpoint import OpenAIPolicy
from aworld_gym.records.files import RecordFile
from aworld_gym.synth import prompts
from aworld_gym.synth.gates import ACCEPTED, told_by_question
from aworld_gym.synth.proposal import Malformed, Proposal
from aworld_gym.synth.settings import Settings
from aworld_gym.synth.solution import Solution, Unsolved, solve
from aworld_gym.toolchain import Toolchain
from aworld_gym.types import Message


@dataclass(frozen=True)
class Verdict:
    """What became of a proposal."""

    gate: str
    """The gate at which it falls, or ACCEPTED."""
    reason: str = ""
    solution: Solution | None = None
    """Of one that falls at none."""


MAX_REPLY = 1_000_000
"""Characters of a reply that are read and kept: each stands in the record, however much a model goes on."""


async def evaluate(
    proposal: Proposal | Malformed,
    toolchain: Toolchain,
    llm: OpenAIPolicy,
    files: Sequence[RecordFile],
    settings: Settings,
) -> Verdict:
    """The verdict, repetitions left aside.

    Raises:
        InfraError: the tools could not be started, or the model failed.
    """
    if isinstance(proposal, Malformed):
        return Verdict("malformed", str(proposal))
    try:
        first = await solve(toolchain, proposal, files)
    except Unsolved as error:
        return Verdict("failed", str(error))
    await asyncio.sleep(settings.gap_s)
    try:
        second = await solve(toolchain, proposal, files)
    except Unsolved as error:
        return Verdict("unstable", f"the second run failed: {error}")
    if second.key != first.key:
        differs = "other calls" if second.text == first.text else f"first {first.text!r}, then {second.text!r}"
        return Verdict("unstable", differs)
    if told_by_question(proposal.question, first.answer):
        return Verdict("answerable", "the answer stands in the question")
    known = await _known(proposal.question, first, llm, settings.closed_book)
    return Verdict(ACCEPTED, "", first) if known is None else Verdict("answerable", known)


async def said(llm: OpenAIPolicy, messages: list[Message]) -> str:
    """The text of the model's reply; of one without an end its first :data:`MAX_REPLY` characters.

    Raises:
        ConfigError: the prompt does not fit its context. InfraError: it failed, retries included.
    """
    completion = await llm.complete(wire_messages(messages), ())
    if completion is None:
        raise ConfigError("the prompt does not fit the model's context; offer fewer tools (--tool)")
    return str(reply_message(completion, turn=0).get("content") or "")[:MAX_REPLY]


async def _known(question: str, solution: Solution, llm: OpenAIPolicy, times: int) -> str | None:
    """Which answer the model gave without tools, if one was right."""
    for reply in await asyncio.gather(*(said(llm, prompts.ask(question)) for _ in range(times))):
        answer = final_answer({"role": "assistant", "content": reply})
        answer = reply.strip() if answer is None else answer
        if scorers.score(solution.answer, answer).value == 1.0:
            return f"without tools the model said {answer[:80]!r}"
    return None
