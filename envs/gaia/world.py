"""Worlds: typed tables of facts, and the local web made from them.

A world is named by a *corpus*, ``{"world": flavour, "seed": n}``, and is a pure function of it. Three flavours:

* ``real``: countries, airports and other things that exist, with facts from packages (see DATA.md). Played only when
  asked for, since a model may know the answers;
* ``shifted``: the same names, whose values are permuted within their type, so that no entity keeps its own: what a
  model remembers about them is of no use;
* ``synthetic``: generated towns, firms, weather stations, ships, museums and books.

The seed belongs to one split (:func:`envs.gaia.splits.split_of`), and a world holds only entities of that split.
In ``shifted`` and ``synthetic`` some entities also have a history of revisions, outdated news, and a nickname: see
:meth:`World.history`, :meth:`World.news`, :meth:`World.descriptions`.
:func:`pages` gives the world as web pages; the search index of the tools and the task generator both use it.
This module knows nothing of tasks, files or tools; what it is made of stands in :mod:`envs.gaia.worlds`.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping
from dataclasses import fields
from functools import lru_cache
from operator import attrgetter
from types import MappingProxyType
from typing import Any

from aworld_gym.errors import ConfigError, did_you_mean
from envs.gaia import names
from envs.gaia.splits import split_of
from envs.gaia.worlds import stories
from envs.gaia.worlds.build import owned
from envs.gaia.worlds.real import SOURCES, real_tables, shifted_tables
from envs.gaia.worlds.schema import (
    ASKABLE,
    FLAVOURS,
    SITE,
    TRAINING_FLAVOURS,
    Column,
    Description,
    Page,
    Revision,
    Row,
    Table,
    World,
    alias_line,
    alias_url,
    history_line,
    history_title,
    history_url,
    link,
    list_title,
    list_url,
    news_line,
    news_title,
    news_url,
    page_url,
)
from envs.gaia.worlds.synthetic import synthetic_tables
from envs.gaia.worlds.web import web_of

_values = attrgetter(*(field.name for field in fields(Revision)))
"""A revision's values. (``astuple`` copies each of them deeply: a fifth of the time that a world took.)"""


def world(flavour: str, seed: int) -> World:
    """The world of that flavour and seed. Cached; read-only.

    Raises:
        ConfigError: an unknown flavour, or a seed that is not a non-negative int.
    """
    if flavour not in FLAVOURS:
        raise ConfigError(f"world must be one of {list(FLAVOURS)}, got {flavour!r}.{did_you_mean(flavour, FLAVOURS)}")
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise ConfigError(f"a world's seed is a non-negative int, got {seed!r}")
    return _made(flavour, seed)


@lru_cache(maxsize=64)
def _made(flavour: str, seed: int) -> World:
    split = split_of("seed", seed)
    rng = random.Random(f"world/{flavour}/{seed}")
    own = owned("person", names.people(), split)
    people = iter(rng.sample(own, len(own)))
    if flavour == "synthetic":
        tables = synthetic_tables(split, rng, people)
    elif flavour == "shifted":
        tables = shifted_tables(split, rng)
    else:
        tables = real_tables(split)
    histories: dict[stories.Key, tuple[Revision, ...]] = {}
    quoted: dict[stories.Key, Revision] = {}
    aliases: dict[stories.Key, str] = {}
    if flavour in TRAINING_FLAVOURS:
        histories, quoted = stories.histories(tables, people, rng)
        aliases = stories.nicknames(tables, owned("nickname", names.nicknames(), split), rng)
    return World(
        flavour,
        seed,
        split,
        MappingProxyType({table.name: table for table in tables}),
        _digest(tables, histories, quoted, aliases),
        MappingProxyType(histories),
        MappingProxyType(quoted),
        MappingProxyType(aliases),
    )


def _digest(
    tables: list[Table],
    histories: Mapping[stories.Key, tuple[Revision, ...]],
    quoted: Mapping[stories.Key, Revision],
    aliases: Mapping[stories.Key, str],
) -> str:
    content = (
        [[table.name, [c.name for c in table.columns], [list(r.values()) for r in table.rows]] for table in tables],
        [[key, [_values(revision) for revision in revisions]] for key, revisions in histories.items()],
        [[key, _values(revision)] for key, revision in quoted.items()],
        list(aliases.items()),
    )
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def pages(corpus: Mapping[str, Any]) -> Mapping[str, Page]:
    """The local web of a world: address -> page, in a fixed order. Cached; read-only.

    Args:
        corpus: ``{"world": flavour, "seed": int}``, as in ``Task.public["corpus"]``.

    Raises:
        ConfigError: a corpus that names no world.
    """
    if not isinstance(corpus, Mapping) or set(corpus) != {"world", "seed"}:
        raise ConfigError(f'a corpus is {{"world": flavour, "seed": int}}, got {corpus!r}')
    if not isinstance(corpus["world"], str):
        raise ConfigError(f"a corpus' world must be one of {list(FLAVOURS)}, got {corpus['world']!r}")
    where = world(corpus["world"], corpus["seed"])
    return _pages(where.flavour, where.seed)


@lru_cache(maxsize=64)
def _pages(flavour: str, seed: int) -> Mapping[str, Page]:
    return MappingProxyType(web_of(_made(flavour, seed)))


__all__ = [
    "ASKABLE",
    "FLAVOURS",
    "SITE",
    "SOURCES",
    "TRAINING_FLAVOURS",
    "Column",
    "Description",
    "Page",
    "Revision",
    "Row",
    "Table",
    "World",
    "alias_line",
    "alias_url",
    "history_line",
    "history_title",
    "history_url",
    "link",
    "list_title",
    "list_url",
    "news_line",
    "news_title",
    "news_url",
    "page_url",
    "pages",
    "world",
]
