"""Routes: the shortest is the shortest, and one that is plain to see is not asked for."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.gaia.operators import named
from envs.gaia.routes import links, route, shortest
from envs.gaia.terms import Box, Draft, Reject
from envs.gaia.world import world


@given(st.integers(0, 10**6), st.integers(3, 6))
def test_the_shortest_way_is_no_longer_than_any(seed: int, count: int) -> None:
    rng = random.Random(seed)
    places = "abcdef"[:count]
    known = [(one, other, rng.randrange(1, 50)) for one, other in itertools.combinations(places, 2)]
    lengths = {frozenset((one, other)): length for one, other, length in known}
    ways = [
        (sum(lengths[frozenset(pair)] for pair in itertools.pairwise(("a", *between, "b"))), len(between) + 1)
        for size in range(count - 1)
        for between in itertools.permutations(places[2:], size)
    ]
    assert shortest(rng.sample(known, len(known)), "a", "b") == min(ways)


def test_a_network_is_connected_and_has_no_link_twice() -> None:
    for seed in range(20):
        draft = Draft(random.Random(seed), world("synthetic", 0))
        network = links(draft, Box(draft, "map.zip"))
        pairs = [frozenset(link[:2]) for link in network.links]
        assert len(set(pairs)) == len(pairs) and all(len(pair) == 2 for pair in pairs)
        assert all(shortest(network.links, network.places[0], place)[0] >= 0 for place in network.places)


def test_a_route_of_a_link_or_two_is_refused() -> None:
    draft = Draft(random.Random(0), world("synthetic", 0))
    network = links(draft)
    one, other, _ = min(network.links, key=lambda link: link[2])
    ends = [named(network.table, network.table.row(name)) for name in (one, other)]
    with pytest.raises(Reject, match="plain to see"):
        route(draft, network, *ends)
