"""Two verdicts on an answer: ``official``, as the public GAIA scorer gives it, and ``strict``, which is right.

``official`` is for comparing with published scores. It agrees with the public scorer on every text, faults included;
the rules are written out at :func:`official`.

``strict`` knows what kind of thing the answer is. Its specification is JSON::

    {"text": "17", "type": "int", "unit": "km"}

with ``text`` (the true answer, as one would write it), ``type``, and by type:

=========  ====================================================================================================
int        ``unit`` (may stand with the answer or not; another unit is wrong)
float      ``unit``; ``tolerance`` (absolute), ``rel_tolerance`` (default 1e-9); ``decimals``: how many the question
           asks for, where it does (an answer with more is wrong); a ratio such as 7/2 is taken where the truth is no
           whole number and no ``decimals`` are asked for
string     case, accents, quotes, prose punctuation do not count; ``aliases``: other true texts
code       character by character, but for a full stop at the end; ``case``: whether case counts (default false);
           ``aliases``
date       ISO text, whole or year and month or year; any unambiguous way to write it is taken
list       ``values``: the true items where ``text`` cannot just be split at commas or semicolons; ``ordered``
           (default true); ``items``: a type, or a specification without text, for the items (default string)
=========  ====================================================================================================

A score is 1 or 0, with a reason that never tells the true answer.
"""

from __future__ import annotations

import math
import re
import string
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal

from aworld_gym import answers
from aworld_gym.errors import ConfigError, did_you_mean
from aworld_gym.types import Score

TYPES = ("int", "float", "string", "code", "date", "list")
SCORERS = ("strict", "official")
MAX_ANSWER = 2000
"""Characters of an answer, or ten times those of the truth; longer ones are not read."""
MAX_TRUTH = 100_000
"""Characters of a true answer."""
MAX_ITEMS = 500

_DEFAULT_REL_TOLERANCE = 1e-9


def score(
    spec: Mapping[str, Any] | str, submitted: str | None, which: Literal["strict", "official"] | str = "strict"
) -> Score:
    """The verdict on a submitted answer.

    Args:
        spec: the specification of the true answer (see the module); a plain text means a string.
        submitted: what the model submitted; None where it did not.
        which: ``"strict"`` or ``"official"``.

    Raises:
        ConfigError: a specification that makes no sense, or an unknown scorer.
    """
    check_which(which)
    truth = Truth.of(spec)
    if submitted is None:
        return Score(0.0, "no answer was submitted")
    right, reason = _official(submitted, truth.text) if which == "official" else truth.judge(submitted)
    return Score(float(right), reason)


def check_which(which: str) -> str:
    """``which``, if there is such a scorer; raises ConfigError otherwise."""
    if which not in SCORERS:
        raise ConfigError(f"the scorer is one of {SCORERS}, got {which!r}.{did_you_mean(str(which), SCORERS)}")
    return which


