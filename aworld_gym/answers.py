"""Reading answers: text as a number, a date, a folded string, a list. Used by the strict scorer.

Each reader takes text as people and models write it and gives a value that compares exactly, or None where the text
is not one of its kind. Ambiguous text (``1,23``; ``03/04/2024``) is not of its kind: a scorer must not guess.
"""

from __future__ import annotations

import datetime
import re
import unicodedata
from collections.abc import Iterator
from fractions import Fraction

MAX_CHARS = 400
"""Characters of a number or date; nothing longer is one."""
MAX_CONJUNCTIONS = 4
"""Places where an "and" may part the last two items of a list."""
MAX_FOLDS = 20
"""Layers of marks and punctuation around a text."""
MAX_EXPONENT = 400
"""Powers of ten beyond this are no answer to anything, and would take long."""

_DASHES = dict.fromkeys(map(ord, "‐‑‒–—―−﹘﹣－"), "-")
_QUOTES = {**dict.fromkeys(map(ord, "‘’‚‛′`´＇"), "'"), **dict.fromkeys(map(ord, "“”„‟«»″＂"), '"')}
_SPACES = dict.fromkeys(map(ord, "\u00a0\u2007\u2009\u202f\u2002\u2003\u3000"), " ")
_INVISIBLE = dict.fromkeys(map(ord, "\u200b\u200c\u200d\u2060\ufeff\u00ad"), None)
_LETTERS = {ord(a): b for a, b in {"ø": "o", "đ": "d", "ł": "l", "æ": "ae", "œ": "oe", "ı": "i", "ð": "d"}.items()}
"""Letters that are no letter with an accent to Unicode; ``casefold`` has seen to sharp s."""
_FORMS = {
    code: unicodedata.normalize("NFKC", chr(code))
    for first, last in ((0xFF01, 0xFFEE), (0xFE50, 0xFE6B), (0x2160, 0x217F), (0x2103, 0x2103), (0x2109, 0x2109))
    for code in range(first, last + 1)
}
"""Full-width, half-width and small forms, Roman numerals and degrees: the same text in another type. Superscripts,
circled digits and the rest of what Unicode calls compatible are not: 1² is not 12."""
_SUBSCRIPTS = {0x2080 + digit: str(digit) for digit in range(10)}
_POWERS = {"²": "2", "³": "3"}
_TIDY = {**_FORMS, **_DASHES, **_QUOTES, **_SPACES, **_INVISIBLE}
_WRAPPERS = (*((mark, mark) for mark in ("**", "__", "*", "_", '"', "'", "$")), ("(", ")"), ("[", "]"))
"""What is written around an answer: Markdown's marks (backticks are quotes by then), quotes, TeX's, brackets."""

_PLAIN = r"[0-9]+(?:\.[0-9]*)?|\.[0-9]+"
_GROUPED = r"[0-9]{1,3}(?P<sep>[, '_])[0-9]{3}(?:(?P=sep)[0-9]{3})*(?:\.[0-9]+)?"
_NUMBER = re.compile(
    rf"(?P<sign>[-+]?) ?(?:(?P<grouped>{_GROUPED})|(?P<plain>{_PLAIN}))"
    r"(?: ?(?:[eE]|[x×*·] ?10 ?(?:\^|\*\*) ?)(?P<power>[-+]?[0-9]{1,6}|\([-+]?[0-9]{1,6}\)))?"
)
_RATIO = re.compile(r"(?P<sign>[-+]?) ?(?P<over>[0-9]{1,50}) ?/ ?(?P<under>[0-9]{1,50})")

