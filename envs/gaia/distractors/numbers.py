"""Numbers: bases, numerals, factors, fractions, words, money."""

from __future__ import annotations

import math
import re
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Annotated, Literal

from pydantic import Field

from envs.gaia.mcp_tools import Tool
from envs.gaia.tools.base import ToolFault, quoted

DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
ROMAN = (
    *((1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"), (50, "L"), (40, "XL")),
    *((10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I")),
)
_SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
).split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
_GROUPS = ("", "thousand", "million", "billion", "trillion")

Base = Annotated[int, Field(ge=2, le=36)]
Amount = Annotated[float, Field(ge=-1e15, le=1e15)]
Integers = Annotated[list[Annotated[int, Field(ge=1, le=10**15)]], Field(min_length=1, max_length=50)]


def convert_base(number: Annotated[str, Field(min_length=1, max_length=200)], from_base: Base, to_base: Base) -> str:
    """A whole number in another base."""
    try:
        value = int(number, from_base)
    except ValueError:
        raise ToolFault(f"{quoted(number)} is no whole number in base {from_base}") from None
    sign, value = ("-", -value) if value < 0 else ("", value)
    out = ""
    while value:
        value, digit = divmod(value, to_base)
        out = DIGITS[digit] + out
    return sign + (out or "0")


def to_roman_numeral(number: Annotated[int, Field(ge=1, le=3999)]) -> str:
    """A number as a Roman numeral."""
    out = ""
    for value, letters in ROMAN:
        count, number = divmod(number, value)
        out += letters * count
    return out


def from_roman_numeral(numeral: Annotated[str, Field(min_length=1, max_length=20)]) -> str:
    """The number that a Roman numeral stands for."""
    left, total = numeral.strip().upper(), 0
    for value, letters in ROMAN:
        while left.startswith(letters):
            left, total = left[len(letters) :], total + value
    if left or not 1 <= total <= 3999 or to_roman_numeral(total) != numeral.strip().upper():
        raise ToolFault(f"{quoted(numeral)} is no Roman numeral from I to MMMCMXCIX")
    return str(total)


def factorize_integer(number: Annotated[int, Field(ge=2, le=10**12)]) -> str:
    """The prime factors of a number, as 2^3 * 5."""
    factors: dict[int, int] = {}
    divisor = 2
    while divisor * divisor <= number:
        while number % divisor == 0:
            factors[divisor] = factors.get(divisor, 0) + 1
            number //= divisor
        divisor += 1 if divisor == 2 else 2
    if number > 1:
        factors[number] = factors.get(number, 0) + 1
    return " * ".join(f"{prime}^{power}" if power > 1 else str(prime) for prime, power in factors.items())


def common_divisor_and_multiple(numbers: Integers) -> str:
    """Greatest common divisor and least common multiple."""
    return f"gcd {math.gcd(*numbers)}, lcm {math.lcm(*numbers)}"


def decimal_to_fraction(number: Annotated[str, Field(min_length=1, max_length=40)]) -> str:
    """A decimal number as a fraction in lowest terms."""
    try:
        value = Decimal(number)
        if not value.is_finite() or abs(value.adjusted()) > 60:
            raise InvalidOperation
    except InvalidOperation:
        raise ToolFault(f"{quoted(number)} is no decimal number of a usual size") from None
    fraction = Fraction(value)
    return f"{fraction.numerator}/{fraction.denominator}"


def number_in_words(number: Annotated[int, Field(ge=-(10**15) + 1, le=10**15 - 1)]) -> str:
    """A whole number in English words."""
    if number == 0:
        return "zero"
    parts, left = [], abs(number)
    for group in _GROUPS:
        left, part = divmod(left, 1000)
        if part:
            parts.append(f"{_below_thousand(part)} {group}".strip())
    return ("minus " if number < 0 else "") + " ".join(reversed(parts))


def _below_thousand(number: int) -> str:
    hundreds, rest = divmod(number, 100)
    words = [f"{_SMALL[hundreds]} hundred"] if hundreds else []
    if rest >= 20:
        words.append(_TENS[rest // 10 - 2] + (f"-{_SMALL[rest % 10]}" if rest % 10 else ""))
    elif rest:
        words.append(_SMALL[rest])
    return " ".join(words)


def count_combinations(
    total: Annotated[int, Field(ge=0, le=500)],
    chosen: Annotated[int, Field(ge=0, le=500)],
    ordered: bool = False,
) -> str:
    """In how many ways some of a number of things can be chosen."""
    return str(math.perm(total, chosen) if ordered else math.comb(total, chosen))


def scientific_notation(
    number: Annotated[str, Field(min_length=1, max_length=60)], digits: Annotated[int, Field(ge=1, le=15)] = 6
) -> str:
    """A number in scientific notation with a number of significant digits."""
    try:
        value = Decimal(number)
        if not value.is_finite():
            raise InvalidOperation
    except InvalidOperation:
        raise ToolFault(f"{quoted(number)} is no number") from None
    return f"{value:.{digits - 1}e}"


def check_digit(
    number: Annotated[str, Field(min_length=2, max_length=40)], kind: Literal["luhn", "ean", "isbn10"] = "luhn"
) -> str:
    """Whether the last digit of a card, article or book number fits the others."""
    text = re.sub(r"[\s-]", "", number).upper()
    if not re.fullmatch(r"[0-9]+X?" if kind == "isbn10" else r"[0-9]+", text) or len(text) < 2:
        raise ToolFault(f"{quoted(number)} has more than digits")
    values = [10 if c == "X" else int(c) for c in reversed(text)]
    if kind == "luhn":
        total = sum(v if i % 2 == 0 else v * 2 - 9 * (v > 4) for i, v in enumerate(values))
        return "valid" if total % 10 == 0 else "not valid"
    if kind == "ean":
        return "valid" if sum(v * (3 if i % 2 else 1) for i, v in enumerate(values)) % 10 == 0 else "not valid"
    return "valid" if len(values) == 10 and sum(v * (i + 1) for i, v in enumerate(values)) % 11 == 0 else "not valid"


def loan_payment(
    amount: Annotated[float, Field(gt=0, le=1e12)],
    yearly_rate_percent: Annotated[float, Field(ge=0, le=1000)],
    months: Annotated[int, Field(ge=1, le=1200)],
) -> str:
    """The monthly payment of a loan with equal payments."""
    rate = yearly_rate_percent / 1200
    payment = amount / months if rate == 0 else amount * rate / -math.expm1(-months * math.log1p(rate))
    return f"{payment:.2f} a month, {payment * months:.2f} in all"


def split_bill(
    amount: Annotated[float, Field(ge=0, le=1e9)],
    people: Annotated[int, Field(ge=1, le=1000)],
    tip_percent: Annotated[float, Field(ge=0, le=100)] = 0.0,
) -> str:
    """What each of some people pays of a bill."""
    total = amount * (1 + tip_percent / 100)
    return f"{total / people:.2f} each, {total:.2f} in all"


def tools() -> list[Tool]:
    """The tools of this module."""
    return [
        Tool(convert_base, "Convert a whole number from one base to another (2 to 36)."),
        Tool(to_roman_numeral, "Write a number from 1 to 3999 as a Roman numeral."),
        Tool(from_roman_numeral, "Read a Roman numeral."),
        Tool(factorize_integer, "Give the prime factors of a whole number."),
        Tool(common_divisor_and_multiple, "Greatest common divisor and least common multiple of whole numbers."),
        Tool(decimal_to_fraction, "Write a decimal number as a fraction in lowest terms."),
        Tool(number_in_words, "Write a whole number in English words."),
        Tool(count_combinations, "Count the ways to choose some of a number of things, in order or not."),
        Tool(scientific_notation, "Write a number in scientific notation."),
        Tool(check_digit, "Check the check digit of a card number (luhn), a barcode (ean) or a book (isbn10)."),
        Tool(loan_payment, "Compute the monthly payment of a loan."),
        Tool(split_bill, "Split a bill, with a tip, between people."),
    ]
