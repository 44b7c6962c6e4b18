"""MCP tools to OpenAI tools: names and schemas. Knows no server and no session."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from aworld_gym.toolchain.jsontext import deeper

logger = logging.getLogger(__name__)

MAX_NAME = 64
MAX_INLINED_CHARS = 65_536
"""A schema that would be larger than this with its references inlined keeps them."""
MAX_DEPTH = 100
"""Levels of a schema at most: much of what handles it afterwards (templates, copies) is recursive."""
_MAX_VISITS = 100_000  # nodes looked at for references that lead back to themselves

_SCHEMA = (
    "items additionalItems contains additionalProperties propertyNames unevaluatedItems unevaluatedProperties "
    "not if then else contentSchema"
).split()
_SCHEMA_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_SCHEMA_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_ANNOTATIONS = ("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment")


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
    the definitions they need. Only of a schema of more than 100 levels nothing but the outermost is kept.
    """
    schema = dict(schema) if isinstance(schema, Mapping) else {}
    if deeper(schema, MAX_DEPTH):
        logger.warning("a tool's schema is nested more than %d levels deep; only its outermost is kept", MAX_DEPTH)
        schema = _outermost(schema)
    if schema.get("type") != "object":  # arguments always are one, whatever the server wrote
        schema["type"] = "object"
    if not isinstance(schema.get("properties"), Mapping):
        schema["properties"] = {}
    inlined = _Inliner(schema).run()
    if inlined is None or len(json.dumps(inlined, default=str)) > max(MAX_INLINED_CHARS, len(json.dumps(schema))):
        inlined = schema
    copy: dict[str, Any] = json.loads(json.dumps(inlined, default=str))
    return copy


def _outermost(schema: Mapping[str, Any]) -> dict[str, Any]:
    """What a schema says of its properties themselves, and nothing of what is inside them."""
    properties = schema.get("properties")
    known = {
        name: {k: v for k, v in node.items() if k in ("type", *_ANNOTATIONS) and not isinstance(v, Mapping | list)}
        for name, node in (properties.items() if isinstance(properties, Mapping) else ())
        if isinstance(node, Mapping)
    }
    required = schema.get("required")
    return {"properties": known} | ({"required": required} if isinstance(required, list) else {})


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
        self.visits = 0

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
            for found in self.references(self.lookup(todo.pop())):
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

    def references(self, node: Any) -> Iterable[str]:
        """All references in ``node``."""
        self.visits += 1
        if self.visits > _MAX_VISITS:
            raise _TooLarge
        if isinstance(node, Mapping):
            if isinstance(node.get("$ref"), str):
                yield node["$ref"]
            for value in node.values():
                yield from self.references(value)
        elif isinstance(node, list):
            for value in node:
                yield from self.references(value)
