"""Rules by name, and the errors that name them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import ClassVar, NoReturn

from aworld_gym.errors import ConfigError, did_you_mean


class ConformanceError(AssertionError):
    """A rule does not hold.

    Args:
        rule: its name.
        statement: what it says.
        found: what was expected and found.
    """

    def __init__(self, rule: str, statement: str, found: str):
        super().__init__(f"{rule}: {statement} {found}")
        self.rule = rule


class EnvError(ConformanceError):
    """An env breaks its contract."""


class AdapterError(ConformanceError):
    """An adapter breaks its contract."""


class Rules:
    """The rules of one check: which were checked, and an error for the first that does not hold.

    Args:
        statements: what each rule says, by name.
        skip: names of rules that are not checked.
        error: the kind of error to raise.

    Raises:
        ConfigError: ``skip`` names no rule.
    """

    limit: ClassVar[int] = 600
    """Characters of what was found that an error shows."""

    def __init__(self, statements: Mapping[str, str], skip: Collection[str], error: type[ConformanceError]):
        for name in skip:
            if name not in statements:
                raise ConfigError(
                    f"no rule {name!r}; there are {', '.join(statements)}.{did_you_mean(name, statements)}"
                )
        self._statements, self._skip, self._error = statements, frozenset(skip), error
        self.checked: list[str] = []

    def wanted(self, rule: str) -> bool:
        """Whether a rule is to be checked; from here on it counts as checked."""
        assert rule in self._statements, rule
        if rule in self._skip:
            return False
        if rule not in self.checked:
            self.checked.append(rule)
        return True

    def require(self, rule: str, holds: object, found: object = "") -> None:
        """Raise the error of a rule where it does not hold (and is not skipped)."""
        if self.wanted(rule) and not holds:
            self.broken(rule, str(found))

    def equal(self, rule: str, found: object, expected: object, what: str) -> None:
        """As :meth:`require`, for two values that have to be equal."""
        if self.wanted(rule) and found != expected:
            self.broken(rule, f"{what}: expected {_short(expected)}, got {_short(found)}")

    def broken(self, rule: str, found: str) -> NoReturn:
        """Raise the error of a rule."""
        cut = found if len(found) <= self.limit else found[: self.limit] + " ..."
        raise self._error(rule, self._statements[rule], cut)


def _short(value: object, limit: int = 220) -> str:
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]} ... ({len(text)} characters)"
