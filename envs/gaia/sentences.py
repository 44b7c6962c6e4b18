"""The sentences of questions, around the noun phrase that says what is asked for (:mod:`envs.gaia.wording`).

A prompt is a line of sentences, then (where the task has files) a blank line and ``Attached files: a.csv, b.zip``. Of
the sentences exactly one is the question: one of :data:`FRAMES` around one noun phrase. The others are known by
heart: an opener (:data:`OPENERS`), the rule about the atlas (:data:`ATLAS`) where the question needs the local web,
definitions (:data:`LETS`), each of which gives a noun phrase one of :data:`ROLES` as a short name that later
sentences use, and a hint at the answer's form (:data:`HINTS`). Sentences are parted by one space, and within a noun
phrase no full stop or question mark is followed by a space.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

_THING = (
    "What is {}?",
    "Find {}.",
    "Work out {}.",
    "Please tell me {}.",
    "I need to know {}.",
    "Can you tell me {}?",
    "Determine {}.",
    "I am looking for {}.",
    "Please find {}.",
    "Could you work out {}?",
)
FRAMES: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        "thing": _THING,
        "person": (
            "Who is {}?",
            "Find out who is {}.",
            "Name {}.",
            "Please tell me who is {}.",
            "I need to know who is {}.",
            "Can you tell me who is {}?",
            "Determine who is {}.",
            "I am looking for {}.",
            "Please name {}.",
        ),
        "names": (
            "Which are {}?",
            "Find {}.",
            "Name {}.",
            "Please tell me {}.",
            "I need to know {}.",
            "Can you name {}?",
            "Determine {}.",
            "I am looking for {}.",
            "Please list {}.",
        ),
    }
)
"""Frames of a question; ``{}`` is its noun phrase. All but persons and lists of names take those of ``thing``."""

HINTS: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        "int": (
            "Answer with a whole number.",
            "Give a whole number, without units or separators.",
            "The answer is a plain whole number.",
            "Write the number in digits, without a unit.",
            "Answer with a whole number and nothing else.",
        ),
        "float": (
            "Round to {decimals}.",
            "Give the number rounded to {decimals}.",
            "Answer with a number, to {decimals}.",
            "The answer is a number with {decimals}.",
            "Write the result with {decimals}.",
        ),
        "date": (
            "Answer as YYYY-MM-DD.",
            "Write the date as YYYY-MM-DD.",
            "Give an ISO date (YYYY-MM-DD).",
            "The answer is a date, written as YYYY-MM-DD.",
        ),
        "text": (
            "Answer with the name only.",
            "Give just the name.",
            "The answer is one name.",
            "Write only the name.",
        ),
        "person": (
            "Answer with first and last name.",
            "Give the full name.",
            "The answer is a person's full name.",
            "Write first and last name.",
        ),
        "code": (
            "Answer with the code only.",
            "Give just the code.",
            "The answer is one code.",
            "Write only the code.",
        ),
        "names": (
            "Give the names in alphabetical order, separated by commas.",
            "List the names alphabetically, separated by commas.",
            "Answer with the names in alphabetical order and commas between them.",
        ),
    }
)
"""Hints at the form of the answer, by its kind; ``{decimals}`` is ``1 decimal``, ``2 decimals``, ..."""

ROLES: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        "entity": ("the candidate", "the contender", "the suspect", "the runner-up", "the favourite"),
        "date": ("the key date", "the cut-off day", "the reference day", "the day in question"),
        "number": ("the base figure", "the other figure", "the quota", "the extra figure"),
        "text": ("the cue", "the token", "the passphrase", "the keyword"),
    }
)
"""Short names that definitions give, by what they name; each stands for one thing, and means nothing by itself."""
LETS = (
    "Let {role} be {phrase}.",
    "By {role} we mean {phrase}.",
    "In what follows, {role} is {phrase}.",
    "Here {role} means {phrase}.",
)
"""Definitions: each stands before the sentences that use its role."""

OPENERS = (
    "This is for a report.",
    "A colleague asked me this.",
    "I have a question about the material.",
    "Please check this carefully.",
    "We could not settle this ourselves.",
    "Somebody wants this by tonight.",
)
"""Sentences that say nothing."""

ATLAS = (
    "Facts are as the atlas on the local web gives them.",
    "Take facts from the atlas (the local web), not from memory.",
    "The atlas on the local web has the facts, and only what it says counts.",
    "What the atlas on the local web says counts as true.",
)
