"""Pools of made-up names: for towns, firms, stations, ships and people.

A pool is a fixed list that depends on nothing but this module; which split owns a name is decided elsewhere.
All names are ASCII, unique within their pool, and hold no character that a scorer might strip.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import lru_cache

_STARTS = (
    "Al Bar Bel Bren Cal Cor Dal Dor El Fen Gal Gor Hal Ith Jor Kal Kes Lor Mar Mel Nor Or Pel Quin Ros Sel Tal Tor "
    "Ul Val Ver Wen Yar Zel"
)
_MIDDLES = "a e i o u ar en il or an"
_TOWN_ENDS = "bridge burg cliff combe dale field ford gate haven holm mere mouth stead thorpe vale wick"
_SURNAME_ENDS = "bert dini dov ghan kin lund man mov nelli quist sby son stein strand ter va wald"
_FIRST = (
    "Ada Bruno Carla Dmitri Elena Farid Greta Hugo Irene Jonas Kamila Leo Mira Nadia Oscar Paula Quentin Rosa "
    "Stefan Tilda Umar Vera Willem Xenia Yusuf Zora Amara Boris Celia Dario"
)
_TRADES = (
    "Textiles Optics Timber Foundry Ceramics Shipping Bakery Printworks Chemicals Instruments Mills Glassworks "
    "Cables Brewery Robotics Paper Machinery Seeds"
)
_FEATURES = "Ridge Hollow Summit Marsh Point Plateau Ravine Spur Terrace Basin"
_SHIP_FIRST = (
    "Amber Bold Copper Distant Early Faithful Golden Hidden Iron Jolly Keen Lucky Merry Northern Patient Quiet "
    "Restless Silver Tireless Wandering"
)
_SHIP_SECOND = "Albatross Comet Dolphin Falcon Gannet Heron Kestrel Lantern Meridian Osprey Petrel Star Tern Voyager"


@lru_cache(maxsize=1)
def towns() -> tuple[str, ...]:
    """Single words, such as ``Calenford``."""
    return _draw("towns", 300, lambda r: _stem(r) + r.choice(_TOWN_ENDS.split()))


@lru_cache(maxsize=1)
def firms() -> tuple[str, ...]:
    """A made-up surname and a trade, such as ``Norilquist Optics``. No surname is used twice."""
    surnames = _draw("firms", 320, lambda r: _stem(r) + r.choice(_SURNAME_ENDS.split()))
    rng = random.Random("trades")
    return tuple(f"{surname} {rng.choice(_TRADES.split())}" for surname in surnames)


@lru_cache(maxsize=1)
def stations() -> tuple[str, ...]:
    """A made-up word and a landscape feature, such as ``Belor Ridge``."""
    words = _draw("stations", 240, lambda r: r.choice(_STARTS.split()) + r.choice("aeiou") + r.choice("bdklmnrst"))
    rng = random.Random("features")
    return tuple(f"{word} {rng.choice(_FEATURES.split())}" for word in words)


@lru_cache(maxsize=1)
def ships() -> tuple[str, ...]:
    """An adjective and a noun, such as ``Quiet Heron``."""
    return tuple(f"{first} {second}" for first in _SHIP_FIRST.split() for second in _SHIP_SECOND.split())


@lru_cache(maxsize=1)
def people() -> tuple[str, ...]:
    """First and last name, such as ``Mira Torandov``. No last name is used twice."""
    ends = [mid + end for mid in "aio" for end in _SURNAME_ENDS.split()]
    surnames = _draw("people", 2400, lambda r: _stem(r) + r.choice("bdklmnrst") + r.choice(ends))
    rng = random.Random("first names")
    return tuple(f"{rng.choice(_FIRST.split())} {surname}" for surname in surnames)


def _stem(rng: random.Random) -> str:
    return rng.choice(_STARTS.split()) + rng.choice(_MIDDLES.split())


def _draw(pool: str, count: int, make: Callable[[random.Random], str]) -> tuple[str, ...]:
    def stream() -> Iterator[str]:
        rng = random.Random(pool)
        while True:
            yield make(rng)

    found: dict[str, None] = {}
    for name in stream():
        found[name] = None
        if len(found) == count:
            return tuple(found)
    raise AssertionError("an endless stream ended")
