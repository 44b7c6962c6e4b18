"""Operators on numbers and dates: they make a term from one or two others, whatever evidence those come from.

A result carries its :attr:`~envs.gaia.terms.Term.expression`; the calculator is called once, for the whole of it.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction

from aworld_gym.types import PlanStep
from envs.gaia.terms import Draft, Term, require

MARGIN = Fraction(1, 50)
"""How far, relatively, the first must be ahead of the second where a maximum, a rank or a bound decides."""
ROUNDING_MARGIN = Fraction(1, 20)
"""How far a value must stay from a rounding edge, in units of the last digit."""


def literal(value: int) -> Term:
    """A number that stands in the question."""
    return Term("int", value, str(value))


def gap(draft: Draft, a: Term, b: Term) -> Term:
    """How far two numbers lie apart; Reject where they are equal."""
    require(a.value != b.value, "two equal numbers")
    low, high = sorted((a, b), key=lambda term: int(term.value))
    return _combined(draft, "difference", a, b, int(high.value) - int(low.value), f"{high.part} - {low.part}")


def plus(draft: Draft, a: Term, b: Term) -> Term:
    """The sum of two numbers."""
    return _combined(draft, "sum", a, b, int(a.value) + int(b.value), f"{a.part} + {b.part}")


def times(draft: Draft, a: Term, b: Term) -> Term:
    """The product of two numbers, neither of them 0 or 1."""
    require(min(int(a.value), int(b.value)) > 1, "a factor that changes nothing")
    return _combined(draft, "product", a, b, int(a.value) * int(b.value), f"{a.part} * {b.part}")


def extreme(draft: Draft, a: Term, b: Term, *, larger: bool = True) -> Term:
    """The larger or the smaller of two numbers that are no near tie."""
    apart(int(a.value), int(b.value))
    value = (max if larger else min)(int(a.value), int(b.value))
    expression = f"{'max' if larger else 'min'}({a.part}, {b.part})"
    return _combined(draft, "larger" if larger else "smaller", a, b, value, expression)


def percent(draft: Draft, rate: Term, of: Term) -> Term:
    """A share of a number, to two decimals."""
    value = Fraction(int(rate.value) * int(of.value), 100)
    whole = _combined(draft, "percent", rate, of, 0, f"{rate.part} * {of.part} / 100")
    return rounded(whole, value, 2)


def converted(draft: Draft, number: Term, unit: str, factor: str, per: str, decimals: int) -> Term:
    """A number in another unit, to some decimals.

    Args:
        draft: the draft.
        number: what is converted.
        unit: the other unit in words; says ``whole`` where there are no decimals.
        factor: by which the number is multiplied, as decimal text.
        per: what the factor is, such as ``metres per foot``.
        decimals: of the result.
    """
    phrase = draft.phrase("converted", unit=unit, decimal=factor, unit2=per, number=number.phrase)
    whole = replace(number, phrase=phrase, expression=f"{number.part} * {factor}")
    return rounded(whole, Fraction(int(number.value)) * Fraction(factor), decimals)


def rounded(term: Term, value: Fraction, decimals: int) -> Term:
    """``value``, which is the term's expression, to ``decimals`` decimals, as the calculator gives it.

    Rejected are values near a rounding edge, and results whose last digit is zero: they are written in several ways.
    """
    scale = 10**decimals
    digits = value * scale
    require(abs(digits - int(digits) - Fraction(1, 2)) >= ROUNDING_MARGIN, "a value on a rounding edge")
    whole = round(digits)
    text = str(whole)
    if decimals:
        require(whole % 10 != 0 and whole > scale, "a last digit of zero")
        text = f"{whole // scale}.{whole % scale:0{decimals}d}"
    expression = f"round({term.expression}, {decimals})" if decimals else f"round({term.expression})"
    return replace(term, kind="float" if decimals else "int", value=text if decimals else whole, expression=expression)


def days_between(draft: Draft, earlier: Term, later: Term) -> Term:
    """The number of days from one date to another, by a program; Reject where they are in the wrong order."""
    days = (datetime.date.fromisoformat(later.value) - datetime.date.fromisoformat(earlier.value)).days
    require(days > 1, "dates in the wrong order")
    code = (
        "import datetime\n"
        f"print((datetime.date.fromisoformat({later.value!r}) - datetime.date.fromisoformat({earlier.value!r})).days)\n"
    )
    said = draft.phrase("days", date=earlier.phrase, date2=later.phrase)
    steps = (*earlier.steps, *later.steps, PlanStep("run_python", {"code": code}, (str(days),)))
    return Term("int", days, said, steps, earlier.needs | later.needs)


def calculation(expression: str, result: int | str) -> PlanStep:
    """A call of the calculator."""
    return PlanStep("calculate", {"expression": expression}, (str(result),))


def added(values: Iterable[int]) -> str:
    """The sum, as an expression."""
    return " + ".join(map(str, values))


def apart(ahead: float, behind: float) -> None:
    """Require that two numbers are no near tie."""
    one, other = Fraction(ahead), Fraction(behind)
    require(one != other and abs(one - other) >= MARGIN * max(abs(one), abs(other)), "a near tie")


def _combined(draft: Draft, production: str, a: Term, b: Term, value: int, expression: str) -> Term:
    said = draft.phrase(production, number=a.phrase, number2=b.phrase)
    return Term("int", value, said, (*a.steps, *b.steps), a.needs | b.needs, expression)