UNITS: tuple[frozenset[str], ...] = tuple(
    frozenset(names.split("|"))
    for names in (
        "%|percent|per cent|pct",
        "$|usd|us$|dollar|dollars|us dollars",
        "€|eur|euro|euros",
        "£|gbp|pound|pounds|pounds sterling",
        "¥|jpy|yen",
        "km|kilometre|kilometres|kilometer|kilometers",
        "m|metre|metres|meter|meters",
        "cm|centimetre|centimetres|centimeter|centimeters",
        "mm|millimetre|millimetres|millimeter|millimeters",
        "mi|mile|miles",
        "ft|foot|feet",
        "in|inch|inches",
        "km2|km^2|sq km|square kilometre|square kilometres|square kilometer|square kilometers",
        "m2|m^2|sq m|square metre|square metres|square meter|square meters",
        "kg|kilogram|kilograms|kilogramme|kilogrammes|kilo|kilos",
        "g|gram|grams|gramme|grammes",
        "t|tonne|tonnes|metric ton|metric tons",
        "lb|lbs|pound|pounds",
        "l|litre|litres|liter|liters",
        "ml|millilitre|millilitres|milliliter|milliliters",
        "s|sec|secs|second|seconds",
        "min|mins|minute|minutes",
        "h|hr|hrs|hour|hours",
        "d|day|days",
        "week|weeks",
        "month|months",
        "y|yr|yrs|year|years",
        "°c|c|deg c|degrees celsius|degree celsius|celsius|degrees c",
        "°f|f|deg f|degrees fahrenheit|degree fahrenheit|fahrenheit|degrees f",
        "k|kelvin|kelvins",
        "°|deg|degree|degrees",
        "km/h|kmh|kph|kilometres per hour|kilometers per hour",
        "m/s|metres per second|meters per second",
        "mph|miles per hour",
    )
)
"""Names of the same unit."""


def tidy(text: str, *, stop: bool = True) -> str:
    """Text with one kind of dash, quote and space, without what wraps an answer (quotes, brackets, Markdown's marks).

    Args:
        text: any.
        stop: also take off one full stop at the end, inside the wrapping or outside.
    """
    text = unicodedata.normalize("NFC", text).translate(_TIDY)
    text = unicodedata.normalize("NFC", re.sub(r"[ \t\r\f\v]+", " ", text)).strip()
    while len(text) > 1:
        inner = _LABEL.sub("", text)
        if inner == text and stop and text.endswith(".") and text[-2] != ".":
            inner, stop = text[:-1], False
        if inner == text:
            inner = next((text[len(a) : -len(b)] for a, b in _WRAPPERS if _wrapped(text, a, b)), text)
        if inner == text:
            break
        text = inner.strip()
    return text


_LABEL = re.compile(r"(?:final answer|answer)\s*:\s*", flags=re.IGNORECASE)


def _wrapped(text: str, opening: str, closing: str) -> bool:
    """Between two marks, which do not occur inside: ``"a", "b"`` is not one quoted thing."""
    if not (text.startswith(opening) and text.endswith(closing)):
        return False
    inner = text[len(opening) : -len(closing)]
    return len(text) > len(opening) + len(closing) and opening not in inner and closing not in inner


def read_number(text: str, unit: str | None = None, *, ratios: bool = True) -> Fraction | None:
    """The number that ``text`` writes, with or without its unit; None where it writes none, or another unit.

    Thousands may be grouped in threes; 1.5e3 and 1.5 x 10^3 are numbers, and so is 3/4 where ``ratios`` are taken.
    """
    text = tidy(text)
    if not text or len(text) > MAX_CHARS:
        return None
    text = _plain_powers(text)
    for candidate in _without_unit(text, unit):
        if ratios and (ratio := _RATIO.fullmatch(candidate)):
            if int(ratio["under"]) == 0:
                return None
            value = Fraction(int(ratio["over"]), int(ratio["under"]))
        elif number := _NUMBER.fullmatch(candidate):
            digits = number["plain"] or re.sub("[, '_]", "", number["grouped"])
            power = int(number["power"].strip("()")) if number["power"] else 0
            if abs(power) > MAX_EXPONENT:
                return None
            value = (
                Fraction(f"0{digits}" if digits.startswith(".") else digits.removesuffix(".")) * Fraction(10) ** power
            )
            ratio = number
        else:
            continue
        return -value if ratio["sign"] == "-" else value
    return None


