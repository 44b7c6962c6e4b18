"""MCP tools to OpenAI tools: names, schemas, and the checking of arguments. Knows no server and no session."""

from __future__ import annotations

import difflib
import hashlib
import json
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

logger = logging.getLogger(__name__)

MAX_NAME = 64
MAX_INLINED_CHARS = 65_536
"""A schema that would be larger than this with its references inlined keeps them."""

_SCHEMA = (
    "items additionalItems contains additionalProperties propertyNames unevaluatedItems unevaluatedProperties "
    "not if then else contentSchema"
).split()
_SCHEMA_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_SCHEMA_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_ANNOTATIONS = ("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment")
_MAX_COMPLAINTS = 5


# -- names ----------------------------------------------------------------------------------------------------


def aliases(tools: Sequence[tuple[str, str]]) -> list[str]:
    """Names for (server, tool) pairs, in their order: unique, and ``[A-Za-z0-9_-]{1,64}``.

    A tool keeps its name where that is legal and no other server has it; it is ``server__tool`` where another does,
    with illegal characters as ``_``, and long names end in a hash. What still collides gets a number.
    """
    counts: dict[str, int] = {}
    for _, tool in tools:
        counts[_legal(tool)] = counts.get(_legal(tool), 0) + 1
    taken: set[str] = set()
    names = []
    for server, tool in tools:
        plain = _legal(tool)
        wanted = plain if counts[plain] == 1 else _legal(f"{server}__{tool}")
        name, number = wanted, 2
        while name in taken or (name != plain and counts.get(name) == 1):
            suffix = f"_{number}"
            name, number = wanted[: MAX_NAME - len(suffix)] + suffix, number + 1
        taken.add(name)
        names.append(name)
    return names


def _legal(name: str) -> str:
    legal = re.sub(r"[^A-Za-z0-9_-]", "_", name)
    if len(legal) > MAX_NAME:
        legal = legal[: MAX_NAME - 9] + "_" + hashlib.sha256(name.encode()).hexdigest()[:8]
    return legal or "_"


# -- schemas --------------------------------------------------------------------------------------------------


def openai_tool(name: str, tool: Mapping[str, Any]) -> dict[str, Any]:
    """The OpenAI tool for an MCP tool (its JSON), under ``name``."""
    description = tool.get("description")
    if not isinstance(description, str) or not description:
        title = tool.get("title")
        description = title if isinstance(title, str) else ""
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": parameters(tool.get("inputSchema"))},
    }


def parameters(schema: Any) -> dict[str, Any]:
    """A tool's ``inputSchema`` as an OpenAI ``parameters`` object.

    Everything is kept. Local references are inlined where that is finite and not huge; recursive ones stay, with
    the definitions they need.
    """
    schema = dict(schema) if isinstance(schema, Mapping) else {}
    if schema.get("type") != "object":  # arguments always are one, whatever the server wrote
        schema["type"] = "object"
    if not isinstance(schema.get("properties"), Mapping):
        schema["properties"] = {}
    inlined = _Inliner(schema).run()
    if inlined is None or len(json.dumps(inlined, default=str)) > max(MAX_INLINED_CHARS, len(json.dumps(schema))):
        inlined = schema
    copy: dict[str, Any] = json.loads(json.dumps(inlined, default=str))
    return copy


class _TooLarge(Exception):
    pass


class _Inliner:
    """Replaces ``{"$ref": "#/..."}`` by what it points to."""

    def __init__(self, root: Mapping[str, Any]):
        self.root = root
        self.kept: set[str] = set()
        """References that could not be replaced."""
        self.loops: dict[str, bool] = {}
        """Whether a reference leads back to itself."""
        self.budget = MAX_INLINED_CHARS // 8  # subschemas visited

    def run(self) -> dict[str, Any] | None:
        """The schema with references inlined; None if it would be huge."""
        try:
            result: dict[str, Any] = self.walk(self.root, ())
        except (_TooLarge, RecursionError):
            return None
        for keyword in ("$defs", "definitions"):
            # definitions are needed only where something still points into them
            if not any(reference.startswith(f"#/{keyword}/") for reference in self.kept):
                result.pop(keyword, None)
            elif isinstance(self.root.get(keyword), Mapping):
                result[keyword] = self.root[keyword]
        return result

    def walk(self, node: Any, path: tuple[str, ...]) -> Any:
        if not isinstance(node, Mapping):
            return node
        self.budget -= 1
        if self.budget < 0:
            raise _TooLarge
        reference = node.get("$ref")
        if isinstance(reference, str):
            return self.resolve(reference, node, path)
        result = dict(node)
        for key, value in node.items():
            if key in _SCHEMA_MAPS and isinstance(value, Mapping):
                if not (node is self.root and key in ("$defs", "definitions")):
                    result[key] = {name: self.walk(item, path) for name, item in value.items()}
            elif key in _SCHEMA_LISTS and isinstance(value, list):
                result[key] = [self.walk(item, path) for item in value]
            elif key in _SCHEMA:
                result[key] = self.walk(value, path)
        return result

    def resolve(self, reference: str, node: Mapping[str, Any], path: tuple[str, ...]) -> Any:
        target = self.lookup(reference)
        if target is None or self.recursive(reference, path):
            self.kept.add(reference)
            return dict(node)
        found = self.walk(target, (*path, reference))
        beside = {key: value for key, value in node.items() if key != "$ref"}
        if not beside:
            return found
        beside = self.walk(beside, path)
        if not isinstance(found, Mapping) or any(key in found and key not in _ANNOTATIONS for key in beside):
            return {**beside, "allOf": [found, *beside.get("allOf", [])]}
        return {**found, **beside}

    def recursive(self, reference: str, path: tuple[str, ...]) -> bool:
        """Whether ``reference`` leads back to itself, or is met inside itself."""
        if reference not in self.loops:
            self.loops[reference] = reference == "#" or reference in self.reach(reference)
        return self.loops[reference] or reference in path

    def reach(self, reference: str) -> set[str]:
        """All references that can be met from ``reference``'s target on."""
        seen: set[str] = set()
        todo = [reference]
        while todo:
            for found in _references(self.lookup(todo.pop())):
                if found not in seen:
                    seen.add(found)
                    todo.append(found)
        return seen

    def lookup(self, reference: str) -> Any:
        """What a local JSON pointer names, or None."""
        if not reference.startswith("#/"):
            return None
        node: Any = self.root
        for step in reference[2:].split("/"):
            step = step.replace("~1", "/").replace("~0", "~")
            if isinstance(node, Mapping) and step in node:
                node = node[step]
            elif isinstance(node, list) and step.isdigit() and int(step) < len(node):
                node = node[int(step)]
            else:
                return None
        return node