@dataclass(frozen=True)
class Truth:
    """A checked specification of a true answer."""

    text: str
    type: str = "string"
    unit: str | None = None
    tolerance: float = 0.0
    rel_tolerance: float | None = None
    decimals: int | None = None
    case: bool = False
    aliases: tuple[str, ...] = ()
    values: tuple[str, ...] | None = None
    ordered: bool = True
    items: Mapping[str, Any] = field(default_factory=lambda: {"type": "string"})

    def __post_init__(self) -> None:
        if self.type == "list" and self.items.get("type", "string") == "list":
            raise ConfigError("the items of a list are no lists")
        if self.type not in TYPES:
            raise ConfigError(f"an answer's type is one of {TYPES}, got {self.type!r}.{did_you_mean(self.type, TYPES)}")
        if not isinstance(self.text, str) or not self.text.strip():
            raise ConfigError(f"an answer's text is a non-empty string, got {self.text!r}")
        for name in ("tolerance", "rel_tolerance"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int | float) and 0 <= value < math.inf):
                raise ConfigError(f"an answer's {name} is a number from 0, got {value!r}")
        if self.decimals is not None and (
            isinstance(self.decimals, bool) or not isinstance(self.decimals, int) or self.decimals < 0
        ):
            raise ConfigError(f"an answer's decimals are a whole number from 0, got {self.decimals!r:.80}")
        if self.unit is not None and not isinstance(self.unit, str):
            raise ConfigError(f"an answer's unit is a text, got {self.unit!r:.80}")
        for text in self.truths:
            if len(text) > MAX_TRUTH:
                raise ConfigError(f"an answer's text has at most {MAX_TRUTH:,} characters, got {len(text):,}")
            value = self._read(text)
            if value is None or (self.type == "int" and value.denominator != 1):
                raise ConfigError(f"the true answer {text!r} cannot be read as {self.type}")

    @classmethod
    def of(cls, spec: Mapping[str, Any] | str) -> Truth:
        """The truth of a JSON specification; raises ConfigError, naming the key that is wrong."""
        if isinstance(spec, str):
            return cls(spec)
        if not isinstance(spec, Mapping):
            raise ConfigError(f"an answer is a text or a mapping with 'text' and 'type', got {type(spec).__name__}")
        known = cls.__dataclass_fields__
        for key in spec:
            if key not in known:
                raise ConfigError(
                    f"unknown key {key!r} in an answer; known: {', '.join(known)}.{did_you_mean(key, known)}"
                )
        fields: dict[str, Any] = {
            key: _texts(key, value) if key in ("aliases", "values") and value is not None else value
            for key, value in spec.items()
        }
        if isinstance(fields.get("items"), str):
            fields["items"] = {"type": fields["items"]}
        if "text" not in fields and fields.get("values"):
            fields["text"] = ", ".join(fields["values"])
        if "text" not in fields:
            raise ConfigError(f"an answer needs 'text', got {sorted(spec)}")
        return cls(**fields)

    @property
    def truths(self) -> tuple[str, ...]:
        """The true text and its aliases."""
        return (self.text, *self.aliases)

    def judge(self, submitted: str) -> tuple[bool, str]:
        """Whether the strict scorer takes the answer, and why."""
        if len(submitted) > max(MAX_ANSWER, 10 * len(self.text)):
            return False, f"the answer is too long ({len(submitted):,} characters)"
        if self.type == "list":
            return self._judge_list(submitted)
        value, reason = self._understood(submitted)
        if value is None:
            return False, reason
        if any(self._equal(value, self._read(text)) for text in self.truths):
            return True, "right"
        return False, f"another {_NAMES[self.type]}"

    def _understood(self, submitted: str) -> tuple[Any, str]:
        """The answer as a value of this type; None and the reason where it is none."""
        if not submitted.strip():
            return None, "the answer is empty"
        value = self._read(submitted)
        if value is None:
            return None, f"not a {_NAMES[self.type]}{f' in {self.unit}' if self.unit else ''}: {submitted[:80]!r}"
        if self.type == "float" and self.decimals is not None and _decimals(value) > self.decimals:
            return None, f"more than the {self.decimals} decimals asked for"
        return value, ""

    def _read(self, text: str) -> Any:
        """The text as a value of this type; None where it is none."""
        match self.type:
            case "int" | "float":
                return answers.read_number(text, self.unit, ratios=self._takes_ratios)
            case "date":
                return answers.read_date(text)
            case "code":
                return answers.fold_code(text, case=self.case, stop=not self.text.rstrip().endswith("."))
            case "string":
                return answers.fold(text)
            case _:
                return [self._item(value) for value in self._true_items()]

    @property
    def _takes_ratios(self) -> bool:
        """7/2 is taken for 3.5; 34/2 for 17 or 1933/10 for "one decimal" is a sum that was not done."""
        if self.type != "float" or self.decimals is not None:
            return False
        value = answers.read_number(self.text, self.unit)
        return value is not None and value.denominator != 1

    def _equal(self, value: Any, truth: Any) -> bool:
        if self.type != "float":
            return bool(value == truth)
        relative = _DEFAULT_REL_TOLERANCE if self.rel_tolerance is None else self.rel_tolerance
        return abs(value - truth) <= max(Fraction(self.tolerance), Fraction(relative) * abs(truth))

    def _true_items(self) -> Sequence[str]:
        if self.values is not None:
            return self.values
        return [item.strip() for item in re.split(";" if ";" in self.text else ",", self.text)]

    def _item(self, text: str) -> Truth:
        return Truth.of({**self.items, "text": text})

    def _judge_list(self, submitted: str) -> tuple[bool, str]:
        truths = [self._item(text) for text in self._true_items()]
        values = [truth._read(truth.text) for truth in truths]
        reader = next((truth for truth in truths if not truth._takes_ratios), truths[0])
        reason = f"{len(truths)} items were expected"
        for items in answers.splits(submitted):
            if len(items) == len(truths) <= MAX_ITEMS:
                given = [reader._understood(item)[0] for item in items]
                wrong = None if None in given else self._mismatch(truths[0], values, given)
                if wrong == "":
                    return True, "right"
                reason = wrong or f"item {given.index(None) + 1} is empty or of another kind"
        return False, reason

    def _mismatch(self, item: Truth, values: Sequence[Any], given: Sequence[Any]) -> str:
        """What is wrong with the items; nothing where they are right."""
        if self.ordered:
            places = [i for i, (g, v) in enumerate(zip(given, values, strict=True), 1) if not item._equal(g, v)]
            return f"item {places[0]} is wrong" if places else ""
        if item.type == "float":
            return "" if _matching([[item._equal(g, v) for g in given] for v in values]) else "some items are wrong"
        return "" if Counter(given) == Counter(values) else "some items are wrong"


