"""The gates that a proposal passes to become a task, and what two of them ask: was it there before, is it known?"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aworld_gym import answers

ACCEPTED = "accepted"
GATES: Mapping[str, str] = {
    "malformed": "no proposal: not JSON, no such tool, arguments that do not fit its schema",
    "repeated": "the same question or solution as an accepted task's, or nearly the same question",
    "failed": "its solution does not run, or ends in no answer of its type",
    "unstable": "a second run, in a fresh session, made other calls or ended in another answer",
    "answerable": "the answer stands in the question, or the model knows it without tools",
}
"""What drops a proposal, in the order in which it is looked for; one that falls at none is :data:`ACCEPTED`."""


@dataclass
class _Known:
    question: str
    pairs: frozenset[tuple[str, str]]


class Seen:
    """What was accepted so far, to tell repetitions.

    Args:
        similarity: questions are nearly the same where this share of all their pairs of neighbouring words is common
            to both (Jaccard's index of word bigrams).
    """

    def __init__(self, similarity: float):
        self._similarity = similarity
        self._questions: list[_Known] = []
        self._keys: dict[str, str] = {}

    def add(self, question: str, *keys: str) -> None:
        """Remember an accepted task by its question and its solution's keys."""
        self._questions.append(_Known(question, _pairs(question)))
        self._keys.update(dict.fromkeys(keys, question))

    def repeats(self, question: str, *keys: str) -> str | None:
        """Why it is a repetition; None where it is none."""
        for key in keys:
            if key in self._keys:
                return f"the solution of {self._keys[key]!r}"
        pairs = _pairs(question)
        for known in self._questions:
            common = len(pairs & known.pairs)
            if common >= self._similarity * (len(pairs) + len(known.pairs) - common):
                return f"nearly the question {known.question!r}"
        return None


def told_by_question(question: str, answer: Mapping[str, Any]) -> bool:
    """Whether the answer, if it is words, stands in the question as it is.

    A number or date may stand there for another reason, and the model is asked anyway.
    """
    if answer["type"] not in ("string", "code"):
        return False
    words, told = (re.findall(r"\w+", answers.fold(text)) for text in (question, str(answer["text"])))
    return bool(told) and any(words[i : i + len(told)] == told for i in range(len(words) - len(told) + 1))


def _pairs(question: str) -> frozenset[tuple[str, str]]:
    """The pairs of neighbouring words, beginning and end included, so that a question of one word has some."""
    words = ["", *re.findall(r"\w+", answers.fold(question)), ""]
    return frozenset(zip(words, words[1:], strict=False))