def _without_unit(text: str, unit: str | None) -> Iterator[str]:
    """The text as it is, then what is left of it without a name of the unit before or after."""
    yield text
    if unit is None:
        return
    lower = text.lower()
    for name in sorted(unit_names(unit), key=lambda n: (-len(n), n)):
        if lower.endswith(name):
            rest = text[: len(text) - len(name)].rstrip()
            if rest:
                yield rest
        if lower.startswith(name) and (not name[-1].isalnum() or lower[len(name) :][:1] == " "):  # USD 5
            yield text[len(name) :].lstrip()
        if lower[:1] in "+-" and lower[1:].startswith(name) and not name[-1].isalnum():  # -$5
            yield text[0] + text[1 + len(name) :].lstrip()


def unit_names(unit: str) -> frozenset[str]:
    """Every name of a unit, in lower case; itself alone where it is none of :data:`UNITS`."""
    name = _plain_powers(" ".join(unit.lower().split()))
    return frozenset({name}).union(*(names for names in UNITS if name in names and not _ambiguous(name, names)))


def _plain_powers(text: str) -> str:
    """Square and cubic units as they are typed: km2 for km²."""
    return re.sub(r"(?<=[^\W\d_])[²³]", lambda power: _POWERS[power[0]], text)


def _ambiguous(name: str, names: frozenset[str]) -> bool:
    """Pounds of money and of mass share a word: asked for by that word, only the word itself is taken."""
    return sum(name in other for other in UNITS) > 1


_MONTHS = {
    name[:length]: number
    for number, name in enumerate(
        "january february march april may june july august september october november december".split(), 1
    )
    for length in range(3, len(name) + 1)
    if length in (3, 4, len(name))
}
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")

_MIDNIGHT = r"(?<=[0-9]{2})[t ]00:00(?::00(?:\.0{1,9})?)?(?:z|\+00:00)?$"
"""How programs end a date that has no time."""

Date = tuple[int, int | None, int | None]
"""Year, month, day; the latter may be unknown."""


def read_date(text: str) -> Date | None:
    """The date that ``text`` writes: ISO, or with the month's name, or in figures where their order is plain."""
    text = tidy(text).lower()
    if not text or len(text) > MAX_CHARS:
        return None
    weekday = None
    if match := re.match(r"([a-z]+),? +(?=.*[0-9])", text):
        found = [i for i, day in enumerate(_DAYS) if match[1] in (day, day[:3], day[:4])]
        if found:
            weekday, text = found[0], text[match.end() :]
    date = _date_parts(re.sub(_MIDNIGHT, "", text))
    if date is None:
        return None
    year, month, day = date
    if not 1 <= year <= 9999 or (month is not None and not 1 <= month <= 12):
        return None
    if day is not None:
        try:
            whole = datetime.date(year, month or 1, day)
        except ValueError:
            return None
        return date if weekday in (None, whole.weekday()) else None
    return date if weekday is None else None


def _date_parts(text: str) -> Date | None:
    day, name, year = r"([0-9]{1,2})(?:st|nd|rd|th)?", r"([a-z]{3,9})\.?", r"([0-9]{4})"
    if match := re.fullmatch(rf"{year}([-/.])([0-9]{{1,2}})\2([0-9]{{1,2}})", text):
        return int(match[1]), int(match[3]), int(match[4])
    if match := re.fullmatch(rf"{year}[-/.]([0-9]{{1,2}})", text):
        return int(match[1]), int(match[2]), None
    if match := re.fullmatch(rf"([0-9]{{1,2}})[-/.]{year}", text):
        return int(match[2]), int(match[1]), None
    if match := re.fullmatch(year, text):
        return int(match[1]), None, None
    if match := re.fullmatch(
        rf"(?:the )?{day}[ -](?:of )?{name}[ -],?{year}|{name} {day},? {year}", text.replace(", ", " ")
    ):
        d, month, y = (match[1], match[2], match[3]) if match[1] else (match[5], match[4], match[6])
        return (int(y), _MONTHS[month], int(d)) if month in _MONTHS else None
    if (match := re.fullmatch(rf"{year},? {name} {day}", text)) and match[2] in _MONTHS:
        return int(match[1]), _MONTHS[match[2]], int(match[3])
    if (match := re.fullmatch(rf"{name},? {year}", text)) and match[1] in _MONTHS:
        return int(match[2]), _MONTHS[match[1]], None
    if match := re.fullmatch(rf"([0-9]{{1,2}})([-/.])([0-9]{{1,2}})\2{year}", text):
        a, b, y = int(match[1]), int(match[3]), int(match[4])
        if match[2] == ".":  # only ever day first
            return y, b, a
        if a == b or a > 12:
            return y, b, a
        return (y, a, b) if b > 12 else None
    return None


