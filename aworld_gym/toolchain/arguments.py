"""The checking of a call's arguments, against schemas that strangers wrote.

A check runs on the event loop, so it must end soon whatever the schema and the arguments are. Therefore

* ``pattern`` and ``patternProperties`` are not checked (a regular expression can take years), nor ``format`` and
  ``unevaluated...``; where it matters whether one of them holds (``not``, ``if``, ``oneOf``), less is checked, never
  more: the server judges what is let through;
* a check that takes too many steps is given up, and the call let through.
"""

from __future__ import annotations

import difflib
import itertools
import json
import logging
import threading
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

logger = logging.getLogger(__name__)

MAX_STEPS = 50_000
"""Steps that one check may take: some tenths of a second."""
_REFERENCE_STEPS = 10  # following a reference costs as much as so many ordinary steps
MAX_SCHEMA_CHARS = 50_000
"""A schema longer than this (some 12,000 tokens) checks nothing: that it is one takes a millisecond a subschema."""
MAX_NAME_CHARS = 80
"""Of a name that the model made up, so much is shown to it again."""
_MAX_COMPLAINTS = 5
_MAX_ERRORS = 50

_UNCHECKED = ("pattern", "patternProperties", "unevaluatedItems", "unevaluatedProperties")
_UNCERTAIN = frozenset((*_UNCHECKED, "$ref", "$dynamicRef", "$recursiveRef"))  # a reference may lead to any of them


# -- validators -----------------------------------------------------------------------------------------------


class _GaveUp(Exception):
    """A check took too many steps."""


class _Steps(threading.local):
    left = 0

    def spend(self, steps: int) -> None:
        self.left -= steps
        if self.left < 0:
            raise _GaveUp


_steps = _Steps()


def _size(value: Any) -> int:
    return len(value) if isinstance(value, list | dict) else 0


