"""In the world ``shifted``, whoever answers from memory is wrong, and so is whoever always says the same."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.gaia.splits import SPLITS, world_seeds
from envs.gaia.world import TRAINING_FLAVOURS, world
from envs.gaia.worlds.real import SPECS, moved, spread

RECALL = 0.02
"""Share of an askable column's values that may be the true ones."""
MAJORITY = 0.05
"""Share of an askable column's values that may be the same."""


def recalled(split: str, seed: int) -> dict[tuple[str, str], float]:
    """(table, column) -> share of the entities whose shifted value is the real one, for every fact."""
    real, shifted = world("real", world_seeds(split)[0]), world("shifted", seed)
    shares = {}
    for spec in SPECS:
        table = shifted.tables[spec.name]
        for column in spec.facts:
            same = [row[column.name] == real.tables[spec.name].row(row["name"])[column.name] for row in table.rows]
            shares[spec.name, column.name] = sum(same) / len(same)
    return shares


@pytest.mark.parametrize("split", SPLITS)
def test_recall_of_the_real_value_is_wrong(split: str) -> None:
    """Codes too, which are never asked for: an entity that is named by its code has to be looked up."""
    for seed in world_seeds(split):
        shares = recalled(split, seed)
        assert len(shares) >= 14
        assert {key: share for key, share in shares.items() if share > RECALL} == {}


@pytest.mark.parametrize("split", SPLITS)
def test_shifted_and_real_worlds_have_the_same_entities(split: str) -> None:
    for seed in world_seeds(split):
        shifted, real = world("shifted", seed), world("real", seed)
        assert list(shifted.tables) == list(real.tables)
        for name, table in shifted.tables.items():
            assert [row["name"] for row in table.rows] == [row["name"] for row in real.tables[name].rows]


@pytest.mark.parametrize("flavour", TRAINING_FLAVOURS)
@pytest.mark.parametrize("split", SPLITS)
def test_no_value_that_is_asked_for_is_common(split: str, flavour: str) -> None:
    for seed in world_seeds(split):
        for table in world(flavour, seed).tables.values():
            for column in table.columns:
                most = max(Counter(row[column.name] for row in table.rows).values())
                assert not column.askable or most <= max(2, MAJORITY * len(table.rows)), (table.name, column.name)


def test_groups_and_codes_are_not_asked_for() -> None:
    for flavour in TRAINING_FLAVOURS:
        for table in world(flavour, 0).tables.values():
            assert {column.kind for column in table.columns if not column.askable} <= {"code", "group"}
            assert not any(column.askable for column in table.of_kind("code", "group"))


def test_what_follows_from_another_column_moves_with_it() -> None:
    for row in world("shifted", 0).tables["symbol"].rows:
        assert row["code"] == f"U+{row['code_point']:04X}"


def displaced(values: Sequence[object], made: Sequence[object]) -> bool:
    return all(old != new for old, new in zip(values, made, strict=True))


@given(st.lists(st.integers(0, 9)), st.integers())
def test_moved_values_are_the_same_and_none_keeps_its_place(values: list[int], seed: int) -> None:
    made = moved(values, random.Random(seed))
    assert Counter(made) == Counter(values)
    if values and 2 * max(Counter(values).values()) <= len(values):
        assert displaced(values, made)


@given(st.lists(st.sampled_from("abcdefgh")), st.integers(0, 99))
def test_spread_references_are_wrong_and_even(true: list[str], seed: int) -> None:
    others = list("abcdef")
    made = spread(true, others, random.Random(seed))
    assert displaced(true, made)
    most = max(map(made.count, others))
    assert most <= -(-len(made) // len(others)) + max(map(true.count, others))  # the rest had no other choice


def test_many_seeds_make_many_permutations() -> None:
    assert len({tuple(moved(range(30), random.Random(seed))) for seed in range(200)}) == 200
