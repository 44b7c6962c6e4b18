"""Pools of made-up names: for towns, firms, stations, ships, museums, books and people, and nicknames for anything.

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
_MUSEUM_ENDS = "bar chen dess farn golt hask lund mir nost pell rask stan tamm veld"
_HOUSES = "Aquarium Collection Gallery Museum Observatory Planetarium Theatre Treasury"
_BOOK_FIRST = (
    "Borrowed Broken Burning Cold Crooked Drifting Empty Endless Fallen Glass Hungry Invisible Marble Narrow Paper "
    "Secret Silent Stolen Tangled Unwritten Winter Yellow"
)
_BOOK_SECOND = (
    "Alphabet Calendar Cartographer Clockmaker Doorway Echo Ferryman Ghost Glacier Inheritance Island Melody Moon "
    "Orchestra Passage Pilot River Season Staircase Summer Tide Visitor"
)
_TOWN_FIRST = "East Great Little Lower New North Old South Upper West"
_NICKNAME_FIRST = (
    "Brazen Cloudless Crimson Dreaming Dusty Emerald Forgotten Frosty Gentle Grey Hollow Honest Humble Ivory Laughing "
    "Lonely Misty Mossy Nimble Painted Pale Patchwork Proud Purple Rusty Salty Scarlet Shining Singing Sleeping "
    "Slender Smiling Stubborn Sunlit Thirsty Velvet Whispering Wooden"
)
_NICKNAME_SECOND = (
    "Acorn Anvil Anchor Apron Balcony Barrel Beacon Bell Bonnet Bucket Button Candle Castle Chimney Clover Compass "
    "Cradle Crown Drum Feather Fiddle Garden Gate Giant Hammer Harbour Harvest Kettle Ladder Mirror Needle Orchard "
    "Oven Parlour Pebble Pillow Quilt Ribbon Saddle Shepherd Thimble Trumpet Umbrella Wagon Whistle Window"
)


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
def museums() -> tuple[str, ...]:
    """A made-up word and a kind of house, such as ``Corestan Gallery``."""
    words = _draw(
        "museums", 200, lambda r: r.choice(_STARTS.split()) + r.choice("aeiou") + r.choice(_MUSEUM_ENDS.split())
    )
    rng = random.Random("houses")
    return tuple(f"{word} {rng.choice(_HOUSES.split())}" for word in words)


@lru_cache(maxsize=1)
def books() -> tuple[str, ...]:
    """An adjective or a thing, and a noun, such as ``Paper Moon``."""
    found = [f"{first} {second}" for first in _BOOK_FIRST.split() for second in _BOOK_SECOND.split()]
    return tuple(random.Random("books").sample(found, 260))


@lru_cache(maxsize=1)
def people() -> tuple[str, ...]:
    """First and last name, such as ``Mira Torandov``. No last name is used twice."""
    ends = [mid + end for mid in "aio" for end in _SURNAME_ENDS.split()]
    surnames = _draw("people", 4000, lambda r: _stem(r) + r.choice("bdklmnrst") + r.choice(ends))
    rng = random.Random("first names")
    return tuple(f"{rng.choice(_FIRST.split())} {surname}" for surname in surnames)


@lru_cache(maxsize=1)
def nicknames() -> tuple[str, ...]:
    """Two words that no other pool has, such as ``Grey Harbour``."""
    rng = random.Random("nicknames")
    found = [f"{first} {second}" for first in _NICKNAME_FIRST.split() for second in _NICKNAME_SECOND.split()]
    return tuple(rng.sample(found, len(found)))


def lookalikes(table: str, name: str) -> tuple[str, ...]:
    """Names that are easily taken for ``name``, which is one of the pool of ``table``.

    Towns of the same word, firms of the same surname, stations and museums at the same place; for other tables none.
    """
    word, _, rest = name.partition(" ")
    if table == "town":
        return tuple(f"{first} {name}" for first in _TOWN_FIRST.split())
    others = {"firm": _TRADES, "station": _FEATURES, "museum": _HOUSES}.get(table, "").split()
    return tuple(f"{word} {other}" for other in others if other != rest)


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