def _counted(check: Any, cost: int = 1) -> Any:
    """A keyword's check that counts what it costs."""

    def counted(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
        _steps.spend(cost + (_size(value) + _size(instance)) // 8)
        for error in check(validator, value, instance, schema) or ():
            _steps.spend(len(error.message) // 64)
            yield error

    return counted


def _uncertain(node: Any) -> bool:
    """Whether a subschema might say something that is not checked."""
    todo = [node]
    while todo:
        _steps.spend(1)
        node = todo.pop()
        if isinstance(node, Mapping):
            if not _UNCERTAIN.isdisjoint(node):
                return True
            todo += node.values()
        elif isinstance(node, list):
            todo += node
    return False


def _unless_uncertain(check: Any) -> Any:
    return lambda validator, value, instance, schema: (
        () if _uncertain(value) else check(validator, value, instance, schema)
    )


def _one_of(one_of: Any, any_of: Any) -> Any:
    return lambda validator, value, instance, schema: (any_of if _uncertain(value) else one_of)(
        validator, value, instance, schema
    )


def _contains(check: Any) -> Any:
    def contains(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
        if _uncertain(value):  # what is not counted out must not be too many
            schema = {key: item for key, item in schema.items() if key != "maxContains"}
        return check(validator, value, instance, schema)

    return contains


def _additional(check: Any) -> Any:
    return lambda validator, value, instance, schema: (
        () if "patternProperties" in schema else check(validator, value, instance, schema)
    )


def _unique(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
    from jsonschema import ValidationError

    if value and isinstance(instance, list):
        text = [json.dumps(item, sort_keys=True, default=str) for item in instance]
        _steps.spend(sum(map(len, text)) // 64)
        if len(set(text)) < len(text):
            yield ValidationError(f"{_short(instance)} has non-unique elements")


def _nothing(validator: Any, value: Any, instance: Any, schema: Any) -> tuple[()]:
    return ()


@lru_cache(maxsize=64)
def _careful(cls: Any) -> Any:
    """The validator class ``cls`` with every check bounded."""
    from jsonschema import validators

    references = ("$ref", "$dynamicRef", "$recursiveRef")
    checks = {k: _counted(check, _REFERENCE_STEPS if k in references else 1) for k, check in cls.VALIDATORS.items()}
    for name, change in (
        ("not", _unless_uncertain),
        ("if", _unless_uncertain),
        ("contains", _contains),
        ("additionalProperties", _additional),
        ("disallow", _unless_uncertain),
        ("oneOf", lambda check: _one_of(check, cls.VALIDATORS["anyOf"])),
    ):
        if name in checks:
            checks[name] = _counted(change(cls.VALIDATORS[name]))
    checks |= {name: _nothing for name in _UNCHECKED if name in checks}
    if "uniqueItems" in checks:
        checks["uniqueItems"] = _counted(_unique)
    careful: Any = validators.extend(cls, checks)
    evolve = careful.evolve

    def stay_careful(self: Any, **changes: Any) -> Any:
        schema = changes.get("schema")
        if isinstance(schema, dict) and "$schema" in schema:  # would switch to that dialect's own class
            changes["schema"] = {key: value for key, value in schema.items() if key != "$schema"}
        return evolve(self, **changes)

    careful.evolve = stay_careful
    return careful


@lru_cache(maxsize=1024)
def _validator(schema: str) -> Any:
    """The validator of a schema, given as JSON. Checking a schema takes milliseconds, and every env has its own tools.

    Raises:
        Exception: the schema is broken; the library raises many things for it.
    """
    from jsonschema import validators
    from jsonschema.validators import Draft202012Validator
    from referencing import Registry

    read = json.loads(schema)
    cls = validators.validator_for(read, default=Draft202012Validator)
    cls.check_schema(read, format_checker=None)
    return _careful(cls)(read, registry=Registry())  # nothing is ever fetched


class Arguments:
    """Checks the arguments of one tool.

    Args:
        name: the tool's name as the model sees it.
        schema: its ``parameters``. A schema that is itself broken, or huge, checks nothing: the server will.
    """

    def __init__(self, name: str, schema: Mapping[str, Any]):
        self._name, self._schema = name, schema
        self._made: tuple[Any] | None = None

    @property
    def _validator(self) -> Any:
        """The validator, made when it is first wanted (an episode uses few of many tools); None if there is none."""
        if self._made is None:
            made, text = None, json.dumps(self._schema)
            try:
                if len(text) > MAX_SCHEMA_CHARS:
                    raise ValueError(f"it has {len(text)} characters, and {MAX_SCHEMA_CHARS} are the most")
                made = _validator(text)
            except Exception as error:
                why = str(getattr(error, "message", error))
                logger.warning(
                    "the schema of tool %r is broken or too long, so its arguments are not checked: %.300s",
                    self._name,
                    why,
                )
            self._made = (made,)
        return self._made[0]

    def problem(self, arguments: Mapping[str, Any]) -> str | None:
        """What is wrong with ``arguments``, for the model to read; None if nothing is that is checked."""
        validator = self._validator
        if validator is None:
            return None
        _steps.left = MAX_STEPS
        try:
            errors = list(itertools.islice(validator.iter_errors(arguments), _MAX_ERRORS))
        except _GaveUp:
            logger.info("checking the arguments of tool %r takes too long; they are left to the server", self._name)
            return None
        except Exception as error:  # a schema that cannot be applied is the server's to judge
            logger.info("the schema of tool %r cannot be applied: %s: %.300s", self._name, type(error).__name__, error)
            return None
        if not errors:
            return None
        errors.sort(key=lambda e: (list(map(str, e.path)), e.message))
        complaints = list(dict.fromkeys(self._complaint(error) for error in errors))
        more = len(complaints) - _MAX_COMPLAINTS
        rest = "" if more <= 0 else f"; and {more} more" if len(errors) < _MAX_ERRORS else "; and more"
        expected = ", ".join(self._signature())
        return (
            f"the arguments do not fit the schema of {self._name!r}: {'; '.join(complaints[:_MAX_COMPLAINTS])}{rest}. "
            f"It takes ({expected})."
        )

    def _complaint(self, error: Any) -> str:
        where = "".join(f"[{step}]" if isinstance(step, int) else f".{clip(step)}" for step in error.path).lstrip(".")
        at = f"`{clip(where, 200)}`: " if where else ""
        got = _short(error.instance)
        match error.validator:
            case "required":
                missing = [name for name in error.validator_value if name not in error.instance]
                name = next((m for m in missing if repr(m) in error.message), missing[0] if missing else "?")
                known = error.schema.get("properties") or {}
                misspelt = _close(name, [key for key in error.instance if key not in known])
                hint = f" (it is not `{misspelt}`)" if misspelt else ""
                return f"{at}`{clip(name)}` is required but missing{hint}"
            case "additionalProperties" if error.validator_value is False:
                known = error.schema.get("properties") or {}
                extra = [key for key in error.instance if key not in known]
                shown = [(clip(key), _close(key, known)) for key in extra[:_MAX_COMPLAINTS]]
                words = [f"`{key}` is not known" + (f" (is it `{hint}`?)" if hint else "") for key, hint in shown]
                return at + ", ".join(words) + (f" and {len(extra) - len(shown)} more" if extra[len(shown) :] else "")
            case "type":
                types = error.validator_value
                return f"{at}expected {' or '.join(types) if isinstance(types, list) else types}, got {got}"
            case "enum":
                return f"{at}expected one of {_short(error.validator_value, 200)}, got {got}"
            case "anyOf" | "oneOf":
                return f"{at}{_alternatives(error)}, got {got}"
            case _:
                return f"{at}{clip(error.message, 200)}"

    def _signature(self) -> Iterable[str]:
        required = self._schema.get("required") or ()
        for name, schema in (self._schema.get("properties") or {}).items():
            types = schema.get("type") if isinstance(schema, Mapping) else None
            text = f"{name}: {'|'.join(types) if isinstance(types, list) else types or 'any'}"
            yield text if name in required else f"{text} (optional)"


# -- words ----------------------------------------------------------------------------------------------------


def clip(text: str, limit: int = MAX_NAME_CHARS) -> str:
    """``text``, cut to ``limit`` characters."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _alternatives(error: Any) -> str:
    """What each branch of an ``anyOf`` wants."""
    wants = []
    for branch in error.validator_value:
        kind = branch.get("type") if isinstance(branch, Mapping) else None
        if isinstance(branch, Mapping) and "enum" in branch:
            wants.append(f"one of {_short(branch['enum'], 200)}")
        elif isinstance(kind, str):
            wants.append(kind)
    return f"expected {' or '.join(dict.fromkeys(wants))}" if wants else "does not fit any of the allowed forms"


def _close(name: str, candidates: Iterable[str]) -> str | None:
    """The candidate that ``name`` was probably meant to be, whatever the case."""
    some = itertools.islice((c for c in candidates if len(c) <= MAX_NAME_CHARS), 100)
    folded = {candidate.casefold(): candidate for candidate in some}
    found = difflib.get_close_matches(name[:MAX_NAME_CHARS].casefold(), folded, n=1)
    return folded[found[0]] if found else None


def _short(value: Any, limit: int = 60) -> str:
    """JSON of ``value``, cut to ``limit`` characters."""
    return clip(json.dumps(value, ensure_ascii=False, default=str), limit)
