"""A scripted language model for task synthesis: proposals by the round, answers by the question, over real HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from chat_endpoint import ChatEndpoint, Reply, completion, refusal

from aworld_gym.policies import OpenAIPolicy
from aworld_gym.synth import prompts


class SynthModel(ChatEndpoint):
    """Use it as a context manager.

    Args:
        rounds: the reply to each request for proposals: a list of them, or a text as it is. After the last, an empty
            list.
        known: what it answers without tools, by question; else it does not know.
        calls: the sample calls that it proposes.
        broken_from: the number of the round at which it begins to refuse everything.
    """

    def __init__(
        self,
        rounds: Sequence[Any],
        known: Mapping[str, str] | None = None,
        calls: Sequence[Any] | str = (),
        broken_from: int | None = None,
    ):
        self.proposed: list[str] = []
        """The users' texts of the requests for proposals."""
        self.asked: list[str] = []
        self.explored: list[str] = []
        self._rounds, self._known, self._sample_calls = rounds, known or {}, calls
        self._broken_from, self._turn = broken_from, threading.Lock()
        super().__init__(self._answer)

    @property
    def policy(self) -> OpenAIPolicy:
        """The model as a client has it."""
        return OpenAIPolicy("scripted", base_url=self.url, retries=0)

    def _answer(self, body: dict[str, Any], number: int) -> Reply:
        system, user = (message["content"] for message in body["messages"])
        with self._turn:
            if system == prompts.EXPLORE:
                self.explored.append(user)
                return completion({"content": _text(self._sample_calls)})
            if system == prompts.ASK:
                self.asked.append(user)
                return completion({"content": f"<answer>{self._known.get(user, 'no idea')}</answer>"})
            assert system == prompts.PROPOSE and not body.get("tools")
            turn = len(self.proposed)
            if self._broken_from is not None and turn >= self._broken_from:
                return refusal(403, "out of credit")
            self.proposed.append(user)
            return completion({"content": _text(self._rounds[turn] if turn < len(self._rounds) else [])})


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def proposal(question: str, *steps: tuple[str, dict[str, Any]], answer: Any = None, **more: Any) -> dict[str, Any]:
    """A proposal as a model writes it; the answer is the last step's whole text where nothing else is said."""
    return {
        "question": question,
        "steps": [{"tool": tool, "arguments": arguments} for tool, arguments in steps],
        "answer": answer or {"step": len(steps)},
        **more,
    }
