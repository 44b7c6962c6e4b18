"""What each split owns, and that no two splits own the same."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aworld_gym.errors import ConfigError
from envs.gaia.splits import SHARES, SPLITS, TEMPLATE_SPLITS, WORLDS_PER_SPLIT, check_split, split_of, world_seeds
from envs.gaia.templates import templates
from envs.gaia.world import FLAVOURS, world


@given(st.sampled_from(["country", "firm", "seed"]), st.text() | st.integers())
def test_a_name_has_one_split_however_often_it_is_asked(kind: str, name: object) -> None:
    assert split_of(kind, name) in SPLITS
    assert split_of(kind, name) == split_of(kind, name)


def test_shares_are_what_the_hash_gives() -> None:
    owned = [split_of("seed", number) for number in range(20_000)]
    for split, share in zip(SPLITS, SHARES, strict=True):
        assert owned.count(split) / len(owned) == pytest.approx(share, abs=0.02)


def test_world_seeds_are_disjoint_and_as_many_as_said() -> None:
    for split in SPLITS:
        assert len(set(world_seeds(split))) == WORLDS_PER_SPLIT[split]
        assert all(split_of("seed", seed) == split for seed in world_seeds(split))
    for one, other in itertools.combinations(SPLITS, 2):
        assert not set(world_seeds(one)) & set(world_seeds(other))


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_entities_are_disjoint_and_the_same_in_every_world_of_a_split(flavour: str) -> None:
    owned: dict[str, set[tuple[str, str]]] = {}
    for split in SPLITS:
        worlds = [world(flavour, seed) for seed in world_seeds(split)]
        entities = [{(t.name, row["name"]) for t in one.tables.values() for row in t.rows} for one in worlds]
        assert all(found == entities[0] for found in entities)
        owned[split] = entities[0]
    for one, other in itertools.combinations(SPLITS, 2):
        assert not owned[one] & owned[other]


def test_people_are_disjoint_too() -> None:
    owned = {}
    for split in SPLITS:
        made = world("synthetic", world_seeds(split)[0])
        owned[split] = {row[c.name] for t in made.tables.values() for c in t.of_kind("person") for row in t.rows}
        assert len(owned[split]) > 200
    for one, other in itertools.combinations(SPLITS, 2):
        assert not owned[one] & owned[other]


def test_every_split_has_templates_of_both_levels() -> None:
    assert set(templates()) == set(TEMPLATE_SPLITS)
    for split, level in itertools.product(SPLITS, (1, 2)):
        assert sum(one.split == split and one.level == level for one in templates().values()) >= 3


def test_an_unknown_split_is_refused_with_a_suggestion() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'train'"):
        check_split("trian")