def _texts(key: str, value: Any) -> tuple[str, ...]:
    """A list of texts; a text alone is none, since each of its letters would be taken for a true answer."""
    if not isinstance(value, list | tuple) or not all(isinstance(text, str) for text in value):
        raise ConfigError(f"an answer's {key} are a list of texts, got {value!r:.80}")
    return tuple(value)


_NAMES = {"int": "number", "float": "number", "date": "date", "code": "code", "string": "text", "list": "list"}


def _decimals(value: Fraction) -> float:
    """Decimals it takes to write the value out; infinite for thirds and the like."""
    rest = value.denominator
    count = 0
    while rest % 10 == 0:
        rest, count = rest // 10, count + 1
    twos = fives = 0
    while rest % 2 == 0:
        rest, twos = rest // 2, twos + 1
    while rest % 5 == 0:
        rest, fives = rest // 5, fives + 1
    return count + max(twos, fives) if rest == 1 else math.inf


def _matching(fits: Sequence[Sequence[bool]]) -> bool:
    """Whether truths (rows) and items (columns) pair off; by augmenting paths, since tolerances may overlap."""
    owner: dict[int, int] = {}

    def place(i: int, seen: set[int]) -> bool:
        for j, fit in enumerate(fits[i]):
            if fit and j not in seen:
                seen.add(j)
                if j not in owner or place(owner[j], seen):
                    owner[j] = i
                    return True
        return False

    return all(place(i, set()) for i in range(len(fits)))


def official(answer: str | None, truth: str) -> bool:
    """The public GAIA scorer's verdict, for any two texts.

    * A truth that Python's ``float`` reads is a number: ``$``, ``%`` and ``,`` are taken out of the answer, which is
      read by ``float`` (infinity where that fails) and compared for equality.
    * Else a truth with a comma or semicolon is a list: both are split at each; of different lengths they differ (and
      a UserWarning is given); elements compare as numbers, in the same way, or as texts without white space and
      case, punctuation kept.
    * Else texts compare without white space, case and ASCII punctuation.

    An answer of None is the text ``None``.
    """
    right, reason = _official(answer, truth)
    if reason == _LENGTHS:
        warnings.warn(_LENGTHS, UserWarning, stacklevel=2)
    return right


_LENGTHS = "the lists have different lengths"


def _official(answer: str | None, truth: str) -> tuple[bool, str]:
    answer = "None" if answer is None else answer
    if _float(truth) is not None:
        return _number(answer) == float(truth), "compared as numbers"
    if "," not in truth and ";" not in truth:
        return _plain(answer, string.punctuation) == _plain(truth, string.punctuation), "compared as texts"
    given, true = (re.split("[,;]", text) for text in (answer, truth))
    if len(given) != len(true):
        return False, _LENGTHS
    same: Callable[[str, str], bool] = lambda a, t: (  # noqa: E731
        _plain(a) == _plain(t) if _float(t) is None else _number(a) == float(t)
    )
    return all(same(a, t) for a, t in zip(given, true, strict=True)), "compared item by item"


def _float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _number(text: str) -> float:
    value = _float(re.sub("[$%,]", "", text))
    return math.inf if value is None else value


def _plain(text: str, without: str = "") -> str:
    return re.sub(r"\s", "", text).lower().translate(dict.fromkeys(map(ord, without)))