def _references(node: Any) -> Iterable[str]:
    if isinstance(node, Mapping):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for value in node.values():
            yield from _references(value)
    elif isinstance(node, list):
        for value in node:
            yield from _references(value)


# -- arguments ------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def _validator(schema: str) -> Any:
    """The validator of a schema, given as JSON. Checking a schema takes milliseconds, and every env has its own tools.

    Raises:
        SchemaError, RecursionError: the schema is broken.
    """
    from jsonschema import validators
    from jsonschema.validators import Draft202012Validator
    from referencing import Registry

    read = json.loads(schema)
    cls = validators.validator_for(read, default=Draft202012Validator)
    cls.check_schema(read)
    return cls(read, registry=Registry())  # nothing is ever fetched


class Arguments:
    """Checks the arguments of one tool.

    Args:
        name: the tool's name as the model sees it.
        schema: its ``parameters``. A schema that is itself broken checks nothing: the server will.
    """

    def __init__(self, name: str, schema: Mapping[str, Any]):
        from jsonschema import SchemaError

        self._name, self._schema = name, schema
        try:
            self._validator: Any = _validator(json.dumps(schema))
        except (SchemaError, RecursionError) as error:
            logger.warning("the schema of tool %r is broken, so its arguments are not checked: %s", name, error)
            self._validator = None

    def problem(self, arguments: Mapping[str, Any]) -> str | None:
        """What is wrong with ``arguments``, for the model to read; None if nothing is."""
        if self._validator is None:
            return None
        from referencing.exceptions import Unresolvable

        try:
            errors = sorted(self._validator.iter_errors(arguments), key=lambda e: (list(map(str, e.path)), e.message))
        except (Unresolvable, RecursionError, re.error):
            return None  # a schema that cannot be applied is the server's to judge
        if not errors:
            return None
        complaints = list(dict.fromkeys(self._complaint(error, arguments) for error in errors))
        more = f"; and {len(complaints) - _MAX_COMPLAINTS} more" if len(complaints) > _MAX_COMPLAINTS else ""
        expected = ", ".join(self._signature())
        return (
            f"the arguments do not fit the schema of {self._name!r}: {'; '.join(complaints[:_MAX_COMPLAINTS])}{more}. "
            f"It takes ({expected})."
        )

    def _complaint(self, error: Any, arguments: Mapping[str, Any]) -> str:
        where = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.path).lstrip(".")
        at = f"`{where}`: " if where else ""
        got = _short(error.instance)
        match error.validator:
            case "required":
                missing = [name for name in error.validator_value if name not in error.instance]
                name = next((m for m in missing if repr(m) in error.message), missing[0] if missing else "?")
                known = error.schema.get("properties") or {}
                misspelt = _close(name, [key for key in error.instance if key not in known])
                hint = f" (it is not `{misspelt}`)" if misspelt else ""
                return f"{at}`{name}` is required but missing{hint}"
            case "additionalProperties" if error.validator_value is False:
                known = error.schema.get("properties") or {}
                extra = [key for key in error.instance if key not in known]
                hints = [(key, _close(key, known)) for key in extra]
                return at + ", ".join(
                    f"`{k}` is not known" + (f" (is it `{hint}`?)" if hint else "") for k, hint in hints
                )
            case "type":
                types = error.validator_value
                return f"{at}expected {' or '.join(types) if isinstance(types, list) else types}, got {got}"
            case "enum":
                return f"{at}expected one of {_short(error.validator_value, 200)}, got {got}"
            case "anyOf" | "oneOf":
                return f"{at}{_alternatives(error)}, got {got}"
            case _:
                return f"{at}{error.message[:200]}"

    def _signature(self) -> Iterable[str]:
        required = self._schema.get("required") or ()
        for name, schema in (self._schema.get("properties") or {}).items():
            types = schema.get("type") if isinstance(schema, Mapping) else None
            text = f"{name}: {'|'.join(types) if isinstance(types, list) else types or 'any'}"
            yield text if name in required else f"{text} (optional)"


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
    folded = {candidate.casefold(): candidate for candidate in candidates}
    found = difflib.get_close_matches(name.casefold(), folded, n=1)
    return folded[found[0]] if found else None


def _short(value: Any, limit: int = 60) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= limit else text[: limit - 1] + "…"
