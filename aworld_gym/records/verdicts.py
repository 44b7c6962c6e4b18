"""Scorers that a task set is given by name, so that its description stays JSON.

=============  ======================================================================================================
``strict``     typed; the default. An answer that is a mapping is a specification (:mod:`aworld_gym.scorers`); a number,
               or a text that writes one, is compared as a number; any other text as words
``int`` ...    any type of :data:`aworld_gym.scorers.TYPES`: every answer is of that type
``official``   the public GAIA scorer, bit by bit
``exact``      character by character, white space around it aside
``number``     the last number that truth and answer hold: "... so 72" is 72, for worked solutions
=============  ======================================================================================================

A function is named ``package.module:function`` and called as ``function(truth, answer) -> float | Score``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import partial
from typing import Any

from aworld_gym import answers, scorers
from aworld_gym.errors import ConfigError, did_you_mean
from aworld_gym.imports import load
from aworld_gym.types import Score

Scorer = Callable[[Any, str], float | Score]

NAMES = ("strict", *scorers.TYPES, "official", "exact", "number")
"""Scorers by name."""

MAX_ANSWER = 100_000
"""Characters of an answer that ``exact`` and ``number`` read."""

_NUMBERS = re.compile(
    # Thousands in threes, or plain digits. Hyphens within a word or range are no signs.
    r"(?<![\w.])[-+−]?(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]{1,3})?"
    r"|(?<![\w.])[-+−]?\.[0-9]+"
)


def scorer_of(scorer: str | Scorer | None) -> Scorer:
    """The scorer of that name, or the function itself.

    Raises:
        ConfigError: no such name; those that exist are given.
    """
    if scorer is None:
        scorer = "strict"
    if callable(scorer):
        return scorer
    if not isinstance(scorer, str):
        raise ConfigError(f"a scorer is a name, an import path or a function, got {type(scorer).__name__}")
    if scorer in ("exact", "number"):
        return _exact if scorer == "exact" else _last_number
    if scorer in NAMES:
        return _strict if scorer == "strict" else _official if scorer == "official" else partial(_typed, scorer)
    if ":" not in scorer:
        raise ConfigError(
            f"the scorer is one of {', '.join(NAMES)}, or an import path like 'package.module:function', "
            f"got {scorer!r}.{did_you_mean(scorer, NAMES)}"
        )
    found = load(scorer)
    if not callable(found):
        raise ConfigError(f"{scorer!r} is no function of (truth, answer), but {type(found).__name__}")
    return found


def check_truth(scorer: str | Scorer | None, truth: Any) -> None:
    """Raise ConfigError where a named scorer could never make sense of that true answer."""
    if scorer in (None, "strict"):
        scorers.Truth.of(specification(truth))
    elif isinstance(scorer, str) and scorer in scorers.TYPES:
        scorers.Truth.of(specification(truth, scorer))
    elif scorer == "number":
        if _number_in(text_of(truth)) is None:
            raise ConfigError(f"the true answer {truth!r:.80} holds no number")
    elif scorer == "official":
        scorers.Truth.of({"text": text_of(truth)})
    elif scorer == "exact":
        text_of(truth)


def specification(truth: Any, kind: str | None = None) -> Mapping[str, Any]:
    """The typed specification of a true answer, as :mod:`aworld_gym.scorers` takes it.

    Args:
        truth: a specification (returned as it is), a text, a number or a list of them.
        kind: its type; where None it is seen from the truth: a number where it is or writes one (``007`` writes a
            code), a list where it is a list, words else.
    """
    if isinstance(truth, Mapping):
        if kind is not None and truth.get("type", kind) != kind:
            raise ConfigError(f"an answer of type {truth['type']!r}, and the scorer is {kind!r}")
        return truth if kind is None else {**truth, "type": kind}
    if isinstance(truth, list | tuple):
        if not truth:
            raise ConfigError("an answer that is a list needs at least one item")
        values = [text_of(item) for item in truth]
        items = "float" if all(_writes_number(value) for value in values) else "string"
        return {"type": "list", "values": values, "text": ", ".join(values), "items": items}
    text = text_of(truth)
    if kind is None:
        kind = "float" if _writes_number(text) else "string"
    return {"text": text, "type": kind}


def text_of(truth: Any) -> str:
    """A true answer as text: of a specification its ``text``; a whole float without ``.0``."""
    if isinstance(truth, Mapping) and "text" in truth:
        return text_of(truth["text"])
    if isinstance(truth, str):
        return truth.strip()
    if isinstance(truth, bool):
        return "true" if truth else "false"
    if isinstance(truth, float) and truth.is_integer() and abs(truth) < 2**53:
        return str(int(truth))
    if isinstance(truth, int | float):
        return repr(truth)
    raise ConfigError(f"an answer is a text, a number, a list of them, or a specification, got {truth!r:.80}")


def _writes_number(text: str) -> bool:
    return answers.read_number(text, ratios=False) is not None and re.match(r"[-+]?0[0-9]", text) is None


def _strict(truth: Any, answer: str) -> Score:
    return scorers.score(specification(truth), answer)


def _typed(kind: str, truth: Any, answer: str) -> Score:
    return scorers.score(specification(truth, kind), answer)


def _official(truth: Any, answer: str) -> Score:
    return scorers.score({"text": text_of(truth)}, answer, "official")


def _exact(truth: Any, answer: str) -> Score:
    right = answer.strip() == text_of(truth)
    return Score(float(right), "right" if right else "another text")


def _last_number(truth: Any, answer: str) -> Score:
    given = _number_in(answer[-MAX_ANSWER:])
    if given is None:
        return Score(0.0, "there is no number in the answer")
    right = given == _number_in(text_of(truth))
    return Score(float(right), "right" if right else "another number")


def _number_in(text: str) -> Fraction | None:
    """The last number in a text."""
    found = _NUMBERS.findall(text)
    if not found or len(found[-1]) > answers.MAX_CHARS:
        return None
    return Fraction(found[-1].replace(",", "").replace("−", "-"))
