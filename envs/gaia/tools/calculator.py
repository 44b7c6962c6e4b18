"""``calculate``: exact arithmetic over a parsed expression. Nothing is evaluated that is not listed here.

Decimals are kept as fractions, so that 0.1 + 0.2 is 0.3; irrational functions use floats. Sizes are checked
before a power or factorial is taken, so that no expression takes long or much memory.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Annotated

from pydantic import Field

from envs.gaia.tools.base import ToolContext, ToolDef, ToolFault, clip, quoted

MAX_CHARS = 2000
MAX_BITS = 4096
"""Bits of an integer, or of a fraction's numerator or denominator (about 1,200 digits)."""
MAX_EXPONENT = 1000
"""Power of ten in a literal."""

Number = int | float | Fraction

_BINARY: dict[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_FLOAT: dict[str, Callable[..., float]] = {
    name: getattr(math, name)
    for name in "exp log log2 log10 sin cos tan asin acos atan atan2 degrees radians hypot".split()
}
_CONSTANTS = {"pi": math.pi, "e": math.e}


def evaluate(expression: str) -> str:
    """The value of an arithmetic expression, as short exact text.

    Raises:
        ToolFault: not arithmetic, undefined (division by zero), or too large.
    """
    if len(expression) > MAX_CHARS:
        raise ToolFault(f"the expression has {len(expression)} characters; at most {MAX_CHARS} are taken")
    try:
        source = expression.strip()
        return _text(_bounded(_value(_exact_decimals(ast.parse(source, mode="eval"), source).body)))
    except SyntaxError as error:
        raise ToolFault(f"not an expression: {quoted(expression)} ({error.msg})") from None
    except ZeroDivisionError:
        raise ToolFault("division by zero") from None
    except OverflowError:
        raise ToolFault("the result is too large") from None
    except (RecursionError, MemoryError):
        raise ToolFault("the expression is nested too deeply") from None
    except (ValueError, TypeError) as error:
        raise ToolFault(f"cannot be computed: {clip(str(error), 80)}") from None


def tools(context: ToolContext) -> list[ToolDef]:
    """The calculator; it needs nothing of the context."""

    def calculate(expression: Annotated[str, Field(description="e.g. (3+4)*2/5, sqrt(2), round(7/3, 2)")]) -> str:
        return evaluate(expression)

    return [ToolDef(calculate, "Evaluate an arithmetic expression, exactly where possible.", terse="Compute.")]


def _exact_decimals(tree: ast.Expression, source: str) -> ast.Expression:
    """The tree with decimal literals as they are written, which floats would round."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, float):
            text = (ast.get_source_segment(source, node) or "").replace("_", "").lower()
            exponent = text.partition("e")[2]
            if exponent and abs(int(exponent)) > MAX_EXPONENT:
                raise OverflowError
            node.value = Fraction(text)  # type: ignore[assignment]
    return tree


def _value(node: ast.expr) -> Number:
    match node:
        case ast.Constant(value=bool() | complex()):
            raise ToolFault(f"only real numbers can be computed with, got {quoted(str(node.value))}")
        case ast.Constant(value=int() as value):
            return _bounded(value)
        case ast.Constant(value=Fraction() as value):
            return _bounded(value)
        case ast.Name(id=name) if name in _CONSTANTS:
            return _CONSTANTS[name]
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -_value(inner)
        case ast.UnaryOp(op=ast.UAdd(), operand=inner):
            return _value(inner)
        case ast.BinOp(left=left, op=op, right=right):
            return _bounded(_binary(op, _value(left), _value(right)))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            return _bounded(_call(name, [_value(argument) for argument in _spread(arguments)]))
        case ast.Tuple():
            raise ToolFault("write numbers without thousands separators: 1000, not 1,000")
        case ast.BinOp() | ast.Call():
            raise ToolFault("keyword arguments and method calls are not arithmetic")
        case ast.Name(id=name):
            raise ToolFault(f"unknown name {quoted(name)}; numbers, pi, e and {', '.join(_functions())} are known")
    raise ToolFault(f"{type(node).__name__} is not arithmetic; use run_python for programs")


def _binary(op: ast.operator, left: Number, right: Number) -> Number:
    if type(op) in _BINARY:
        return _BINARY[type(op)](left, right)
    if isinstance(op, ast.Div):
        if isinstance(left, float) or isinstance(right, float):
            return left / right
        return Fraction(left) / Fraction(right)
    if isinstance(op, ast.Pow):
        return _power(left, right)
    if isinstance(op, ast.BitXor):
        raise ToolFault("^ is not a power here: write ** for powers")
    raise ToolFault(f"the operator {type(op).__name__} is not arithmetic; use + - * / // % **")


def _power(base: Number, exponent: Number) -> Number:
    if isinstance(base, float) or isinstance(exponent, float) or Fraction(exponent).denominator != 1:
        result = float(base) ** float(exponent)
        if isinstance(result, complex):
            raise ToolFault("a fractional power of a negative number is not real")
        return result
    exponent = int(exponent)
    size = max(Fraction(base).numerator.bit_length(), Fraction(base).denominator.bit_length())
    if size > 1 and abs(exponent) * (size - 1) > MAX_BITS or abs(exponent) > 10**6:
        raise OverflowError
    if isinstance(base, int) and exponent >= 0:
        return int(base**exponent)
    return Fraction(base) ** exponent


def _call(name: str, arguments: list[Number]) -> Number:
    if name in _FLOAT:
        return float(_FLOAT[name](*map(float, arguments)))
    if name not in _EXACT:
        raise ToolFault(f"unknown function {quoted(name)}; known: {', '.join(_functions())}")
    return _EXACT[name](*arguments)


def _spread(arguments: list[ast.expr]) -> list[ast.expr]:
    """``sum([1, 2])`` means ``sum(1, 2)``."""
    if len(arguments) == 1 and isinstance(arguments[0], ast.List | ast.Tuple):
        return arguments[0].elts
    return arguments


def _sqrt(value: Number) -> Number:
    if isinstance(value, float) or value < 0:
        return math.sqrt(value)
    exact = Fraction(value)
    root = Fraction(math.isqrt(exact.numerator), math.isqrt(exact.denominator))
    return root if root * root == exact else math.sqrt(exact)


def _round(value: Number, digits: Number = 0) -> Number:
    places = _integer(digits)
    if abs(places) > 300:
        raise OverflowError
    return round(value, places) if isinstance(value, float) else round(Fraction(value), places)


def _integer(value: Number) -> int:
    if isinstance(value, float) or Fraction(value).denominator != 1:
        raise ToolFault(f"a whole number is needed here, got {_text(value)}")
    return int(value)


def _natural(value: Number, limit: int) -> int:
    number = _integer(value)
    if not 0 <= number <= limit:
        raise ToolFault(f"a whole number from 0 to {limit} is needed here, got {_text(value)}")
    return number


def _mean(*values: Number) -> Number:
    return _binary(ast.Div(), sum(values), len(values))


_EXACT: dict[str, Callable[..., Number]] = {
    "abs": abs,
    "round": _round,
    "floor": math.floor,
    "ceil": math.ceil,
    "sqrt": _sqrt,
    "min": lambda *values: min(values),
    "max": lambda *values: max(values),
    "sum": lambda *values: sum(values),
    "mean": _mean,
    "gcd": lambda *values: math.gcd(*map(_integer, values)),
    "lcm": lambda *values: math.lcm(*map(_integer, values)),
    "factorial": lambda value: math.factorial(_natural(value, 500)),
    "comb": lambda n, k: math.comb(_natural(n, 4000), _natural(k, 4000)),
    "perm": lambda n, k: math.perm(_natural(n, 500), _natural(k, 500)),
}


def _functions() -> list[str]:
    return [*_EXACT, *_FLOAT]


def _bounded(value: Number) -> Number:
    if isinstance(value, float):
        return value
    exact = Fraction(value)
    if max(exact.numerator.bit_length(), exact.denominator.bit_length()) > MAX_BITS:
        raise OverflowError
    return int(exact) if exact.denominator == 1 else exact


def _text(value: Number) -> str:
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ToolFault("the result is not a finite number")
        return str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)
    if Fraction(value).denominator == 1:
        return str(int(value))
    exact = Fraction(value)
    denominator = exact.denominator
    for prime in (2, 5):
        while denominator % prime == 0:
            denominator //= prime
    if denominator == 1 and exact.denominator < 10**15:  # a finite decimal is written in full
        places = next(n for n in range(1, 60) if 10**n % exact.denominator == 0)
        digits = str(abs(exact.numerator) * 10**places // exact.denominator).rjust(places + 1, "0")
        return f"{'-' if exact < 0 else ''}{digits[:-places]}.{digits[-places:]}"
    return _text(float(exact))
