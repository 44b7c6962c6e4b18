"""What a vLLM server answers to a completion request that asked for ids, read strictly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeGuard

MOST_IDS = 2**31
"""More than any vocabulary has; tokenizers fail at larger ids, and a model's own rows may be more than theirs."""
FINISHES = ("stop", "length")
"""Why a continuation ends; any other reason (``abort``, ``error``) says that the server broke it off."""


@dataclass(frozen=True)
class Reply:
    """One continuation."""

    ids: list[int]
    """What was sampled, the stop id included; at least one."""
    logprobs: list[float]
    """One for each id; not finite where the server could not give it."""
    prompt_ids: list[int]
    """What the server took for the prompt."""
    finish: str
    listed: dict[str, float]
    """The log-probabilities that were listed at the first id, by text."""

    @classmethod
    def read(cls, body: Any, prompt: Sequence[int] | None, limit: int) -> Self | None:
        """The continuation in the body of a reply.

        Args:
            body: the JSON value.
            prompt: the ids that were sent; None where text was.
            limit: the most ids that were asked for.

        Returns:
            None where it is not what was asked for.
        """
        choices = body.get("choices") if isinstance(body, dict) else None
        choice = choices[0] if isinstance(choices, list) and len(choices) == 1 else None
        if not isinstance(choice, dict) or choice.get("finish_reason") not in FINISHES:
            return None
        ids, prompt_ids = choice.get("token_ids"), choice.get("prompt_token_ids")
        if not _are_ids(ids) or not 1 <= len(ids) <= limit or not _are_ids(prompt_ids):
            return None
        if prompt is not None and prompt_ids != list(prompt):
            return None
        given = choice.get("logprobs")
        if not isinstance(given, Mapping):
            return None
        logprobs, listed = given.get("token_logprobs"), given.get("top_logprobs")
        if not isinstance(logprobs, list) or len(logprobs) != len(ids):
            return None
        first = listed[0] if isinstance(listed, list) and listed else None
        listing = {str(text): _number(value) for text, value in first.items()} if isinstance(first, Mapping) else {}
        return cls(ids, [_number(value) for value in logprobs], prompt_ids, choice["finish_reason"], listing)


def _are_ids(value: Any) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(i) is int and 0 <= i < MOST_IDS for i in value)


def _number(value: Any) -> float:
    try:
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else float("nan")
    except OverflowError:  # an integer of hundreds of digits
        return float("nan")
