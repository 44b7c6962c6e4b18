"""A policy for comparison: it reads each attached file once, and answers with anything of the right form that it saw.

It is what a model without a thought reaches by using the right tools.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium as gym

from aworld_gym.policies.base import tool_call
from aworld_gym.types import Message

_TOOLS: Mapping[str, tuple[str, ...]] = {
    "csv": ("read_table",),
    "tsv": ("read_table",),
    "xlsx": ("read_table",),
    "sqlite": ("query_sqlite",),
    "png": ("describe_image", "read_qr"),
    "wav": ("decode_audio",),
    "py": ("run_python",),
    "zip": ("unpack_archive",),
}
_FORMS = (
    ("whole number", r"(?<![\w.-])\d+(?![\w-]|\.\d)"),
    ("number in digits", r"(?<![\w.-])\d+(?![\w-]|\.\d)"),
    ("decimal", r"\d+\.\d+"),
    ("YYYY-MM-DD", r"\d{4}-\d\d-\d\d"),
    ("code", r"\b(?=\w*\d)[A-Z][\w-]+"),
    ("name", r"[A-Z]\w+(?: [A-Z]\w+)*"),
)
"""What the hint at the end of a question says -> what answers look like."""
MOST_CALLS = 20


class GuessingReader:
    """Reads and guesses; what it guesses depends on the episode's seed and index alone."""

    name = "guessing reader"

    def episode(
        self,
        *,
        obs: tuple[Message, ...],
        info: Mapping[str, Any],
        seed: int | None,
        index: int,
        attempt: int,
        env: gym.Env,
    ) -> GuessingAgent:
        """An agent for one episode."""
        return GuessingAgent(str(obs[-1]["content"]), random.Random(f"{seed} {index}"))


class GuessingAgent:
    """Plays one episode of the prompt."""

    def __init__(self, prompt: str, rng: random.Random):
        self._prompt, self._rng = prompt, rng
        self._calls = list(_readings(prompt))[:MOST_CALLS]

    async def act(self, messages: tuple[Message, ...]) -> Message:
        """The next reading, and at last the guess."""
        if self._calls:
            name, arguments = self._calls.pop(0)
        else:
            seen = "\n".join(str(message["content"]) for message in messages if message["role"] == "tool")
            name, arguments = "submit_answer", {"answer": self._guess(seen)}
        return {"role": "assistant", "content": None, "tool_calls": [tool_call("call_0", name, arguments)]}

    def _guess(self, seen: str) -> str:
        pattern = next((pattern for words, pattern in _FORMS if words in self._prompt), _FORMS[-1][1])
        return self._rng.choice(re.findall(pattern, seen) or ["0"])


def _readings(prompt: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """A call for each attached file; without files, a search for the question."""
    question, _, attached = prompt.partition("\n\nAttached files: ")
    for path in filter(None, attached.split(", ")):
        for tool in _TOOLS.get(path.rpartition(".")[2], ("read_document",)):
            yield tool, {"path": path}
    if not attached:
        yield "search", {"query": question[-300:]}
