"""Task templates: each composes operators into one kind of question.

A template is a function of a draft that gives a finished question. :func:`template` registers it under its name;
which split it belongs to stands in :data:`envs.gaia.splits.TEMPLATE_SPLITS`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from envs.gaia.splits import TEMPLATE_SPLITS
from envs.gaia.terms import Draft, Question
from envs.gaia.world import FLAVOURS

_MODULES = (
    "archives",
    "atlas",
    "combined",
    "documents",
    "level3_files",
    "level3_revisions",
    "level3_trails",
    "lookups",
    "media",
    "routes",
    "tables",
)

_registry: dict[str, Template] = {}


@dataclass(frozen=True)
class Template:
    """One kind of question."""

    name: str
    level: int
    split: str
    make: Callable[[Draft], Question]
    worlds: tuple[str, ...] = FLAVOURS
    """The flavours that have what it asks about."""


def template(
    name: str, *, level: int, worlds: tuple[str, ...] = FLAVOURS
) -> Callable[[Callable[[Draft], Question]], Callable[[Draft], Question]]:
    """Register the decorated function as the template ``name``.

    Args:
        name: a key of ``TEMPLATE_SPLITS``.
        level: 1, 2 or 3 as GAIA counts them (:mod:`envs.gaia.levels`); checked for every task that is made.
        worlds: the flavours that have what it asks about: ``real`` has no revisions, for example.
    """

    def register(make: Callable[[Draft], Question]) -> Callable[[Draft], Question]:
        _registry[name] = Template(name, level, TEMPLATE_SPLITS[name], make, worlds)
        return make

    return register


@lru_cache(maxsize=1)
def templates() -> Mapping[str, Template]:
    """All templates by name, in the order of ``TEMPLATE_SPLITS``."""
    for module in _MODULES:
        importlib.import_module(f"{__name__}.{module}")
    return MappingProxyType({name: _registry[name] for name in TEMPLATE_SPLITS})