def fold(text: str) -> str:
    """Text for comparing words: case, accents, quotes, spacing and the punctuation of prose do not count.

    What carries meaning does: signs and decimal points of numbers, ``/``, ``+``, ``#``, ``%`` and other symbols.
    Where nothing is left, the tidied text itself. Folding again changes nothing.
    """
    for _ in range(MAX_FOLDS):  # what one pass takes off may have hidden more: **Rome**! is Rome
        once = _folded(text)
        if once == text:
            break
        text = once
    return text


def _folded(text: str) -> str:
    whole = tidy(text)
    text = unicodedata.normalize("NFD", whole).translate(_SUBSCRIPTS).casefold()
    text = "".join(c for c in text if not unicodedata.combining(c))
    text = text.translate(_LETTERS)
    text = re.sub(r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))", "", text)  # thousands
    text = re.sub(r"['\"]", "", text)
    text = re.sub(r" ?& ?", " and ", text)
    if re.search(r"[^.\s]", text):
        # A point before a digit is a decimal point (.5), or parts a word from its number (No.5); others are prose.
        text = re.sub(r"(?<=[^\W\d_])\.(?=[0-9])", " ", text)
        text = re.sub(r"\.(?![0-9])", "", text)
    text = re.sub(r"[,;:()\[\]!?]+(?=\s|$)|(?<=\s)[(\[]+|^[(\[]+", " ", text)
    text = re.sub(r"(?<=[0-9]) - (?=[0-9])", "-", text)  # a score or a range, with or without spaces
    text = re.sub(r"(?<=[^\W\d_])-(?=\w)|(?<=\d)-(?=[^\W\d_])|(?<=\w) - (?=\w)", " ", text)
    return " ".join(text.split()) or whole


def fold_code(text: str, *, case: bool, stop: bool = True) -> str:
    """An identifier for comparing: only what wraps it is taken off, and case where it does not count.

    Args:
        text: any.
        case: whether case counts.
        stop: whether a full stop at the end is the sentence's, not the identifier's.
    """
    text = tidy(text, stop=stop)
    return text if case else text.casefold()


def splits(text: str) -> list[list[str]]:
    """The ways to read ``text`` as a list, the likeliest first; a few."""
    text = tidy(text)
    if len(text) > 1 and text[0] + text[-1] in ("[]", "()", "{}"):
        text = text[1:-1].strip()
    if "\n" in text:
        rows = [re.sub(r"^\s*(?:[-*•]|[0-9]{1,3}[.)])\s+", "", row) for row in text.split("\n") if row.strip()]
        return [[row.strip().rstrip(",;").strip() for row in rows]]
    if ";" in text:
        return [_items(text.split(";"))]
    found = [_items(re.split(r",\s+", text)), _items(text.split(","))]
    for words in list(found):
        for conjunction in list(re.finditer(r"\s+(?:and|&)\s+", words[-1]))[:MAX_CONJUNCTIONS] if words else ():
            found.append([*words[:-1], words[-1][: conjunction.start()], words[-1][conjunction.end() :]])
    return [items for i, items in enumerate(found) if items and items not in found[:i]]


def _items(parts: list[str]) -> list[str]:
    items = [part.strip() for part in parts]
    if items and not items[-1]:  # a trailing separator
        items.pop()
    if len(items) > 1:
        items[-1] = re.sub(r"^(?:and|&)\s+", "", items[-1])
    return items
