"""Which template, entity and world seed belongs to which split.

A split owns templates, entities (countries, firms, ...) and world seeds, and no two splits share any of them:

* templates by the table :data:`TEMPLATE_SPLITS`, by hand: each split has all levels, both worlds and most media;
* entities and world seeds by :func:`split_of`, a hash of their name. A name has one hash, so it has one split.

A task's own random stream is seeded with its whole id, which names the split.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from aworld_gym.errors import ConfigError, did_you_mean

SPLITS = ("train", "validation", "test")
SHARES = (0.6, 0.2, 0.2)
"""Share of the entities and seeds that each split gets; sums to 1."""
WORLDS_PER_SPLIT: Mapping[str, int] = MappingProxyType({"train": 8, "validation": 6, "test": 6})
"""How many world seeds a split uses for each flavour. Few, since a search index is built for each."""

TEMPLATE_SPLITS: Mapping[str, str] = MappingProxyType(
    {
        # level 1
        "csv-total": "train",
        "json-average": "train",
        "jsonl-spread": "train",
        "png-price": "train",
        "py-output": "train",
        "qr-sum": "train",
        "sqlite-total": "train",
        "wav-tones": "train",
        "web-gap": "train",
        "xlsx-merged": "train",
        "xlsx-rank": "train",
        "chart-heights": "validation",
        "csv-route": "validation",
        "docx-rank": "validation",
        "eml-sum": "validation",
        "sqlite-rank": "validation",
        "tsv-spread": "validation",
        "wav-dialled": "validation",
        "web-chain": "validation",
        "xlsx-hidden": "validation",
        "html-shared": "test",
        "lettered-sum": "test",
        "pptx-notes": "test",
        "sqlite-top": "test",
        "wav-morse": "test",
        "web-convert": "test",
        "xlsx-score": "test",
        "xlsx-sheets-gap": "test",
        "xml-average": "test",
        # level 2
        "audio-csv-document": "train",
        "chart-csv-web": "train",
        "csv-top-web": "train",
        "docx-web-weighted": "train",
        "mail-attachment": "train",
        "pdf-web-days": "train",
        "qr-morse-web": "train",
        "qr-route": "train",
        "reference-sqlite-tiles": "train",
        "three-media": "train",
        "xlsx-join-web": "train",
        "zip-final": "train",
        "chart-mail-web": "validation",
        "pdf-web-best": "validation",
        "png-csv-bill": "validation",
        "py-web": "validation",
        "qr-xlsx-mail": "validation",
        "sqlite-top-web": "validation",
        "word-rows-tones": "validation",
        "zip-nested-media": "validation",
        "docx-xlsx-refund": "test",
        "lettered-code-web": "test",
        "mail-media": "test",
        "md-csv-missing": "test",
        "morse-sqlite-slides": "test",
        "qr-sqlite-days": "test",
        "web-three-media": "test",
        "xml-rank-web": "test",
        "zip-code-sqlite": "test",
        "zip-letters-web": "test",
        "zip-route": "test",
        # level 3
        "finalists": "train",
        "ledger-trail": "train",
        "revision-day": "train",
        "revision-days": "train",
        "revision-gap": "train",
        "revision-rate": "train",
        "same-day": "train",
        "sealed-table": "train",
        "issuer-bill": "validation",
        "legend-in-force": "validation",
        "two-histories": "validation",
        "weights-in-force": "validation",
        "bounded-ledger": "test",
        "revision-larger": "test",
        "roster-missing": "test",
        "two-ledgers": "test",
    }
)
"""Every template's split. A template that is not here cannot be registered."""


def split_of(kind: str, name: object) -> str:
    """The split that owns ``name`` (an entity of table ``kind``, or a seed with ``kind="seed"``)."""
    return _owner(f"{kind}\x1f{name}")


@lru_cache(maxsize=2**16)  # every world asks for the same thousands of names
def _owner(key: str) -> str:
    digest = hashlib.sha256(key.encode()).digest()
    point = int.from_bytes(digest[:8], "big") / 2**64
    for split, edge in zip(SPLITS, itertools.accumulate(SHARES), strict=True):
        if point < edge:
            return split
    return SPLITS[-1]  # the shares' floating-point sum may fall short of 1 by an ulp


@lru_cache(maxsize=len(SPLITS))
def world_seeds(split: str) -> tuple[int, ...]:
    """The world seeds of a split: the smallest integers that :func:`split_of` gives it."""
    check_split(split)
    owned = (seed for seed in itertools.count() if split_of("seed", seed) == split)
    return tuple(itertools.islice(owned, WORLDS_PER_SPLIT[split]))


def check_split(split: str) -> str:
    """``split`` itself; raises ConfigError unless it is one of :data:`SPLITS`."""
    if split not in SPLITS:
        raise ConfigError(f"split must be one of {list(SPLITS)}, got {split!r}.{did_you_mean(str(split), SPLITS)}")
    return split
