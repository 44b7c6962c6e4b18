"""Texts: counts, cases, codes, hashes, likeness."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import unicodedata
from typing import Annotated, Literal
from urllib.parse import quote, unquote

from pydantic import Field

from envs.gaia.mcp_tools import Tool
from envs.gaia.tools.base import ToolFault, clip

MAX_TEXT = 10_000
_SOUNDEX = {c: str(n) for n, letters in enumerate(("BFPV", "CGJKQSXZ", "DT", "L", "MN", "R"), 1) for c in letters}
_SPELLING = dict(
    zip(
        "abcdefghijklmnopqrstuvwxyz",
        (
            "Alfa Bravo Charlie Delta Echo Foxtrot Golf Hotel India Juliett Kilo Lima Mike November Oscar Papa Quebec "
            "Romeo Sierra Tango Uniform Victor Whiskey Xray Yankee Zulu"
        ).split(),
        strict=True,
    )
)

Text = Annotated[str, Field(max_length=MAX_TEXT)]
Short = Annotated[str, Field(min_length=1, max_length=200)]


def text_statistics(text: Text) -> str:
    """Counts of a text."""
    words = re.findall(r"\w+", text)
    sentences = [part for part in re.split(r"[.!?]+", text) if part.strip()]
    mean = f"{sum(map(len, words)) / len(words):.2f}" if words else "0"
    return (
        f"characters {len(text)}, words {len(words)}, sentences {len(sentences)}, lines {len(text.splitlines())}, "
        f"mean word length {mean}"
    )


def change_case(text: Text, case: Literal["upper", "lower", "title", "snake", "camel", "kebab"]) -> str:
    """A text in another case."""
    if case in ("upper", "lower", "title"):
        return {"upper": text.upper(), "lower": text.lower(), "title": text.title()}[case]
    words = [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+", text)]
    if case == "camel":
        return "".join(word if i == 0 else word.capitalize() for i, word in enumerate(words))
    return ("_" if case == "snake" else "-").join(words)


def hash_text(text: Text, algorithm: Literal["md5", "sha1", "sha256", "sha512"] = "sha256") -> str:
    """A checksum of a text in UTF-8."""
    return hashlib.new(algorithm, text.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()


def encode_base64(text: Text) -> str:
    """A text in UTF-8 as base64."""
    return base64.b64encode(text.encode("utf-8", "surrogatepass")).decode("ascii")


def decode_base64(text: Text) -> str:
    """The text that base64 stands for."""
    try:
        return base64.b64decode(text, validate=True).decode("utf-8")
    except (binascii.Error, ValueError):
        raise ToolFault("this is no base64 of a text in UTF-8") from None


def url_encode(text: Text, decode: bool = False) -> str:
    """A text with percent escapes, or without."""
    return unquote(text) if decode else quote(text.encode("utf-8", "replace"), safe="")


def caesar_shift(text: Text, shift: Annotated[int, Field(ge=-25, le=25)]) -> str:
    """A text with each letter moved along the alphabet."""

    def moved(c: str) -> str:
        if not (c.isascii() and c.isalpha()):
            return c
        first = ord("A") if c.isupper() else ord("a")
        return chr((ord(c) - first + shift) % 26 + first)

    return "".join(map(moved, text))


def are_anagrams(first: Short, second: Short) -> str:
    """Whether two texts have the same letters."""
    a, b = (sorted(c for c in text.casefold() if c.isalnum()) for text in (first, second))
    return "yes" if a == b and first.casefold() != second.casefold() else "no"


def edit_distance(first: Short, second: Short) -> str:
    """The fewest insertions, deletions and replacements that turn one text into the other (Levenshtein)."""
    row = list(range(len(second) + 1))
    for i, a in enumerate(first, 1):
        diagonal, row[0] = row[0], i
        for j, b in enumerate(second, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (a != b))
    return str(row[-1])


def soundex_code(name: Short) -> str:
    """The American Soundex code of a name."""
    letters = [c for c in unicodedata.normalize("NFD", name).upper() if "A" <= c <= "Z"]
    if not letters:
        raise ToolFault("a name has at least one letter")
    code, last = letters[0], _SOUNDEX.get(letters[0])
    for letter in letters[1:]:
        digit = _SOUNDEX.get(letter)
        if digit and digit != last:
            code += digit
        if letter not in "HW":  # they do not part two letters of one sound
            last = digit
    return (code + "000")[:4]


def spell_out(word: Short) -> str:
    """A word in the international spelling alphabet."""
    return " ".join(_SPELLING.get(c, c) for c in word.lower() if not c.isspace())


def make_slug(text: Short) -> str:
    """A title as the last part of a web address."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    slug = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")
    return slug or "untitled"


def wrap_text(text: Text, width: Annotated[int, Field(ge=10, le=200)] = 72) -> str:
    """A text broken into lines of a width."""
    import textwrap

    return "\n".join(textwrap.fill(paragraph, width) for paragraph in text.split("\n"))


def is_palindrome(text: Text) -> str:
    """Whether a text reads the same backwards."""
    kept = [c for c in text.casefold() if c.isalnum()]
    return "yes" if kept and kept == kept[::-1] else "no"


def code_points(characters: Annotated[str, Field(min_length=1, max_length=8)]) -> str:
    """Code point and category of each character."""
    return clip(", ".join(f"U+{ord(c):04X} {unicodedata.category(c)}" for c in characters), 200)


def tools() -> list[Tool]:
    """The tools of this module."""
    return [
        Tool(text_statistics, "Count the characters, words, sentences and lines of a text you give."),
        Tool(change_case, "Change the case of a text: upper, lower, title, snake, camel or kebab."),
        Tool(hash_text, "Compute a checksum of a text you give."),
        Tool(encode_base64, "Encode a text as base64."),
        Tool(decode_base64, "Decode base64 into a text."),
        Tool(url_encode, "Escape a text for a web address, or undo it."),
        Tool(caesar_shift, "Move each letter of a text along the alphabet (Caesar's cipher)."),
        Tool(are_anagrams, "Say whether two texts are anagrams of each other."),
        Tool(edit_distance, "Compute the edit distance (Levenshtein) of two texts."),
        Tool(soundex_code, "Compute the Soundex code of a name."),
        Tool(spell_out, "Spell a word in the international spelling alphabet."),
        Tool(make_slug, "Turn a title into the last part of a web address."),
        Tool(wrap_text, "Break a text into lines of a width."),
        Tool(is_palindrome, "Say whether a text reads the same backwards."),
        Tool(code_points, "Give the code points of a few characters."),
    ]
